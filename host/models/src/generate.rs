//! The loop that writes text: a prompt in, tokens and text out, one at a time.
//!
//! A generation ends at a token that says so, at its limit, where the context is full, when its [`Cancel`] is set from
//! another thread, or when the caller's function breaks. Each is a good end: the context stays usable and holds what
//! was evaluated. Between two looks at the flag lies one evaluation, of a token or of a piece of the prompt.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::ModelError;
use crate::llama::Context;
use crate::sampler::Sampler;
use crate::tokenizer::Tokenizer;

/// A flag that ends a generation. Clones share it; any thread may set it.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends every generation that looks at the flag, within one evaluation, and those that start later at once.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the flag is set.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Why a generation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The model chose this end-of-generation token, which is not part of the result.
    Token(u32),
    /// As many tokens as were asked for.
    Limit,
    /// The context is full.
    ContextFull,
    /// [`Cancel`] was set.
    Cancelled,
    /// The caller's function broke off.
    Stopped,
}

/// What was generated.
#[derive(Clone, Debug)]
pub struct Generated {
    /// The chosen tokens.
    pub tokens: Vec<u32>,
    /// Their text.
    pub text: String,
    /// Why there are no more.
    pub end: End,
    /// Time for the prompt, to the logits after it.
    pub prompt_time: Duration,
    /// Time from there on, the caller's function included.
    pub decode_time: Duration,
}

/// Evaluates `prompt`, then generates up to `limit` tokens.
///
/// `on_token` is called with each token and the text that it completes, which may be empty: a character can be spread
/// over tokens. What an unfinished character leaves at the end is in [`Generated::text`] alone, as U+FFFD.
///
/// # Errors
/// [`ModelError::ContextFull`] when the prompt is empty or does not fit, before anything is evaluated;
/// [`ModelError::TokenRange`]; [`ModelError::Run`] when the DSP fails: the context then holds an unknown part of the
/// prompt or text, [`Context::rewind`] to 0 and the same call start over.
pub fn generate(
    context: &mut Context<'_>,
    tokenizer: &Tokenizer,
    sampler: &mut Sampler,
    prompt: &[u32],
    limit: usize,
    cancel: &Cancel,
    mut on_token: impl FnMut(u32, &str) -> ControlFlow<()>,
) -> Result<Generated, ModelError> {
    context.check(prompt)?;
    let mut generated = Generated {
        tokens: Vec::new(),
        text: String::new(),
        end: End::Limit,
        prompt_time: Duration::ZERO,
        decode_time: Duration::ZERO,
    };
    let mut stream = tokenizer.stream();
    let start = Instant::now();
    let n_batch = context.n_batch();
    let (before, last) = prompt.split_at((prompt.len() - 1) / n_batch * n_batch);
    for piece in before.chunks(n_batch) {
        if cancel.is_cancelled() {
            break;
        }
        context.eval(piece)?;
    }
    let mut newest;
    let mut next = last;
    while generated.tokens.len() < limit {
        if cancel.is_cancelled() {
            generated.end = End::Cancelled;
            break;
        }
        if context.n_past() as usize + next.len() > context.n_ctx() as usize {
            generated.end = End::ContextFull;
            break;
        }
        let logits = context.eval(next)?;
        if generated.tokens.is_empty() {
            generated.prompt_time = start.elapsed();
        }
        newest = [sampler.sample(logits)?];
        if tokenizer.is_end(newest[0]) {
            generated.end = End::Token(newest[0]);
            break;
        }
        generated.tokens.push(newest[0]);
        let text = stream.push(newest[0])?;
        generated.text.push_str(text);
        if on_token(newest[0], text).is_break() {
            generated.end = End::Stopped;
            break;
        }
        next = &newest;
    }
    generated.text.push_str(&stream.finish());
    generated.decode_time = start.elapsed() - generated.prompt_time;
    Ok(generated)
}
