//! What can go wrong behind a foreign entry; each message is one line of ggml's log.

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
    #[error("HEXLOOM_DEVICES names \"{0}\"; known are sim, emu, fastrpc and null")]
    UnknownDevice(String),
    #[error("{op} \"{name}\" cannot be computed: {what}; it was not claimed, so the program placed it here by itself")]
    Unsupported { op: String, name: String, what: String },
    #[error("tensor \"{name}\" {what}")]
    Tensor { name: String, what: String },
    #[error("one graph reads a quantised weight as rows and as tiles; compute the two parts in graphs of their own")]
    TwoLayouts,
    #[error("ggml passed a null {0}")]
    Null(&'static str),
}
