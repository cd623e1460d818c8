//! `hexloom score`: what a model makes of given texts, step by step.

mod agreement;
mod file;
mod logits;

use std::path::PathBuf;
use std::process::ExitCode;

use hexloom_models::llama::{Context, LlamaConfig};
use hexloom_models::log_probs::LogProbs;
use serde::Serialize;

use crate::args::{ExactArg, ModelArg, SessionArgs};
use crate::failure::Failure;
use crate::{load, output};
use agreement::Agreement;
use file::Entry;
use logits::LogitsFile;

/// Print the log-probabilities of the tokens of given texts.
///
/// The texts are token numbers in a JSON file. Step i is what the model predicts after `prompt_tokens` and the first i
/// of `tokens`. Prints a JSON array with one entry per text: `steps`, each with `top`, the most probable tokens, and
/// `ref`, our log-probabilities of the tokens that the file lists for the step.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    /// JSON array of {"prompt_tokens": [...], "tokens": [...], "steps": [{"top": [[token, logprob], ...]}, ...]};
    /// steps are optional, other keys are ignored.
    #[arg(long, value_name = "FILE")]
    tokens: PathBuf,
    /// Most probable tokens to print per step.
    #[arg(long, value_name = "K", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    top: u32,
    /// Only the first N texts.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    entries: Option<u32>,
    /// Only the first N steps of each text.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    steps: Option<u32>,
    /// Print how near the scores are to those in the file, in place of the scores.
    #[arg(long)]
    compare: bool,
    /// With --compare: one JSON object in place of a table.
    #[arg(long, requires = "compare")]
    json: bool,
    /// Write every logit of every step, 32-bit floats in little-endian order, to compare machines bit for bit.
    #[arg(long, value_name = "FILE")]
    logits: Option<PathBuf>,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    exact: ExactArg,
}

/// Scores of one text.
#[derive(Serialize)]
struct Scores {
    steps: Vec<Step>,
}

/// Scores before one token: pairs of token and log-probability.
#[derive(Serialize)]
struct Step {
    top: Vec<(u32, f32)>,
    #[serde(rename = "ref")]
    reference: Vec<(u32, f32)>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let gguf = load::open(&args.model.path)?;
    let n_vocab = LlamaConfig::from_gguf(&gguf)?.n_vocab;
    let most = |limit: Option<u32>| limit.map_or(usize::MAX, |limit| limit as usize);
    let entries = file::read(&args.tokens, n_vocab, most(args.entries), most(args.steps))?;
    if args.compare && entries.iter().all(|entry| entry.steps.is_empty()) {
        let path = args.tokens.clone();
        let what = "no entry has steps, there is nothing to compare with".to_owned();
        return Err(Failure::Content { path, what });
    }
    let n_ctx = entries.iter().map(Entry::n_evaluated).max().unwrap_or(0).max(1);
    let n_ctx = u32::try_from(n_ctx).unwrap_or(u32::MAX);
    let options = args.session.options(args.exact.exact);
    let loaded = load::model(&gguf, n_ctx, &args.session, &options)?;
    let mut context = Context::new(&loaded.model, n_ctx)?;
    let bar = load::steps_bar("scoring", entries.iter().map(|entry| entry.tokens.len()).sum());
    let mut logits = args.logits.as_deref().map(LogitsFile::create).transpose()?;
    let scores: Result<Vec<Scores>, Failure> = entries
        .iter()
        .map(|entry| {
            let mut step_done = |step: &[f32]| {
                bar.inc(1);
                logits.as_mut().map_or(Ok(()), |file| file.add(step))
            };
            score(&mut context, entry, args.top as usize, &mut step_done)
        })
        .collect();
    bar.finish_and_clear();
    let scores = scores?;
    if let Some(file) = logits {
        file.finish()?;
    }
    if args.compare {
        let agreement = compare(&entries, &scores);
        match args.json {
            true => output::print_json(&agreement)?,
            false => output::print(&agreement.table())?,
        }
    } else {
        output::print_json(&scores)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The prompt in one go, then token by token; `step_done` gets each step's logits.
fn score(
    context: &mut Context<'_>,
    entry: &Entry,
    n_top: usize,
    step_done: &mut dyn FnMut(&[f32]) -> Result<(), Failure>,
) -> Result<Scores, Failure> {
    context.rewind(0);
    let mut steps = Vec::with_capacity(entry.tokens.len());
    for idx in 0..entry.tokens.len() {
        let logits = match idx {
            0 => context.eval(&entry.prompt_tokens)?,
            _ => context.eval(&entry.tokens[idx - 1..idx])?,
        };
        step_done(logits)?;
        let probs = LogProbs::new(logits)?;
        let listed = entry.steps.get(idx).into_iter().flatten();
        steps.push(Step {
            top: probs.top(n_top),
            reference: listed
                .map(|&(token, _)| Ok((token, probs.of(token)?)))
                .collect::<Result<_, Failure>>()?,
        });
    }
    Ok(Scores { steps })
}

fn compare(entries: &[Entry], scores: &[Scores]) -> Agreement {
    let mut agreement = Agreement::default();
    for (entry, scores) in entries.iter().zip(scores) {
        for (theirs, ours) in entry.steps.iter().zip(&scores.steps) {
            let first = ours.top.first().map(|&(token, _)| token);
            agreement.add(theirs, first, &ours.reference);
        }
    }
    agreement
}

impl Entry {
    /// Tokens that are evaluated to score the text: the last one is only predicted.
    fn n_evaluated(&self) -> usize {
        match self.tokens.len() {
            0 => 0,
            n => self.prompt_tokens.len() + n - 1,
        }
    }
}
