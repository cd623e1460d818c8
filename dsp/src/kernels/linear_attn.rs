//! LINEAR_ATTN: each row of a state by one thread, token after token; the row lies in the result while it changes.

use hexloom_abi::Status;
use hexloom_abi::recurrence::{BONUS, DELTA, GROUPED, LOW_RANK, PLAIN};

use super::rows::Row;
use super::{Context, OpArgs};
use crate::hvx::{Isa, Kernel, Part};
use crate::tensor::Tensor;

pub(super) fn linear_attn<I: Isa>(cx: &Context<'_>, args: &OpArgs<'_>) -> Result<(), Status> {
    let kernel = LinearAttn {
        queries: args.src(0)?,
        decays: args.src(1)?,
        keys: args.src(2)?,
        values: args.src(3)?,
        before: args.src(4)?,
        first: args.src_opt(5),
        second: args.src_opt(6),
        out: args.dst(0)?,
        after: args.dst(1)?,
        rule: args.op.param(0),
        scale: args.op.param_f32(1),
        grouped: args.op.param(2) == GROUPED,
    };
    let elems = args.op.src(4).map_or(0, |state| state.elems());
    cx.run_sized::<I, _>(&kernel, elems.saturating_mul(kernel.values.ne()[2] as u64))
}

struct LinearAttn<'a> {
    queries: Tensor<'a>,
    decays: Tensor<'a>,
    keys: Tensor<'a>,
    values: Tensor<'a>,
    before: Tensor<'a>,
    /// Beta, a or u.
    first: Option<Tensor<'a>>,
    /// b.
    second: Option<Tensor<'a>>,
    out: Tensor<'a>,
    after: Tensor<'a>,
    rule: u32,
    scale: f32,
    grouped: bool,
}

impl Kernel for LinearAttn<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        let [_, _, n_tokens, n_seqs] = self.out.ne();
        let n_kept = self.after.ne()[3] / n_seqs;
        for row in part.range(self.before.rows()) {
            let [value, head, seq] = self.before.row_index(row);
            let kept = |slot: usize| Row::new(&self.after, [value, head, slot * n_seqs + seq]);
            let state = kept(0);
            copy::<I>(&Row::new(&self.before, [value, head, seq]), &state);
            for token in 0..n_tokens {
                let at = [head, token, seq];
                let result = self.step::<I>(&state, Row::new(&self.values, at).get(value), at);
                Row::new(&self.out, at).set(value, result * self.scale);
                let left = n_tokens - 1 - token;
                if left > 0 && left < n_kept {
                    copy::<I>(&state, &kept(left));
                }
            }
        }
    }
}

impl<'a> LinearAttn<'a> {
    /// One token: changes the state's row and gives what the query reads of it.
    #[inline(always)]
    fn step<I: Isa>(&self, state: &Row<'_>, value: f32, at: [usize; 3]) -> f32 {
        let [query, key, decay] = [&self.queries, &self.keys, &self.decays].map(|tensor| self.row(tensor, at));
        let [first, second] =
            [&self.first, &self.second].map(|tensor| tensor.as_ref().map(|tensor| self.row(tensor, at)));
        let same = (self.decays.ne()[0] == 1).then(|| I::splat(decay.get(0)));
        let decay = |start: usize| same.unwrap_or_else(|| decay.load::<I>(start, 0.0));
        let known = match (self.rule, &first) {
            (DELTA, _) => dot::<I>(state, |start, x| {
                I::mul(key.load::<I>(start, 0.0), I::mul(x, decay(start)))
            }),
            (LOW_RANK, Some(first)) => dot::<I>(state, |start, x| I::mul(first.load::<I>(start, 0.0), x)),
            _ => 0.0,
        };
        let gain = match (self.rule, &first) {
            (PLAIN | DELTA, Some(beta)) => (value - known) * beta.get(0),
            _ => value,
        };
        let (gain, known) = (I::splat(gain), I::splat(known));
        let mut sum = I::splat(0.0);
        for start in state.starts() {
            let x = state.load::<I>(start, 0.0);
            let taken = I::mul(key.load::<I>(start, 0.0), gain);
            let mut next = I::add(I::mul(x, decay(start)), taken);
            if let Some(second) = &second {
                next = I::add(next, I::mul(second.load::<I>(start, 0.0), known));
            }
            state.store::<I>(start, next);
            let read = match &first {
                Some(bonus) if self.rule == BONUS => I::add(x, I::mul(bonus.load::<I>(start, 0.0), taken)),
                _ => next,
            };
            sum = I::add(sum, I::mul(query.load::<I>(start, 0.0), read));
        }
        I::sum(sum)
    }

    /// What a head reads of an operand that several heads, all tokens or all sequences may share.
    #[inline(always)]
    fn row(&self, tensor: &Tensor<'a>, [head, token, seq]: [usize; 3]) -> Row<'a> {
        let [_, n_heads, _, n_seqs] = tensor.ne();
        let head = match self.grouped {
            true => head / (self.out.ne()[1] / n_heads),
            false => head,
        };
        Row::repeated(tensor, [head, token, seq / (self.out.ne()[3] / n_seqs)])
    }
}

/// Sum over lanes of what `f` makes of each vector of a row.
#[inline(always)]
fn dot<I: Isa>(row: &Row<'_>, f: impl Fn(usize, I::F32) -> I::F32) -> f32 {
    let mut sum = I::splat(0.0);
    for start in row.starts() {
        sum = I::add(sum, f(start, row.load::<I>(start, 0.0)));
    }
    I::sum(sum)
}

#[inline(always)]
fn copy<I: Isa>(from: &Row<'_>, to: &Row<'_>) {
    for start in from.starts() {
        to.store::<I>(start, from.load::<I>(start, 0.0));
    }
}
