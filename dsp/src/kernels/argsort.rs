//! ARGSORT: the indices of a row's elements in their order, or the first of them.
//!
//! A heap of the first ones found so far lies in the result itself, the last of them on top, so that any length needs no
//! scratch memory. Plain scalar code on every instruction set: what is read next depends on what was compared.

use hexloom_abi::Status;

use super::{Context, OpArgs};
use crate::hvx::{Isa, Kernel, Part};
use crate::tensor::{Span, Tensor};

pub(super) fn argsort<I: Isa>(cx: &Context<'_>, args: &OpArgs<'_>) -> Result<(), Status> {
    let kernel = Argsort {
        x: args.src(0)?,
        out: args.dst(0)?,
        descending: args.op.param(0) == 1,
    };
    cx.run_rows::<I, _>(&kernel, args.op.src(0))
}

struct Argsort<'a> {
    x: Tensor<'a>,
    out: Tensor<'a>,
    descending: bool,
}

impl Kernel for Argsort<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        for row in part.range(self.x.rows()) {
            let index = self.x.row_index(row);
            let order = Order {
                x: self.x,
                index,
                found: self.out.row(index),
                descending: self.descending,
            };
            order.fill(self.x.ne()[0]);
        }
    }
}

/// One row, and the heap of indices found.
struct Order<'a> {
    x: Tensor<'a>,
    index: [usize; 3],
    found: Span<'a, i32>,
    descending: bool,
}

impl Order<'_> {
    /// Of `n` elements as many as there is room for.
    #[inline(never)]
    fn fill(&self, n: usize) {
        let room = self.found.len();
        for idx in 0..room {
            self.found.set(idx, idx as i32);
        }
        for at in (0..room / 2).rev() {
            self.sift(at, room);
        }
        for idx in room..n {
            if room > 0 && self.is_before(idx as i32, self.found.get(0)) {
                self.found.set(0, idx as i32);
                self.sift(0, room);
            }
        }
        for end in (1..room).rev() {
            let last = self.found.get(0);
            self.found.set(0, self.found.get(end));
            self.found.set(end, last);
            self.sift(0, end);
        }
    }

    /// Lets what is at `at` sink in the heap of the first `len`.
    #[inline(never)]
    fn sift(&self, mut at: usize, len: usize) {
        let sinking = self.found.get(at);
        loop {
            let mut child = 2 * at + 1;
            if child >= len {
                break;
            }
            if child + 1 < len && self.is_before(self.found.get(child), self.found.get(child + 1)) {
                child += 1;
            }
            if !self.is_before(sinking, self.found.get(child)) {
                break;
            }
            self.found.set(at, self.found.get(child));
            at = child;
        }
        self.found.set(at, sinking);
    }

    #[inline(never)]
    fn is_before(&self, a: i32, b: i32) -> bool {
        let (x, y) = (self.key(a), self.key(b));
        x < y || (x == y && a < b)
    }

    /// A number that is ordered as the element is; NaN lies beyond infinity. The index has lain in memory that others may
    /// write, so that it is held to the row.
    fn key(&self, idx: i32) -> i32 {
        let idx = (idx as usize).min(self.x.ne()[0] - 1);
        let bits = self.x.element::<i32>(idx, self.index).get(0);
        let key = bits ^ ((bits >> 31) & i32::MAX);
        if self.descending { !key } else { key }
    }
}
