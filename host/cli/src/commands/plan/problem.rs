//! A packing problem: read, packed, checked, drawn.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use hexloom::plan::{Budget, Packing, Problem, svg};
use serde_json::{Map, Value, json};

use super::Args;
use crate::failure::Failure;
use crate::output::{self, grouped};

/// Longest search that can be asked for: a day.
const BUDGET_MAX: f64 = 86_400.0;

pub(super) fn run(args: &Args, file: &Path) -> Result<ExitCode, Failure> {
    if !(args.budget >= 0.0 && args.budget <= BUDGET_MAX) {
        return Err(Failure::Argument(format!(
            "--budget is {}, allowed are 0 to {BUDGET_MAX} seconds",
            args.budget
        )));
    }
    let text = std::fs::read_to_string(file).map_err(|source| Failure::Read {
        path: file.to_owned(),
        source,
    })?;
    let problem = Problem::read(&text).map_err(|error| Failure::Content {
        path: file.to_owned(),
        what: error.to_string(),
    })?;
    let start = Instant::now();
    let packing = problem.pack(args.capacity, Budget::time(Duration::from_secs_f64(args.budget)));
    let seconds = start.elapsed().as_secs_f64();
    problem
        .check(&packing.offsets)
        .map_err(|overlap| Failure::Wrong(format!("the packing of {}: {overlap}", file.display())))?;
    if let Some(out) = &args.svg {
        let picture = svg::draw(&problem, &packing, args.capacity);
        std::fs::write(out, picture).map_err(|source| Failure::Write {
            path: out.clone(),
            source,
        })?;
    }
    let fits = args.capacity.is_none_or(|capacity| packing.height <= capacity);
    match args.json {
        true => output::print_json(&object(&problem, &packing, seconds))?,
        false => output::print(&table(args, &problem, &packing, seconds))?,
    }
    Ok(if fits { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn object(problem: &Problem, packing: &Packing, seconds: f64) -> Value {
    let ids = problem.buffers.iter().map(|buffer| buffer.id.clone());
    let offsets: Map<String, Value> = ids.zip(packing.offsets.iter().map(|&offset| offset.into())).collect();
    json!({
        "height": packing.height,
        "lower_bound": packing.lower_bound,
        "seconds": seconds,
        "offsets": offsets,
    })
}

fn table(args: &Args, problem: &Problem, packing: &Packing, seconds: f64) -> String {
    let over = match packing.lower_bound {
        0 => 0.0,
        bound => 100.0 * (packing.height - bound) as f64 / bound as f64,
    };
    let mut text = format!(
        "{} buffers\nheight       {:>16} bytes, {over:.2} % over the lower bound\nlower bound  {:>16} bytes\ntime         {seconds:>16.3} s\n",
        problem.buffers.len(),
        grouped(packing.height),
        grouped(packing.lower_bound),
    );
    if let Some(capacity) = args.capacity {
        text.push_str(&match packing.height.checked_sub(capacity) {
            None | Some(0) => format!("fits the capacity of {} bytes\n", grouped(capacity)),
            Some(missing) if packing.lower_bound > capacity => format!(
                "cannot fit the capacity of {} bytes: {} bytes are alive at once; {} are missing\n",
                grouped(capacity),
                grouped(packing.lower_bound),
                grouped(missing)
            ),
            Some(missing) => format!(
                "no packing into {} bytes was found, {} are missing; a larger --budget may find one\n",
                grouped(capacity),
                grouped(missing)
            ),
        });
    }
    text
}
