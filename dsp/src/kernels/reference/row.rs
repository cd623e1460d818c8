//! Ops that look at a whole row: norms, SOFT_MAX, ARGMAX, ARGSORT; and COUNT_EQUAL.

use hexloom_abi::{Opcode, Status};

use super::element::{get, indices, put, rows, unravel, wrap};
use crate::kernels::OpArgs;
use crate::kernels::slope::slope;
use crate::real;

pub(super) fn norm(args: &OpArgs<'_>) -> Result<(), Status> {
    let (x, out) = (args.src(0)?, args.dst(0)?);
    let weight = match args.op.opcode {
        Opcode::RmsNormMul => Some(args.src(1)?),
        _ => None,
    };
    let len = out.ne()[0];
    let eps = f64::from(args.op.param_f32(0));
    for [i1, i2, i3] in rows(&out) {
        let value = |i0| get(&x, [i0, i1, i2, i3]);
        let mean = match args.op.opcode {
            Opcode::Norm => (0..len).map(value).sum::<f64>() / len as f64,
            _ => 0.0,
        };
        let squares = (0..len).map(|i0| (value(i0) - mean) * (value(i0) - mean));
        let scale = 1.0 / real::sqrt(squares.sum::<f64>() / len as f64 + eps);
        for i0 in 0..len {
            let index = [i0, i1, i2, i3];
            let weight = weight.as_ref().map_or(1.0, |weight| get(weight, wrap(index, weight)));
            put(&out, index, (value(i0) - mean) * scale * weight);
        }
    }
    Ok(())
}

pub(super) fn soft_max(args: &OpArgs<'_>) -> Result<(), Status> {
    let (x, out) = (args.src(0)?, args.dst(0)?);
    let (mask, sinks) = (args.src_opt(1), args.src_opt(2));
    let scale = f64::from(args.op.param_f32(0));
    let [len, _, n_heads, _] = out.ne();
    for [i1, i2, i3] in rows(&out) {
        let slope = f64::from(slope(args.op.param_f32(1), n_heads, i2));
        let score = |i0| {
            let index = [i0, i1, i2, i3];
            let masked = |mask| slope * get(mask, wrap(index, mask));
            get(&x, index) * scale + mask.as_ref().map_or(0.0, masked)
        };
        let sink = sinks
            .as_ref()
            .map_or(f64::NEG_INFINITY, |sinks| get(sinks, [i2, 0, 0, 0]));
        let max = (0..len).map(score).fold(sink, f64::max);
        // With nothing above -infinity all weights are 0, and so is the row.
        let max = if max == f64::NEG_INFINITY { 0.0 } else { max };
        let sum = (0..len).map(|i0| real::exp(score(i0) - max)).sum::<f64>() + real::exp(sink - max);
        for i0 in 0..len {
            let weight = real::exp(score(i0) - max);
            put(&out, [i0, i1, i2, i3], if sum == 0.0 { 0.0 } else { weight / sum });
        }
    }
    Ok(())
}

pub(super) fn argmax(args: &OpArgs<'_>) -> Result<(), Status> {
    let (x, out) = (args.src(0)?, args.dst(0)?);
    for (place, [i1, i2, i3]) in rows(&x).enumerate() {
        let (mut best, mut first) = (f64::NEG_INFINITY, 0);
        for i0 in 0..x.ne()[0] {
            let value = get(&x, [i0, i1, i2, i3]);
            if value > best {
                (best, first) = (value, i0);
            }
        }
        let [i0, rest @ ..] = unravel(place, out.ne());
        out.element::<i32>(i0, rest).set(0, first as i32);
    }
    Ok(())
}

pub(super) fn count_equal(args: &OpArgs<'_>) -> Result<(), Status> {
    let (a, b) = (args.src(0)?, args.src(1)?);
    let same = indices(&a).filter(|&index| get(&a, index) == get(&b, index)).count();
    args.dst(0)?.element::<i64>(0, [0; 3]).set(0, same as i64);
    Ok(())
}

/// An element's place is the number of elements that go before it.
pub(super) fn argsort(args: &OpArgs<'_>) -> Result<(), Status> {
    let (x, out) = (args.src(0)?, args.dst(0)?);
    for [i1, i2, i3] in rows(&x) {
        let value = |i0| get(&x, [i0, i1, i2, i3]);
        let before = |a: usize, b: usize| {
            let order = value(a).total_cmp(&value(b));
            let order = if args.op.param(0) == 1 { order.reverse() } else { order };
            order.then(a.cmp(&b)).is_lt()
        };
        for i0 in 0..x.ne()[0] {
            let place = (0..x.ne()[0]).filter(|&other| before(other, i0)).count();
            if place < out.ne()[0] {
                out.element::<i32>(place, [i1, i2, i3]).set(0, i0 as i32);
            }
        }
    }
    Ok(())
}
