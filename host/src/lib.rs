//! hexloom: run ggml/GGUF tensor graphs on Qualcomm Hexagon NPUs.
//!
//! The way of a graph: [`graph::Graph`] records ops; [`Session::prepare`] checks support, fuses, plans memory and encodes
//! them once into blocks of the pinned queue buffer; [`PreparedGraph::run`] sends the same bytes again each time; the
//! DSP answers each batch with one reply. What a DSP is, a [`Transport`] decides: the simulator, an emulated Hexagon, or
//! a phone.
//!
//! Reading order: [`transport`], [`session`], [`memory`], [`plan`], [`batch`], [`graph`], [`prepared`], [`repack`].

pub mod batch;
pub mod device;
pub mod error;
pub mod graph;
pub mod memory;
pub mod plan;
pub mod prepared;
pub mod repack;
pub mod session;
pub mod transport;

pub use error::{Fault, GraphError, LostError, MapError, OpenError, RunError, SubmitError, WaitError};
pub use graph::{Graph, Reduction, TensorId};
pub use hexloom_abi as abi;
pub use hexloom_abi::DType;
pub use memory::Buffer;
pub use plan::PlanError;
pub use prepared::PreparedGraph;
pub use session::{Event, MatrixUnit, Session, SessionOptions};
pub use transport::Transport;
