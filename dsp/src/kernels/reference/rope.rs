//! ROPE.

use hexloom_abi::Status;
use hexloom_abi::support::{ROPE_BACK, ROPE_NEOX};

use super::element::{get, put, rows};
use crate::kernels::OpArgs;
use crate::kernels::rope::Angles;
use crate::real;

pub(super) fn rope(args: &OpArgs<'_>) -> Result<(), Status> {
    let (x, positions, out) = (args.src(0)?, args.src(1)?, args.dst(0)?);
    let factors = args.src_opt(2);
    let n_dims = args.op.param(1) as usize;
    let offset = args.op.param(15) as usize;
    let angles = Angles::new(&args.op);
    for [i1, i2, i3] in rows(&out) {
        let position = get(&positions, [i2, 0, 0, 0]);
        let mut power = 1.0;
        for pair in 0..n_dims / 2 {
            let factor = factors.as_ref().map_or(1.0, |factors| get(factors, [pair, 0, 0, 0]));
            let (sin, cos) = real::sin_cos(position * angles.frequency(pair, power, factor));
            let sign = if args.op.param(3) == ROPE_BACK { -1.0 } else { 1.0 };
            let (sin, cos) = (sign * sin * angles.magnitude, cos * angles.magnitude);
            power *= angles.ratio;
            let [first, second] = match args.op.param(2) {
                ROPE_NEOX => [pair, pair + n_dims / 2],
                _ => [2 * pair, 2 * pair + 1],
            }
            .map(|at| at + offset);
            let (a, b) = (get(&x, [first, i1, i2, i3]), get(&x, [second, i1, i2, i3]));
            put(&out, [first, i1, i2, i3], a * cos - b * sin);
            put(&out, [second, i1, i2, i3], a * sin + b * cos);
        }
        for i0 in (0..offset).chain(offset + n_dims..out.ne()[0]) {
            put(&out, [i0, i1, i2, i3], get(&x, [i0, i1, i2, i3]));
        }
    }
    Ok(())
}
