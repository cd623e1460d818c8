//! Control messages on their way in: checked here, acted on by a [`Control`].
//!
//! Libraries that FastRPC opens take each message as one call ([`crate::rpc`]). Making buffers known is FastRPC's own work
//! there, and batches have the packet queue, so that five methods are left.

use hexloom_abi::control::{ControlReply, ControlRequest, CountedEvents, Method};
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
    /// Lets the performance counters count; the events have been checked.
    fn count(&self, events: &CountedEvents) -> Result<(), Status>;
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
        Method::COUNT => events(&request).and_then(|events| control.count(&events)),
        _ => Err(Status::Unsupported),
    };
    ControlReply::new(result.err().unwrap_or(Status::Ok))
}

fn start(control: &impl Control, request: &ControlRequest) -> Result<(), Status> {
    let start = StartRequest::read_from_bytes(request.message()).map_err(|_| Status::Truncated)?;
    start.check()?;
    control.start(&start)
}

/// The events of a message, checked.
pub fn events(request: &ControlRequest) -> Result<CountedEvents, Status> {
    let events = CountedEvents::read_from_bytes(request.message()).map_err(|_| Status::Truncated)?;
    events.check().map(|()| events)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use zerocopy::IntoBytes;

    use super::*;

    #[derive(Default)]
    struct Counted(Cell<[u32; 5]>);

    impl Counted {
        fn note(&self, idx: usize) -> Result<(), Status> {
            let mut counts = self.0.get();
            counts[idx] += 1;
            self.0.set(counts);
            Ok(())
        }
    }

    impl Control for Counted {
        fn hw_info(&self) -> ControlReply {
            let _ = self.note(0);
            ControlReply::new(Status::Ok)
        }
        fn start(&self, start: &StartRequest) -> Result<(), Status> {
            assert_eq!(start.session_id, 3);
            self.note(1)
        }
        fn stop(&self) -> Result<(), Status> {
            let _ = self.note(2);
            Err(Status::NotStarted)
        }
        fn forget(&self, fd: u32) -> Result<(), Status> {
            assert_eq!(fd, 9);
            self.note(3)
        }
        fn count(&self, events: &CountedEvents) -> Result<(), Status> {
            assert_eq!(events.numbers, [1, 2, 3, 4, 5, 6, 7, 0x3ff]);
            self.note(4)
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
        let count = ControlRequest::new(Method::COUNT).with_events(&CountedEvents {
            numbers: [1, 2, 3, 4, 5, 6, 7, 0x3ff],
        });
        let calls = [
            ControlRequest::new(Method::HW_INFO),
            start,
            ControlRequest::new(Method::STOP),
            forget,
            count,
        ];
        let statuses = calls.map(|request| status(&control, &request));
        let wanted = [Status::Ok, Status::Ok, Status::NotStarted, Status::Ok, Status::Ok];
        assert_eq!(statuses, wanted);
        assert_eq!(control.0.get(), [1; 5]);
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
        let mut events = CountedEvents::default();
        events.numbers[7] = 0x400;
        let too_large = ControlRequest::new(Method::COUNT).with_events(&events);
        for (wanted, request) in [
            (Status::Truncated, ControlRequest::new(Method::COUNT)),
            (Status::Invalid, too_large),
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
        assert_eq!(control.0.get(), [0; 5]);
    }
}
