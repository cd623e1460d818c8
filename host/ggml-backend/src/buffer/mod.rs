//! Buffers: shared memory with base addresses that ggml may compute with, and its copies in and out.
//!
//! The memory is the DSP's and the host's at once, so a copy in is a copy. Only quantised weights are more: see [`tiles`].

mod alloc;
mod copy;
mod find;
mod table;
mod tiles;
mod types;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hexloom::Buffer;

use crate::abi::Tensor;
use crate::device::DeviceState;
use crate::error::BackendError;
use tiles::Tiles;

pub(crate) use copy::{Pieces, copy, get_later, set};
pub(crate) use find::{is_host_tensor, is_host_weight, memory_of, weight_of};
pub(crate) use tiles::Weight;
pub(crate) use types::{bytes, host_type_fns, type_fns};

/// Alignment of every tensor: the DSP's lines.
pub(crate) const ALIGNMENT: usize = 128;

/// Bytes that nobody takes for results: NaN as floats. They stand in for what a failed graph has left.
pub(crate) const NO_RESULT: u8 = 0xff;

/// One buffer of ggml's.
pub(crate) struct Memory {
    pub(crate) device: &'static DeviceState,
    pub(crate) buffer: Buffer,
    /// Bytes that the device's memory has less: none for the CPU's tensors, which are mapped when a graph reads them.
    counted: u64,
    tiles: Mutex<Tiles>,
}

/// Changes whenever bytes become tiles or stop being some, so that graphs that read them look again.
static LAYOUT_VERSION: AtomicU64 = AtomicU64::new(0);

/// The number of layouts' last change.
pub(crate) fn layout_version() -> u64 {
    LAYOUT_VERSION.load(Ordering::Acquire)
}

impl Memory {
    pub(crate) fn new(device: &'static DeviceState, bytes: usize, host: bool) -> Result<Arc<Self>, BackendError> {
        let buffer = device.session()?.alloc("ggml buffer", bytes as u64)?;
        let counted = if host { 0 } else { buffer.bytes() };
        device.note_allocated(counted);
        Ok(Arc::new(Self {
            device,
            buffer,
            counted,
            tiles: Mutex::new(Tiles::default()),
        }))
    }

    /// Where a tensor's bytes start in the buffer.
    pub(crate) fn offset(&self, tensor: &Tensor) -> Result<u64, BackendError> {
        let base = self.buffer.as_ptr() as usize;
        let offset = (tensor.data as usize).checked_sub(base).map(|offset| offset as u64);
        offset
            .filter(|&offset| offset <= self.buffer.bytes())
            .ok_or_else(|| BackendError::Tensor {
                name: tensor.name(),
                what: format!("has its bytes at {:p}, outside its buffer", tensor.data),
            })
    }

    /// Forgets what is known of bytes that get a new owner.
    pub(crate) fn forget(&self, offset: u64, bytes: u64) {
        note(self.tiles().forget(offset..offset.saturating_add(bytes)));
    }

    /// Copies bytes in, in ggml's layout, behind what the device has on its way.
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Result<(), BackendError> {
        self.device.settle();
        self.write_settled(offset, data)
    }

    /// The same for whoever has waited. Tiles that are partly written become rows again before.
    pub(crate) fn write_settled(&self, offset: u64, data: &[u8]) -> Result<(), BackendError> {
        self.untile(offset, data.len() as u64)?;
        Ok(self.buffer.write(offset, data)?)
    }

    /// Copies bytes out, in ggml's layout, behind what the device has on its way.
    pub(crate) fn read(&self, offset: u64, data: &mut [u8]) -> Result<(), BackendError> {
        if self.device.settle() {
            return self.read_settled(offset, data);
        }
        data.fill(NO_RESULT);
        Ok(())
    }

    /// The same for whoever has waited.
    pub(crate) fn read_settled(&self, offset: u64, data: &mut [u8]) -> Result<(), BackendError> {
        self.tiles().read(&self.buffer, offset, data)
    }

    /// Fills bytes.
    pub(crate) fn fill(&self, offset: u64, bytes: u64, value: u8) -> Result<(), BackendError> {
        const PIECE: usize = 1 << 20;
        let piece = vec![value; PIECE.min(usize::try_from(bytes).unwrap_or(PIECE))];
        let end = offset.saturating_add(bytes);
        let mut at = offset;
        while at < end {
            let len = piece.len().min(usize::try_from(end - at).unwrap_or(PIECE));
            self.write(at, &piece[..len])?;
            at += len as u64;
        }
        Ok(())
    }

    /// Whether the weight at `offset` lies there as tiles.
    pub(crate) fn is_tiled(&self, offset: u64) -> bool {
        self.tiles().is_tiled(offset)
    }

    /// Turns a weight into tiles.
    pub(crate) fn tile(&self, offset: u64, weight: &Weight) -> Result<(), BackendError> {
        let changed = self.tiles().tile(&self.buffer, offset, weight)?;
        note(changed);
        Ok(())
    }

    /// Turns what overlaps a range back into rows.
    pub(crate) fn untile(&self, offset: u64, bytes: u64) -> Result<(), BackendError> {
        let changed = self
            .tiles()
            .untile(&self.buffer, offset..offset.saturating_add(bytes))?;
        note(changed);
        Ok(())
    }

    fn tiles(&self) -> MutexGuard<'_, Tiles> {
        self.tiles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.device.note_freed(self.counted);
    }
}

fn note(changed: bool) {
    if changed {
        LAYOUT_VERSION.fetch_add(1, Ordering::AcqRel);
    }
}
