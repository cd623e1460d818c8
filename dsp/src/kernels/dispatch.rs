//! From opcode to kernel: the one match that both the vector kernels and the references go through.

use hexloom_abi::{Opcode, Status};

#[cfg(not(target_arch = "hexagon"))]
use super::reference;
use super::{
    Context, OpArgs, argmax, argsort, attention, binary, count_equal, cpy, functions, get_rows, linear_attn, matmul,
    matmul_id, norm, out_prod, reduce, rope, set_rows, soft_max, sums, window,
};
use crate::hvx::Isa;
#[cfg(target_arch = "hexagon")]
use crate::hvx::Native;
#[cfg(target_arch = "x86_64")]
use crate::hvx::avx2::{self, Avx2};
#[cfg(all(not(target_arch = "hexagon"), feature = "float-model"))]
use crate::hvx::device::{Device, Ieee, Qfloat, model::Model};
#[cfg(not(target_arch = "hexagon"))]
use crate::hvx::plain::Plain;

/// Which kernels a session runs, chosen when it starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelSet {
    /// The plain references, for `--exact` and for tests; not in the images, a tenth of whose code they would be.
    #[cfg(not(target_arch = "hexagon"))]
    Reference,
    /// Vector kernels on the plain member of the vector layer; not in the images, whose size it would double.
    #[cfg(not(target_arch = "hexagon"))]
    Plain,
    /// Vector kernels on AVX2 and F16C; the same as `Plain` on a processor without them.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Vector kernels of devices of v68 to v75, on a model of their instructions.
    #[cfg(all(not(target_arch = "hexagon"), feature = "float-model"))]
    Qfloat,
    /// Vector kernels of devices of v79 and later, on a model of their instructions.
    #[cfg(all(not(target_arch = "hexagon"), feature = "float-model"))]
    Ieee,
    /// Vector kernels on HVX.
    #[cfg(target_arch = "hexagon")]
    Hvx,
}

impl KernelSet {
    /// The fastest vector kernels that this processor has.
    pub fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        if avx2::available() {
            return Self::Avx2;
        }
        #[cfg(target_arch = "hexagon")]
        return Self::Hvx;
        #[cfg(not(target_arch = "hexagon"))]
        Self::Plain
    }

    /// The references, where they are.
    pub fn reference() -> Option<Self> {
        #[cfg(not(target_arch = "hexagon"))]
        return Some(Self::Reference);
        #[cfg(target_arch = "hexagon")]
        None
    }

    /// Runs one op. Support and scratch were checked by the caller.
    pub fn run(self, cx: &Context<'_>, args: &OpArgs<'_>) -> Result<(), Status> {
        match self {
            #[cfg(not(target_arch = "hexagon"))]
            Self::Reference => reference::run(cx, args),
            #[cfg(not(target_arch = "hexagon"))]
            Self::Plain => run::<Plain>(cx, args),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => run::<Avx2>(cx, args),
            #[cfg(all(not(target_arch = "hexagon"), feature = "float-model"))]
            Self::Qfloat => run::<Device<Model, Qfloat>>(cx, args),
            #[cfg(all(not(target_arch = "hexagon"), feature = "float-model"))]
            Self::Ieee => run::<Device<Model, Ieee>>(cx, args),
            #[cfg(target_arch = "hexagon")]
            Self::Hvx => run::<Native>(cx, args),
        }
    }
}

fn run<I: Isa>(cx: &Context<'_>, args: &OpArgs<'_>) -> Result<(), Status> {
    match args.op.opcode {
        Opcode::MulMat | Opcode::MulMatAdd | Opcode::MulMatNx => matmul::matmul::<I>(cx, args),
        Opcode::Add | Opcode::Sub | Opcode::Mul | Opcode::Div => binary::binary::<I>(cx, args),
        Opcode::RmsNorm | Opcode::RmsNormMul | Opcode::Norm => norm::norm::<I>(cx, args),
        Opcode::Swiglu | Opcode::Geglu | Opcode::GegluErf | Opcode::GegluQuick | Opcode::Reglu => {
            functions::gated::<I>(cx, args)
        }
        Opcode::Rope => rope::rope::<I>(cx, args),
        Opcode::SoftMax => soft_max::soft_max::<I>(cx, args),
        Opcode::FlashAttnExt => attention::attention::<I>(cx, args),
        Opcode::GetRows => get_rows::get_rows::<I>(cx, args),
        Opcode::SetRows => set_rows::set_rows::<I>(cx, args),
        Opcode::Cpy | Opcode::CpyFence => cpy::cpy::<I>(cx, args),
        Opcode::Argmax => argmax::argmax::<I>(cx, args),
        Opcode::Argsort => argsort::argsort::<I>(cx, args),
        Opcode::CountEqual => count_equal::count_equal::<I>(cx, args),
        Opcode::LinearAttn => linear_attn::linear_attn::<I>(cx, args),
        Opcode::Allreduce | Opcode::AllreduceAdd => reduce::reduce::<I>(cx, args),
        Opcode::Im2col | Opcode::Conv | Opcode::Pool => window::window::<I>(cx, args),
        Opcode::MulMatId => matmul_id::matmul_id::<I>(cx, args),
        Opcode::Sum | Opcode::SumRows | Opcode::Mean | Opcode::L2Norm | Opcode::Cumsum => sums::sums::<I>(cx, args),
        Opcode::OutProd => out_prod::out_prod::<I>(cx, args),
        // Those between sessions are not: there is nothing to compute.
        _ if args.op.opcode.is_function() => functions::function::<I>(cx, args),
        _ => Err(Status::Unsupported),
    }
}
