//! Which buffers are mapped when, for a model larger than the window: fewest maps per token, then fewest bytes.
//!
//! A token uses the same batches in the same order each time, so the future is known. Evicting what was used longest ago
//! is the worst that can be done with such a cycle: everything is mapped again for every token. [`Cycle::plan`] finds a
//! schedule of one or more tokens that repeats: exhaustively and provably the best up to [`EXACT_BUFFERS`] buffers, by a
//! guided search beyond, and always with a lower bound that no schedule can beat. The host enforces it by taking the
//! buffers named in [`Step::drop`] back before it sends the batch. [`stream()`] also chooses the buffers.

mod beam;
mod bound;
mod cycle;
mod exact;
mod schedule;
mod simplex;
mod stream;

pub use cycle::{Cycle, ResidencyError};
pub use exact::EXACT_BUFFERS;
pub use schedule::{Schedule, ScheduleFault, Step};
pub use stream::{Stream, stream};

#[cfg(test)]
mod tests;
