//! Generation end to end on a small model: how it ends, and what a failing DSP leaves behind.

mod support;
#[path = "support/tiny.rs"]
mod tiny;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use hexloom::{Session, SessionOptions};
use hexloom_models::ModelError;
use hexloom_models::generate::{Cancel, End, Generated, generate};
use hexloom_models::gguf::Gguf;
use hexloom_models::llama::{Context, Model};
use hexloom_models::sampler::{Sampler, SamplerOptions};
use hexloom_models::tokenizer::Tokenizer;
use hexloom_sim::{FaultKind, FaultPlan, Garbage, SimOptions, SimTransport};
use support::TempFile;
use tiny::Tiny;

/// A loaded small model on a simulator of its own.
struct Loaded {
    tokenizer: Tokenizer,
    model: Model,
    faults: FaultPlan,
}

fn load() -> Loaded {
    let file = TempFile::new(&Tiny::new().file());
    let gguf = Gguf::open(file.path()).unwrap();
    let faults = FaultPlan::default();
    let transport = SimTransport::new(SimOptions {
        n_threads: 2,
        faults: faults.clone(),
        ..SimOptions::default()
    });
    let options = SessionOptions {
        deadline: Duration::from_millis(400),
        ..SessionOptions::default()
    };
    let session = Session::open(Arc::new(transport), options).unwrap();
    Loaded {
        tokenizer: Tokenizer::from_gguf(&gguf).unwrap(),
        model: Model::load(&gguf, &session, &|_, _| {}).unwrap(),
        faults,
    }
}

impl Loaded {
    fn generate(
        &self,
        context: &mut Context<'_>,
        prompt: &str,
        limit: usize,
        cancel: &Cancel,
        on_token: impl FnMut(u32, &str) -> ControlFlow<()>,
    ) -> Result<Generated, ModelError> {
        let mut sampler = Sampler::new(SamplerOptions::default()).unwrap();
        let prompt = self.tokenizer.encode(prompt).unwrap();
        generate(context, &self.tokenizer, &mut sampler, &prompt, limit, cancel, on_token)
    }
}

fn go_on(_: u32, _: &str) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn ends_at_the_limit_and_repeats_itself() {
    let loaded = load();
    let mut context = Context::new(&loaded.model, 64).unwrap();
    let mut streamed = Vec::new();
    let first = loaded
        .generate(&mut context, "abc abc", 12, &Cancel::new(), |token, _| {
            streamed.push(token);
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!((first.end, first.tokens.len()), (End::Limit, 12));
    assert_eq!(first.tokens, streamed);
    assert!(
        first.tokens.iter().any(|token| *token != first.tokens[0]),
        "{:?}",
        first.tokens
    );
    context.rewind(0);
    let again = loaded
        .generate(&mut context, "abc abc", 12, &Cancel::new(), go_on)
        .unwrap();
    assert_eq!(again.tokens, first.tokens);
}

#[test]
fn a_long_prompt_goes_in_pieces() {
    let loaded = load();
    let prompt = "ab c".repeat(40);
    let mut context = Context::new(&loaded.model, 256).unwrap();
    let generated = loaded
        .generate(&mut context, &prompt, 1, &Cancel::new(), go_on)
        .unwrap();
    let tokens = loaded.tokenizer.encode(&prompt).unwrap();
    assert!(tokens.len() > 64);
    context.rewind(0);
    let logits = context.eval(&tokens).unwrap();
    let best = (0..logits.len())
        .max_by(|&a, &b| logits[a].total_cmp(&logits[b]))
        .unwrap();
    assert_eq!(generated.tokens, [best as u32]);
}

#[test]
fn ends_where_the_context_is_full() {
    let loaded = load();
    let mut context = Context::new(&loaded.model, 10).unwrap();
    let generated = loaded.generate(&mut context, "abc", 99, &Cancel::new(), go_on).unwrap();
    assert_eq!((generated.end, context.n_past()), (End::ContextFull, 10));
    context.rewind(0);
    let error = loaded
        .generate(&mut context, "too long for this", 9, &Cancel::new(), go_on)
        .unwrap_err();
    assert!(
        matches!(
            error,
            ModelError::ContextFull {
                n_ctx: 10,
                n_past: 0,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(context.n_past(), 0, "nothing was evaluated");
}

#[test]
fn the_caller_can_stop() {
    let loaded = load();
    let mut context = Context::new(&loaded.model, 64).unwrap();
    let generated = loaded.generate(&mut context, "abc", 9, &Cancel::new(), |_, _| ControlFlow::Break(()));
    let generated = generated.unwrap();
    assert_eq!((generated.end, generated.tokens.len()), (End::Stopped, 1));
}

#[test]
fn another_thread_can_cancel() {
    let loaded = load();
    let mut context = Context::new(&loaded.model, 256).unwrap();
    let cancel = Cancel::new();
    let (started, start) = mpsc::channel();
    let flag = cancel.clone();
    let other = std::thread::spawn(move || {
        start.recv().unwrap();
        flag.cancel();
    });
    let generated = loaded
        .generate(&mut context, "abc", usize::MAX, &cancel, |_, _| {
            // The first token waits until the flag is set, so that the end does not depend on the scheduler.
            let _ = started.send(());
            while !cancel.is_cancelled() {
                std::thread::yield_now();
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    other.join().unwrap();
    assert_eq!((generated.end, generated.tokens.len()), (End::Cancelled, 1));
    let nothing = loaded.generate(&mut context, "abc", 9, &cancel, go_on).unwrap();
    assert_eq!((nothing.end, nothing.tokens.len()), (End::Cancelled, 0));
    let usable = loaded.generate(&mut context, "abc", 9, &Cancel::new(), go_on).unwrap();
    assert_eq!(usable.end, End::Limit);
}

/// Lets the DSP fail in a decode step and runs again after re-opening: same tokens, nothing left of the fault.
#[track_caller]
fn recovers(op_idx: u32, kind: FaultKind, parts: &[&str]) {
    let loaded = load();
    let mut context = Context::new(&loaded.model, 64).unwrap();
    let undisturbed = loaded.generate(&mut context, "abc", 10, &Cancel::new(), go_on).unwrap();
    context.rewind(0);
    // A batch per evaluation: the prompt and nine steps came before.
    loaded.faults.add(10 + 4, op_idx, kind);
    let start = Instant::now();
    let error = loaded
        .generate(&mut context, "abc", 10, &Cancel::new(), go_on)
        .unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(20), "the deadline is 0.4 s");
    let ModelError::Run(run) = &error else {
        panic!("{kind:?}: {error}");
    };
    assert!(run.is_lost(), "{kind:?}: {error}");
    let text = error.to_string();
    for part in parts.iter().chain(&["batch 14 (decode)"]) {
        assert!(text.contains(part), "{kind:?}: {part:?} is not in {text:?}");
    }
    let refused = context.eval(&[2]).unwrap_err().to_string();
    assert!(refused.contains("reopen"), "{refused}");
    loaded.model.session().reopen().unwrap();
    context.rewind(0);
    let repeated = loaded.generate(&mut context, "abc", 10, &Cancel::new(), go_on).unwrap();
    assert_eq!(repeated.tokens, undisturbed.tokens, "{kind:?}");
    assert_eq!(repeated.text, undisturbed.text, "{kind:?}");
}

#[test]
fn a_dsp_that_dies() {
    recovers(2, FaultKind::Die, &["op 3 of", "died"]);
}

#[test]
fn a_dsp_that_stalls() {
    recovers(0, FaultKind::Stall, &["op 1 of", "no reply within 400ms"]);
}

#[test]
fn a_dsp_that_answers_garbage() {
    for garbage in [Garbage::Short, Garbage::Ones, Garbage::WrongSeq, Garbage::UnknownStatus] {
        recovers(0, FaultKind::Reply(garbage), &["garbage reply"]);
    }
}
