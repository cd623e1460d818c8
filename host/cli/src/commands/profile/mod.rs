//! `hexloom profile`: what each op of a decode step costs on the DSP, and a timeline of all its threads.
//!
//! A prompt fills the cache, one step warms up, then every step is recorded. The tokens are fixed and mean nothing.

mod table;
mod timeline;

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hexloom::SessionOptions;
use hexloom::abi::control::CountedEvents;
use hexloom::abi::limits::PMU_COUNTERS;
use hexloom_models::llama::{Context, LlamaConfig};

use crate::args::{ModelArg, SessionArgs};
use crate::commands::bench::tokens;
use crate::device::Device;
use crate::failure::Failure;
use crate::{load, output};
use table::Report;
use timeline::Timeline;

/// Trace records of each DSP thread in one batch: a decode step of a large model takes some thousands.
const TRACE_RECORDS: u32 = 16_384;

/// Show what each op costs on the DSP, and write a timeline of its threads.
///
/// Times, packets and counters are means over the decode steps, summed over the ops of a kind. Packets are exact on `emu`
/// and missing where they cannot be counted.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    /// Tokens in the cache before the first recorded step.
    #[arg(short, long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    prompt: u32,
    /// Decode steps to record.
    #[arg(short, long = "n-tokens", value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    n: u32,
    /// Write a timeline in Chrome's trace event format, for ui.perfetto.dev or chrome://tracing.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Events for the DSP's performance counters, at most 8, by their numbers on its architecture.
    #[arg(long, value_name = "EVENT,...", value_delimiter = ',', value_parser = event)]
    count: Vec<u16>,
    #[command(flatten)]
    session: SessionArgs,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The file that the timeline goes to.
struct TraceFile<'a> {
    path: &'a Path,
    file: BufWriter<File>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    if args.session.device == Device::Null {
        let what = "device null computes nothing, so there is nothing to profile";
        return Err(Failure::Argument(what.to_owned()));
    }
    let gguf = load::open(&args.model.path)?;
    let n_ctx = context_length(args, LlamaConfig::from_gguf(&gguf)?.n_ctx_train)?;
    // Before the long work: that a file cannot be written should not be found out after it.
    let file = args.trace.as_deref().map(TraceFile::create).transpose()?;
    let options = SessionOptions {
        counters: counters(&args.count)?,
        trace_records: if file.is_some() { TRACE_RECORDS } else { 0 },
        ..args.session.options(false)
    };
    let loaded = load::model(&gguf, n_ctx, &args.session, &options)?;
    let mut context = Context::new(&loaded.model, n_ctx)?;
    let tokens = tokens(n_ctx, loaded.model.config().n_vocab);
    let (prompt, steps) = tokens.split_at(args.prompt as usize);
    let (warm_up, steps) = steps.split_at(1);
    let bar = load::steps_bar("recording", args.n as usize + 2);
    context.eval(prompt)?;
    bar.inc(1);
    context.eval(warm_up)?;
    bar.inc(1);
    context.set_profile(true);
    let n_threads = loaded.model.session().n_threads();
    let mut report = Report::new(args.session.device.name(), n_threads);
    let mut timeline = Timeline::new(n_threads);
    for token in steps.chunks(1) {
        context.eval(token)?;
        report.add(context.costs());
        timeline.add(context.costs(), context.trace());
        bar.inc(1);
    }
    bar.finish_and_clear();
    report.finish(timeline.dropped());
    if let Some(file) = file {
        file.write(&timeline)?;
    }
    match args.json {
        true => output::print_json(&report)?,
        false => output::print(&report.text(args.trace.as_deref()))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// An event's number, decimal or with `0x`.
fn event(text: &str) -> Result<u16, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16),
        None => text.parse(),
    };
    let number = number.ok().filter(|&number| number <= CountedEvents::MAX);
    number.ok_or_else(|| format!("an event is a number from 0 to {:#x}", CountedEvents::MAX))
}

/// An event for each counter.
fn counters(events: &[u16]) -> Result<[u16; PMU_COUNTERS], Failure> {
    let mut counters = [0; PMU_COUNTERS];
    let places = counters.get_mut(..events.len());
    let places = places.ok_or_else(|| {
        let what = format!(
            "--count names {} events, and there are {PMU_COUNTERS} counters",
            events.len()
        );
        Failure::Argument(what)
    })?;
    places.copy_from_slice(events);
    Ok(counters)
}

/// Positions that the steps take, with one to warm up; more than the model was trained with would measure no use of it.
fn context_length(args: &Args, trained: u32) -> Result<u32, Failure> {
    let needed = u64::from(args.prompt) + u64::from(args.n) + 1;
    match u32::try_from(needed) {
        Ok(needed) if needed <= trained => Ok(needed),
        _ => Err(Failure::Argument(format!(
            "--prompt {} and --n-tokens {} take {needed} positions with the warm-up; the model was trained with {trained}",
            args.prompt, args.n
        ))),
    }
}

impl<'a> TraceFile<'a> {
    fn create(path: &'a Path) -> Result<Self, Failure> {
        let file = File::create(path).map_err(failed(path))?;
        let file = BufWriter::new(file);
        Ok(Self { path, file })
    }

    fn write(mut self, timeline: &Timeline) -> Result<(), Failure> {
        let written = serde_json::to_writer(&mut self.file, &timeline.file()).map_err(std::io::Error::from);
        written.and_then(|()| self.file.flush()).map_err(failed(self.path))
    }
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> Failure {
    let path = path.to_owned();
    move |source| Failure::Write {
        path: path.clone(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_numbers_for_eight_counters() {
        assert_eq!([event("7"), event("0x3ff")], [Ok(7), Ok(0x3ff)]);
        for bad in ["", "x", "-1", "0x400", "0x"] {
            assert!(event(bad).is_err_and(|why| why.contains("0x3ff")), "{bad}");
        }
        assert_eq!(counters(&[3, 4]).ok(), Some([3, 4, 0, 0, 0, 0, 0, 0]));
        let error = counters(&[1; 9]).unwrap_err().to_string();
        assert!(error.contains("9 events"), "{error}");
    }
}
