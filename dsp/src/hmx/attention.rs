//! FLASH_ATTN_EXT on the matrix unit: which shapes it serves, what lies where in scratch, and the order of the steps.
//!
//! The query rows of one KV head, of all its heads and as many tokens as scratch holds, share each pass over keys and
//! values. The KV range goes by in steps of a few blocks of 64 positions: threads make tiles of keys and values, one drives
//! the unit for the scores, threads turn scores into weights, one drives the unit for the weighted values, threads add
//! those to sums in f32. A block that the mask hides from all rows is never touched, one that it hides from 32 rows is
//! not multiplied for them. All that is rounded belongs to one block, so the bits depend neither on threads nor on how
//! much scratch holds. The steps are in [`step`](super::attention_step).
//!
//! Queries, keys or values that are not finite leave the whole op to the vector kernels, which define what comes of them.

use core::sync::atomic::{AtomicBool, Ordering};

use hexloom_abi::Status;

use super::attention_drive::{Score, WeighValues};
use super::attention_step::{Accumulate, Begin, Fill, Finish, Weigh};
use super::tile::{self, MAX_K, TileSpace, tiles_of};
use super::{FEW_ROWS, SCALE_HALVES, TILE, TILE_ELEMS, UnitKind};
use crate::hvx::Isa;
use crate::kernels::Context;
use crate::kernels::attention::{Attention, Place};
use crate::kernels::attention_block::BLOCK;
use crate::tensor::Span;

/// Tiles of positions in a block.
pub(super) const BLOCK_TILES: usize = BLOCK / TILE;
/// f16 terms of a query, of a weight, and of a score.
pub(super) const TERMS: usize = 2;
/// Most blocks of one step.
const MAX_BLOCKS: usize = 16;
/// Blocks of one step, if scratch holds so many.
const FEW_BLOCKS: usize = 4;

/// Computes the op, or leaves it alone and says so.
pub(crate) fn serve<I: Isa>(cx: &Context<'_>, unit: UnitKind, op: &Attention<'_>) -> Result<bool, Status> {
    let [dk, n_tokens, _, n_seqs] = op.q.ne();
    let [_, n_kv, kv_heads, _] = op.k.ne();
    if n_tokens <= FEW_ROWS || n_kv == 0 || dk > MAX_K {
        return Ok(false);
    }
    let rows = n_tokens * op.group();
    let Some(space) = Space::new(cx.rest(), op, rows) else {
        return Ok(false);
    };
    tile::fill_scales(space.scales);
    tile::fill_negative_identity(space.negative_identity);
    let odd = AtomicBool::new(false);
    for idx in 0..n_seqs * kv_heads {
        for first in (0..rows).step_by(space.row_tiles * TILE) {
            let item = Item {
                op,
                unit,
                space,
                odd: &odd,
                kv_head: idx % kv_heads,
                seq: idx / kv_heads,
                first,
                count: (rows - first).min(space.row_tiles * TILE),
            };
            item.run::<I>(cx)?;
            if odd.load(Ordering::Relaxed) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Where everything lies in scratch.
#[derive(Clone, Copy)]
pub(super) struct Space<'a> {
    /// Tiles of 32 query rows held at a time.
    pub(super) row_tiles: usize,
    /// Most blocks of one step.
    pub(super) blocks: usize,
    /// Tiles along a key and along a value.
    pub(super) key_tiles: usize,
    pub(super) value_tiles: usize,
    /// By row tiles, then terms, then along the key.
    pub(super) queries: Span<'a, u16>,
    /// What the products of each query row are multiplied by.
    pub(super) query_factors: Span<'a, f32>,
    /// Largest score of each row, then sums of weights.
    pub(super) states: [Span<'a, f32>; 2],
    /// Sums of weighted values, by rows.
    pub(super) sums: Span<'a, f32>,
    /// Whether a row tile sees a block, by row tiles, then blocks of the whole range.
    pub(super) visible: Span<'a, u32>,
    /// Weight tiles of keys: by blocks of the step, then tiles of positions, then along the key.
    pub(super) keys: Span<'a, u16>,
    /// Weight tiles of values: by blocks, then along the value, then tiles of positions.
    pub(super) values: Span<'a, u16>,
    /// What products with a block's keys, then with its values, are multiplied by.
    pub(super) block_factors: [Span<'a, f32>; 2],
    /// Scores, which become weights in place: by row tiles, then blocks, then terms, then tiles of positions.
    pub(super) scores: Span<'a, u16>,
    /// What a row's sums before a block are multiplied by: by blocks, then rows.
    pub(super) rescales: Span<'a, f32>,
    /// Weighted values: by row tiles, then blocks, then along the value.
    pub(super) products: Span<'a, u16>,
    pub(super) scales: Span<'a, u16>,
    pub(super) negative_identity: Span<'a, u16>,
}

impl<'a> Space<'a> {
    /// The most query rows that fit with a few blocks, then as many blocks as fit.
    fn new(scratch: Span<'a, u8>, op: &Attention<'_>, rows: usize) -> Option<Self> {
        let mut space = TileSpace::new(scratch);
        let key_tiles = op.k.ne()[0].div_ceil(TILE);
        let value_tiles = op.v.ne()[0].div_ceil(TILE);
        let all_blocks = op.k.ne()[1].div_ceil(BLOCK);
        let need = |row_tiles: usize, blocks: usize| {
            2 + row_tiles * TERMS * key_tiles
                + 3 * tiles_of::<f32>(row_tiles * TILE)
                + tiles_of::<f32>(row_tiles * value_tiles * TILE_ELEMS)
                + tiles_of::<u32>(row_tiles * all_blocks)
                + blocks * BLOCK_TILES * (key_tiles + value_tiles)
                + 2 * tiles_of::<f32>(blocks)
                + row_tiles * blocks * (TERMS * BLOCK_TILES + value_tiles)
                + tiles_of::<f32>(row_tiles * blocks * TILE)
        };
        let tiles = space.tiles();
        let most_rows = rows.div_ceil(TILE).min(tiles);
        let few = FEW_BLOCKS.min(all_blocks);
        let (row_tiles, few) = [few, 1].into_iter().find_map(|blocks| {
            let row_tiles = (1..=most_rows)
                .rev()
                .find(|&row_tiles| need(row_tiles, blocks) <= tiles)?;
            Some((row_tiles, blocks))
        })?;
        let most_blocks = MAX_BLOCKS.min(all_blocks);
        let blocks = (few..=most_blocks)
            .rev()
            .find(|&blocks| need(row_tiles, blocks) <= tiles)?;
        let rows = row_tiles * TILE;
        Some(Self {
            row_tiles,
            blocks,
            key_tiles,
            value_tiles,
            queries: space.take(row_tiles * TERMS * key_tiles),
            query_factors: space.take_elems(rows),
            states: [(); 2].map(|()| space.take_elems(rows)),
            sums: space.take_elems(rows * value_tiles * TILE),
            visible: space.take_elems(row_tiles * all_blocks),
            keys: space.take(blocks * BLOCK_TILES * key_tiles),
            values: space.take(blocks * BLOCK_TILES * value_tiles),
            block_factors: [(); 2].map(|()| space.take_elems(blocks)),
            scores: space.take(row_tiles * blocks * TERMS * BLOCK_TILES),
            rescales: space.take_elems(blocks * rows),
            products: space.take(row_tiles * blocks * value_tiles),
            scales: space.take_elems(SCALE_HALVES),
            negative_identity: space.take(1),
        })
    }

    /// The tile of scores of a row tile, a block of the step, a term, and a tile of positions.
    #[inline(always)]
    pub(super) fn score_tile(&self, row_tile: usize, place: usize, term: usize, positions: usize) -> Span<'a, u16> {
        let block = row_tile * self.blocks + place;
        tile::tile(self.scores, (block * TERMS + term) * BLOCK_TILES + positions)
    }

    /// The tile of weighted values of a row tile, a block of the step, and a tile along the value.
    #[inline(always)]
    pub(super) fn product_tile(&self, row_tile: usize, place: usize, along: usize) -> Span<'a, u16> {
        tile::tile(
            self.products,
            (row_tile * self.blocks + place) * self.value_tiles + along,
        )
    }

    /// Sums of weighted values of a row.
    #[inline(always)]
    pub(super) fn row_sums(&self, row: usize) -> Span<'a, f32> {
        let elems = self.value_tiles * TILE;
        self.sums.part(row * elems, elems)
    }
}

/// Query rows of one KV head that are computed together.
#[derive(Clone, Copy)]
pub(super) struct Item<'a> {
    pub(super) op: &'a Attention<'a>,
    pub(super) unit: UnitKind,
    pub(super) space: Space<'a>,
    /// Set when a value is found that the unit cannot take.
    pub(super) odd: &'a AtomicBool,
    pub(super) kv_head: usize,
    seq: usize,
    /// First row, counted heads first, then tokens.
    first: usize,
    /// Rows.
    pub(super) count: usize,
}

/// Blocks that one step works on.
#[derive(Clone, Copy)]
pub(super) struct Blocks {
    numbers: [usize; MAX_BLOCKS],
    count: usize,
}

impl Blocks {
    /// The blocks' numbers in the whole range, in order.
    #[inline(always)]
    pub(super) fn numbers(&self) -> &[usize] {
        &self.numbers[..self.count]
    }
}

impl Item<'_> {
    fn run<I: Isa>(&self, cx: &Context<'_>) -> Result<(), Status> {
        cx.run::<I, _>(&Begin(self))?;
        let mut next = 0;
        loop {
            let blocks = self.next_blocks(&mut next);
            if blocks.count == 0 || self.odd.load(Ordering::Relaxed) {
                break;
            }
            cx.run::<I, _>(&Fill(self, &blocks))?;
            cx.run_sized::<I, _>(&Score(self, &blocks), 0)?;
            cx.run::<I, _>(&Weigh(self, &blocks))?;
            cx.run_sized::<I, _>(&WeighValues(self, &blocks), 0)?;
            cx.run::<I, _>(&Accumulate(self, &blocks))?;
        }
        cx.run::<I, _>(&Finish(self))
    }

    /// The next blocks from `next` on that some row sees.
    fn next_blocks(&self, next: &mut usize) -> Blocks {
        let mut blocks = Blocks {
            numbers: [0; MAX_BLOCKS],
            count: 0,
        };
        while *next < self.n_blocks() && blocks.count < self.space.blocks {
            if (0..self.row_tiles()).any(|row_tile| self.sees(row_tile, *next)) {
                blocks.numbers[blocks.count] = *next;
                blocks.count += 1;
            }
            *next += 1;
        }
        blocks
    }

    /// Blocks of the whole KV range.
    #[inline(always)]
    pub(super) fn n_blocks(&self) -> usize {
        self.op.k.ne()[1].div_ceil(BLOCK)
    }

    /// First position of a block, and how many it has.
    #[inline(always)]
    pub(super) fn positions(&self, block: usize) -> (usize, usize) {
        let start = block * BLOCK;
        (start, (self.op.k.ne()[1] - start).min(BLOCK))
    }

    /// Tiles of 32 query rows.
    #[inline(always)]
    pub(super) fn row_tiles(&self) -> usize {
        self.count.div_ceil(TILE)
    }

    /// Whether a row of a tile sees a position of a block.
    #[inline(always)]
    pub(super) fn sees(&self, row_tile: usize, block: usize) -> bool {
        self.space.visible.get(row_tile * self.n_blocks() + block) != 0
    }

    /// Where row `row` of the item is.
    #[inline(always)]
    pub(super) fn place(&self, row: usize) -> Place {
        let (row, group) = (self.first + row, self.op.group());
        Place {
            token: row / group,
            head: self.kv_head * group + row % group,
            seq: self.seq,
        }
    }

    /// Index of keys and values at a position.
    #[inline(always)]
    pub(super) fn cache_index(&self, position: usize) -> [usize; 3] {
        let sharing = self.op.q.ne()[3] / self.op.k.ne()[3];
        [position, self.kv_head, self.seq / sharing]
    }
}
