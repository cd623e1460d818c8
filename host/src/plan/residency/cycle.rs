//! The problem: buffers, the batches of a token, the window.

use hexloom_abi::limits::MAX_MAPPINGS;

use super::schedule::Schedule;
use super::{beam, bound, exact};
use crate::plan::buffers::BufferPlanError;

/// Buffers that can be told apart in a set.
pub(super) const MAX_CYCLE_BUFFERS: usize = 128;

/// Buffers used in turn by every token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cycle {
    /// Bytes that each buffer takes in the window.
    pub buffer_bytes: Vec<u64>,
    /// Buffers of each batch of a token, by index.
    pub batches: Vec<Vec<usize>>,
    /// Bytes of the window that these buffers may fill.
    pub window_bytes: u64,
}

/// Why there is no schedule.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResidencyError {
    /// One batch alone needs more than the window.
    #[error(
        "batch {batch} needs {bytes} bytes mapped at once, the window has {window_bytes}; plan smaller buffers or raise the window"
    )]
    BatchTooLarge {
        /// Index of the batch.
        batch: usize,
        /// Bytes of its buffers.
        bytes: u64,
        /// Bytes of the window.
        window_bytes: u64,
    },
    /// A tensor of the model can never be mapped.
    #[error(transparent)]
    Buffers(#[from] BufferPlanError),
    /// There are no batches.
    #[error("a token of no batches uses nothing; name what its ops use")]
    Empty,
    /// A batch names a buffer that is not in the list.
    #[error("batch {batch} names buffer {buffer}, there are {n_buffers}")]
    UnknownBuffer {
        /// Index of the batch.
        batch: usize,
        /// The buffer named.
        buffer: usize,
        /// Buffers in the list.
        n_buffers: usize,
    },
    /// More buffers than a schedule can hold apart.
    #[error("{n_buffers} buffers, a schedule holds at most {max}; plan larger buffers")]
    TooManyBuffers {
        /// Buffers in the list.
        n_buffers: usize,
        /// Most that are possible.
        max: usize,
    },
}

/// A set of buffers.
pub(super) type Set = u128;

/// The cycle with its batches as sets; every batch fits.
pub(super) struct Sets<'a> {
    pub(super) bytes: &'a [u64],
    pub(super) batches: Vec<Set>,
    pub(super) window: u64,
}

impl Cycle {
    /// The schedule with the fewest maps per token that was found, and a bound that none can beat.
    ///
    /// Equal cycles give equal schedules.
    ///
    /// # Errors
    /// See [`ResidencyError`].
    pub fn plan(&self) -> Result<Schedule, ResidencyError> {
        let sets = self.sets()?;
        let all = sets.batches.iter().fold(0, |all, batch| all | batch);
        if sets.fits(all) {
            return Ok(Schedule::resident(self, all));
        }
        let relaxed = bound::relax(&sets);
        let found = beam::search(&sets, &relaxed);
        Ok(match exact::improve(&sets, &found) {
            Some(best) => best.into_schedule(self, None),
            None => found.into_schedule(self, Some(relaxed.maps_per_token)),
        })
    }

    /// Maps per token that no schedule can do without; cheaper than a schedule.
    ///
    /// # Errors
    /// See [`ResidencyError`].
    pub fn lower_bound(&self) -> Result<f64, ResidencyError> {
        let sets = self.sets()?;
        let all = sets.batches.iter().fold(0, |all, batch| all | batch);
        Ok(if sets.fits(all) {
            0.0
        } else {
            bound::relax(&sets).maps_per_token
        })
    }

    fn sets(&self) -> Result<Sets<'_>, ResidencyError> {
        if self.batches.is_empty() {
            return Err(ResidencyError::Empty);
        }
        let n_buffers = self.buffer_bytes.len();
        if n_buffers > MAX_CYCLE_BUFFERS {
            return Err(ResidencyError::TooManyBuffers {
                n_buffers,
                max: MAX_CYCLE_BUFFERS,
            });
        }
        let mut sets = Sets {
            bytes: &self.buffer_bytes,
            batches: Vec::with_capacity(self.batches.len()),
            window: self.window_bytes,
        };
        for (batch, buffers) in self.batches.iter().enumerate() {
            let mut set: Set = 0;
            for &buffer in buffers {
                if buffer >= n_buffers {
                    return Err(ResidencyError::UnknownBuffer {
                        batch,
                        buffer,
                        n_buffers,
                    });
                }
                set |= 1 << buffer;
            }
            let bytes = sets.sum(set);
            if !sets.fits(set) {
                return Err(ResidencyError::BatchTooLarge {
                    batch,
                    bytes,
                    window_bytes: self.window_bytes,
                });
            }
            sets.batches.push(set);
        }
        Ok(sets)
    }
}

impl Sets<'_> {
    /// Bytes of a set.
    pub(super) fn sum(&self, set: Set) -> u64 {
        members(set).fold(0, |sum, buffer| sum.saturating_add(self.bytes[buffer]))
    }

    /// Whether a set can be mapped at once.
    pub(super) fn fits(&self, set: Set) -> bool {
        set.count_ones() as usize <= MAX_MAPPINGS && self.sum(set) <= self.window
    }

    /// What it costs to map a set.
    pub(super) fn cost(&self, set: Set) -> Cost {
        Cost {
            maps: set.count_ones().into(),
            pages: members(set).map(|buffer| self.bytes[buffer].div_ceil(PAGE)).sum(),
        }
    }

    /// Batches from `at` until `buffer` is used next, counting the batch after `at` as 1.
    pub(super) fn distance(&self, at: usize, buffer: usize) -> usize {
        let n = self.batches.len();
        (1..=n)
            .find(|step| self.batches[(at + step) % n] >> buffer & 1 == 1)
            .unwrap_or(n + 1)
    }
}

const PAGE: u64 = 4096;

/// Maps, then pages: compared in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Cost {
    pub(super) maps: u64,
    pub(super) pages: u64,
}

impl std::ops::Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            maps: self.maps + other.maps,
            pages: self.pages + other.pages,
        }
    }
}

impl Cost {
    /// One number whose order is that of the pair; below 2^96 for any number of maps in a token.
    pub(super) fn weight(self) -> i128 {
        i128::from(self.maps) << 64 | i128::from(self.pages)
    }
}

/// The buffers of a set, ascending.
pub(super) fn members(mut set: Set) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let next = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(next)
    })
}
