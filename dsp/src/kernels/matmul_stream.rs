//! Weights by DMA: which groups a thread reads in which order, across forms, pieces and ops.
//!
//! A group of 32 weight rows is the piece that is streamed. A thread's list is the groups of its units in this phase, then
//! those of the phase after it, which may be the next product of the batch: what is pushed when this phase ends is there
//! when that one begins. Reading by DMA or directly gives the same bytes, so a list that turns out to be wrong costs time
//! only.

use hexloom_abi::limits::MAX_NX;

use super::matmul::{Product, first_phase};
use super::matmul_split::Split;
use super::quantize::Prepare;
use super::{Context, OpArgs};
use crate::dma::stream::{Feed, Streams};
use crate::hvx::{Isa, Kernel, Part};
use crate::tensor::Span;

/// The products of one phase, each with its units.
pub(super) type Products<'a> = [Option<(Product<'a>, Split)>; MAX_NX];

/// What a context may stream.
#[derive(Clone, Copy)]
pub struct Streaming<'a> {
    /// The lanes.
    pub streams: &'a Streams<'a>,
    /// This op's sources that DMA may read.
    pub sources: Constants,
    /// The next product of the batch whose sources are in memory as they will be when it runs.
    pub next: Option<(&'a OpArgs<'a>, Constants)>,
}

/// Sources of an op that nothing writes before the op has run and that are in memory, not only in a cache: bit i is source i.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Constants(pub u16);

/// A phase's streams: what its threads read, now and next.
pub(super) struct Groups<'a> {
    streams: &'a Streams<'a>,
    next: Option<Products<'a>>,
}

/// The groups that one part of a phase reads.
#[derive(Clone)]
pub(super) struct List<'m, 'a> {
    products: &'m Products<'a>,
    /// Units of the phase that are still to come.
    unit: usize,
    end: usize,
}

/// A thread's lane while it multiplies.
pub(super) type Lane<'m, 'a> =
    Feed<'m, 'a, core::iter::Chain<List<'m, 'a>, core::iter::Flatten<core::option::IntoIter<List<'m, 'a>>>>>;

/// Prepares activation rows after the thread's first groups are on their way.
pub(super) struct PrimedPrepare<'m, 'a> {
    pub(super) prepare: Prepare<'a>,
    pub(super) groups: &'m Groups<'a>,
    pub(super) products: &'m Products<'a>,
}

impl Constants {
    /// Whether source `idx` is one of them.
    pub fn has(self, idx: usize) -> bool {
        idx < 16 && self.0 >> idx & 1 != 0
    }
}

impl<'a> Groups<'a> {
    /// The streams of a phase that is followed by `next`, or by the next op when that is none and `last` says so.
    pub(super) fn new<I: Isa>(cx: &Context<'a>, next: Option<Products<'a>>, last: bool) -> Option<Self> {
        let Streaming { streams, next: op, .. } = cx.streaming?;
        let of_op = || {
            op.filter(|_| last)
                .and_then(|(args, sources)| first_phase::<I>(cx, args, sources))
        };
        Some(Self {
            streams,
            next: next.or_else(of_op),
        })
    }

    /// Whether every thread has yet to push its first groups.
    pub(super) fn is_idle(&self) -> bool {
        self.streams.is_idle()
    }

    /// Opens the lane of one part of a phase over `products`.
    pub(super) fn lane<'m>(&'m self, products: &'m Products<'a>, part: Part) -> Option<Lane<'m, 'a>> {
        let next = self.next.as_ref().map(|next| List::new(next, part));
        let list = List::new(products, part).chain(next.into_iter().flatten());
        // SAFETY: only groups of constant sources are listed, and the interpreter drains the lanes before their mappings go.
        unsafe { self.streams.feed(part.idx, list) }
    }
}

impl<'m, 'a> List<'m, 'a> {
    fn new(products: &'m Products<'a>, part: Part) -> Self {
        let total = products.iter().flatten().map(|(_, split)| split.units()).sum();
        let mine = part.range(total);
        Self {
            products,
            unit: mine.start,
            end: mine.end,
        }
    }
}

impl<'a> Iterator for List<'_, 'a> {
    type Item = Span<'a, u8>;

    fn next(&mut self) -> Option<Span<'a, u8>> {
        let mut before = 0;
        for (product, split) in self.products.iter().flatten() {
            let units = split.units();
            if self.unit < before + units && self.unit < self.end {
                if product.streamed {
                    let unit = split.unit(self.unit - before);
                    self.unit = before + split.next_group(self.unit - before);
                    return Some(product.weight.tile_group(unit.group, unit.matrix));
                }
                self.unit = before + units;
            }
            before += units;
        }
        None
    }
}

impl Kernel for PrimedPrepare<'_, '_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        drop(self.groups.lane(self.products, part));
        self.prepare.run::<I>(part);
    }
}
