//! The chat template that a model file carries, a small Jinja program that turns messages into a prompt.
//!
//! Templates are written for Jinja under Python, so blocks are trimmed as there, loops can be left early, and
//! `raise_exception` is defined. Dates are not: a template that asks for today must do without, so that the same
//! messages always give the same prompt.
//!
//! A template comes with a file and may be anybody's: its length, its steps and how deep it nests are bounded, what it
//! takes of memory is not, for which the engine has no means.

use std::panic::resume_unwind;
use std::thread;

use minijinja::{Environment, Error, ErrorKind, context};
use serde::Serialize;

use crate::ModelError;
use crate::gguf::Gguf;
use crate::tokenizer::Tokenizer;

const TEMPLATE_KEY: &str = "tokenizer.chat_template";
const NAME: &str = "chat";

/// Steps a template may take. A chat takes some hundred per message; a loop that never ends stops here.
const FUEL: u64 = 300_000;

/// The longest template; those of today's models have at most some 30 KB.
const SOURCE_BYTES_MAX: usize = 256 << 10;

/// Stack under the engine, which recurses as deep as expressions and values nest: a sign is a level, and so is a step that
/// puts a list into a list. It is 4 KiB for each byte or 3 for each step, and the engine was seen to take 1; only what is
/// used of it becomes memory.
const STACK_BYTES: usize = 1 << 30;

/// One message of a chat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChatMessage {
    /// Who speaks: "system", "user" or "assistant" in most templates.
    pub role: String,
    /// What is said.
    pub content: String,
}

impl ChatMessage {
    /// A message of `role`.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            content: content.into(),
        }
    }
}

/// A model's chat template, parsed.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos_token: String,
    eos_token: String,
}

impl ChatTemplate {
    /// The template of `gguf`; `tokenizer` gives the texts of its BOS and EOS tokens.
    ///
    /// # Errors
    /// [`ModelError::NoChatTemplate`] when the model carries none, [`ModelError::ChatTemplate`] when it does not parse.
    pub fn from_gguf(gguf: &Gguf, tokenizer: &Tokenizer) -> Result<Self, ModelError> {
        let source = gguf.find::<&str>(TEMPLATE_KEY)?;
        let source = source.ok_or_else(|| ModelError::NoChatTemplate {
            path: gguf.path().into(),
        })?;
        let text = |token: Option<u32>| token.map_or(Ok(String::new()), |token| tokenizer.decode(&[token]));
        Self::new(source, &text(tokenizer.bos())?, &text(tokenizer.eos())?)
    }

    /// Parses `source`; `bos_token` and `eos_token` are what it sees under these names.
    ///
    /// # Errors
    /// [`ModelError::ChatTemplate`] when it does not parse, or has more than 256 KiB.
    pub fn new(source: &str, bos_token: &str, eos_token: &str) -> Result<Self, ModelError> {
        if source.len() > SOURCE_BYTES_MAX {
            let detail = format!("it has {} bytes, allowed are {SOURCE_BYTES_MAX}", source.len());
            return Err(ModelError::ChatTemplate { detail });
        }
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |message: String| -> Result<(), Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        on_deep_stack(|| environment.add_template_owned(NAME, source.to_owned()))?;
        Ok(Self {
            environment,
            bos_token: bos_token.into(),
            eos_token: eos_token.into(),
        })
    }

    /// The prompt for `messages`. With `add_generation_prompt` it ends where the model's answer begins.
    ///
    /// # Errors
    /// [`ModelError::ChatTemplate`] when the template refuses the messages (the order of roles, most often) or does
    /// not end.
    pub fn render(&self, messages: &[ChatMessage], add_generation_prompt: bool) -> Result<String, ModelError> {
        let (bos_token, eos_token) = (&self.bos_token, &self.eos_token);
        on_deep_stack(|| {
            let template = self.environment.get_template(NAME)?;
            template.render(context! { messages, add_generation_prompt, bos_token, eos_token })
        })
    }
}

/// Runs the engine on a thread with [`STACK_BYTES`] of stack. What it fails with holds values, so it ends there, too.
fn on_deep_stack<T: Send>(work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, ModelError> {
    let failed = |detail: String| ModelError::ChatTemplate { detail };
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, || work().map_err(|error| failed(error.to_string())));
        let thread = thread.map_err(|error| {
            failed(format!(
                "no thread with {} MiB of address space for its stack: {error}; raise the limit (`ulimit -v`), or give the \
                 prompt without --chat",
                STACK_BYTES >> 20
            ))
        })?;
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}
