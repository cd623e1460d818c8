//! FastRPC calls as they arrive: a word, a list of arguments, and behind them a [`Service`] that sees slices only.
//!
//! The device library's entry and the PC's stand-in for the driver both come through [`invoke`], so what is refused here
//! is refused on both. Rules for the bytes behind the arguments are those of FastRPC: they stay for the length of the call,
//! and whoever called may change inputs meanwhile, which is why services copy them once.

use hexloom_abi::control::ControlReply;
use hexloom_abi::fastrpc::{RpcMethod, RpcRefusal, Scalars};
use zerocopy::IntoBytes;

/// Longest address that a library is opened by, with its final zero.
const MAX_ADDRESS_BYTES: usize = 4096;

/// One argument, as the system lays it out.
#[repr(C)]
#[derive(Clone, Copy)]
pub union RemoteArg {
    /// Of inputs and outputs.
    pub buffer: RemoteBuffer,
    /// Of handles.
    pub handle: u64,
}

/// Bytes at an address.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RemoteBuffer {
    /// The first one.
    pub address: *mut u8,
    /// How many.
    pub bytes: usize,
}

/// What a library does when it is called.
pub trait Service {
    /// Opens it for the caller; `address` is what it was opened by, without the final zero.
    fn open(&self, address: &[u8]) -> Result<u64, RpcRefusal>;
    /// Closes it.
    fn close(&self, handle: u64) -> Result<(), RpcRefusal>;
    /// Answers a control message.
    fn call(&self, handle: u64, message: &[u8]) -> Result<ControlReply, RpcRefusal>;
}

/// Hands a call to `service` and gives 0, or the code of a refusal.
///
/// # Safety
/// - `args` is null, or as many arguments as `scalars` says are readable there, and those of output handles writable;
/// - every buffer among them has an address that is null, or `bytes` bytes that are readable there, and writable for
///   outputs.
pub unsafe fn invoke(service: &impl Service, handle: u64, scalars: u32, args: *mut RemoteArg) -> u32 {
    // SAFETY: the caller's promises.
    match unsafe { dispatch(service, handle, Scalars(scalars), args) } {
        Ok(()) => 0,
        Err(refusal) => refusal.code(),
    }
}

/// # Safety
/// As for [`invoke`].
unsafe fn dispatch(
    service: &impl Service,
    handle: u64,
    scalars: Scalars,
    args: *mut RemoteArg,
) -> Result<(), RpcRefusal> {
    let method = RpcMethod::of(scalars)?;
    if args.is_null() || !args.is_aligned() {
        return Err(RpcRefusal::BadArguments);
    }
    // SAFETY: as many arguments as the word says are there, and `RpcMethod::of` has found that they are this method's.
    let args = unsafe { core::slice::from_raw_parts_mut(args, method.args().total()) };
    match (method, args) {
        (RpcMethod::Open, [len, address, opened]) => {
            // SAFETY: the first two arguments of this method are input buffers.
            let (len, address) = unsafe { (len.buffer, address.buffer) };
            // SAFETY: the caller's promise for inputs.
            let len = unsafe { input(len) }?;
            // SAFETY: as above.
            let address = unsafe { input(address) }?;
            opened.handle = service.open(address_of(len, address)?)?;
            Ok(())
        }
        (RpcMethod::Close, [handle]) => {
            // SAFETY: the one argument of this method is a handle, and every bit pattern is one.
            service.close(unsafe { handle.handle })
        }
        (RpcMethod::Call, [request, reply]) => {
            // SAFETY: the arguments of this method are buffers.
            let (request, reply) = unsafe { (request.buffer, reply.buffer) };
            if reply.address.is_null() || reply.bytes < size_of::<ControlReply>() {
                return Err(RpcRefusal::BadArguments);
            }
            // SAFETY: the caller's promise for inputs.
            let answer = service.call(handle, unsafe { input(request) }?)?;
            let bytes = answer.as_bytes();
            // SAFETY: the caller's promise for outputs, and there is room. The answer is memory of our own.
            unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), reply.address, bytes.len()) };
            Ok(())
        }
        _ => Err(RpcRefusal::BadArguments),
    }
}

/// # Safety
/// The address is null, or `bytes` bytes are readable there for `'a`.
unsafe fn input<'a>(buffer: RemoteBuffer) -> Result<&'a [u8], RpcRefusal> {
    if buffer.address.is_null() || isize::try_from(buffer.bytes).is_err() {
        return Err(RpcRefusal::BadArguments);
    }
    // SAFETY: not null, and so readable by the caller's promise; the length fits.
    Ok(unsafe { core::slice::from_raw_parts(buffer.address, buffer.bytes) })
}

/// The address without its final zero: `len` has four bytes that say how long it is with it.
fn address_of<'a>(len: &[u8], address: &'a [u8]) -> Result<&'a [u8], RpcRefusal> {
    let len = len.first_chunk().ok_or(RpcRefusal::BadArguments)?;
    let len = u32::from_ne_bytes(*len) as usize;
    if len > MAX_ADDRESS_BYTES {
        return Err(RpcRefusal::BadArguments);
    }
    match address.get(..len) {
        Some([address @ .., 0]) if !address.contains(&0) => Ok(address),
        _ => Err(RpcRefusal::BadArguments),
    }
}

/// The system's own union is as large as its largest member on either size of pointer.
const _: () = assert!(align_of::<RemoteArg>() == 8 && size_of::<RemoteArg>() == 2 * size_of::<usize>());

#[cfg(test)]
mod tests;
