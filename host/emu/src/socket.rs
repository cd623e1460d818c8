//! The socket to the image: one datagram per call, a descriptor attached where one is needed, every wait with a deadline.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv,
    sendmsg, socketpair,
};

/// Both ends of a fresh socket: ours, and the image's.
pub(crate) fn pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Sends one datagram, with a descriptor if given.
pub(crate) fn send(socket: &OwnedFd, bytes: &[u8], attached: Option<BorrowedFd<'_>>) -> rustix::io::Result<()> {
    let fds: Vec<BorrowedFd<'_>> = attached.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one datagram within `timeout`; `None` when nothing came, 0 when the image is gone.
pub(crate) fn receive(socket: &OwnedFd, bytes: &mut [u8], timeout: Duration) -> rustix::io::Result<Option<usize>> {
    let time = Timespec {
        tv_sec: timeout.as_secs().min(1 << 30) as i64,
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
    match poll(&mut fds, Some(&time)) {
        Ok(0) | Err(Errno::INTR) => return Ok(None),
        Ok(_) => {}
        Err(errno) => return Err(errno),
    }
    match recv(socket, bytes, RecvFlags::empty()) {
        Ok((_, len)) => Ok(Some(len)),
        Err(Errno::INTR) => Ok(None),
        Err(errno) => Err(errno),
    }
}
