//! One command per file. Each has its arguments, and a `run` that gives the exit code of a good end.

pub(crate) mod bench;
pub(crate) mod devices;
pub(crate) mod doctor;
pub(crate) mod plan;
pub(crate) mod profile;
pub(crate) mod run;
pub(crate) mod score;
