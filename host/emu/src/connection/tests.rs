//! Datagrams that no connection would send: each gets one answer that refuses it, and the next call works.

use hexloom_abi::limits::{MAGIC, VERSION};

use super::*;

/// Pseudo-random bytes (xorshift), the same in every run.
fn junk(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed * 2 + 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn junk_on_the_socket_is_refused() {
    let options = match EmuOptions::find() {
        Ok(options) => options,
        Err(error) => return eprintln!("SKIPPED: {error}"),
    };
    let connection = EmuConnection::open(&options).unwrap();
    // A datagram without a byte is how a socket says that its other end is gone.
    for len in 1..=4096 {
        let mut bytes = junk(len, len as u64);
        // Every other one begins like a call.
        if len % 2 == 0 && len >= 8 {
            bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
            bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
            bytes[6..8].fill(0);
        }
        socket::send(&connection.socket, &bytes, None).unwrap();
        let answer = connection.take(CALL_TIMEOUT, |inbox| inbox.answers.pop()).unwrap();
        assert!(
            Status::try_from(answer.status).is_ok_and(|status| status != Status::Ok),
            "{len} bytes: {answer:?}"
        );
        if len % 512 == 0 {
            assert_eq!(connection.hw_info().unwrap().arch, 67);
        }
    }
    let inbox = lock(&connection.inbox);
    assert!(inbox.answers.is_empty() && inbox.replies.is_empty());
}

#[test]
fn calls_without_a_session_are_refused() {
    let options = match EmuOptions::find() {
        Ok(options) => options,
        Err(error) => return eprintln!("SKIPPED: {error}"),
    };
    let connection = EmuConnection::open(&options).unwrap();
    let refused = |method, status| {
        let result = connection.call(&ControlRequest::new(method), None);
        assert!(
            matches!(result, Err(TransportError::Refused(found)) if found == status),
            "{method:?}: {result:?}"
        );
    };
    refused(Method::STOP, Status::NotStarted);
    refused(Method::FORGET, Status::NotStarted);
    refused(Method::BATCH, Status::NotStarted);
    refused(Method::COUNT, Status::NotStarted);
    refused(Method::MAP, Status::Invalid);
    refused(Method::START, Status::Truncated);
    refused(Method(99), Status::Unsupported);
    assert_eq!(connection.hw_info().unwrap().arch, 67);
}
