//! Plain references: what each op means, element by element, with sums in f64. Slow on purpose, never wrong on purpose.
//!
//! They read any type and stride through [`element`], run with `--exact`, and judge the vector kernels in tests. The
//! calling thread does all but matrix products and attention, which would take too long for a whole model.

mod attention;
mod data;
pub mod element;
mod elementwise;
mod functions;
mod get_rows;
mod linear_attn;
mod matmul;
mod rope;
mod row;
mod sums;
mod window;

use hexloom_abi::{Opcode, Status};

use super::{Context, OpArgs};

pub(super) fn run(cx: &Context<'_>, args: &OpArgs<'_>) -> Result<(), Status> {
    match args.op.opcode {
        Opcode::MulMat | Opcode::MulMatAdd | Opcode::MulMatNx => matmul::matmul(cx, args),
        Opcode::Add | Opcode::Sub | Opcode::Mul | Opcode::Div => elementwise::binary(args),
        Opcode::RmsNorm | Opcode::RmsNormMul | Opcode::Norm => row::norm(args),
        Opcode::Silu | Opcode::Gelu | Opcode::GeluErf | Opcode::GeluQuick | Opcode::Scale | Opcode::Clamp => {
            elementwise::unary(args)
        }
        Opcode::Swiglu | Opcode::Geglu | Opcode::GegluErf | Opcode::GegluQuick | Opcode::Reglu => {
            elementwise::gated(args)
        }
        Opcode::Rope => rope::rope(args),
        Opcode::SoftMax => row::soft_max(args),
        Opcode::FlashAttnExt => attention::attention(cx, args),
        Opcode::GetRows => get_rows::get_rows(args),
        Opcode::SetRows => data::set_rows(args),
        Opcode::Cpy | Opcode::CpyFence => data::cpy(args),
        Opcode::Argmax => row::argmax(args),
        Opcode::Argsort => row::argsort(args),
        Opcode::CountEqual => row::count_equal(args),
        Opcode::LinearAttn => linear_attn::linear_attn(args),
        Opcode::Allreduce | Opcode::AllreduceAdd => elementwise::reduce(args),
        Opcode::Im2col | Opcode::Conv | Opcode::Pool => window::window(args),
        Opcode::MulMatId => sums::matmul_id(args),
        Opcode::Sum | Opcode::SumRows | Opcode::Mean | Opcode::L2Norm | Opcode::Cumsum => sums::sums(args),
        Opcode::OutProd => window::out_prod(args),
        _ if args.op.opcode.is_function() => functions::function(args),
        _ => Err(Status::Unsupported),
    }
}
