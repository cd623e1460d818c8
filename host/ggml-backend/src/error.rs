//! What can go wrong behind a foreign entry; each message is one line of ggml's log.

use crate::abi::Tensor;
use hexloom::{GraphError, MapError, OpenError, RunError, SubmitError};

/// A failure of the back end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackendError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Map(#[from] MapError),
    #[error(transparent)]
    Graph(#[from] GraphError),
    #[error(transparent)]
    Submit(#[from] SubmitError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Emu(#[from] hexloom_emu::FindError),
    #[error(transparent)]
    FastRpc(#[from] hexloom_fastrpc::LoadError),
    #[error("HEXLOOM_DEVICES names \"{0}\"; known are sim, emu, fastrpc, null and nothing")]
    UnknownDevice(String),
    #[error("{op} \"{name}\" cannot be computed: {what}; it was not claimed, so the program placed it here by itself")]
    Unsupported { op: String, name: String, what: String },
    #[error("tensor \"{name}\" {what}")]
    Tensor { name: String, what: String },
    #[error("an earlier graph of this device failed, as the log says; what it should have computed was read as NaN")]
    Earlier,
    #[error(transparent)]
    Plan(#[from] hexloom::plan::buffers::BufferPlanError),
    #[error("one graph reads a quantised weight as rows and as tiles; compute the two parts in graphs of their own")]
    TwoLayouts,
    #[error("ggml passed a null {0}")]
    Null(&'static str),
}

impl BackendError {
    /// A tensor that cannot be computed or used as asked, for a reason that follows its name.
    pub(crate) fn unsupported(tensor: &Tensor, why: &str) -> Self {
        Self::Unsupported {
            op: tensor
                .op()
                .map_or_else(|| format!("op {}", tensor.op), |op| op.name().to_owned()),
            name: tensor.name(),
            what: why.to_owned(),
        }
    }
}
