//! A model of the DSP's 32-bit window, to find out before a device does whether buffers can be mapped.
//!
//! [`Window`] places first-fit and gives space back late, [`Table`] maps what a batch needs and makes room by the rules
//! of the DSP's mapping table, [`Outlook`] is the host's picture of both and packs new tensors to suit it, [`Replay`] runs
//! a [history](HistoryOptions) of a session over them. Everything is a pure function of its numbers.

mod history;
mod outlook;
mod replay;
mod space;
mod stretch;
pub mod svg;
mod table;

pub use history::{Event, HistoryOptions, Tensors};
pub use outlook::Outlook;
pub use replay::{Call, Replay, Way};
pub use space::Window;
pub use table::{Costs, Making, Need, Table};
