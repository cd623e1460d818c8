//! Ops that move data: SET_ROWS, CPY.

use hexloom_abi::{DType, Status};

use super::element::{get, indices, put, rows, unravel};
use crate::hvx::plain::{f32_to_f16, round_even};
use crate::kernels::OpArgs;
use crate::kernels::set_rows::Targets;
use crate::tensor::Tensor;

pub(super) fn set_rows(args: &OpArgs<'_>) -> Result<(), Status> {
    let (from, targets, out) = (args.src(0)?, Targets(args.src(1)?), args.dst(0)?);
    targets.check(out.ne()[1])?;
    for row @ [i1, i2, i3] in rows(&from) {
        let to = targets.of(row);
        if out.dtype() == DType::Q8_0 {
            quantize(&from, row, &out, [to, i2, i3]);
            continue;
        }
        for i0 in 0..from.ne()[0] {
            put(&out, [i0, to, i2, i3], get(&from, [i0, i1, i2, i3]));
        }
    }
    Ok(())
}

/// Rows of blocks: the arithmetic is f32, because codes have to be equal and not only near.
fn quantize(from: &Tensor<'_>, row: [usize; 3], out: &Tensor<'_>, to: [usize; 3]) {
    let bytes = out.row_bytes(to);
    let [i1, i2, i3] = row;
    for start in (0..from.ne()[0]).step_by(32) {
        let value = |lane: usize| get(from, [start + lane, i1, i2, i3]) as f32;
        let largest = (0..32).map(|lane| value(lane).abs()).fold(0.0, f32::max);
        let scale = largest / 127.0;
        let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        let block = bytes.part(start / 32 * 34, 34);
        let [low, high] = f32_to_f16(scale).to_le_bytes();
        block.set(0, low);
        block.set(1, high);
        for lane in 0..32 {
            let code = round_even((value(lane) * inverse).clamp(-127.0, 127.0));
            block.set(2 + lane, code as i8 as u8);
        }
    }
}

pub(super) fn cpy(args: &OpArgs<'_>) -> Result<(), Status> {
    let (from, out) = (args.src(0)?, args.dst(0)?);
    for (place, to) in indices(&out).enumerate() {
        let at @ [from0, from_row @ ..] = unravel(place, from.ne());
        let [to0, to_row @ ..] = to;
        match from.dtype() {
            DType::I32 => {
                let value = from.element::<i32>(from0, from_row).get(0);
                out.element::<i32>(to0, to_row).set(0, value);
            }
            DType::I64 => {
                let value = from.element::<i64>(from0, from_row).get(0);
                out.element::<i64>(to0, to_row).set(0, value);
            }
            _ => put(&out, to, get(&from, at)),
        }
    }
    Ok(())
}
