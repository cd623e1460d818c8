//! One pass over the buffers in a given order: each goes to the tightest hole between those placed before.
//!
//! Which placed buffers a new one can collide with is known from one sweep over time, so a pass costs
//! about the number of pairs that live together.

use super::buffers::Buffer;
use crate::plan::dynamic::Address;
use crate::plan::limits::Limits;

/// For each buffer, the buffers that live with it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Conflicts {
    first: Vec<u32>,
    others: Vec<u32>,
    pairs: Vec<(u32, u32)>,
    live: Vec<u32>,
    /// So many buffers live together that going through all of them beats sorting a buffer's own.
    dense: bool,
}

impl Conflicts {
    /// Finds all pairs, or gives up (`false`) past `max_pairs`. `buffers` must be ordered by start.
    pub(crate) fn find(&mut self, buffers: &[Buffer], max_pairs: usize) -> bool {
        self.pairs.clear();
        self.live.clear();
        self.first.clear();
        self.first.resize(buffers.len() + 1, 0);
        for (new, b) in (0u32..).zip(buffers) {
            self.live.retain(|&l| buffers[l as usize].end > b.start);
            if self.pairs.len() + self.live.len() > max_pairs {
                return false;
            }
            for &l in &self.live {
                self.pairs.push((l, new));
                self.first[l as usize] += 1;
            }
            self.first[new as usize] += self.live.len() as u32;
            self.live.push(new);
        }
        self.dense = self.pairs.len() > buffers.len() * buffers.len() / 12;
        if self.dense {
            return true;
        }
        let mut end = 0;
        for f in &mut self.first {
            end += *f;
            *f = end;
        }
        self.others.clear();
        self.others.resize(2 * self.pairs.len(), 0);
        for &(a, b) in &self.pairs {
            for (of, other) in [(a, b), (b, a)] {
                let slot = &mut self.first[of as usize];
                *slot -= 1;
                self.others[*slot as usize] = other;
            }
        }
        true
    }

    pub(crate) fn per_buffer(&self) -> usize {
        self.pairs.len() / self.first.len().max(1)
    }

    fn of(&self, buffer: u32) -> &[u32] {
        let i = buffer as usize;
        &self.others[self.first[i] as usize..self.first[i + 1] as usize]
    }
}

/// Addresses and chunk sizes of one attempt.
#[derive(Debug, Clone, Default)]
pub(crate) struct Placed {
    pub(crate) at: Vec<Address>,
    pub(crate) chunks: Vec<u64>,
    /// Largest size each chunk may grow to.
    caps: Vec<u64>,
    /// Ranges taken around the buffer at hand: chunk, start, end.
    taken: Vec<(u32, u64, u64)>,
    /// All ranges taken, by address, with their buffers; kept only when most buffers live together.
    by_address: Vec<((u32, u64, u64), u32)>,
}

const UNPLACED: Address = Address {
    chunk: u32::MAX,
    offset: 0,
};

/// A place considered for a buffer.
#[derive(Clone, Copy)]
struct Spot {
    at: Address,
    /// Bytes of the hole, or by how much the chunk grows.
    cost: u64,
}

impl Placed {
    /// Bytes of all chunks; saturates.
    pub(crate) fn bytes(&self) -> u64 {
        self.chunks.iter().fold(0, |sum, &c| sum.saturating_add(c))
    }

    fn clear(&mut self, buffers: usize) {
        self.at.clear();
        self.at.resize(buffers, UNPLACED);
        self.chunks.clear();
        self.caps.clear();
        self.by_address.clear();
    }

    /// Places all buffers in `order`, in whichever chunk suits best; on failure says which found no place.
    ///
    /// A hole between neighbours goes before the room on top; of those on top the one that makes its
    /// chunk grow least; a new chunk comes last.
    pub(crate) fn fill(
        &mut self,
        buffers: &[Buffer],
        conflicts: &Conflicts,
        order: &[u32],
        limits: &Limits,
    ) -> Result<(), u32> {
        self.clear(buffers.len());
        for &idx in order {
            self.gather(buffers, conflicts, idx);
            let bytes = buffers[idx as usize].bytes;
            let at = match self.best_spot(bytes, limits, 0) {
                Some(at) => at,
                None => self.open_chunk(bytes, limits).ok_or(idx)?,
            };
            self.put(idx, at, bytes, conflicts.dense);
        }
        Ok(())
    }

    /// Fills one chunk with everything in `order` that fits, then the next with what is left.
    pub(crate) fn fill_by_chunk(
        &mut self,
        buffers: &[Buffer],
        conflicts: &Conflicts,
        order: &[u32],
        limits: &Limits,
    ) -> Result<(), u32> {
        self.clear(buffers.len());
        while let Some(&first) = order.iter().find(|&&i| self.at[i as usize] == UNPLACED) {
            let chunk = self
                .open_chunk(buffers[first as usize].bytes, limits)
                .ok_or(first)?
                .chunk;
            for &idx in order {
                if self.at[idx as usize] != UNPLACED {
                    continue;
                }
                self.gather(buffers, conflicts, idx);
                let bytes = buffers[idx as usize].bytes;
                if let Some(at) = self.best_spot(bytes, limits, chunk) {
                    self.put(idx, at, bytes, conflicts.dense);
                }
            }
        }
        Ok(())
    }

    /// Collects the ranges taken by buffers that live with `idx`, in order of address.
    fn gather(&mut self, buffers: &[Buffer], conflicts: &Conflicts, idx: u32) {
        self.taken.clear();
        if conflicts.dense {
            let b = &buffers[idx as usize];
            let lives_with = |i: u32| buffers[i as usize].start < b.end && b.start < buffers[i as usize].end;
            self.taken
                .extend(self.by_address.iter().filter(|r| lives_with(r.1)).map(|r| r.0));
            return;
        }
        for &other in conflicts.of(idx) {
            let at = self.at[other as usize];
            if at != UNPLACED {
                self.taken
                    .push((at.chunk, at.offset, at.offset + buffers[other as usize].bytes));
            }
        }
        self.taken.sort_unstable();
    }

    /// The best place for `bytes` in chunks from `first_chunk` on, given what was gathered.
    fn best_spot(&self, bytes: u64, limits: &Limits, first_chunk: u32) -> Option<Address> {
        let mut hole: Option<Spot> = None;
        let mut top: Option<Spot> = None;
        let mut taken = self.taken.iter().peekable();
        for (chunk, &height) in (0u32..).zip(&self.chunks) {
            let mut free_from = 0;
            while let Some(&(_, start, end)) = taken.next_if(|t| t.0 == chunk) {
                if chunk >= first_chunk && start >= free_from {
                    let gap = start - free_from;
                    if gap >= bytes && hole.is_none_or(|h| gap < h.cost) {
                        hole = Some(Spot {
                            at: Address {
                                chunk,
                                offset: free_from,
                            },
                            cost: gap,
                        });
                    }
                }
                free_from = free_from.max(end);
            }
            // An oversize tensor may only lie at the bottom, so that the chunk holds no more than it must.
            let cap = self.caps[chunk as usize].max(bytes.max(limits.chunk_bytes));
            let end = free_from + bytes;
            if chunk >= first_chunk && end <= cap {
                let growth = end.saturating_sub(height);
                if top.is_none_or(|t| growth < t.cost) {
                    top = Some(Spot {
                        at: Address {
                            chunk,
                            offset: free_from,
                        },
                        cost: growth,
                    });
                }
            }
        }
        hole.or(top).map(|spot| spot.at)
    }

    fn put(&mut self, idx: u32, at: Address, bytes: u64, dense: bool) {
        self.at[idx as usize] = at;
        let chunk = at.chunk as usize;
        self.chunks[chunk] = self.chunks[chunk].max(at.offset + bytes);
        self.caps[chunk] = self.caps[chunk].max(bytes);
        if dense {
            let range = (at.chunk, at.offset, at.offset + bytes);
            let place = self.by_address.partition_point(|r| r.0 < range);
            self.by_address.insert(place, (range, idx));
        }
    }

    fn open_chunk(&mut self, bytes: u64, limits: &Limits) -> Option<Address> {
        let idx = self.chunks.len();
        if idx >= limits.max_chunks {
            return None;
        }
        let endless = limits.last_chunk_unbounded && idx + 1 == limits.max_chunks;
        self.chunks.push(0);
        self.caps.push(if endless {
            crate::plan::limits::MAX_BYTES
        } else {
            bytes.max(limits.chunk_bytes)
        });
        Some(Address {
            chunk: idx as u32,
            offset: 0,
        })
    }
}
