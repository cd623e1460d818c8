//! The block allocator: best fit over the free blocks of a few chunks, told of one tensor at a time.
//!
//! Its choices are those of ggml's dynamic tensor allocator, so that totals can be compared to the
//! byte; its limits are not: a chunk holds any number of free blocks, and running out is a value.

use super::limits::{Limits, MAX_BYTES};

/// Where something lies: byte `offset` of chunk `chunk`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// Chunk, counted from 0.
    pub chunk: u32,
    /// Byte offset in the chunk, a multiple of the alignment.
    pub offset: u64,
}

/// All chunks allowed exist and none has room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRoom;

/// Allocates and frees ranges in up to `max_chunks` chunks.
///
/// Sizes must be multiples of the alignment and at most [`MAX_BYTES`]; [`Limits::round`] makes them so.
#[derive(Debug, Clone)]
pub struct DynamicAllocator {
    limits: Limits,
    chunks: Vec<Chunk>,
    used: usize,
}

#[derive(Debug, Clone, Default)]
struct Chunk {
    free: Vec<Block>,
    peak: u64,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    offset: u64,
    bytes: u64,
}

impl DynamicAllocator {
    /// An allocator without chunks.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            chunks: Vec::new(),
            used: 0,
        }
    }

    /// Forgets all chunks and takes new limits; keeps its own memory.
    pub fn reset(&mut self, limits: Limits) {
        self.limits = limits;
        self.used = 0;
    }

    /// High-water mark of each chunk, in bytes.
    pub fn peaks(&self) -> impl Iterator<Item = u64> + '_ {
        self.chunks[..self.used].iter().map(|c| c.peak)
    }

    /// Takes `bytes` from the tightest hole; else from the tail that need grow least; else from a new chunk.
    ///
    /// # Errors
    /// [`NoRoom`] when a new chunk is needed and none is left.
    pub fn alloc(&mut self, bytes: u64) -> Result<Address, NoRoom> {
        let (chunk, block) = match self.find(bytes) {
            Some(found) => found,
            None => (self.open_chunk(bytes)?, 0),
        };
        let c = &mut self.chunks[chunk];
        let b = &mut c.free[block];
        let offset = b.offset;
        b.offset += bytes;
        b.bytes -= bytes;
        if b.bytes == 0 {
            c.free.remove(block);
        }
        c.peak = c.peak.max(offset + bytes);
        Ok(Address {
            chunk: chunk as u32,
            offset,
        })
    }

    /// Gives a range back and joins it with free neighbours.
    pub fn free(&mut self, at: Address, bytes: u64) {
        let free = &mut self.chunks[at.chunk as usize].free;
        let end = at.offset + bytes;
        // A block without bytes, left by a tensor without bytes, both ends and begins at its offset.
        let neighbour = free
            .iter()
            .position(|b| b.offset + b.bytes == at.offset || b.offset == end);
        match neighbour {
            Some(i) if free[i].offset + free[i].bytes == at.offset => {
                free[i].bytes += bytes;
                join_next(free, i);
            }
            Some(i) => {
                free[i] = Block {
                    offset: at.offset,
                    bytes: free[i].bytes + bytes,
                };
                if i > 0 {
                    join_next(free, i - 1);
                }
            }
            None => {
                let next = free.partition_point(|b| b.offset < at.offset);
                free.insert(
                    next,
                    Block {
                        offset: at.offset,
                        bytes,
                    },
                );
            }
        }
    }

    /// Chunk and block to take `bytes` from, if any existing one will do.
    fn find(&self, bytes: u64) -> Option<(usize, usize)> {
        let mut hole = None;
        let mut tail: Option<(usize, usize, i64)> = None;
        for (idx, chunk) in self.chunks[..self.used].iter().enumerate() {
            let Some((last, holes)) = chunk.free.split_last() else {
                continue;
            };
            // The best size is forgotten at each chunk: the last chunk with a fitting hole wins.
            let mut best = MAX_BYTES;
            for (block, b) in holes.iter().enumerate() {
                if b.bytes >= bytes && b.bytes <= best {
                    best = b.bytes;
                    hole = Some((idx, block));
                }
            }
            if last.bytes < bytes {
                continue;
            }
            let spare = chunk.peak as i64 - (last.offset + bytes) as i64;
            let better = match tail {
                None => true,
                Some((_, _, f)) if f < 0 => spare > f,
                Some((_, _, f)) => spare >= 0 && spare < f,
            };
            if better {
                tail = Some((idx, holes.len(), spare));
            }
        }
        hole.or(tail.map(|(chunk, block, _)| (chunk, block)))
    }

    fn open_chunk(&mut self, bytes: u64) -> Result<usize, NoRoom> {
        let idx = self.used;
        if idx >= self.limits.max_chunks {
            return Err(NoRoom);
        }
        let endless = self.limits.last_chunk_unbounded && idx + 1 == self.limits.max_chunks;
        let room = if endless {
            MAX_BYTES
        } else {
            bytes.max(self.limits.chunk_bytes)
        };
        if idx == self.chunks.len() {
            self.chunks.push(Chunk::default());
        }
        self.used += 1;
        let chunk = &mut self.chunks[idx];
        chunk.peak = 0;
        chunk.free.clear();
        chunk.free.push(Block { offset: 0, bytes: room });
        Ok(idx)
    }
}

/// Joins block `i` with the one behind it if they touch.
fn join_next(free: &mut Vec<Block>, i: usize) {
    if free
        .get(i + 1)
        .is_some_and(|b| b.offset == free[i].offset + free[i].bytes)
    {
        free[i].bytes += free[i + 1].bytes;
        free.remove(i + 1);
    }
}
