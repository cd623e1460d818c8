//! Long-lived tensors in shared buffers: weights and KV caches, packed by layer into few buffers in order of use.
//!
//! [`BufferPlan::new`] takes every tensor of one allocation at once. Tensors of one layer form a unit that stays
//! together, units fill buffers up to a cap, a tensor larger than the cap gets a buffer of its own, views take no bytes
//! and are initialised after all buffers exist. [`BufferPlan::check`] proves a plan tensor by tensor and shares no code
//! with the packing.

mod check;
mod error;
mod limits;
mod packing;
mod units;

use hexloom_abi::layout::align_up;
use hexloom_abi::limits::LINE_BYTES;

pub use check::BufferFault;
pub use error::BufferPlanError;
pub use limits::{BufferLimits, PAGE_BYTES};
pub use units::Layer;

use self::packing::Bin;

/// A tensor that needs a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TensorNeed<'a> {
    /// Its name, which tells its layer: `blk.N.…` or `cache_…_lN`.
    pub name: &'a str,
    /// Its bytes; 0 is allowed.
    pub bytes: u64,
    /// Whether it looks into another tensor and needs no bytes of its own.
    pub view: bool,
}

impl<'a> TensorNeed<'a> {
    /// A tensor with bytes of its own.
    pub const fn new(name: &'a str, bytes: u64) -> Self {
        let view = false;
        Self { name, bytes, view }
    }
}

/// Where one tensor lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Index into [`BufferPlan::buffers`].
    pub buffer: usize,
    /// Byte offset, a multiple of 128.
    pub offset: u64,
}

/// One shared buffer to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlannedBuffer {
    /// Usable bytes, a multiple of 128 and never 0.
    pub bytes: u64,
    /// Bytes that must follow for loads past the end: [`hexloom_abi::limits::GUARD_BYTES`], or 0 for a lone tensor that
    /// takes all that the device maps.
    pub guard_bytes: u64,
    /// Tensors inside, by index in the list, in order of offset; without views.
    pub tensors: Vec<usize>,
}

impl PlannedBuffer {
    /// Bytes that the buffer takes in the window: guard and page rounding included.
    pub fn mapped_bytes(&self) -> u64 {
        align_up(self.bytes.saturating_add(self.guard_bytes), PAGE_BYTES).unwrap_or(u64::MAX)
    }
}

/// Buffers for a list of tensors.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BufferPlan {
    /// The buffers, in order of first use.
    pub buffers: Vec<PlannedBuffer>,
    /// Place of each tensor, in the order of the list; `None` for views.
    pub places: Vec<Option<Place>>,
    /// Views, by index in the list: to be initialised when all buffers exist.
    pub views: Vec<usize>,
}

impl BufferPlan {
    /// Packs `tensors`, listed in order of use, into the fewest buffers that this planner finds.
    ///
    /// Never more buffers than first-fit over the same units needs. Equal lists and limits give equal plans.
    ///
    /// # Errors
    /// [`BufferPlanError`] when a tensor can never be mapped, or the limits ask for what the architecture lacks.
    pub fn new(tensors: &[TensorNeed<'_>], limits: &BufferLimits) -> Result<Self, BufferPlanError> {
        let cap = limits.check()?;
        let rounded = tensors
            .iter()
            .map(|tensor| limits.round(tensor))
            .collect::<Result<Vec<u64>, _>>()?;
        let views = tensors.iter().enumerate().filter(|(_, tensor)| tensor.view);
        let views: Vec<usize> = views.map(|(idx, _)| idx).collect();
        let bins = packing::pack(tensors, &rounded, cap);
        let mut plan = Self {
            buffers: Vec::with_capacity(bins.len()),
            places: vec![None; tensors.len()],
            views,
        };
        bins.iter().for_each(|bin| plan.add(bin, &rounded, limits));
        plan.place_empty(tensors, &rounded);
        debug_assert_eq!(plan.check(tensors, limits), Ok(()));
        Ok(plan)
    }

    /// Bytes of the window that all buffers take together.
    pub fn mapped_bytes(&self) -> u64 {
        let bytes = self.buffers.iter().map(PlannedBuffer::mapped_bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// Buffers in the order in which they are to be mapped: largest first, then in order of use.
    pub fn map_order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.buffers.len()).collect();
        order.sort_by_key(|&idx| std::cmp::Reverse(self.buffers[idx].mapped_bytes()));
        order
    }

    fn add(&mut self, bin: &Bin, rounded: &[u64], limits: &BufferLimits) {
        let buffer = self.buffers.len();
        let mut offset = 0;
        for &tensor in &bin.tensors {
            self.places[tensor] = Some(Place { buffer, offset });
            offset += rounded[tensor];
        }
        self.buffers.push(PlannedBuffer {
            bytes: offset,
            guard_bytes: limits.guard(offset),
            tensors: bin.tensors.clone(),
        });
    }

    /// Gives tensors without bytes the start of the buffer that the tensor before them lies in; when nothing has bytes,
    /// one buffer of a line is made for them.
    fn place_empty(&mut self, tensors: &[TensorNeed<'_>], rounded: &[u64]) {
        let mut buffer = 0;
        for (idx, tensor) in tensors.iter().enumerate() {
            if let Some(place) = self.places[idx] {
                buffer = place.buffer;
            } else if !tensor.view && rounded[idx] == 0 {
                if self.buffers.is_empty() {
                    self.buffers.push(PlannedBuffer {
                        bytes: LINE_BYTES,
                        guard_bytes: hexloom_abi::limits::GUARD_BYTES,
                        tensors: Vec::new(),
                    });
                }
                self.places[idx] = Some(Place { buffer, offset: 0 });
                self.buffers[buffer].tensors.insert(0, idx);
            }
        }
    }
}

#[cfg(test)]
mod tests;
