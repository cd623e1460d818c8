//! Which operand an op may overwrite: one table for the planner, the support check and the kernels.

use crate::code::Opcode;

/// Whether `op` gives the right result when its first destination occupies exactly the bytes of source `operand`, with
/// the same type, shape and strides. Any other overlap of a destination with a source is refused by the DSP.
///
/// Element-wise kernels read each vector before they write it; row kernels keep what they need of a row in scratch or
/// registers. A broadcast operand never qualifies because its shape differs from the destination's.
pub const fn can_inplace(op: Opcode, operand: usize) -> bool {
    match op {
        Opcode::Add | Opcode::Sub | Opcode::Mul | Opcode::Div => operand < 2,
        Opcode::Swiglu | Opcode::Geglu | Opcode::GegluErf | Opcode::GegluQuick | Opcode::Reglu => operand < 2,
        _ if op.is_function() => operand == 0,
        Opcode::RmsNorm | Opcode::RmsNormMul | Opcode::Norm | Opcode::Rope | Opcode::SoftMax | Opcode::Cumsum => {
            operand == 0
        }
        Opcode::MulMatAdd => operand == 2,
        _ => false,
    }
}
