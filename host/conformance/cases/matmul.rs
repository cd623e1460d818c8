//! MUL_MAT, MUL_MAT_ADD, MUL_MAT_NX: every weight type, odd sizes, broadcast, extreme scales and activations.

use hexloom::DType;
use hexloom::abi::Opcode;

use crate::{Case, Fill, Layout, Operand};

const TYPES: [DType; 5] = [DType::F32, DType::F16, DType::Q4_0, DType::Q4_1, DType::Q8_0];

/// Weight `[k, rows, ..]` times activation `[k, columns, ..]`.
fn product(weight: Operand, x: Operand) -> Case {
    let [_, rows, ..] = weight.ne;
    let [_, columns, n2, n3] = x.ne;
    Case::new(Opcode::MulMat)
        .named(format_args!(
            "{} {:?} {:?} {:?} by {} {:?} {:?} {:?}",
            weight.dtype, weight.ne, weight.layout, weight.fill, x.dtype, x.ne, x.layout, x.fill
        ))
        .src(weight)
        .src(x)
        .dst(Operand::f32([rows, columns, n2, n3]).fill(Fill::Junk))
}

/// The product plus an addend.
fn sum(weight: Operand, x: Operand, addend: [u32; 4]) -> Case {
    let product = product(weight, x);
    Case {
        name: format!("{} + {addend:?}", product.name.replacen("MUL_MAT", "MUL_MAT_ADD", 1)),
        opcode: Opcode::MulMatAdd,
        ..product
    }
    .src(Operand::f32(addend))
}

fn several(weights: &[Operand], x: Operand) -> Case {
    let mut case = Case::new(Opcode::MulMatNx).named(format_args!("{} weights {:?}", weights.len(), x.ne));
    for weight in weights {
        case = case
            .named(format_args!("{} {:?}", weight.dtype, weight.ne))
            .src(weight.clone());
    }
    for weight in weights {
        case = case.dst(Operand::f32([weight.ne[1], x.ne[1], x.ne[2], x.ne[3]]).fill(Fill::Junk));
    }
    case.src(x)
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in TYPES {
        let weight = |k, rows| Operand::weight(dtype, [k, rows, 1, 1]);
        let x = |k, columns| Operand::f32([k, columns, 1, 1]);
        for columns in [1, 2, 4, 5, 6, 8, 16, 31, 32, 33, 63, 64, 65] {
            cases.push(product(weight(256, 16), x(256, columns)));
        }
        for (k, rows, columns) in [
            (32, 1, 1),
            (32, 31, 3),
            (224, 33, 2),
            (288, 64, 1),
            (2880, 40, 2),
            (576, 1536, 1),
        ] {
            cases.push(product(weight(k, rows), x(k, columns)));
        }
        // More activation than 256 KiB of scratch memory holds at once.
        cases.push(product(weight(1536, 32), x(1536, 70)));
        cases.push(product(
            Operand::weight(dtype, [64, 5, 2, 1]),
            Operand::f32([64, 3, 4, 2]),
        ));
        cases.push(product(
            Operand::weight(dtype, [64, 32, 2, 2]),
            Operand::f32([64, 1, 2, 4]),
        ));
        for addend in [[33, 1, 1, 1], [33, 3, 1, 1]] {
            cases.push(sum(weight(96, 33), x(96, 3), addend));
        }
        cases.push(sum(weight(576, 576), x(576, 1), [576, 1, 1, 1]));
        cases.push(product(weight(128, 20), Operand::f16([128, 3, 1, 1])));
        cases.push(product(weight(128, 20), x(128, 3).layout(Layout::Padded(0, 9))));
        cases.push(product(
            weight(128, 20),
            x(128, 6).layout(Layout::Permuted([0, 2, 1, 3])),
        ));
        // Blocks whose largest activation is tiny or huge quantise without bias: all of one sign shows a bias.
        for size in [1e-6, 1e6] {
            let lopsided = Fill::Values([0.3, 1.0, 0.7, 0.9, 0.4, 0.55, 0.81].map(|value| value * size).to_vec());
            cases.push(product(weight(256, 16), x(256, 3).fill(lopsided)));
            cases.push(product(weight(256, 16), x(256, 1).fill(Fill::Uniform(size))));
        }
        cases.push(product(weight(64, 16), x(64, 2).fill(Fill::Constant(0.0))));
        if dtype.is_quantized() {
            // The scale of a block comes close to f16's limit of 65504.
            let steps = if dtype == DType::Q8_0 { 127.0 } else { 15.0 };
            let large = Fill::Uniform(60_000.0 * if dtype == DType::Q4_0 { 8.0 } else { steps } / 15.0);
            for columns in [1, 4, 33] {
                cases.push(product(weight(256, 16).fill(large.clone()), x(256, columns)));
            }
        } else {
            // A float weight may also be computed by the graph: any strides but the innermost.
            let view = Operand::new(dtype, [48, 7, 2, 1]);
            cases.push(product(
                view.clone().layout(Layout::Permuted([0, 2, 1, 3])),
                Operand::f32([48, 5, 2, 1]),
            ));
            cases.push(product(view.layout(Layout::Padded(0, 5)), Operand::f16([48, 5, 4, 1])));
            cases.push(product(Operand::new(dtype, [7, 3, 1, 1]), Operand::f32([7, 2, 1, 1])));
        }
        for n in 1..=4 {
            let weights: Vec<Operand> = [64, 32, 33, 5].iter().take(n).map(|&rows| weight(128, rows)).collect();
            cases.push(several(&weights, x(128, 1)));
            cases.push(several(&weights, x(128, 5)));
        }
    }
    // One activation row that 256 KiB, or 2 MiB, of scratch memory do not hold.
    for k in [70_016, 640_000] {
        let row = [k, 1, 1, 1];
        cases.push(product(Operand::weight(DType::F16, row), Operand::f32(row)));
    }
    let mixed = [DType::Q4_0, DType::F16, DType::Q8_0].map(|dtype| Operand::weight(dtype, [64, 17, 1, 1]));
    cases.push(several(&mixed, Operand::f32([64, 2, 1, 1])));
    cases
}
