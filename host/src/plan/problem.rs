//! Packing problems as text: the CSV of the public minimalloc benchmark, read, solved, checked and written.
//!
//! A header names the columns; `id`, `lower`, `upper` and `size` are needed in any order, `offset` is written
//! and may be read, others are passed over. A buffer lives in the half-open interval `[lower, upper)`.

use std::collections::HashSet;

use super::limits::{Limits, MAX_BYTES};
use super::offline::buffers::Buffer;
use super::offline::pack::{Budget, Item, Meter, lower_bound, pack};
use super::offline::pack_greedily;

/// A buffer of a [`Problem`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProblemBuffer {
    /// Its name in the file.
    pub id: String,
    /// Time from which it is needed.
    pub lower: i64,
    /// Time from which it is no longer needed.
    pub upper: i64,
    /// Bytes.
    pub size: u64,
}

/// Buffers with lifetimes, to be packed into as few bytes as possible.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Problem {
    /// In file order.
    pub buffers: Vec<ProblemBuffer>,
}

/// A packing of a [`Problem`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packing {
    /// Offset of each buffer in bytes, in the order of [`Problem::buffers`].
    pub offsets: Vec<u64>,
    /// Bytes needed.
    pub height: u64,
    /// Largest number of bytes alive at once: no packing is lower.
    pub lower_bound: u64,
}

/// What is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {cause}")]
pub struct ProblemError {
    /// Line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub cause: ProblemCause,
}

/// Kinds of mistakes in a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProblemCause {
    /// The header lacks a column.
    #[error("the header has no column `{0}`")]
    MissingColumn(&'static str),
    /// A line with too few values.
    #[error("{found} values, but the header has {expected} columns")]
    Columns {
        /// Values in the line.
        found: usize,
        /// Columns in the header.
        expected: usize,
    },
    /// A value that is not a number, or out of range.
    #[error("{column} `{value}` is not a whole number in range")]
    Number {
        /// The column.
        column: &'static str,
        /// The value.
        value: String,
    },
    /// A buffer that ends before it begins.
    #[error("buffer `{id}` lives from {lower} to {upper}; upper must be above lower")]
    Interval {
        /// The buffer.
        id: String,
        /// Its first time.
        lower: i64,
        /// The time after its last.
        upper: i64,
    },
    /// Two buffers with one id.
    #[error("buffer `{0}` is given twice")]
    Twice(String),
    /// Sizes that add up to more than can be addressed.
    #[error("the sizes up to here add up to more than {MAX_BYTES} bytes")]
    TooLarge,
}

/// Why offsets are no packing of a problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("buffers `{first}` at {first_at} and `{second}` at {second_at} overlap in time and bytes")]
pub struct ProblemOverlap {
    /// One buffer.
    pub first: String,
    /// Its offset.
    pub first_at: u64,
    /// The other buffer.
    pub second: String,
    /// Its offset.
    pub second_at: u64,
}

impl Problem {
    /// Reads a file.
    ///
    /// # Errors
    /// The first line that is wrong, and how.
    pub fn read(text: &str) -> Result<Self, ProblemError> {
        let mut lines = (1..).zip(text.lines()).filter(|(_, l)| !l.trim().is_empty());
        let (line, header) = lines.next().unwrap_or((1, ""));
        let names: Vec<&str> = header.split(',').map(str::trim).collect();
        let column = |name: &'static str| {
            let cause = ProblemCause::MissingColumn(name);
            names
                .iter()
                .position(|&n| n == name)
                .ok_or(ProblemError { line, cause })
        };
        let columns = [column("id")?, column("lower")?, column("upper")?, column("size")?];
        let mut buffers = Vec::new();
        let mut ids = HashSet::new();
        let mut total = 0u64;
        for (line, content) in lines {
            let buffer = read_buffer(content, columns, names.len()).and_then(|b: ProblemBuffer| {
                total = total.saturating_add(b.size);
                if total > MAX_BYTES {
                    return Err(ProblemCause::TooLarge);
                }
                if ids.insert(b.id.clone()) {
                    Ok(b)
                } else {
                    Err(ProblemCause::Twice(b.id))
                }
            });
            buffers.push(buffer.map_err(|cause| ProblemError { line, cause })?);
        }
        Ok(Self { buffers })
    }

    /// The file for this problem; with a packing it has a column `offset`.
    pub fn write(&self, packing: Option<&Packing>) -> String {
        let mut text = String::from(if packing.is_some() {
            "id,lower,upper,size,offset\n"
        } else {
            "id,lower,upper,size\n"
        });
        for (i, b) in self.buffers.iter().enumerate() {
            text += &format!("{},{},{},{}", b.id, b.lower, b.upper, b.size);
            if let Some(packing) = packing {
                text += &format!(",{}", packing.offsets[i]);
            }
            text.push('\n');
        }
        text
    }

    /// Largest number of bytes alive at once.
    pub fn lower_bound(&self) -> u64 {
        lower_bound(&self.items())
    }

    /// Packs into as few bytes as the budget lets it find; with a `capacity`, stops as soon as it fits.
    ///
    /// Quick passes come first and are not counted, so there is always a result.
    pub fn pack(&self, capacity: Option<u64>, budget: Budget) -> Packing {
        let mut meter = Meter::start(budget);
        let items = self.items();
        let bound = lower_bound(&items);
        let (mut offsets, mut height) = self.pack_quick();
        let enough = capacity.unwrap_or(0).max(bound);
        if let Some((better, lower)) = pack(&items, height, enough, &mut meter).filter(|(_, h)| *h < height) {
            (offsets, height) = (better, lower);
        }
        Packing {
            offsets,
            height,
            lower_bound: bound,
        }
    }

    /// Checks offsets pair by pair and returns the bytes they need.
    ///
    /// # Errors
    /// The first pair that overlaps.
    pub fn check(&self, offsets: &[u64]) -> Result<u64, ProblemOverlap> {
        let mut height = 0;
        let placed: Vec<(&ProblemBuffer, u64)> = self.buffers.iter().zip(offsets.iter().copied()).collect();
        for (i, &(a, a_at)) in placed.iter().enumerate() {
            let a_end = a_at.saturating_add(a.size);
            height = height.max(a_end);
            for &(b, b_at) in &placed[..i] {
                let in_time = a.lower < b.upper && b.lower < a.upper;
                let in_bytes = a_at.max(b_at) < a_end.min(b_at.saturating_add(b.size));
                if in_time && in_bytes {
                    return Err(ProblemOverlap {
                        first: b.id.clone(),
                        first_at: b_at,
                        second: a.id.clone(),
                        second_at: a_at,
                    });
                }
            }
        }
        Ok(height)
    }

    fn items(&self) -> Vec<Item> {
        self.buffers
            .iter()
            .map(|b| Item {
                start: b.lower,
                end: b.upper,
                bytes: b.size,
            })
            .collect()
    }

    /// The best of the quick passes, those in time order among them.
    fn pack_quick(&self) -> (Vec<u64>, u64) {
        let mut times: Vec<i64> = self.buffers.iter().flat_map(|b| [b.lower, b.upper]).collect();
        times.sort_unstable();
        times.dedup();
        let step = |t: i64| times.partition_point(|&x| x < t) as u32;
        let mut order: Vec<u32> = (0..self.buffers.len() as u32).collect();
        order.sort_by_key(|&i| (self.buffers[i as usize].lower, i));
        let buffer = |&i: &u32| {
            let b = &self.buffers[i as usize];
            Buffer {
                start: step(b.lower),
                end: step(b.upper),
                bytes: b.size,
                tensor: i,
            }
        };
        let buffers: Vec<Buffer> = order.iter().map(buffer).collect();
        let (at, height) = pack_greedily(&buffers, &Limits::unlimited(1), lower_bound(&self.items()));
        let mut offsets = vec![0; self.buffers.len()];
        for (b, at) in buffers.iter().zip(at) {
            offsets[b.tensor as usize] = at.offset;
        }
        (offsets, height)
    }
}

fn read_buffer(line: &str, columns: [usize; 4], expected: usize) -> Result<ProblemBuffer, ProblemCause> {
    let values: Vec<&str> = line.split(',').map(str::trim).collect();
    if values.len() != expected {
        return Err(ProblemCause::Columns {
            found: values.len(),
            expected,
        });
    }
    fn number<T: std::str::FromStr>(column: &'static str, value: &str) -> Result<T, ProblemCause> {
        value.parse().map_err(|_| ProblemCause::Number {
            column,
            value: value.to_owned(),
        })
    }
    let [id, lower, upper, size] = columns.map(|c| values[c]);
    let (lower, upper) = (number("lower", lower)?, number("upper", upper)?);
    if lower >= upper {
        return Err(ProblemCause::Interval {
            id: id.to_owned(),
            lower,
            upper,
        });
    }
    Ok(ProblemBuffer {
        id: id.to_owned(),
        lower,
        upper,
        size: number("size", size)?,
    })
}
