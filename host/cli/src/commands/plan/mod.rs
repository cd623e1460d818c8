//! `hexloom plan`: memory before anything is loaded, of a model or of a packing problem.

mod model;
mod problem;
mod window;

use std::path::PathBuf;
use std::process::ExitCode;

use hexloom_models::llama::BATCH_TOKENS;

use crate::failure::Failure;

/// Tell what memory a model needs on a device, without loading it; or pack a planning problem.
///
/// For a model: ends well whether it fits or not; --json has the answer under `fits`. For a problem: exit code 1 when it
/// does not fit --capacity.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// GGUF file of the model.
    #[arg(
        value_name = "MODEL",
        required_unless_present = "problem",
        conflicts_with = "problem"
    )]
    model: Option<PathBuf>,
    /// Tokens of context; without it, what the model was trained with, at most 4096.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "problem")]
    ctx: Option<u32>,
    /// Tokens of a prompt that are evaluated together.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096), conflicts_with = "problem",
        default_value_t = BATCH_TOKENS as u32)]
    batch: u32,
    /// Plan for a 32-bit window of so many bytes instead of the usual one.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..=1 << 32), conflicts_with = "problem")]
    window: Option<u64>,
    /// Plan for an architecture: 68, 69, 73, 75, 79 or 81.
    #[arg(long, value_name = "N", value_parser = architecture, conflicts_with = "problem")]
    arch: Option<u32>,
    /// Planning problem: CSV with the columns id, lower, upper and size.
    #[arg(long, value_name = "FILE")]
    problem: Option<PathBuf>,
    /// Bytes that the problem is to fit; the search ends when it does.
    #[arg(long, value_name = "BYTES", requires = "problem")]
    capacity: Option<u64>,
    /// Seconds that the search may take.
    #[arg(long, value_name = "SECONDS", requires = "problem", default_value_t = 10.0)]
    budget: f64,
    /// Draw the window with what is mapped, batch by batch where it changes; of a problem the packing.
    #[arg(long, value_name = "OUT")]
    svg: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Architectures that hexloom has images for.
const ARCHITECTURES: [u32; 6] = [68, 69, 73, 75, 79, 81];

fn architecture(text: &str) -> Result<u32, String> {
    let number = text.strip_prefix('v').unwrap_or(text).parse().ok();
    number.filter(|arch| ARCHITECTURES.contains(arch)).ok_or_else(|| {
        let known = ARCHITECTURES.map(|arch| arch.to_string()).join(", ");
        format!("there is no such architecture; there are {known}")
    })
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    match (&args.model, &args.problem) {
        (_, Some(file)) => problem::run(args, file),
        (Some(path), None) => model::run(args, path),
        // clap has asked for one of the two.
        (None, None) => Err(Failure::Argument("name a MODEL or a --problem FILE".to_owned())),
    }
}
