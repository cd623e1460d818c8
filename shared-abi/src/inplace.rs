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
        Opcode::Swiglu | Opcode::Geglu | Opcode::GegluErf | Opcode::GegluQuick => operand < 2,
        Opcode::RmsNorm
        | Opcode::RmsNormMul
        | Opcode::Norm
        | Opcode::Silu
        | Opcode::Gelu
        | Opcode::GeluErf
        | Opcode::GeluQuick
        | Opcode::Scale
        | Opcode::Clamp
        | Opcode::Rope
        | Opcode::SoftMax => operand == 0,
        Opcode::MulMatAdd => operand == 2,
        Opcode::MulMat
        | Opcode::MulMatNx
        | Opcode::FlashAttnExt
        | Opcode::GetRows
        | Opcode::SetRows
        | Opcode::Cpy
        | Opcode::Argmax
        | Opcode::Fence
        | Opcode::CpyFence
        | Opcode::MdevGroup
        | Opcode::Allreduce
        | Opcode::AllreduceAdd => false,
    }
}
