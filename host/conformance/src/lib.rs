//! One list of op cases, run on every hexloom transport through the public host API.
//!
//! A [`Case`] is data: an op, its operands with layouts and values, its parameters, what must come of it. [`cases::all`]
//! lists them, one file per op family in `cases/`. A [`Suite`] runs each case on a session with the plain reference
//! kernels, then on every [`Runner`]: the first runner is compared with the reference by the [`tolerance`], the others
//! with the first, bit for bit. Each runs twice, in every in-place variant that [`hexloom::abi::inplace`] allows.
//!
//! Adding an op is a file in `cases/` and a line in [`cases::all`]; every runner picks it up. [`raw`] speaks to a
//! transport without the host's checks, for messages that the host would never send.
//!
//! Reading order: [`case`], [`operand`], [`fill`], [`mod@image`], [`run`], [`suite`], [`runners`], [`raw`], [`peers`].
#![forbid(unsafe_code)]

pub mod case;
#[path = "../cases/mod.rs"]
pub mod cases;
pub mod fill;
pub mod image;
pub mod operand;
pub mod peers;
pub mod raw;
pub mod run;
pub mod runners;
pub mod suite;

pub use case::{Case, Expect, Overlap, tolerance};
pub use fill::Fill;
pub use operand::{Layout, Operand};
pub use suite::{Report, Runner, Suite};
