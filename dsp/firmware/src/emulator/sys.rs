//! Linux system calls of the emulated Hexagon: `trap0(#1)` with the number in r6 and arguments in r0 to r5.

use core::arch::asm;
use core::ffi::c_void;
use core::sync::atomic::AtomicU32;

/// Numbers of the generic table.
mod number {
    pub(super) const WRITE: u32 = 64;
    pub(super) const CLOSE: u32 = 57;
    pub(super) const EXIT_GROUP: u32 = 94;
    pub(super) const FUTEX: u32 = 98;
    pub(super) const CLOCK_GETTIME: u32 = 113;
    pub(super) const SCHED_YIELD: u32 = 124;
    pub(super) const SENDTO: u32 = 206;
    pub(super) const RECVMSG: u32 = 212;
    pub(super) const MUNMAP: u32 = 215;
    pub(super) const MMAP: u32 = 222;
}

/// An error number of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(pub(crate) i32);

/// Nanosecond time.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Timespec {
    /// `time_t` is 64-bit in the ABI of the emulated C library, 32-bit in the kernel's.
    seconds: i32,
    nanos: i32,
}

/// # Safety
/// Arguments are what the call asks for.
unsafe fn call(number: u32, args: [u32; 6]) -> Result<u32, Errno> {
    let result: i32;
    // SAFETY: the trap changes r0 and memory that the arguments name, which the caller answers for.
    unsafe {
        asm!(
            "trap0(#1)",
            inlateout("r0") args[0] as i32 => result,
            in("r1") args[1],
            in("r2") args[2],
            in("r3") args[3],
            in("r4") args[4],
            in("r5") args[5],
            in("r6") number,
            options(nostack)
        );
    }
    if (-4095..0).contains(&result) {
        Err(Errno(-result))
    } else {
        Ok(result as u32)
    }
}

/// Ends the process with all its threads.
pub(crate) fn exit_group(code: i32) -> ! {
    loop {
        // SAFETY: takes a number only, and does not return.
        let _ = unsafe { call(number::EXIT_GROUP, [code as u32, 0, 0, 0, 0, 0]) };
    }
}

/// Writes bytes to a descriptor; what cannot be written is lost.
pub(crate) fn write(fd: i32, bytes: &[u8]) {
    // SAFETY: address and length are a live slice's.
    let _ = unsafe {
        call(
            number::WRITE,
            [fd as u32, address(bytes.as_ptr()), bytes.len() as u32, 0, 0, 0],
        )
    };
}

/// Closes a descriptor.
pub(crate) fn close(fd: i32) {
    // SAFETY: takes a number only.
    let _ = unsafe { call(number::CLOSE, [fd as u32, 0, 0, 0, 0, 0]) };
}

/// Sends one datagram.
pub(crate) fn send(fd: i32, bytes: &[u8]) -> Result<(), Errno> {
    // SAFETY: address and length are a live slice's; there is no destination address.
    unsafe {
        call(
            number::SENDTO,
            [fd as u32, address(bytes.as_ptr()), bytes.len() as u32, 0, 0, 0],
        )
    }
    .map(drop)
}

/// Receives one datagram and at most one descriptor that came with it; length 0 means that the peer is gone.
pub(crate) fn receive(fd: i32, bytes: &mut [u8]) -> Result<(usize, Option<i32>), Errno> {
    #[repr(C)]
    struct IoVec {
        base: *mut c_void,
        len: usize,
    }
    #[repr(C)]
    struct MsgHdr {
        name: *mut c_void,
        name_len: u32,
        iov: *mut IoVec,
        iov_len: usize,
        control: *mut c_void,
        control_len: usize,
        flags: i32,
    }
    #[repr(C, align(8))]
    struct Control {
        len: usize,
        level: i32,
        kind: i32,
        fd: i32,
        pad: i32,
    }
    const SOL_SOCKET: i32 = 1;
    const SCM_RIGHTS: i32 = 1;
    let mut iov = IoVec {
        base: bytes.as_mut_ptr().cast(),
        len: bytes.len(),
    };
    let mut control = Control {
        len: 0,
        level: 0,
        kind: 0,
        fd: -1,
        pad: 0,
    };
    let mut header = MsgHdr {
        name: core::ptr::null_mut(),
        name_len: 0,
        iov: &raw mut iov,
        iov_len: 1,
        control: (&raw mut control).cast(),
        control_len: size_of::<Control>(),
        flags: 0,
    };
    let header_address = (&raw mut header) as usize as u32;
    // SAFETY: the header names a live buffer and a live control area with their lengths.
    let len = unsafe { call(number::RECVMSG, [fd as u32, header_address, 0, 0, 0, 0]) }?;
    let attached = control.len >= 16 && control.level == SOL_SOCKET && control.kind == SCM_RIGHTS;
    Ok((len as usize, attached.then_some(control.fd)))
}

/// Maps `bytes` of a descriptor, shared; `None` maps fresh private memory.
pub(crate) fn map(fd: Option<i32>, bytes: u32) -> Result<u32, Errno> {
    const PROT_READ_WRITE: u32 = 3;
    const MAP_SHARED: u32 = 1;
    const MAP_PRIVATE_ANONYMOUS: u32 = 0x22;
    let (flags, fd) = match fd {
        Some(fd) => (MAP_SHARED, fd as u32),
        None => (MAP_PRIVATE_ANONYMOUS, u32::MAX),
    };
    // SAFETY: a fresh mapping at an address of the kernel's choice touches no existing memory.
    unsafe { call(number::MMAP, [0, bytes, PROT_READ_WRITE, flags, fd, 0]) }
}

/// Takes a mapping back.
///
/// # Safety
/// Nothing uses the `bytes` bytes at `start` any more.
pub(crate) unsafe fn unmap(start: u32, bytes: u32) {
    // SAFETY: the caller's promise.
    let _ = unsafe { call(number::MUNMAP, [start, bytes, 0, 0, 0, 0]) };
}

/// Monotonic nanoseconds.
pub(crate) fn nanos() -> u64 {
    const CLOCK_MONOTONIC: u32 = 1;
    let mut time = Timespec::default();
    // SAFETY: writes one timespec.
    let _ = unsafe {
        call(
            number::CLOCK_GETTIME,
            [CLOCK_MONOTONIC, (&raw mut time) as usize as u32, 0, 0, 0, 0],
        )
    };
    time.seconds as u32 as u64 * 1_000_000_000 + time.nanos as u32 as u64
}

/// Blocks while `*word == expected`, at most `timeout_us`.
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, timeout_us: u32) {
    const FUTEX_WAIT_PRIVATE: u32 = 128;
    let time = Timespec {
        seconds: (timeout_us / 1_000_000) as i32,
        nanos: (timeout_us % 1_000_000 * 1000) as i32,
    };
    let word = word.as_ptr() as usize as u32;
    let time = (&raw const time) as usize as u32;
    // SAFETY: both addresses are live; the call only reads them.
    let _ = unsafe { call(number::FUTEX, [word, FUTEX_WAIT_PRIVATE, expected, time, 0, 0]) };
}

/// Wakes everybody who waits on `word`.
pub(crate) fn futex_wake(word: &AtomicU32) {
    const FUTEX_WAKE_PRIVATE: u32 = 129;
    let word = word.as_ptr() as usize as u32;
    // SAFETY: the address is live and only compared.
    let _ = unsafe { call(number::FUTEX, [word, FUTEX_WAKE_PRIVATE, i32::MAX as u32, 0, 0, 0]) };
}

/// Lets other threads of the machine run, those of other guests among them.
pub(crate) fn sched_yield() {
    // SAFETY: the call takes nothing and changes nothing.
    let _ = unsafe { call(number::SCHED_YIELD, [0; 6]) };
}

fn address(ptr: *const u8) -> u32 {
    ptr as usize as u32
}
