//! Sums over devices, for `--split-mode tensor`: every device's DSP adds what the others have, without the host.
//!
//! ggml looks the functions up by name. Where they cannot serve (other types, another back end's devices) they say so, and
//! ggml copies and adds by itself.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use hexloom::abi::Opcode;
use hexloom::abi::limits::MAX_PARAMS;
use hexloom::{Graph, Reduction, TensorId};

use crate::abi::{Backend, FLAG_COMPUTE, Tensor};
use crate::buffer::memory_of;
use crate::convert;
use crate::device::DeviceState;
use crate::error::BackendError;
use crate::graph::{Built, Entry, push_tensor};
use crate::{guard, stream};

/// First word of a sum's signature: no op of ggml's has it.
const SUM: u64 = u64::MAX;

/// The devices that take part in sums.
struct Comm {
    /// Its own, so that no kept graph of one that is gone is taken for one of this.
    id: u64,
    devices: Vec<&'static DeviceState>,
    reduction: Reduction,
}

/// `ggml_backend_comm_init`; null if these streams cannot be summed over.
pub(crate) unsafe extern "C" fn init(backends: *mut *mut Backend, n: usize) -> *mut c_void {
    let made = guard::entry("joining devices", || {
        // SAFETY: ggml passes `n` addresses.
        let backends = unsafe { slice(backends, n) };
        // SAFETY: they are streams.
        let devices: Option<Vec<_>> = backends.iter().map(|&one| unsafe { stream::ours(one) }).collect();
        let devices = devices.filter(|devices| (2..=4).contains(&devices.len()) && all_differ(devices));
        let Some(devices) = devices else { return Ok(None) };
        let sessions: Vec<_> = devices
            .iter()
            .map(|device| device.session())
            .collect::<Result<_, _>>()?;
        let reduction = Reduction::new("sum over devices", &sessions)?;
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Ok(Some(Comm { id, devices, reduction }))
    });
    let comm = made.flatten().map(|comm| Box::into_raw(Box::new(comm)).cast());
    comm.unwrap_or(ptr::null_mut())
}

/// `ggml_backend_comm_free`.
pub(crate) unsafe extern "C" fn free(comm: *mut c_void) {
    if !comm.is_null() {
        // SAFETY: `init` has turned the box into this address, and ggml frees it once.
        drop(unsafe { Box::from_raw(comm.cast::<Comm>()) });
    }
}

/// `ggml_backend_comm_allreduce_tensor`: one tensor of each device; false if ggml must do it.
pub(crate) unsafe extern "C" fn allreduce_tensor(comm: *mut c_void, tensors: *mut *mut Tensor) -> bool {
    let begun = guard::entry("summing over devices", || {
        // SAFETY: ggml passes what `init` made.
        let comm = unsafe { comm.cast::<Comm>().as_ref() }.ok_or(BackendError::Null("communicator"))?;
        // SAFETY: ggml passes one tensor for each stream.
        let tensors = unsafe { slice(tensors, comm.devices.len()) };
        // SAFETY: each lives as long as its graph.
        let tensors: Option<Vec<&Tensor>> = tensors.iter().map(|&tensor| unsafe { tensor.as_ref() }).collect();
        comm.sum(&tensors.ok_or(BackendError::Null("tensor"))?)
    });
    begun.unwrap_or(false)
}

impl Comm {
    /// Begins the sum on every device, or on none.
    fn sum(&self, tensors: &[&Tensor]) -> Result<bool, BackendError> {
        if !self.serves(tensors) {
            return Ok(false);
        }
        let mut ready: Vec<Entry> = Vec::new();
        for rank in 0..tensors.len() {
            match self.ready(rank, tensors) {
                Ok(entry) => ready.push(entry),
                Err(error) => {
                    log::warn!("ggml sums over the devices itself: {error}");
                    self.devices[rank].graphs().note(&error);
                    let kept = self.devices.iter().zip(ready);
                    kept.for_each(|(device, entry)| device.graphs().keep(entry));
                    return Ok(false);
                }
            }
        }
        for (device, entry) in self.devices.iter().zip(ready) {
            let begun = device.graphs().launch(device, entry);
            if let Err(error) = begun {
                // Those that have begun find that a peer is missing; the next round is a new one for all.
                self.reduction.realign();
                device.graphs().note(&error);
                return Err(error);
            }
        }
        Ok(true)
    }

    /// Whether every device has a tensor of the same floats.
    fn serves(&self, tensors: &[&Tensor]) -> bool {
        let same = |tensor: &Tensor| {
            let like = &tensors[0];
            (tensor.dtype, tensor.ne, tensor.nb) == (like.dtype, like.ne, like.nb)
        };
        let own = |(device, tensor): (&&'static DeviceState, &&Tensor)| {
            memory_of(tensor).is_ok_and(|memory| ptr::eq(memory.device, *device))
        };
        tensors.iter().all(|tensor| same(tensor)) && self.devices.iter().zip(tensors).all(own)
    }

    /// The graph of one device, which is nothing but the sum.
    fn ready(&self, rank: usize, tensors: &[&Tensor]) -> Result<Entry, BackendError> {
        let device = self.devices[rank];
        let mut signature = vec![SUM, self.id, rank as u64];
        tensors.iter().for_each(|tensor| push_tensor(&mut signature, tensor));
        // A device that has no part of this product adds nothing.
        let has_part = tensors[rank].flags & FLAG_COMPUTE != 0;
        signature.push(has_part.into());
        device.graphs().known_or(device, "sum over devices", signature, |_| {
            let mut graph = Graph::new();
            let ids = tensors.iter().map(|tensor| place(&mut graph, tensor));
            let mut ids: Vec<TensorId> = ids.collect::<Result<_, _>>()?;
            if !has_part {
                let zeros = place(&mut graph, tensors[rank])?;
                let nothing = [0; MAX_PARAMS];
                graph.node("no part", Opcode::Fill, nothing, vec![Some(ids[rank])], vec![zeros])?;
                ids[rank] = zeros;
            }
            graph.all_reduce("sum over devices", &self.reduction, rank, &ids)?;
            Ok(Built::of(graph))
        })
    }
}

/// A tensor where ggml has placed it.
fn place(graph: &mut Graph, tensor: &Tensor) -> Result<TensorId, BackendError> {
    let shape = convert::shape(tensor, false).map_err(|why| BackendError::unsupported(tensor, why))?;
    let memory = memory_of(tensor)?;
    let offset = memory.offset(tensor)?;
    Ok(graph.tensor_at(&tensor.name(), shape, &memory.buffer, offset, false)?)
}

fn all_differ(devices: &[&'static DeviceState]) -> bool {
    let mut pairs = devices.iter().enumerate();
    pairs.all(|(idx, device)| !devices[..idx].iter().any(|other| ptr::eq(*other, *device)))
}

/// # Safety
/// `first` is null or the first of `n` addresses that nobody changes meanwhile.
unsafe fn slice<'a, T>(first: *mut *mut T, n: usize) -> &'a [*mut T] {
    match first.is_null() {
        true => &[],
        // SAFETY: the caller's.
        false => unsafe { std::slice::from_raw_parts(first, n) },
    }
}
