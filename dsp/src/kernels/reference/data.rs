//! Ops that move data: SET_ROWS, CPY.

use hexloom_abi::{DType, Status};

use super::element::{get, indices, put, rows, unravel};
use crate::kernels::set_rows::Targets;
use crate::kernels::{OpArgs, encode};
use crate::tensor::Tensor;

pub(super) fn set_rows(args: &OpArgs<'_>) -> Result<(), Status> {
    let (from, targets, out) = (args.src(0)?, Targets(args.src(1)?), args.dst(0)?);
    targets.check(out.ne()[1])?;
    for row @ [i1, i2, i3] in rows(&from) {
        let to = targets.of(row, out.ne()[1]).ok_or(Status::IndexOutOfRange)?;
        if out.dtype().is_quantized() {
            for block in 0..from.ne()[0] / 32 {
                let lanes = core::array::from_fn(|lane| get(&from, [32 * block + lane, i1, i2, i3]) as f32);
                store_block(&out, [to, i2, i3], block, &lanes);
            }
            continue;
        }
        for i0 in 0..from.ne()[0] {
            put(&out, [i0, to, i2, i3], get(&from, [i0, i1, i2, i3]));
        }
    }
    Ok(())
}

/// A block as ggml makes it: codes have to be equal to the kernels' and not only near, so both make them alike.
fn store_block(out: &Tensor<'_>, row: [usize; 3], block: usize, lanes: &[f32; 32]) {
    let size = out.dtype().block_bytes() as usize;
    encode::block(out.dtype(), lanes, out.row_bytes(row).part(block * size, size));
}

pub(super) fn cpy(args: &OpArgs<'_>) -> Result<(), Status> {
    let (from, out) = (args.src(0)?, args.dst(0)?);
    if out.dtype().is_quantized() {
        return cpy_blocks(&from, &out);
    }
    for (place, to) in indices(&out).enumerate() {
        let at @ [from0, from_row @ ..] = unravel(place, from.ne());
        let [to0, to_row @ ..] = to;
        match from.dtype() {
            DType::F32 if out.dtype() == DType::I32 => {
                out.element::<i32>(to0, to_row).set(0, get(&from, at) as i32);
            }
            DType::I32 if out.dtype() == DType::I32 => {
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

/// To a quantised type: its own blocks as they are, floats by blocks of 32.
fn cpy_blocks(from: &Tensor<'_>, out: &Tensor<'_>) -> Result<(), Status> {
    let elems = out.dtype().block_elems() as usize;
    let size = out.dtype().block_bytes() as usize;
    for block in 0..out.ne().iter().product::<usize>() / elems {
        let [to0, to_row @ ..] = unravel(block * elems, out.ne());
        let [from0, from_row @ ..] = unravel(block * elems, from.ne());
        if from.dtype() == out.dtype() {
            let bytes = from.row_bytes(from_row).part(from0 / elems * size, size);
            out.row_bytes(to_row).part(to0 / elems * size, size).copy_from(bytes);
            continue;
        }
        let [i1, i2, i3] = from_row;
        let lanes = core::array::from_fn(|lane| get(from, [from0 + lane, i1, i2, i3]) as f32);
        store_block(out, to_row, to0 / 32, &lanes);
    }
    Ok(())
}
