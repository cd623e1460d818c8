//! IM2COL, CONV, POOL, and OUT_PROD: sums over windows and over rows, element by element.

use hexloom_abi::window::Window;
use hexloom_abi::{Opcode, Status};

use super::element::{get, indices, put};
use crate::kernels::OpArgs;
use crate::kernels::dequantize::Blocks;
use crate::kernels::window::Moves;
use crate::tensor::Tensor;

pub(super) fn window(args: &OpArgs<'_>) -> Result<(), Status> {
    let moves = Moves::new(&Window::of(&args.op));
    match args.op.opcode {
        Opcode::Im2col => im2col(args, &moves),
        Opcode::Conv => conv(args, &moves),
        _ => pool(args, &moves),
    }
}

/// The image's value under element `at` of the window for result `out`, width first; `None` outside the image.
fn meet(moves: &Moves, image: &Tensor<'_>, n: usize, channel: usize, out: [usize; 3], at: [usize; 3]) -> Option<f64> {
    let [w, h, d] = [0, 1, 2].map(|axis| moves.position(axis, out[axis], at[axis]));
    let w = usize::try_from(w).ok().filter(|&w| w < image.ne()[0])?;
    Some(f64::from(moves.row(image, n, channel, [h, d])?.get(w)))
}

/// Every element of the window.
fn elements([kw, kh, kd]: [usize; 3]) -> impl Iterator<Item = [usize; 3]> {
    (0..kw * kh * kd).map(move |at| [at % kw, at / kw % kh, at / (kw * kh)])
}

fn im2col(args: &OpArgs<'_>, moves: &Moves) -> Result<(), Status> {
    let (image, out) = (args.src(0)?, args.dst(0)?);
    let per_channel: usize = moves.size.iter().product();
    for index @ [i0, i1, i2, i3] in indices(&out) {
        let (oh, od, n) = match moves.dims {
            1 => (0, 0, i2),
            2 => (i2, 0, i3),
            _ => {
                let depth = out.ne()[3] / (image.ne()[3] / moves.channels);
                (i2, i3 % depth, i3 / depth)
            }
        };
        let at = elements(moves.size).nth(i0 % per_channel).unwrap_or_default();
        let value = meet(moves, &image, n, i0 / per_channel, [i1, oh, od], at);
        put(&out, index, value.unwrap_or(0.0));
    }
    Ok(())
}

fn conv(args: &OpArgs<'_>, moves: &Moves) -> Result<(), Status> {
    let (weights, image, out) = (args.src(0)?, args.src(1)?, args.dst(0)?);
    for index @ [ow, oh, i2, i3] in indices(&out) {
        let (od, filter, n) = match moves.dims {
            3 => {
                let filters = out.ne()[3] / (image.ne()[3] / moves.channels);
                (i2, i3 % filters, i3 / filters)
            }
            _ => (0, i2, i3),
        };
        let mut sum = 0.0;
        for channel in 0..moves.channels {
            for at @ [w, h, d] in elements(moves.size) {
                let weight = match moves.dims {
                    3 => [w, h, d, filter * moves.channels + channel],
                    _ => [w, h, channel, filter],
                };
                let value = meet(moves, &image, n, channel, [ow, oh, od], at);
                sum += value.map_or(0.0, |value| value * get(&weights, weight));
            }
        }
        put(&out, index, sum);
    }
    Ok(())
}

fn pool(args: &OpArgs<'_>, moves: &Moves) -> Result<(), Status> {
    let (image, out) = (args.src(0)?, args.dst(0)?);
    let mean = args.op.param(14) == 1;
    let n_elems: usize = moves.size.iter().product();
    for index @ [i0, i1, i2, i3] in indices(&out) {
        let values = elements(moves.size).filter_map(|[w, h, _]| {
            let x = usize::try_from(moves.position(0, i0, w)).ok()?;
            let y = match moves.dims {
                1 => i1,
                _ => usize::try_from(moves.position(1, i1, h)).ok()?,
            };
            (x < image.ne()[0] && y < image.ne()[1]).then(|| get(&image, [x, y, i2, i3]))
        });
        let value = match mean {
            true => values.sum::<f64>() / n_elems as f64,
            false => values.fold(f64::from(-f32::MAX), |a, b| if b > a { b } else { a }),
        };
        put(&out, index, value);
    }
    Ok(())
}

pub(super) fn out_prod(args: &OpArgs<'_>) -> Result<(), Status> {
    let (a, b, out) = (args.src(0)?, args.src(1)?, args.dst(0)?);
    let ([_, depth, a2, a3], [_, _, b2, b3]) = (a.ne(), b.ne());
    for index @ [i0, i1, i2, i3] in indices(&out) {
        let sum = (0..depth).map(|k| {
            let row = Blocks::new(&a, [k, i2 / (b2 / a2), i3 / (b3 / a3)]);
            f64::from(row.get(i0 / 32)[i0 % 32]) * get(&b, [i1, k, i2, i3])
        });
        put(&out, index, sum.sum());
    }
    Ok(())
}
