//! Where the sections of a block lie: the one function for all length arithmetic, used by both sides.

use crate::limits::LINE_BYTES;

/// Byte offsets of a block's sections, each on a 128-byte line so that no line is written by both sides.
///
/// Order: buffers, tensors, ops (written by the host), then progress, profiles and traces (written by the DSP).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockLayout {
    /// Where tensor descriptors start; buffer descriptors start at 0.
    pub tensors_offset: u64,
    /// Where op descriptors start.
    pub ops_offset: u64,
    /// End of what the host writes: where the [`crate::BatchProgress`] line is.
    pub progress_offset: u64,
    /// Where profile records start.
    pub profiles_offset: u64,
    /// Where trace records start: thread t's row is at `traces_offset + t * trace_row_bytes`.
    pub traces_offset: u64,
    /// Bytes of one thread's row of trace records.
    pub trace_row_bytes: u64,
    /// Bytes of the whole block, a multiple of 128.
    pub bytes: u64,
}

/// Numbers of records that a block has room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockCounts {
    /// Buffer descriptors.
    pub n_buffers: u32,
    /// Tensor descriptors.
    pub n_tensors: u32,
    /// Op descriptors.
    pub n_ops: u32,
    /// Whether each op has a profile record.
    pub profiled: bool,
    /// Trace records of one thread.
    pub n_traces: u32,
    /// Threads with a trace row.
    pub n_threads: u32,
}

impl BlockLayout {
    /// Lays out a block; `None` only if the sums overflow, which no count within [`crate::limits`] can do.
    pub fn new(counts: &BlockCounts) -> Option<Self> {
        let tensors_offset = section_end(0, counts.n_buffers, size_of::<crate::BufferDesc>())?;
        let ops_offset = section_end(tensors_offset, counts.n_tensors, size_of::<crate::TensorDesc>())?;
        let progress_offset = section_end(ops_offset, counts.n_ops, size_of::<crate::OpDesc>())?;
        let profiles_offset = section_end(progress_offset, 1, size_of::<crate::BatchProgress>())?;
        let n_profiles = if counts.profiled { counts.n_ops } else { 0 };
        let traces_offset = section_end(profiles_offset, n_profiles, size_of::<crate::OpProfile>())?;
        let trace_row_bytes = section_end(0, counts.n_traces, size_of::<crate::TraceRecord>())?;
        let bytes = trace_row_bytes
            .checked_mul(u64::from(counts.n_threads))?
            .checked_add(traces_offset)?;
        Some(Self {
            tensors_offset,
            ops_offset,
            progress_offset,
            profiles_offset,
            traces_offset,
            trace_row_bytes,
            bytes,
        })
    }

    /// The layout of the block that a request announces.
    pub fn of(request: &crate::BatchRequest) -> Option<Self> {
        Self::new(&BlockCounts {
            n_buffers: request.n_buffers,
            n_tensors: request.n_tensors,
            n_ops: request.n_ops,
            profiled: request.flags & crate::message::REQUEST_PROFILE != 0,
            n_traces: request.n_traces,
            n_threads: request.n_threads,
        })
    }
}

/// Rounds up to the next multiple of a power of two.
pub const fn align_up(value: u64, align: u64) -> Option<u64> {
    let Some(mask) = align.checked_sub(1) else {
        return None;
    };
    match value.checked_add(mask) {
        Some(sum) => Some(sum & !mask),
        None => None,
    }
}

fn section_end(start: u64, count: u32, record_bytes: usize) -> Option<u64> {
    let bytes = u64::from(count).checked_mul(u64::try_from(record_bytes).ok()?)?;
    align_up(start.checked_add(bytes)?, LINE_BYTES)
}

/// Asserts at compile time a structure's size, alignment and every field's offset.
macro_rules! assert_layout {
    ($name:ident, $size:literal, $align:literal, { $($field:ident: $offset:literal),* $(,)? }) => {
        const _: () = {
            assert!(size_of::<$name>() == $size);
            assert!(align_of::<$name>() == $align);
            $(assert!(core::mem::offset_of!($name, $field) == $offset);)*
        };
    };
}
pub(crate) use assert_layout;
