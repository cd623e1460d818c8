//! `hexloom plan`: does a model fit a device's window, before it is loaded.

use std::fmt::Write as _;
use std::process::ExitCode;

use crate::args::ModelArg;
use crate::failure::Failure;
use crate::memory::Footprint;
use crate::output::{grouped, mib};
use crate::{load, output};

/// Tell what memory a model needs on a device, without loading it.
///
/// Ends well whether the model fits or not; --json has the answer under `fits`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    /// Tokens of context; without it, what the model was trained with, at most 4096.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ctx: Option<u32>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let gguf = load::open(&args.model.path)?;
    let n_ctx = load::context_length(&gguf, args.ctx)?;
    let footprint = Footprint::of(&gguf, n_ctx)?;
    match args.json {
        true => output::print_json(&footprint)?,
        false => output::print(&table(&footprint))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn table(footprint: &Footprint) -> String {
    let mut text = String::new();
    let mut line = |what: &str, bytes: u64| {
        let _ = writeln!(text, "{what:<36} {:>16} bytes {:>12}", grouped(bytes), mib(bytes));
    };
    line("weights", footprint.weight_bytes);
    line(
        &format!("KV cache, {} tokens", grouped(footprint.n_ctx.into())),
        footprint.cache_bytes,
    );
    line("compute buffers", footprint.compute_bytes);
    line("queue and fences", footprint.pinned_bytes);
    line("all", footprint.total_bytes);
    line("window", footprint.window_bytes);
    let (total, window) = (footprint.total_bytes, footprint.window_bytes);
    let _ = match footprint.fits {
        true => writeln!(text, "fits, {} are left", mib(window - total)),
        false => writeln!(text, "does not fit, {} are missing", mib(total - window)),
    };
    let (most, trained) = (
        grouped(footprint.n_ctx_max.into()),
        grouped(footprint.n_ctx_train.into()),
    );
    let _ = writeln!(
        text,
        "largest context that fits: {most} tokens (the model was trained with {trained})"
    );
    text
}
