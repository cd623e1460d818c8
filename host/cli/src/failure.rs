//! What can go wrong, as one sentence and an exit code.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use hexloom::{OpenError, RunError, SubmitError};
use hexloom_models::ModelError;

use crate::device::DeviceError;

/// Why a command did not do its work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The model, or what was asked of it.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The device.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A device that this machine lacks something for.
    #[error("device {}: {}", .0.device().name(), .0)]
    Device(#[from] DeviceError),
    /// An argument that only the model shows to be wrong.
    #[error("{0}")]
    Argument(String),
    /// A file of the user's that cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// A file of the user's that is not what it should be.
    #[error("{}: {what}", path.display())]
    Content { path: PathBuf, what: String },
    /// A file that cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    /// A result that its own check refuses.
    #[error("{0}; this is a fault of hexloom")]
    Wrong(String),
    /// Standard output was closed by whoever read it.
    #[error("standard output was closed")]
    BrokenPipe,
    /// Standard output cannot be written for another reason.
    #[error("cannot write to standard output: {0}")]
    Output(std::io::Error),
    /// Ctrl-C cannot be caught.
    #[error("cannot handle Ctrl-C: {0}")]
    Interrupt(ctrlc::Error),
    /// A thread of ours ended early.
    #[error("{0} ended unexpectedly; this is a fault of hexloom")]
    Thread(&'static str),
}

const FAILED: u8 = 1;
const BAD_INPUT: u8 = 2;

impl Failure {
    /// Tells what happened, in one line on standard error, and gives the exit code.
    pub(crate) fn report(self) -> ExitCode {
        if matches!(self, Self::BrokenPipe) {
            // As with any filter: the reader has what it wanted.
            return ExitCode::SUCCESS;
        }
        eprintln!("hexloom: {self}");
        ExitCode::from(self.code())
    }

    fn code(&self) -> u8 {
        match self {
            Self::Argument(_) | Self::Read { .. } | Self::Content { .. } => BAD_INPUT,
            Self::Open(OpenError::Option { .. }) => BAD_INPUT,
            Self::Model(error) => match error {
                // What the device or the machine did; a graph that no kernel takes is the file's doing.
                ModelError::Map(_) | ModelError::BadLogit { .. } | ModelError::NoLogit { .. } => FAILED,
                ModelError::Submit(SubmitError::Graph(_)) => BAD_INPUT,
                ModelError::Run(RunError::Submit(SubmitError::Graph(_))) => BAD_INPUT,
                ModelError::Submit(_) | ModelError::Run(_) => FAILED,
                _ => BAD_INPUT,
            },
            _ => FAILED,
        }
    }
}

impl From<std::io::Error> for Failure {
    /// Errors of writing to standard output; other files are named where they are used.
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::BrokenPipe,
            _ => Self::Output(error),
        }
    }
}

/// Prints help and version as clap does, and a mistake as one sentence.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    let asked_for = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    if asked_for {
        // A closed pipe is no mistake here either.
        let _ = error.print();
        return ExitCode::from(error.exit_code() as u8);
    }
    let text = error.render().to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    let sentence = first.split_whitespace().collect::<Vec<_>>().join(" ");
    eprintln!("hexloom: {}", sentence.strip_prefix("error: ").unwrap_or(&sentence));
    ExitCode::from(BAD_INPUT)
}
