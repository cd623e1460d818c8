//! Calls with good and with hostile arguments, on a service that notes what reached it.

use std::cell::RefCell;
use std::string::{String, ToString};
use std::vec::Vec;

use hexloom_abi::Status;
use hexloom_abi::control::ControlReply;
use hexloom_abi::fastrpc::{ArgCounts, RpcMethod, RpcRefusal, Scalars};
use zerocopy::{FromBytes, IntoBytes};

use super::{RemoteArg, RemoteBuffer, Service, invoke};

const BAD: u32 = RpcRefusal::BadArguments.code();

#[derive(Default)]
struct Noted(RefCell<Vec<String>>);

impl Noted {
    fn note(&self, what: String) {
        self.0.borrow_mut().push(what);
    }

    fn take(&self) -> Vec<String> {
        self.0.take()
    }

    /// A call with these arguments.
    fn call(&self, handle: u64, scalars: Scalars, args: &mut [RemoteArg]) -> u32 {
        assert!(args.len() >= scalars.args().total() || RpcMethod::of(scalars).is_err());
        // SAFETY: there are enough arguments, and each is null or a slice that lives for the test.
        unsafe { invoke(self, handle, scalars.0, args.as_mut_ptr()) }
    }
}

impl Service for Noted {
    fn open(&self, address: &[u8]) -> Result<u64, RpcRefusal> {
        self.note(std::format!("open {}", String::from_utf8_lossy(address)));
        Ok(7)
    }

    fn close(&self, handle: u64) -> Result<(), RpcRefusal> {
        self.note(std::format!("close {handle}"));
        if handle == 8 { Err(RpcRefusal::Busy) } else { Ok(()) }
    }

    fn call(&self, handle: u64, message: &[u8]) -> Result<ControlReply, RpcRefusal> {
        self.note(std::format!("call {handle} {}", message.len()));
        Ok(ControlReply::new(Status::NotStarted))
    }
}

fn buffer(bytes: &mut [u8]) -> RemoteArg {
    RemoteArg {
        buffer: RemoteBuffer {
            address: bytes.as_mut_ptr(),
            bytes: bytes.len(),
        },
    }
}

fn null(bytes: usize) -> RemoteArg {
    RemoteArg {
        buffer: RemoteBuffer {
            address: core::ptr::null_mut(),
            bytes,
        },
    }
}

const fn handle(handle: u64) -> RemoteArg {
    RemoteArg { handle }
}

#[test]
fn good_calls_reach_the_service() {
    let service = Noted::default();
    let (mut len, mut address) = (5u32.to_ne_bytes(), *b"a.so\0more");
    let mut args = [buffer(&mut len), buffer(&mut address), handle(0)];
    assert_eq!(service.call(0, RpcMethod::Open.scalars(), &mut args), 0);
    // SAFETY: the last argument is a handle.
    assert_eq!(unsafe { args[2].handle }, 7);
    let (mut request, mut reply) = ([3u8; 256], [0u8; 80]);
    let mut args = [buffer(&mut request), buffer(&mut reply)];
    assert_eq!(service.call(7, RpcMethod::Call.scalars(), &mut args), 0);
    let (answer, rest) = ControlReply::read_from_prefix(&reply).expect("it is long enough");
    assert_eq!(answer, ControlReply::new(Status::NotStarted));
    assert!(rest.as_bytes().iter().all(|&byte| byte == 0));
    assert_eq!(service.call(7, RpcMethod::Close.scalars(), &mut [handle(7)]), 0);
    let busy = service.call(7, RpcMethod::Close.scalars(), &mut [handle(8)]);
    assert_eq!(busy, RpcRefusal::Busy.code());
    assert_eq!(
        service.take(),
        ["open a.so", "call 7 256", "close 7", "close 8"].map(|s| s.to_string())
    );
}

#[test]
fn addresses_that_lie_about_their_length() {
    let service = Noted::default();
    for (len, address) in [
        (0, "a.so\0"),
        (4, "a.so\0"),
        (6, "a.so\0"),
        (u32::MAX, "a.so\0"),
        (5000, "a.so\0"),
        (5, "a\0so\0"),
        (5, ""),
    ] {
        let (mut len, mut address) = (len.to_ne_bytes(), address.as_bytes().to_vec());
        let mut args = [buffer(&mut len), buffer(&mut address), handle(0)];
        assert_eq!(
            service.call(0, RpcMethod::Open.scalars(), &mut args),
            BAD,
            "{len:?} {address:?}"
        );
    }
    let mut short = [1, 0, 0];
    let mut args = [buffer(&mut short), buffer(&mut [0]), handle(0)];
    assert_eq!(service.call(0, RpcMethod::Open.scalars(), &mut args), BAD);
    assert_eq!(service.take(), Vec::<String>::new());
}

#[test]
fn missing_and_short_buffers() {
    let service = Noted::default();
    let (mut request, mut reply) = ([3u8; 256], [0u8; 64]);
    let calls: [[RemoteArg; 2]; 5] = [
        [null(256), buffer(&mut reply)],
        [buffer(&mut request), null(64)],
        [buffer(&mut request), buffer(&mut [0; 63])],
        [null(usize::MAX), buffer(&mut reply)],
        [buffer(&mut request), null(usize::MAX)],
    ];
    for mut args in calls {
        assert_eq!(service.call(7, RpcMethod::Call.scalars(), &mut args), BAD);
    }
    let mut args = [null(4), null(4), handle(0)];
    assert_eq!(service.call(0, RpcMethod::Open.scalars(), &mut args), BAD);
    // An empty message is the service's to refuse.
    let mut empty = [buffer(&mut request[..0]), buffer(&mut reply)];
    assert_eq!(service.call(7, RpcMethod::Call.scalars(), &mut empty), 0);
    assert_eq!(service.take(), ["call 7 0".to_string()]);
}

#[test]
fn words_that_are_no_call_and_lists_that_are_none() {
    let service = Noted::default();
    for method in 0..32 {
        for counts in [
            [0, 0, 0, 0],
            [255, 255, 15, 15],
            [1, 1, 0, 1],
            [0, 1, 0, 0],
            [3, 0, 0, 1],
        ] {
            let [n_inputs, n_outputs, n_handles_in, n_handles_out] = counts;
            let args = ArgCounts {
                n_inputs,
                n_outputs,
                n_handles_in,
                n_handles_out,
            };
            let expected = match method {
                0..3 => BAD,
                _ => RpcRefusal::UnknownMethod.code(),
            };
            assert_eq!(service.call(0, Scalars::new(method, args), &mut []), expected);
        }
    }
    for method in RpcMethod::ALL {
        // SAFETY: null is allowed.
        let refused = unsafe { invoke(&service, 0, method.scalars().0, core::ptr::null_mut()) };
        assert_eq!(refused, BAD);
        // SAFETY: nothing is read at an address that no argument can have.
        let refused = unsafe { invoke(&service, 0, method.scalars().0, core::ptr::without_provenance_mut(4)) };
        assert_eq!(refused, BAD);
    }
    assert_eq!(service.take(), Vec::<String>::new());
}
