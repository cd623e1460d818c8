//! Maps per token of models that are larger than the window.
//!
//! `cargo run --release -p hexloom --example residency`

#[path = "../tests/plan_support/models.rs"]
mod models;

use std::error::Error;

use hexloom::plan::residency::Cycle;
use models::{EIGHT_B, FOURTEEN_B, SMOLLM2, Shape, streamed};

const MIB: u64 = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    println!("| model | window | buffers | maps per token | lower bound | proved | MiB per token | tokens to repeat |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    let window = hexloom_abi::limits::WINDOW_BYTES_DEFAULT;
    let rows: [(&str, Shape, u64); 5] = [
        ("SmolLM2-135M, all Q4_1", SMOLLM2, 24 * MIB),
        ("SmolLM2-135M, all Q4_1", SMOLLM2, 48 * MIB),
        ("SmolLM2-135M, all Q4_1", SMOLLM2, 64 * MIB),
        ("8B, 32 layers", EIGHT_B, window),
        ("14B, 48 layers", FOURTEEN_B, window),
    ];
    for (name, shape, window) in rows {
        let stream = streamed(shape, window)?;
        row(name, &stream.cycle, stream.placed_maps_per_token)?;
    }
    // Two synthetic cycles of given buffers: many equal ones, and many of mixed sizes with one that every fifth batch needs.
    row("40 equal buffers", &cycle(40, |_| 100, false), 0.0)?;
    row(
        "36 mixed buffers, one shared",
        &cycle(36, |idx| 40 + idx * 37 % 90, true),
        0.0,
    )?;
    Ok(())
}

fn cycle(n: u64, mib: impl Fn(u64) -> u64, shared: bool) -> Cycle {
    let buffer_bytes: Vec<u64> = (0..n).map(|idx| mib(idx) * MIB).collect();
    let with = |batch: usize| match shared && batch.is_multiple_of(5) {
        true => vec![batch, 1],
        false => vec![batch],
    };
    Cycle {
        batches: (0..buffer_bytes.len()).map(with).collect(),
        window_bytes: buffer_bytes.iter().sum::<u64>() * 3 / 5,
        buffer_bytes,
    }
}

/// One line; `placed` is what a first-fit window needs, where it was tried.
fn row(name: &str, cycle: &Cycle, placed: f64) -> Result<(), Box<dyn Error>> {
    let schedule = cycle.plan()?;
    schedule.check(cycle)?;
    println!(
        "| {name} | {} MiB | {} | {:.3} | {:.3} | {} | {:.1} | {} |",
        cycle.window_bytes / MIB,
        cycle.buffer_bytes.len(),
        schedule.maps_per_token().max(placed),
        schedule.lower_bound,
        if schedule.proven { "yes" } else { "no" },
        schedule.bytes_per_token() / MIB as f64,
        schedule.tokens.len(),
    );
    Ok(())
}
