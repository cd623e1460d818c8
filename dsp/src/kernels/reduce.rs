//! ALLREDUCE and ALLREDUCE_ADD: one rank's share, a run of elements of every rank's tensor, summed in rank order.
//!
//! Each addition is rounded to the tensors' type, as a chain of ADDs between tensors would, so the sum has the bits that one
//! session gets which adds the parts in that order. Each vector is read from all sources before it is stored anywhere, for
//! a destination may be a source.

use hexloom_abi::{AllreduceParams, DType, Opcode, Status};

use super::rows::{Pieces, Row};
use super::{Context, OpArgs};
use crate::hvx::plain::{bf16_to_f32, f32_to_bf16};
use crate::hvx::{Isa, Kernel, LANES, Part};
use crate::tensor::Tensor;

/// Parameter that the interpreter sets: the first element's place in the addend, when that is one row.
pub const REDUCE_START_PARAM: usize = 15;

pub(super) fn reduce<I: Isa>(cx: &Context<'_>, args: &OpArgs<'_>) -> Result<(), Status> {
    let n_ranks = AllreduceParams::of(&args.op.params).n_ranks as usize;
    let len = args.dst(0)?.ne()[0];
    let kernel = Reduce {
        parts: core::array::from_fn(|idx| {
            if idx < n_ranks {
                args.src_opt(idx).map(row)
            } else {
                None
            }
        }),
        addend: match args.op.opcode {
            Opcode::AllreduceAdd => args.src_opt(2 * n_ranks).map(row),
            _ => None,
        },
        first: args.op.param(REDUCE_START_PARAM) as usize,
        out: args.dsts.map(|dst| dst.map(row)),
        len,
        dtype: args.dst(0)?.dtype(),
    };
    cx.run_sized::<I, _>(&kernel, len as u64)
}

fn row(tensor: Tensor<'_>) -> Row<'_> {
    Row::new(&tensor, [0; 3])
}

struct Reduce<'a> {
    parts: [Option<Row<'a>>; 4],
    addend: Option<Row<'a>>,
    /// Place of the first element in the addend's row.
    first: usize,
    out: [Option<Row<'a>>; 4],
    len: usize,
    /// What sums are rounded to on the way.
    dtype: DType,
}

impl Kernel for Reduce<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        for piece in Pieces::new(part, 1, self.len) {
            for start in piece.starts() {
                self.vector::<I>(start);
            }
        }
    }
}

impl Reduce<'_> {
    #[inline(always)]
    fn vector<I: Isa>(&self, start: usize) {
        let mut sum = None;
        for part in self.parts.iter().flatten() {
            let x = part.load::<I>(start, 0.0);
            sum = Some(match sum {
                Some(sum) => self.add::<I>(sum, x),
                None => x,
            });
        }
        let Some(mut sum) = sum else { return };
        if let Some(addend) = &self.addend {
            sum = self.add::<I>(sum, addend.load_repeated::<I>(self.first + start));
        }
        for out in self.out.iter().flatten() {
            out.store::<I>(start, sum);
        }
    }

    #[inline(always)]
    fn add<I: Isa>(&self, a: I::F32, b: I::F32) -> I::F32 {
        let sum = I::add(a, b);
        match self.dtype {
            DType::F16 => {}
            DType::Bf16 => return I::from_array(I::to_array(sum).map(|x| bf16_to_f32(f32_to_bf16(x)))),
            _ => return sum,
        }
        let mut halves = [0u16; LANES];
        // SAFETY: an array of 32 halves, on their boundary.
        unsafe { I::store_f16(halves.as_mut_ptr(), sum) };
        // SAFETY: as above.
        unsafe { I::load_f16(halves.as_ptr()) }
    }
}
