//! scratch
use std::sync::Arc;
use hexloom::{Session, SessionOptions};
use hexloom_models::{gguf::Gguf, llama::{Model, Context}, tokenizer::Tokenizer, log_probs::LogProbs};
use hexloom_sim::SimTransport;
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let t0 = std::time::Instant::now();
    let gguf = Gguf::open(std::env::args().nth(1).unwrap())?;
    let reference = std::env::args().nth(2).is_some();
    let session = Session::open(Arc::new(SimTransport::default()), SessionOptions { reference, ..Default::default() })?;
    let tok = Tokenizer::from_gguf(&gguf)?;
    println!("tok {:?}", t0.elapsed());
    let model = Model::load(&gguf, &session, &|_, _| {})?;
    println!("load {:?} {}", t0.elapsed(), model.bytes());
    let mut cx = Context::new(&model, 512)?;
    println!("ctx {:?} ops {}", t0.elapsed(), cx.n_ops());
    let mut tokens = tok.encode("The capital of France is")?;
    let mut out = Vec::new();
    let t = std::time::Instant::now();
    for i in 0..40 {
        let logits = cx.eval(&tokens)?;
        let lp = LogProbs::new(logits)?;
        let top = lp.top(3);
        if i < 2 { println!("{top:?} {:?}", t.elapsed()); }
        tokens = vec![top[0].0];
        out.push(top[0].0);
    }
    println!("{:?} {}", t.elapsed(), tok.decode(&out)?);
    cx.set_profile(true);
    cx.eval(&[1])?;
    let mut by: std::collections::BTreeMap<String, (u32,u64)> = Default::default();
    for c in cx.costs() { let e = by.entry(format!("{:?}", c.opcode)).or_default(); e.0+=1; e.1+=c.elapsed_ns as u64; }
    println!("{by:#?}");
    let prompt: Vec<u32> = (0..64).map(|i| 1000+i).collect();
    cx.rewind(0); cx.eval(&prompt)?; cx.rewind(0);
    let t = std::time::Instant::now(); cx.eval(&prompt)?; println!("prompt {:?}", t.elapsed());
    Ok(())
}
