//! Control messages on their way in: checked here, acted on by a [`Control`].
//!
//! Libraries that FastRPC opens take each message as one call ([`crate::rpc`]). Making buffers known is FastRPC's own work
//! there, and batches have the packet queue, so that four methods are left.

use hexloom_abi::control::{ControlReply, ControlRequest, Method};
use hexloom_abi::{StartRequest, Status};
use zerocopy::FromBytes;

/// What a library's process does when it is told to.
pub trait Control {
    /// Says what the machine has; needs no started session.
    fn hw_info(&self) -> ControlReply;
    /// Starts a session; the message has been checked.
    fn start(&self, start: &StartRequest) -> Result<(), Status>;
    /// Stops it.
    fn stop(&self) -> Result<(), Status>;
    /// Drops the mappings of an fd.
    fn forget(&self, fd: u32) -> Result<(), Status>;
}

/// Answers a message, whatever it holds.
pub fn answer(control: &impl Control, message: &[u8]) -> ControlReply {
    let request = match ControlRequest::read_from_bytes(message) {
        Ok(request) => request,
        Err(_) => return ControlReply::new(Status::Truncated),
    };
    if let Err(status) = request.check() {
        return ControlReply::new(status);
    }
    let result = match request.method {
        Method::HW_INFO => return control.hw_info(),
        Method::START => start(control, &request),
        Method::STOP => control.stop(),
        Method::FORGET => control.forget(request.fd),
        _ => Err(Status::Unsupported),
    };
    ControlReply::new(result.err().unwrap_or(Status::Ok))
}

fn start(control: &impl Control, request: &ControlRequest) -> Result<(), Status> {
    let start = StartRequest::read_from_bytes(request.message()).map_err(|_| Status::Truncated)?;
    start.check()?;
    control.start(&start)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use zerocopy::IntoBytes;

    use super::*;

    #[derive(Default)]
    struct Counted(Cell<[u32; 4]>);

    impl Counted {
        fn count(&self, idx: usize) -> Result<(), Status> {
            let mut counts = self.0.get();
            counts[idx] += 1;
            self.0.set(counts);
            Ok(())
        }
    }

    impl Control for Counted {
        fn hw_info(&self) -> ControlReply {
            let _ = self.count(0);
            ControlReply::new(Status::Ok)
        }
        fn start(&self, start: &StartRequest) -> Result<(), Status> {
            assert_eq!(start.session_id, 3);
            self.count(1)
        }
        fn stop(&self) -> Result<(), Status> {
            let _ = self.count(2);
            Err(Status::NotStarted)
        }
        fn forget(&self, fd: u32) -> Result<(), Status> {
            assert_eq!(fd, 9);
            self.count(3)
        }
    }

    fn status(control: &Counted, request: &ControlRequest) -> Status {
        let reply = answer(control, request.as_bytes());
        Status::try_from(reply.status).expect("a status that exists")
    }

    #[test]
    fn each_method_is_called_and_answered_once() {
        let control = Counted::default();
        let start = ControlRequest::new(Method::START).with_start(&StartRequest::new(3));
        let forget = ControlRequest {
            fd: 9,
            ..ControlRequest::new(Method::FORGET)
        };
        let calls = [
            ControlRequest::new(Method::HW_INFO),
            start,
            ControlRequest::new(Method::STOP),
            forget,
        ];
        let statuses = calls.map(|request| status(&control, &request));
        assert_eq!(statuses, [Status::Ok, Status::Ok, Status::NotStarted, Status::Ok]);
        assert_eq!(control.0.get(), [1; 4]);
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let control = Counted::default();
        let good = ControlRequest::new(Method::STOP);
        for len in [0, 1, 255, 257] {
            let bytes = [good.as_bytes(), &[0]].concat();
            assert_eq!(
                answer(&control, &bytes[..len]),
                ControlReply::new(Status::Truncated),
                "{len}"
            );
        }
        for (wanted, request) in [
            (Status::BadMagic, ControlRequest { magic: 1, ..good }),
            (Status::BadVersion, ControlRequest { version: 99, ..good }),
            (Status::BadFlags, ControlRequest { flags: 1, ..good }),
            (Status::Unsupported, ControlRequest::new(Method::MAP)),
            (Status::Unsupported, ControlRequest::new(Method::BATCH)),
            (Status::Unsupported, ControlRequest::new(Method(77))),
            (Status::Truncated, ControlRequest::new(Method::START)),
        ] {
            assert_eq!(status(&control, &request), wanted);
        }
        let mut start = StartRequest::new(3);
        start.magic = 0;
        let start = ControlRequest::new(Method::START).with_start(&start);
        assert_eq!(status(&control, &start), Status::BadMagic);
        assert_eq!(control.0.get(), [0; 4]);
    }
}
