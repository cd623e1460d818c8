//! Blocks of 32 elements of any table or weight as f32, row layout and tiles: what GET_ROWS and the references read.

use hexloom_abi::DType;
use hexloom_abi::tile::TileLayout;

use crate::hvx::LANES;
use crate::hvx::plain::f16_to_f32;
use crate::tensor::{Span, Tensor};

/// Elements `32 * block ..` of row `index` (dimensions 1 to 3); zeros beyond the end of a row.
#[inline(always)]
pub(super) fn block(tensor: &Tensor<'_>, index: [usize; 3], block: usize) -> [f32; LANES] {
    if tensor.shape().tiled {
        return tiled(tensor, index, block);
    }
    let start = block * LANES;
    match tensor.dtype() {
        DType::F32 => lanes(tensor.row::<f32>(index), start, |x| x),
        DType::F16 => lanes(tensor.row::<u16>(index), start, f16_to_f32),
        dtype => {
            let bytes = dtype.block_bytes() as usize;
            row_block(dtype, tensor.row_bytes(index).part(block * bytes, bytes))
        }
    }
}

#[inline(always)]
fn lanes<T: crate::tensor::Plain>(row: Span<'_, T>, start: usize, widen: impl Fn(T) -> f32) -> [f32; LANES] {
    let row = row.part(start, (row.len() - start).min(LANES));
    let mut lanes = [0.0; LANES];
    for (idx, lane) in lanes.iter_mut().enumerate().take(row.len()) {
        *lane = widen(row.get(idx));
    }
    lanes
}

/// A block in row layout: scale, then for `Q4_1` the minimum, then codes.
#[inline(always)]
fn row_block(dtype: DType, bytes: Span<'_, u8>) -> [f32; LANES] {
    let half = |at: usize| f16_to_f32(u16::from_le_bytes([bytes.get(at), bytes.get(at + 1)]));
    let scale = half(0);
    let nibble = |start: usize, idx: usize| {
        let byte = bytes.get(start + idx % 16);
        f32::from(if idx < 16 { byte & 15 } else { byte >> 4 })
    };
    match dtype {
        DType::Q4_0 => core::array::from_fn(|idx| scale * (nibble(2, idx) - 8.0)),
        DType::Q4_1 => {
            let minimum = half(2);
            core::array::from_fn(|idx| scale * nibble(4, idx) + minimum)
        }
        _ => core::array::from_fn(|idx| scale * f32::from(bytes.get(2 + idx).cast_signed())),
    }
}

/// A row's 32 elements of one tile.
#[inline(always)]
fn tiled(tensor: &Tensor<'_>, [row, i2, i3]: [usize; 3], tile: usize) -> [f32; LANES] {
    let Some(layout) = TileLayout::new(tensor.dtype(), tensor.ne()[0] as u32) else {
        return [0.0; LANES];
    };
    let group = tensor.tile_group(row / LANES, [i2, i3]);
    let lane = row % LANES;
    let code_bytes = layout.code_bytes as usize;
    let scale_bytes = layout.scale_bytes as usize;
    let codes = group.part(tile * code_bytes, code_bytes);
    let scales = group
        .part(layout.scales_offset as usize + tile * scale_bytes, scale_bytes)
        .cast::<u16>();
    let scale = f16_to_f32(scales.get(lane));
    if tensor.dtype() == DType::Q8_0 {
        return core::array::from_fn(|k| {
            let code = codes.get(k / 4 * 128 + 4 * lane + k % 4);
            scale * (f32::from(code) - 128.0)
        });
    }
    let code = |k: usize| {
        let byte = codes.get(k / 8 * 128 + 4 * lane + k % 4);
        f32::from(if k % 8 < 4 { byte & 15 } else { byte >> 4 })
    };
    if tensor.dtype() == DType::Q4_1 {
        let minimum = f16_to_f32(scales.get(LANES + lane));
        core::array::from_fn(|k| scale * code(k) + minimum)
    } else {
        core::array::from_fn(|k| scale * (code(k) - 8.0))
    }
}
