//! Which of a core's units computes an op, for tables and for whoever looks for a slow op: decided as the kernels do, from
//! shapes and types alone.

use core::fmt;

use crate::code::{DType, Opcode};
use crate::op::{Op, Shape};

/// Activation rows of one weight, or query tokens, up to which the vector unit serves: it waits for memory then, and a tile
/// of the matrix unit would be mostly empty.
pub const FEW_ROWS: usize = 4;
/// Longest sums that the matrix unit's ranges are made for.
pub const MAX_K: usize = 1 << 14;

/// Who does an op's arithmetic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// The matrix unit, HMX, where a core has one and scratch holds what it needs; otherwise the vector unit.
    Matrix,
    /// The vector unit, HVX.
    Vector,
    /// The vector unit, whose operands scalar code reads or writes for the reason given.
    Gathered(&'static str),
    /// Scalar code alone, for the reason given.
    Scalar(&'static str),
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Matrix => f.write_str("HMX"),
            Self::Vector => f.write_str("HVX"),
            Self::Gathered(why) => write!(f, "HVX, gathered: {why}"),
            Self::Scalar(why) => write!(f, "scalar: {why}"),
        }
    }
}

const APART: &str = "elements lie apart or are bf16";
const CODED: &str = "rows of codes are read value by value";

/// The unit of an op that is supported.
pub fn unit(op: &Op) -> Unit {
    let operands = || op.srcs.iter().chain(&op.dsts).flatten();
    match op.opcode {
        Opcode::MulMat | Opcode::MulMatAdd | Opcode::MulMatNx => product(op),
        Opcode::FlashAttnExt if serves_attention(op) => Unit::Matrix,
        Opcode::Cumsum => Unit::Scalar("each sum needs the one before it"),
        Opcode::Argsort => Unit::Scalar("what is compared next depends on what was compared"),
        Opcode::Fence | Opcode::MdevGroup => Unit::Scalar("nothing is computed"),
        _ if operands().any(|shape| shape.dtype.is_quantized()) => Unit::Gathered(CODED),
        _ if operands().any(is_apart) => Unit::Gathered(APART),
        _ => Unit::Vector,
    }
}

fn product(op: &Op) -> Unit {
    let n_weights = match op.opcode {
        Opcode::MulMatNx => op.n_srcs().saturating_sub(1),
        _ => 1,
    };
    let (Some(x), weights) = (op.src(n_weights), op.srcs.iter().take(n_weights).flatten()) else {
        return Unit::Vector;
    };
    let of_weight = |weight: &Shape| {
        let read = weight.tiled || weight.dtype == DType::F16;
        match weight.dtype {
            _ if read && more_than_few(rows_per_matrix(weight, x), x.ne[0]) => Unit::Matrix,
            _ if weight.tiled => Unit::Vector,
            dtype if dtype.is_quantized() => Unit::Gathered(CODED),
            DType::Bf16 => Unit::Gathered(APART),
            _ => Unit::Vector,
        }
    };
    // Of several weights the one that is read slowest.
    let units = weights.map(of_weight);
    units
        .reduce(|a, b| if matches!(a, Unit::Gathered(_)) { a } else { b })
        .unwrap_or(Unit::Vector)
}

/// Activation rows that meet the same weight.
fn rows_per_matrix(weight: &Shape, x: &Shape) -> u64 {
    let [_, _, w2, w3] = weight.ne.map(u64::from);
    let [_, m, x2, x3] = x.ne.map(u64::from);
    let rows = m.saturating_mul(x2);
    let (rows, matrices) = if w2 > 1 {
        (rows, w2)
    } else {
        (rows.saturating_mul(x3), w3)
    };
    rows.checked_div(matrices).unwrap_or(0)
}

fn serves_attention(op: &Op) -> bool {
    let shapes = op.src(0).zip(op.src(1));
    shapes.is_some_and(|(q, k)| more_than_few(q.ne[1].into(), q.ne[0]) && k.ne[1] > 0)
}

fn more_than_few(rows: u64, len: u32) -> bool {
    rows > FEW_ROWS as u64 && u64::from(len) <= MAX_K as u64
}

/// Whether a vector of a float operand is read element by element.
fn is_apart(shape: &Shape) -> bool {
    match shape.dtype {
        DType::F32 | DType::F16 => !shape.rows_dense(),
        dtype => dtype == DType::Bf16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(opcode: Opcode, srcs: &[Shape], dst: Shape) -> Op {
        let mut op = Op {
            opcode,
            params: [0; 16],
            srcs: Default::default(),
            dsts: Default::default(),
        };
        for (to, &src) in op.srcs.iter_mut().zip(srcs) {
            *to = Some(src);
        }
        op.dsts[0] = Some(dst);
        op
    }

    #[test]
    fn what_decides() {
        let dense = |dtype, ne| Shape::dense(dtype, ne).unwrap();
        let f32 = |ne| dense(DType::F32, ne);
        let product = |weight, rows| op(Opcode::MulMat, &[weight, f32([64, rows, 1, 1])], f32([8, rows, 1, 1]));
        let half = dense(DType::F16, [64, 8, 1, 1]);
        assert_eq!(unit(&product(half, 4)), Unit::Vector);
        assert_eq!(unit(&product(half, 5)), Unit::Matrix);
        assert_eq!(unit(&product(f32([64, 8, 1, 1]), 100)), Unit::Vector);
        assert_eq!(
            unit(&product(dense(DType::Q8_0, [64, 8, 1, 1]), 1)),
            Unit::Gathered(CODED)
        );
        let mut apart = f32([4, 4, 1, 1]);
        apart.nb = [16, 4, 64, 64];
        let square = f32([4, 4, 1, 1]);
        assert_eq!(unit(&op(Opcode::Add, &[square, square], square)), Unit::Vector);
        assert_eq!(unit(&op(Opcode::Add, &[square, apart], square)), Unit::Gathered(APART));
        assert!(matches!(unit(&op(Opcode::Cumsum, &[square], square)), Unit::Scalar(_)));
    }
}
