//! A model: weights, cache and compute apart, what fills the compute buffers, and what smaller options would save.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use hexloom_models::llama::LlamaConfig;

use super::Args;
use super::window::WindowReport;
use crate::failure::Failure;
use crate::memory::{Footprint, GraphMemory, Target};
use crate::output::{grouped, mib};
use crate::{load, output};

/// Tensors named per chunk for people; `--json` has all.
const NAMED: usize = 5;

/// What `--json` prints.
#[derive(serde::Serialize)]
struct Everything<'a> {
    #[serde(flatten)]
    footprint: &'a Footprint,
    window: &'a WindowReport,
}

pub(super) fn run(args: &Args, path: &Path) -> Result<ExitCode, Failure> {
    let gguf = load::open(path)?;
    let n_ctx = load::context_length(&gguf, args.ctx)?;
    let target = Target {
        window_bytes: args.window,
        arch: args.arch,
    };
    let footprint = Footprint::of(&gguf, n_ctx, args.batch, target)?;
    let report = WindowReport::new(&footprint, &LlamaConfig::from_gguf(&gguf)?);
    if let Some(out) = &args.svg {
        std::fs::write(out, report.picture()).map_err(|source| Failure::Write {
            path: out.clone(),
            source,
        })?;
    }
    if args.json {
        output::print_json(&Everything {
            footprint: &footprint,
            window: &report,
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = table(&footprint);
    report.write(&mut text);
    footprint.graphs.iter().for_each(|graph| write_graph(&mut text, graph));
    let smaller = [
        (args.batch > 1).then_some(("--batch", args.batch / 2, n_ctx, args.batch / 2)),
        (n_ctx > 1).then_some(("--ctx", n_ctx / 2, n_ctx / 2, args.batch)),
    ];
    for (option, value, n_ctx, n_batch) in smaller.into_iter().flatten() {
        let other = Footprint::of(&gguf, n_ctx, n_batch, target)?;
        let saved = footprint.total_bytes.saturating_sub(other.total_bytes);
        let _ = writeln!(
            text,
            "{option} {value} would save {} bytes ({})",
            grouped(saved),
            mib(saved)
        );
    }
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn write_graph(text: &mut String, graph: &GraphMemory) {
    let total: u64 = graph.chunks.iter().map(|chunk| chunk.bytes).sum();
    let _ = writeln!(
        text,
        "\ncompute of {}: {} bytes in {} chunk(s), lower bound {}",
        graph.name,
        grouped(total),
        graph.chunks.len(),
        grouped(graph.lower_bound)
    );
    for (idx, chunk) in graph.chunks.iter().enumerate() {
        let _ = writeln!(
            text,
            "  chunk {idx}, {} bytes; alive at its peak:",
            grouped(chunk.bytes)
        );
        for (name, bytes) in chunk.alive.iter().take(NAMED) {
            let _ = writeln!(text, "  {:>14}  {name}", grouped(*bytes));
        }
        if let Some(rest) = chunk.alive.get(NAMED..).filter(|rest| !rest.is_empty()) {
            let bytes: u64 = rest.iter().map(|(_, bytes)| bytes).sum();
            let _ = writeln!(text, "  {:>14}  in {} more", grouped(bytes), rest.len());
        }
    }
}

fn table(footprint: &Footprint) -> String {
    let mut text = String::new();
    let mut line = |what: &str, bytes: u64| {
        let _ = writeln!(text, "{what:<36} {:>16} bytes {:>12}", grouped(bytes), mib(bytes));
    };
    line(
        &format!("weights, {} buffer(s)", footprint.weight_buffers.len()),
        footprint.weight_bytes,
    );
    line(
        &format!("KV cache, {} tokens", grouped(footprint.n_ctx.into())),
        footprint.cache_bytes,
    );
    line(
        &format!("compute, prompt pieces of {}", footprint.n_batch),
        footprint.compute_bytes,
    );
    line("queue and fences", footprint.pinned_bytes);
    line("all", footprint.total_bytes);
    line("window", footprint.window_bytes);
    let (total, window) = (footprint.total_bytes, footprint.window_bytes);
    let _ = match footprint.fits {
        true => writeln!(text, "fits, {} are left", mib(window - total)),
        false if total <= window => writeln!(text, "does not fit, {} are too few for guards", mib(window - total)),
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
