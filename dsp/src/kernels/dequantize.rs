//! Rows of any table or weight as blocks of 32 f32, row layout and tiles: what GET_ROWS and the references read.

use hexloom_abi::DType;
use hexloom_abi::tile::TileLayout;

use super::codes;
use crate::hvx::LANES;
use crate::hvx::plain::{bf16_to_f32, f16_to_f32};
use crate::tensor::{Plain, Span, Tensor};

/// One row, made once and read block by block.
pub(super) enum Blocks<'a> {
    F32(Span<'a, f32>),
    F16(Span<'a, u16>),
    Bf16(Span<'a, u16>),
    /// Quantised blocks side by side.
    Row(DType, Span<'a, u8>),
    Tiles(TileRow<'a>),
}

/// A row of a tiled weight.
pub(super) struct TileRow<'a> {
    dtype: DType,
    /// The group of 32 rows.
    group: Span<'a, u8>,
    layout: TileLayout,
    /// The row's place in the group.
    lane: usize,
}

impl<'a> Blocks<'a> {
    /// Row `index` (dimensions 1 to 3).
    #[inline(always)]
    pub(super) fn new(tensor: &Tensor<'a>, index: [usize; 3]) -> Self {
        let dtype = tensor.dtype();
        if tensor.shape().tiled
            && let Some(layout) = TileLayout::new(dtype, tensor.shape().ne[0])
        {
            let [row, i2, i3] = index;
            return Self::Tiles(TileRow {
                dtype,
                group: tensor.tile_group(row / LANES, [i2, i3]),
                layout,
                lane: row % LANES,
            });
        }
        match dtype {
            DType::F32 => Self::F32(tensor.row(index)),
            DType::F16 => Self::F16(tensor.row(index)),
            DType::Bf16 => Self::Bf16(tensor.row(index)),
            _ => Self::Row(dtype, tensor.row_bytes(index)),
        }
    }

    /// Elements `32 * block ..`; zeros beyond the end of the row.
    #[inline(always)]
    pub(super) fn get(&self, block: usize) -> [f32; LANES] {
        match self {
            Self::F32(row) => widen(*row, block, |x| x),
            Self::F16(row) => widen(*row, block, f16_to_f32),
            Self::Bf16(row) => widen(*row, block, bf16_to_f32),
            Self::Row(dtype, bytes) => {
                let (size, pieces) = (dtype.block_bytes() as usize, dtype.block_elems() as usize / LANES);
                codes::piece(*dtype, bytes.part(block / pieces * size, size), block % pieces)
            }
            Self::Tiles(row) => row.get(block),
        }
    }
}

#[inline(always)]
fn widen<T: Plain>(row: Span<'_, T>, block: usize, to_f32: impl Fn(T) -> f32) -> [f32; LANES] {
    let start = block * LANES;
    let row = row.part(start, (row.len() - start).min(LANES));
    let mut lanes = [0.0; LANES];
    for (idx, lane) in lanes.iter_mut().enumerate().take(row.len()) {
        *lane = to_f32(row.get(idx));
    }
    lanes
}

impl TileRow<'_> {
    #[inline(never)]
    fn get(&self, tile: usize) -> [f32; LANES] {
        let code_bytes = self.layout.code_bytes as usize;
        let scale_bytes = self.layout.scale_bytes as usize;
        let codes = self.group.part(tile * code_bytes, code_bytes);
        let scales = self
            .group
            .part(self.layout.scales_offset as usize + tile * scale_bytes, scale_bytes);
        let scale = half(scales, scale_bytes / LANES * self.lane);
        let mut lanes = [0.0; LANES];
        if self.dtype == DType::Q8_0 {
            for (vector, lanes) in lanes.chunks_exact_mut(4).enumerate() {
                for (lane, code) in lanes.iter_mut().zip(self.word(codes, vector)) {
                    *lane = scale * (f32::from(code) - 128.0);
                }
            }
            return lanes;
        }
        // Q4_0 subtracts 8 from the code, exactly; Q4_1 adds its minimum to the product.
        let (zero, minimum) = match self.dtype {
            DType::Q4_1 => (0.0, half(scales, 4 * self.lane + 2)),
            _ => (8.0, 0.0),
        };
        for (vector, lanes) in lanes.chunks_exact_mut(8).enumerate() {
            for (byte, code) in self.word(codes, vector).into_iter().enumerate() {
                lanes[byte] = scale * (f32::from(code & 15) - zero) + minimum;
                lanes[byte + 4] = scale * (f32::from(code >> 4) - zero) + minimum;
            }
        }
        lanes
    }

    /// The row's four bytes of one vector of codes.
    #[inline(always)]
    fn word(&self, codes: Span<'_, u8>, vector: usize) -> [u8; 4] {
        let word = codes.part(vector * 128 + 4 * self.lane, 4);
        [word.get(0), word.get(1), word.get(2), word.get(3)]
    }
}

#[inline(always)]
fn half(bytes: Span<'_, u8>, at: usize) -> f32 {
    let half = bytes.part(at, 2);
    f16_to_f32(u16::from_le_bytes([half.get(0), half.get(1)]))
}
