//! All operands of a case in one piece of memory, with guards between them that nothing may write.

use hexloom::DType;
use hexloom::abi::tile::{TILE_ROWS, TileLayout};
use hexloom::repack::pack_group;

use crate::case::{Case, Overlap};
use crate::operand::{Operand, Placement};

/// Bytes between two operands.
const GUARD: u64 = 256;

/// A case's memory before it runs.
#[derive(Clone, Debug)]
pub struct Image {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Place of each source; one that is absent or shares another's memory has that one's place or none.
    pub srcs: Vec<Option<Place>>,
    /// Place of each destination.
    pub dsts: Vec<Place>,
}

/// An operand's place in the image.
#[derive(Clone, Debug)]
pub struct Place {
    /// The operand.
    pub operand: Operand,
    /// Byte offset of the dense tensor around it.
    pub start: u64,
    /// Its layout.
    pub placement: Placement,
}

impl Image {
    /// Lays out and fills a case's operands.
    pub fn new(case: &Case, overlap: Overlap) -> Self {
        let mut bytes = vec![0xff; GUARD as usize];
        let mut place = |operand: &Operand, seed: u64| {
            let start = bytes.len() as u64;
            let placement = operand.placement();
            let end = (start + placement.bytes).next_multiple_of(128) + GUARD;
            bytes.resize(end as usize, 0xff);
            let place = Place {
                operand: operand.clone(),
                start,
                placement,
            };
            place.fill(&mut bytes, seed);
            place
        };
        let mut srcs: Vec<Option<Place>> = Vec::new();
        for (seed, operand) in (1..).zip(&case.srcs) {
            let again = overlap.twice && seed == 2;
            srcs.push(match operand {
                Some(_) if again => srcs[0].clone(),
                Some(operand) => Some(place(operand, seed)),
                None => None,
            });
        }
        let mut dsts: Vec<Place> = (101..).zip(&case.dsts).map(|(seed, dst)| place(dst, seed)).collect();
        if let Some(source) = overlap.in_place.and_then(|idx| srcs[idx].clone()) {
            dsts[0] = source;
        }
        Self { bytes, srcs, dsts }
    }

    /// Which of the bytes a run may change: the elements of the destinations.
    pub fn writable(&self) -> Vec<bool> {
        let mut writable = vec![false; self.bytes.len()];
        for dst in &self.dsts {
            for unit in dst.units() {
                writable[unit..unit + dst.operand.dtype.block_bytes() as usize].fill(true);
            }
        }
        writable
    }
}

impl Place {
    /// The elements as dense bytes out of an image.
    pub fn gather(&self, bytes: &[u8]) -> Vec<u8> {
        let unit_bytes = self.operand.dtype.block_bytes() as usize;
        self.units()
            .flat_map(|at| bytes[at..at + unit_bytes].iter().copied())
            .collect()
    }

    fn fill(&self, bytes: &mut [u8], seed: u64) {
        let Operand { dtype, ne, fill, .. } = &self.operand;
        let dense = fill.bytes(*dtype, *ne, seed);
        if self.operand.is_tiled() {
            let tiles = &mut bytes[self.start as usize..][..self.placement.bytes as usize];
            pack(*dtype, *ne, &dense, tiles);
            return;
        }
        let unit_bytes = dtype.block_bytes() as usize;
        for (at, unit) in self.units().zip(dense.chunks_exact(unit_bytes)) {
            bytes[at..at + unit_bytes].copy_from_slice(unit);
        }
    }

    /// Offsets in the image of all elements or blocks, in storage order.
    fn units(&self) -> impl Iterator<Item = usize> + use<> {
        let [n0, n1, n2, n3] = self.operand.ne.map(|n| n as usize);
        let [b0, b1, b2, b3] = self.placement.nb.map(|b| b as usize);
        let n0 = n0 / self.operand.dtype.block_elems() as usize;
        let first = (self.start + self.placement.offset) as usize;
        (0..n3).flat_map(move |i3| {
            let slab = first + i3 * b3;
            (0..n2).flat_map(move |i2| {
                let matrix = slab + i2 * b2;
                (0..n1).flat_map(move |i1| (0..n0).map(move |i0| matrix + i1 * b1 + i0 * b0))
            })
        })
    }
}

/// Packs dense rows of blocks into tiles, matrix by matrix.
fn pack(dtype: DType, ne: [u32; 4], rows: &[u8], tiles: &mut [u8]) {
    let tile = TileLayout::new(dtype, ne[0]).expect("a weight of the case list can be tiled");
    let row_bytes = tile.k_tiles as usize * dtype.block_bytes() as usize;
    let groups = TileLayout::groups(ne[1]) as usize;
    let matrices = rows.chunks_exact(row_bytes * ne[1] as usize);
    for (matrix, tiles) in matrices.zip(tiles.chunks_exact_mut(groups * tile.group_bytes as usize)) {
        let groups = tiles.chunks_exact_mut(tile.group_bytes as usize);
        for (rows, group) in matrix.chunks(row_bytes * TILE_ROWS as usize).zip(groups) {
            pack_group(dtype, &tile, rows, group);
        }
    }
}
