//! Memory planning for graphs: which tensor lies where, so that bytes are used again once their readers are done.
//!
//! Pure functions of a [`Graph`] and [`Limits`]: no memory is touched, nothing else of this crate is known.
//! [`plan_compute`] is the way in; [`OnlinePlanner`] is the allocator in graph order that ggml has,
//! [`Planner`] the offline one that packs with all lifetimes known, [`validate()`] checks any plan. Tensors that live as
//! long as a model are packed by [`buffers`], for a modelled [`window`]; [`residency`] serves models that are larger than it.

#![forbid(unsafe_code)]

pub mod buffers;
mod dynamic;
mod error;
mod graph;
mod lifetimes;
mod limits;
mod memory;
mod offline;
mod online;
mod peak;
mod problem;
pub mod residency;
mod result;
pub mod svg;
pub mod text;
mod validate;
pub mod window;

pub use dynamic::{Address, DynamicAllocator, NoRoom};
pub use error::{GraphChange, PlanError};
pub use graph::{Flags, Graph, InPlace, MAX_OPERANDS, TensorId, TensorSpec};
pub use lifetimes::Unread;
pub use limits::{Limits, MAX_BYTES};
pub use memory::{GraphMemory, MakeBuffer, Mode};
pub use offline::Planner;
pub use offline::pack::Budget;
pub use online::OnlinePlanner;
pub use peak::Peak;
pub use problem::{Packing, Problem, ProblemBuffer, ProblemCause, ProblemError, ProblemOverlap};
pub use result::{KindPlan, Method, Placement, Plan};
pub use validate::{Fault, validate};

/// Plans one graph in quick mode; `limits[k]` holds for tensors of buffer kind `k`.
///
/// Planning many graphs is faster with one [`Planner`], which keeps its memory.
///
/// # Errors
/// See [`PlanError`].
pub fn plan_compute(graph: &Graph, limits: &[Limits]) -> Result<Plan, PlanError> {
    Planner::new().quick(graph, limits)
}
