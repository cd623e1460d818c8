//! Kernels: one file per op family here, its plain reference under [`mod@reference`], and the dispatch that both share.
//!
//! An op function builds a struct of operands that implements [`Kernel`] and runs it on the pool, once per phase.
//! Results never depend on the number of threads: work is split by output rows (or by fixed pieces), never by a
//! thread-dependent share of a sum.

mod argmax;
mod argsort;
pub(crate) mod attention;
pub(crate) mod attention_block;
mod binary;
mod codes;
mod count_equal;
mod cpy;
mod dequantize;
mod dispatch;
mod encode;
mod formulas;
mod functions;
mod get_rows;
mod linear_attn;
pub(crate) mod matmul;
mod matmul_float;
mod matmul_id;
pub(crate) mod matmul_split;
mod matmul_stream;
mod matmul_tiled;
mod norm;
mod out_prod;
pub(crate) mod quantize;
mod reduce;
#[cfg(not(target_arch = "hexagon"))]
pub mod reference;
mod rope;
pub(crate) mod rows;
mod set_rows;
mod slope;
mod soft_max;
mod sums;
mod window;

use core::cell::Cell;

use hexloom_abi::Status;
use hexloom_abi::op::{Op, Shape};
use hexloom_abi::profile::TRACE_KERNEL;

use crate::hmx::UnitKind;
use crate::hvx::{Isa, Kernel, Part};
use crate::pool::{Fork, Work};
use crate::tensor::{Plain, Span, Tensor};

pub use dispatch::KernelSet;
pub use matmul_stream::{Constants, Streaming};
pub use reduce::REDUCE_START_PARAM;

/// One op with its operands resolved.
pub struct OpArgs<'a> {
    /// Code, parameters and shapes.
    pub op: Op,
    /// Operands read.
    pub srcs: [Option<Tensor<'a>>; 10],
    /// Operands written.
    pub dsts: [Option<Tensor<'a>>; 4],
}

/// Element-wise results that one thread makes in about the time that waking another takes.
const SMALL_ELEMS: u64 = 2048;

/// What an op function runs on: threads, scratch memory, the matrix unit if it is used, and streams where there are.
pub struct Context<'a> {
    pool: &'a dyn Fork,
    unit: Option<UnitKind>,
    scratch: Span<'a, u8>,
    used: Cell<usize>,
    streaming: Option<Streaming<'a>>,
}

impl<'a> OpArgs<'a> {
    /// Required operand `idx`; absent ones were refused by the support check.
    pub fn src(&self, idx: usize) -> Result<Tensor<'a>, Status> {
        self.srcs.get(idx).copied().flatten().ok_or(Status::Invalid)
    }

    /// Optional operand `idx`.
    pub fn src_opt(&self, idx: usize) -> Option<Tensor<'a>> {
        self.srcs.get(idx).copied().flatten()
    }

    /// Required destination `idx`.
    pub fn dst(&self, idx: usize) -> Result<Tensor<'a>, Status> {
        self.dsts.get(idx).copied().flatten().ok_or(Status::Invalid)
    }
}

impl<'a> Context<'a> {
    /// A context over a pool and all of a session's scratch memory, whose base is 128-byte aligned.
    pub fn new(pool: &'a dyn Fork, scratch: Span<'a, u8>) -> Self {
        Self {
            pool,
            unit: None,
            scratch,
            used: Cell::new(0),
            streaming: None,
        }
    }

    /// The same with a matrix unit for the ops that it serves.
    pub fn with_unit(self, unit: Option<UnitKind>) -> Self {
        Self { unit, ..self }
    }

    /// The matrix unit in use.
    pub(crate) fn unit(&self) -> Option<UnitKind> {
        self.unit
    }

    /// The same with weights that DMA may bring.
    pub fn streaming(self, streaming: Option<Streaming<'a>>) -> Self {
        Self { streaming, ..self }
    }

    /// Runs all parts of a kernel on instruction set `I`.
    pub fn run<I: Isa, K: Kernel>(&self, kernel: &K) -> Result<(), Status> {
        self.pool.fork(Work::new::<I, K>(kernel))
    }

    /// Runs a kernel of `elems` element-wise results: on the calling thread alone when waking others costs more.
    pub(crate) fn run_sized<I: Isa, K: Kernel>(&self, kernel: &K, elems: u64) -> Result<(), Status> {
        if elems > SMALL_ELEMS {
            return self.run::<I, K>(kernel);
        }
        if self.pool.is_poisoned() {
            return Err(Status::Poisoned);
        }
        self.pool.mark(0, TRACE_KERNEL, false);
        I::invoke(kernel, Part { idx: 0, count: 1 });
        self.pool.mark(0, TRACE_KERNEL, true);
        Ok(())
    }

    /// Runs a kernel whose rows stay whole: on the calling thread alone when there is one row or little work.
    pub(crate) fn run_rows<I: Isa, K: Kernel>(&self, kernel: &K, shape: Option<&Shape>) -> Result<(), Status> {
        let elems = shape.filter(|shape| shape.rows() > 1).map_or(0, Shape::elems);
        self.run_sized::<I, K>(kernel, elems)
    }

    /// Threads that parts are dealt to.
    pub fn n_threads(&self) -> usize {
        self.pool.n_threads() as usize
    }

    /// The scratch memory that is not yet taken, without taking it; contents are junk.
    pub(crate) fn rest(&self) -> Span<'a, u8> {
        self.scratch.part(self.used.get(), self.scratch_left())
    }

    /// Scratch bytes not yet taken by this op.
    pub fn scratch_left(&self) -> usize {
        self.scratch.len() - self.used.get()
    }

    /// Takes `len` elements of scratch, on a line of its own; contents are junk.
    pub fn take<T: Plain>(&self, len: usize) -> Result<Span<'a, T>, Status> {
        let bytes = len
            .checked_mul(size_of::<T>())
            .and_then(|bytes| bytes.checked_next_multiple_of(128))
            .ok_or(Status::ScratchTooSmall)?;
        if bytes > self.scratch_left() {
            return Err(Status::ScratchTooSmall);
        }
        let start = self.used.replace(self.used.get() + bytes);
        Ok(self.scratch.part(start, bytes).cast::<T>().part(0, len))
    }
}
