//! FLASH_ATTN_EXT: softmax(scale * Q K^T, capped, masked, with sinks) V without materialised scores, sums in f32.
//!
//! Up to eight query rows of one KV head form an item and share each pass over keys and values. With few tokens the KV
//! range is cut into fixed pieces, whose partial results wait in scratch and are merged in order; the cut depends on the
//! op alone, so the bits do not depend on threads or on how many items scratch holds at a time. The inner loops are in
//! [`block`](super::attention_block).

use core::ops::Range;

use hexloom_abi::{Status, scratch};

use super::attention_block::{Block, RowState, exp};
use super::rows::Row;
use super::slope::slope;
use super::{Context, OpArgs};
use crate::hmx;
use crate::hvx::{self, Isa, Kernel, LANES, Part, math};
use crate::tensor::{Span, Tensor};

/// Query rows of an item.
pub(super) const ROWS: usize = scratch::ATTENTION_ROWS as usize;
/// Most pieces of the KV range.
const MAX_PIECES: usize = scratch::ATTENTION_MAX_PIECES as usize;

/// Operands and numbers of the op.
#[derive(Clone, Copy)]
pub(crate) struct Attention<'a> {
    pub(crate) q: Tensor<'a>,
    pub(crate) k: Tensor<'a>,
    pub(crate) v: Tensor<'a>,
    pub(crate) mask: Option<Tensor<'a>>,
    sinks: Option<Tensor<'a>>,
    out: Tensor<'a>,
    scale: f32,
    max_bias: f32,
    softcap: f32,
    /// Positions of one piece of the KV range.
    piece: usize,
}

/// Query rows that share keys and values.
#[derive(Clone, Copy)]
pub(super) struct Item {
    pub(super) seq: usize,
    pub(super) kv_head: usize,
    /// Query heads of the KV head.
    group: usize,
    /// First row, counted heads first, then tokens.
    first: usize,
    /// Rows, at most [`ROWS`].
    pub(super) count: usize,
}

/// A query row's place.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) token: usize,
    pub(crate) head: usize,
    pub(crate) seq: usize,
}

pub(super) fn attention<I: Isa>(cx: &Context<'_>, args: &OpArgs<'_>) -> Result<(), Status> {
    let [q, k, v] = [args.src(0)?, args.src(1)?, args.src(2)?];
    let n_tokens = q.shape().ne[1];
    let n_kv = k.shape().ne[1];
    let op = Attention {
        q,
        k,
        v,
        mask: args.src_opt(3),
        sinks: args.src_opt(4),
        out: args.dst(0)?,
        scale: args.op.param_f32(0),
        max_bias: args.op.param_f32(1),
        softcap: args.op.param_f32(2),
        piece: scratch::attention_piece(n_tokens, n_kv) as usize,
    };
    if let Some(unit) = cx.unit()
        && hmx::attention::serve::<I>(cx, unit, &op)?
    {
        return Ok(());
    }
    let [dk, dv] = [q.shape().ne[0], v.shape().ne[0]];
    let thread_bytes = scratch::attention_thread_bytes(dk, dv) as usize;
    let working = cx.take::<u8>(thread_bytes * cx.n_threads())?;
    let n_items = op.n_items();
    let pieces = op.pieces();
    let item_bytes = pieces * ROWS * op.partial_bytes();
    if pieces == 1 {
        return cx.run::<I, _>(&Pass {
            op,
            items: 0..n_items,
            working,
            thread_bytes,
            partials: None,
        });
    }
    let at_once = n_items.min(cx.scratch_left() / item_bytes);
    if at_once == 0 && n_items > 0 {
        return Err(Status::ScratchTooSmall);
    }
    let partials = cx.take::<u8>(at_once * item_bytes)?;
    let mut start = 0;
    while start < n_items {
        let items = start..n_items.min(start + at_once);
        start = items.end;
        cx.run::<I, _>(&Pass {
            op,
            items: items.clone(),
            working,
            thread_bytes,
            partials: Some(partials),
        })?;
        cx.run::<I, _>(&Merge { op, items, partials })?;
    }
    Ok(())
}

impl<'a> Attention<'a> {
    fn pieces(&self) -> usize {
        self.k.ne()[1].div_ceil(self.piece)
    }

    fn partial_bytes(&self) -> usize {
        scratch::attention_partial_bytes(self.v.shape().ne[0]) as usize
    }

    /// Query heads of one KV head.
    pub(crate) fn group(&self) -> usize {
        self.q.ne()[2] / self.k.ne()[2]
    }

    fn blocks_of_rows(&self) -> usize {
        (self.q.ne()[1] * self.group()).div_ceil(ROWS)
    }

    fn n_items(&self) -> usize {
        self.q.ne()[3] * self.k.ne()[2] * self.blocks_of_rows()
    }

    #[inline(always)]
    fn item(&self, idx: usize) -> Item {
        let blocks = self.blocks_of_rows();
        let kv_heads = self.k.ne()[2];
        let group = self.group();
        let first = idx % blocks * ROWS;
        Item {
            seq: idx / (blocks * kv_heads),
            kv_head: idx / blocks % kv_heads,
            group,
            first,
            count: (self.q.ne()[1] * group - first).min(ROWS),
        }
    }

    /// Index of keys and values in dimensions 2 and 3.
    #[inline(always)]
    pub(super) fn kv_matrix(&self, item: &Item) -> [usize; 2] {
        [item.kv_head, item.seq / (self.q.ne()[3] / self.k.ne()[3])]
    }

    #[inline(always)]
    pub(crate) fn slope(&self, head: usize) -> f32 {
        slope(self.max_bias, self.q.ne()[2], head)
    }

    /// The mask that a query row sees at `count` positions from `start`.
    #[inline(always)]
    pub(crate) fn mask_row(&self, place: Place, start: usize, count: usize) -> Option<Row<'a>> {
        let mask = self.mask.as_ref()?;
        Some(Row::repeated(mask, [place.token, place.head, place.seq]).part(start, count))
    }

    /// Scaled, capped and masked scores of 32 positions of a block, from `at` on, given the products of query and keys;
    /// -infinity from position `count` on.
    #[inline(always)]
    pub(crate) fn scored<I: Isa>(
        &self,
        products: I::F32,
        at: usize,
        count: usize,
        mask: Option<Row<'_>>,
        slope: f32,
    ) -> I::F32 {
        if at >= count {
            return I::splat(f32::NEG_INFINITY);
        }
        let cap = self.softcap;
        let mut scores = if cap == 0.0 {
            I::mul(products, I::splat(self.scale))
        } else {
            let scores = I::mul(products, I::splat(self.scale / cap));
            I::mul(math::tanh::<I>(scores), I::splat(cap))
        };
        if let Some(mask) = mask {
            let mask = mask.load::<I>(at, f32::NEG_INFINITY);
            scores = I::add(scores, I::mul(mask, I::splat(slope)));
        }
        if at + LANES <= count {
            return scores;
        }
        let mut inside = [0.0; LANES];
        inside[..count - at].fill(1.0);
        let inside = I::gt(I::from_array(inside), I::splat(0.0));
        I::select(inside, scores, I::splat(f32::NEG_INFINITY))
    }

    /// Takes the sink in and stores sums over the denominator; a row that saw nothing becomes zeros.
    #[inline(always)]
    pub(crate) fn finish<I: Isa>(&self, place: Place, state: RowState, sums: Span<'_, f32>) {
        let mut factor = 1.0;
        let mut denominator = state.sum;
        if let Some(sinks) = &self.sinks {
            let sink = Row::new(sinks, [0; 3]).get(place.head);
            let max = if sink > state.max { sink } else { state.max };
            if max > f32::NEG_INFINITY {
                factor = exp::<I>(state.max - max);
                denominator = state.sum * factor + exp::<I>(sink - max);
            }
        }
        let factor = if denominator == 0.0 { 0.0 } else { factor / denominator };
        let out = Row::new(&self.out, [place.head, place.token, place.seq]);
        for start in out.starts() {
            out.store::<I>(start, I::mul(hvx::load::<I>(sums, start), I::splat(factor)));
        }
    }
}

impl Item {
    /// Where row `row` of the item is.
    #[inline(always)]
    pub(super) fn place(&self, row: usize) -> Place {
        let row = self.first + row;
        Place {
            token: row / self.group,
            head: self.kv_head * self.group + row % self.group,
            seq: self.seq,
        }
    }
}

/// Works through the KV range of some items: results go to the output, or to partials if the range is cut.
struct Pass<'a> {
    op: Attention<'a>,
    items: Range<usize>,
    working: Span<'a, u8>,
    thread_bytes: usize,
    partials: Option<Span<'a, u8>>,
}

impl Kernel for Pass<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        let pieces = self.op.pieces();
        let working = self.working.part(part.idx * self.thread_bytes, self.thread_bytes);
        // Dealt in turn: with a causal mask later rows cost more.
        for unit in (part.idx..self.items.len() * pieces).step_by(part.count) {
            let (idx, piece) = (unit / pieces, unit % pieces);
            let item = self.op.item(self.items.start + idx);
            let block = Block::new(&self.op, item, working);
            let start = piece * self.op.piece;
            let end = self.op.k.ne()[1].min(start + self.op.piece);
            let states = block.run::<I>(start..end);
            for (row, state) in states.into_iter().enumerate().take(item.count) {
                let sums = block.sums(row);
                let Some(partials) = self.partials else {
                    self.op.finish::<I>(item.place(row), state, sums);
                    continue;
                };
                let partial = Partial::new(&self.op, partials, idx, row, piece);
                for start in (0..sums.len()).step_by(LANES) {
                    hvx::store::<I>(partial.sums, start, hvx::load::<I>(sums, start));
                }
                partial.state.set(0, state.max);
                partial.state.set(1, state.sum);
            }
        }
    }
}

/// Merges the pieces of each row, in order, into the output.
struct Merge<'a> {
    op: Attention<'a>,
    items: Range<usize>,
    partials: Span<'a, u8>,
}

impl Kernel for Merge<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        for unit in part.range(self.items.len() * ROWS) {
            let (idx, row) = (unit / ROWS, unit % ROWS);
            let item = self.op.item(self.items.start + idx);
            if row < item.count {
                self.row::<I>(idx, row, item.place(row));
            }
        }
    }
}

impl Merge<'_> {
    #[inline(always)]
    fn row<I: Isa>(&self, idx: usize, row: usize, place: Place) {
        let pieces = self.op.pieces();
        let partial = |piece: usize| Partial::new(&self.op, self.partials, idx, row, piece);
        let mut merged = RowState::EMPTY;
        for piece in 0..pieces {
            let max = partial(piece).state.get(0);
            merged.max = if max > merged.max { max } else { merged.max };
        }
        let mut factors = [0.0; MAX_PIECES];
        for (piece, factor) in factors.iter_mut().enumerate().take(pieces) {
            let state = partial(piece).state;
            *factor = exp::<I>(state.get(0) - merged.finite_max());
            merged.sum += state.get(1) * *factor;
        }
        // The first piece's sums make room for the merged ones, vector by vector.
        let sums = partial(0).sums;
        for start in (0..sums.len()).step_by(LANES) {
            let mut sum = I::splat(0.0);
            for (piece, factor) in factors.iter().enumerate().take(pieces) {
                let lanes = hvx::load::<I>(partial(piece).sums, start);
                sum = I::add(sum, I::mul(I::splat(*factor), lanes));
            }
            hvx::store::<I>(sums, start, sum);
        }
        self.op.finish::<I>(place, merged, sums);
    }
}

/// One row's result over one piece, in scratch.
struct Partial<'a> {
    sums: Span<'a, f32>,
    /// Maximum, then sum of exponentials.
    state: Span<'a, f32>,
}

impl<'a> Partial<'a> {
    #[inline(always)]
    fn new(op: &Attention<'a>, partials: Span<'a, u8>, item: usize, row: usize, piece: usize) -> Self {
        let bytes = op.partial_bytes();
        let number = (item * ROWS + row) * op.pieces() + piece;
        let padded = op.v.ne()[0].next_multiple_of(LANES);
        let partial = partials.part(number * bytes, bytes).cast::<f32>();
        Self {
            sums: partial.part(0, padded),
            state: partial.part(padded, 2),
        }
    }
}
