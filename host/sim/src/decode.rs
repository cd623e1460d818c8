//! What a descriptor's words say, read as the hardware reads them and not by the code that wrote them.

use hexloom_dsp::dma::descriptor::Arch;

/// Contiguous bytes of a transfer, at the engine's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    pub(crate) source: u64,
    pub(crate) target: u64,
    pub(crate) bytes: u64,
}

/// The rows that a descriptor moves.
pub(crate) fn rows(arch: Arch, words: [u32; 8]) -> Vec<Row> {
    let [_, control, source, target, kind, sizes, strides, _] = words.map(u64::from);
    let two_dimensions = control >> 24 & 3 == 1;
    if !two_dimensions {
        let bytes = control & 0xff_ffff;
        return vec![Row { source, target, bytes }];
    }
    let far = kind & 0xff == 10 && arch == Arch::V81;
    let upper = |shift: u32| if far { (kind >> shift & 0xff) << 32 } else { 0 };
    let (bytes, n_rows, source_stride, target_stride) = match arch {
        Arch::V68 => (sizes & 0xffff, sizes >> 16, strides & 0xffff, strides >> 16),
        Arch::V75 | Arch::V81 => {
            let n_rows = sizes >> 24 | (strides & 0xff) << 8;
            (sizes & 0xff_ffff, n_rows, strides >> 8, control & 0xff_ffff)
        }
    };
    let row = |idx: u64| Row {
        source: upper(8) + source + idx * source_stride,
        target: upper(16) + target + idx * target_stride,
        bytes,
    };
    (0..n_rows).map(row).collect()
}

impl Row {
    /// Whether one of the two writes what the other reads or writes.
    pub(crate) fn disturbs(&self, other: &Self) -> bool {
        let meet = |a: u64, b: u64| a < b.saturating_add(other.bytes) && b < a.saturating_add(self.bytes);
        meet(self.target, other.target) || meet(self.target, other.source) || meet(self.source, other.target)
    }
}
