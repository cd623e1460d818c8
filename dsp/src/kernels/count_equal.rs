//! COUNT_EQUAL: how many elements of two integer tensors are the same. One number, so one thread.

use hexloom_abi::Status;

use super::{Context, OpArgs};
use crate::hvx::{Isa, Kernel, LANES, Part};
use crate::tensor::{Span, Tensor};

pub(super) fn count_equal<I: Isa>(cx: &Context<'_>, args: &OpArgs<'_>) -> Result<(), Status> {
    let kernel = CountEqual {
        a: args.src(0)?,
        b: args.src(1)?,
        out: args.dst(0)?,
    };
    cx.run_sized::<I, _>(&kernel, 0)
}

struct CountEqual<'a> {
    a: Tensor<'a>,
    b: Tensor<'a>,
    out: Tensor<'a>,
}

impl Kernel for CountEqual<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, _: Part) {
        let [width, ..] = self.a.ne();
        let dense = [&self.a, &self.b].into_iter().all(|tensor| tensor.nb()[0] == 4);
        let mut same = 0;
        for row in 0..self.a.rows() {
            let index = self.a.row_index(row);
            let whole = if dense { width - width % LANES } else { 0 };
            if whole > 0 {
                same += equal_lanes::<I>(self.a.row(index), self.b.row(index), whole);
            }
            let tail = (whole..width).filter(|&idx| {
                let [a, b] = [&self.a, &self.b].map(|tensor| tensor.element::<i32>(idx, index).get(0));
                a == b
            });
            same += tail.count();
        }
        self.out.element::<i64>(0, [0; 3]).set(0, same as i64);
    }
}

/// Equal elements among the first `len`, a multiple of the lanes: each lane counts those that differ, downwards.
#[inline(always)]
fn equal_lanes<I: Isa>(a: Span<'_, i32>, b: Span<'_, i32>, len: usize) -> usize {
    let mut differ = I::splat_i(0);
    for start in (0..len).step_by(LANES) {
        let [a, b] = [&a, &b].map(|span| {
            // SAFETY: `part` has checked that a vector of elements lies in the span.
            unsafe { I::load_i32(span.part(start, LANES).as_ptr()) }
        });
        differ = I::add_i(differ, I::or(I::gt_i(a, b), I::gt_i(b, a)));
    }
    let differ = I::to_array(I::from_bits(differ)).map(|lane| lane.to_bits().cast_signed().unsigned_abs() as usize);
    len - differ.iter().sum::<usize>()
}
