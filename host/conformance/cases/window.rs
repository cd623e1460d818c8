//! IM2COL, CONV, POOL, OUT_PROD: windows that step by one and by more, that begin outside, of one to three dimensions.

use hexloom::DType;
use hexloom::abi::Opcode;

use crate::{Case, Fill, Layout, Operand};

/// Stride, padding, dilation and size along width, height and depth.
type Axes = [[u32; 4]; 3];

const ONE: [u32; 4] = [1, 0, 1, 1];

fn with_window(case: Case, axes: Axes, channels: u32, dims: u32) -> Case {
    let case = axes.iter().enumerate().fold(case, |case, (axis, numbers)| {
        (0..4).fold(case, |case, kind| case.param(3 * kind + axis, numbers[kind]))
    });
    case.param(12, channels).param(13, dims)
}

/// Results along an axis.
fn steps(len: u32, [stride, padding, dilation, size]: [u32; 4]) -> u32 {
    (len + 2 * padding - dilation * (size - 1) - 1) / stride + 1
}

fn im2col(image: Operand, axes: Axes, channels: u32, dims: u32, to: DType) -> Case {
    let elems = axes.iter().map(|axis| axis[3]).product::<u32>();
    let [w, h, d, last] = image.ne;
    let ow = steps(w, axes[0]);
    let ne = match dims {
        1 => [channels * elems, ow, d, 1],
        2 => [channels * elems, ow, steps(h, axes[1]), last],
        _ => [
            channels * elems,
            ow,
            steps(h, axes[1]),
            last / channels * steps(d, axes[2]),
        ],
    };
    let case = Case::new(Opcode::Im2col)
        .named(format_args!("{dims}-D {} {:?} {axes:?} to {to}", image.dtype, image.ne))
        .src(image)
        .dst(Operand::new(to, ne).fill(Fill::Junk));
    with_window(case, axes, channels, dims)
}

fn conv(weights: Operand, image: Operand, axes: Axes, channels: u32, dims: u32) -> Case {
    let [w, h, d, last] = image.ne;
    let (ow, oh) = (steps(w, axes[0]), steps(h, axes[1]));
    let ne = match dims {
        2 => [ow, oh, weights.ne[3], last],
        _ => [ow, oh, steps(d, axes[2]), weights.ne[3] / channels * (last / channels)],
    };
    let case = Case::new(Opcode::Conv)
        .named(format_args!(
            "{dims}-D {} {:?} {:?} {axes:?}",
            weights.dtype, weights.ne, image.ne
        ))
        .src(weights)
        .src(image)
        .dst(Operand::f32(ne).fill(Fill::Junk));
    with_window(case, axes, channels, dims)
}

fn pool(image: Operand, axes: Axes, dims: u32, kind: u32) -> Case {
    let [w, h, n2, n3] = image.ne;
    let oh = if dims == 2 { steps(h, axes[1]) } else { h };
    let ne = [steps(w, axes[0]), oh, n2, n3];
    let case = Case::new(Opcode::Pool)
        .named(format_args!("{dims}-D kind {kind} {:?} {axes:?}", image.ne))
        .src(image)
        .dst(Operand::f32(ne).fill(Fill::Junk));
    with_window(case, axes, 1, dims).param(14, kind)
}

fn out_prod(a: Operand, b: Operand) -> Case {
    let ne = [a.ne[0], b.ne[0], b.ne[2], b.ne[3]];
    Case::new(Opcode::OutProd)
        .named(format_args!(
            "{} {:?} {} {:?} {:?}",
            a.dtype, a.ne, b.dtype, b.ne, b.layout
        ))
        .src(a)
        .src(b)
        .dst(Operand::f32(ne).fill(Fill::Junk))
}

pub(super) fn cases() -> Vec<Case> {
    let (tight, wide) = ([1, 1, 1, 3], [3, 2, 2, 4]);
    let mut cases = Vec::new();
    for to in [DType::F32, DType::F16] {
        cases.push(im2col(Operand::f32([70, 3, 2, 1]), [tight, ONE, ONE], 3, 1, to));
        cases.push(im2col(Operand::f32([20, 11, 3, 2]), [wide, tight, ONE], 3, 2, to));
        cases.push(im2col(Operand::f32([9, 8, 7, 6]), [tight, wide, tight], 3, 3, to));
    }
    cases.push(im2col(
        Operand::f16([20, 11, 3, 2]),
        [tight, tight, ONE],
        3,
        2,
        DType::F32,
    ));
    for dtype in [DType::F32, DType::F16] {
        for axes in [[tight, tight, ONE], [wide, ONE, ONE], [[1, 0, 1, 1], wide, ONE]] {
            let weights = Operand::new(dtype, [axes[0][3], axes[1][3], 5, 4]);
            cases.push(conv(weights, Operand::f32([75, 13, 5, 2]), axes, 5, 2));
        }
        let axes = [tight, wide, [2, 1, 1, 2]];
        let weights = Operand::new(dtype, [3, 4, 2, 3 * 4]);
        cases.push(conv(weights, Operand::f32([40, 12, 7, 3 * 2]), axes, 3, 3));
    }
    let turned = Operand::f32([40, 12, 5, 2]).layout(Layout::Permuted([2, 0, 1, 3]));
    cases.push(conv(Operand::f32([3, 3, 5, 4]), turned, [tight, tight, ONE], 5, 2));
    for kind in [0, 1] {
        cases.push(pool(Operand::f32([80, 3, 2, 2]), [tight, ONE, ONE], 1, kind));
        cases.push(pool(
            Operand::f32([31, 17, 2, 2]),
            [[2, 1, 1, 3], [2, 0, 1, 2], ONE],
            2,
            kind,
        ));
    }
    for b in [
        Operand::f32([6, 9, 4, 3]),
        Operand::f16([6, 9, 4, 3]),
        Operand::f32([6, 9, 4, 3]).transposed(),
    ] {
        cases.push(out_prod(Operand::f32([70, 9, 2, 1]), b.clone()));
        cases.push(out_prod(Operand::weight(DType::Q4_0, [96, 9, 4, 3]), b));
    }
    cases
}
