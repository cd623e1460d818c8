//! From a path to a loaded model, with a progress bar where somebody watches.

use std::path::Path;
use std::time::{Duration, Instant};

use hexloom::SessionOptions;
use hexloom_models::gguf::Gguf;
use hexloom_models::llama::{LlamaConfig, Model};
use hexloom_models::tokenizer::Tokenizer;
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::SessionArgs;
use crate::failure::Failure;
use crate::memory;

/// Context length when none is asked for: enough for a conversation, small enough for any device.
const N_CTX_DEFAULT: u32 = 4096;

/// A model in the memory of an open session.
pub(crate) struct Loaded {
    pub(crate) model: Model,
    /// From opening the session to the last weight in its place.
    pub(crate) load_time: Duration,
}

/// Opens and checks the model file.
pub(crate) fn open(path: &Path) -> Result<Gguf, Failure> {
    Ok(Gguf::open(path)?)
}

/// The context length to use: what was asked for, otherwise what the model was trained with up to a limit.
pub(crate) fn context_length(gguf: &Gguf, asked: Option<u32>) -> Result<u32, Failure> {
    let trained = LlamaConfig::from_gguf(gguf)?.n_ctx_train;
    Ok(asked.unwrap_or(trained.min(N_CTX_DEFAULT)))
}

/// Opens a session and loads the model into it, if a context of `n_ctx` tokens can fit beside it.
pub(crate) fn model(gguf: &Gguf, n_ctx: u32, args: &SessionArgs, options: &SessionOptions) -> Result<Loaded, Failure> {
    let start = Instant::now();
    let sessions = args.sessions(options)?;
    let beside = memory::beside(gguf, n_ctx, &sessions)?;
    let bar = bar("loading", "{msg} {bar:32} {bytes}/{total_bytes}");
    let progress = |done, total| {
        if bar.length() != Some(total) {
            bar.set_length(total);
        }
        bar.set_position(done);
    };
    let model = Model::load_split(gguf, args.spread(&sessions).leaving(beside), &progress);
    bar.finish_and_clear();
    Ok(Loaded {
        model: model?,
        load_time: start.elapsed(),
    })
}

/// As [`model`], while the tokenizer is built on a thread of its own.
pub(crate) fn model_and_tokenizer(
    gguf: &Gguf,
    n_ctx: u32,
    args: &SessionArgs,
    options: &SessionOptions,
) -> Result<(Loaded, Tokenizer), Failure> {
    std::thread::scope(|scope| {
        let tokenizer = scope.spawn(|| Tokenizer::from_gguf(gguf));
        let loaded = model(gguf, n_ctx, args, options);
        let tokenizer = tokenizer
            .join()
            .map_err(|_| Failure::Thread("the thread that builds the tokenizer"))?;
        Ok((loaded?, tokenizer?))
    })
}

/// A bar for `total` steps on standard error; nothing where that is no terminal.
pub(crate) fn steps_bar(what: &'static str, total: usize) -> ProgressBar {
    let bar = bar(what, "{msg} {bar:32} {pos}/{len} {eta}");
    bar.set_length(total as u64);
    bar
}

fn bar(what: &'static str, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(0).with_style(style).with_message(what)
}
