//! Every kind of bad input ends with code 2 and one sentence that names it.

mod support;

use hexloom_models::gguf::TensorType;
use support::tiny::Tiny;
use support::{TempFile, refused};

const TAIL: [&str; 4] = ["-p", "abc", "-n", "2"];

/// Runs the program over a model file with `bytes`; the sentence has the file's name and `parts`.
#[track_caller]
fn model_refused(bytes: &[u8], parts: &[&str]) {
    let file = TempFile::new(bytes);
    let parts = [parts, &[file.path()]].concat();
    refused(&[&["run", file.path()], &TAIL[..]].concat(), &parts);
    refused(&["plan", file.path()], &parts);
}

/// As [`model_refused`], for the small model after `change`.
#[track_caller]
fn change_refused(change: impl Fn(&mut Tiny), parts: &[&str]) {
    let mut tiny = Tiny::new();
    change(&mut tiny);
    model_refused(&tiny.file(), parts);
}

#[test]
fn files_that_are_no_models() {
    refused(&["run", "nowhere.gguf", "-p", "x"], &["nowhere.gguf", "cannot open"]);
    refused(&["plan", env!("CARGO_TARGET_TMPDIR")], &["not a regular file"]);
    model_refused(b"", &["cut short", "the file has 0"]);
    model_refused(b"PK\x03\x04 and so on", &["not a GGUF file", "[50, 4b, 03, 04]"]);
    let mut future = Tiny::new().file();
    future[4] = 9;
    model_refused(&future, &["version 9", "2 and 3"]);
}

#[test]
fn windows_and_architectures_that_do_not_exist() {
    let model = TempFile::model();
    refused(&["plan", model.path(), "--window", "0"], &["--window", "0"]);
    refused(&["plan", model.path(), "--window", "5GB"], &["--window", "5GB"]);
    refused(
        &["plan", model.path(), "--arch", "74"],
        &["74", "68, 69, 73, 75, 79, 81"],
    );
    refused(&["plan", "--problem", "x.csv", "--window", "4096"], &["--window"]);
}

#[test]
fn a_model_cut_short_anywhere() {
    let whole = Tiny::new().file();
    let near_the_end = [whole.len() - 1, whole.len() - 33];
    let header = (1..200).step_by(13);
    let anywhere = (200..whole.len()).step_by(whole.len() / 40);
    for cut in header.chain(anywhere).chain(near_the_end) {
        let file = TempFile::new(&whole[..cut]);
        refused(&[&["run", file.path()], &TAIL[..]].concat(), &[file.path()]);
    }
}

#[test]
fn tensors_that_are_not_what_they_should_be() {
    let last = "blk.0.ffn_down.weight";
    change_refused(
        |tiny| tiny.tensor(last).offset = Some(1 << 40),
        &[last, "outside the file", "1099511"],
    );
    change_refused(
        |tiny| tiny.tensor(last).offset = Some(u64::MAX - 31),
        &[last, "outside the file"],
    );
    change_refused(|tiny| tiny.tensor(last).ne[1] = 4096, &[last, "outside the file"]);
    change_refused(
        |tiny| tiny.tensor(last).code = Some(19),
        &[last, "IQ1_S", "supported", "Q4_0"],
    );
    change_refused(|tiny| tiny.tensor(last).code = Some(77), &[last, "77", "supported"]);
    change_refused(
        |tiny| tiny.tensor("blk.0.attn_k.weight").ne[1] = 32,
        &["blk.0.attn_k.weight", "[128, 32, 1, 1]", "[128, 64, 1, 1]"],
    );
    change_refused(
        |tiny| {
            let norm = tiny.tensor("output_norm.weight");
            norm.ty = TensorType::Q4_0;
            norm.bytes.truncate(128 / 32 * 18);
        },
        &["output_norm.weight", "Q4_0", "F32"],
    );
    change_refused(
        |tiny| tiny.tensors.retain(|tensor| tensor.name != "blk.0.ffn_up.weight"),
        &["blk.0.ffn_up.weight", "is missing", "11 tensors"],
    );
}

#[test]
fn an_architecture_without_a_graph() {
    change_refused(
        |tiny| tiny.architecture = "mamba".to_owned(),
        &["mamba", "supported: llama"],
    );
}

#[test]
fn arguments_out_of_range() {
    let model = TempFile::model();
    let run = |more: &[&str], parts: &[&str]| refused(&[&["run", model.path(), "-p", "abc"], more].concat(), parts);
    run(&["--threads", "0"], &["--threads", "'0'", "1..=10"]);
    run(&["--threads", "11"], &["--threads", "'11'", "1..=10"]);
    run(&["--device", "npu9"], &["--device", "npu9", "sim, emu, fastrpc, null"]);
    run(&["--ctx", "0"], &["--ctx", "'0'"]);
    run(
        &["--ctx", "4000000000"],
        &[model.path(), "4,000,000,000 tokens", "window", "--ctx"],
    );
    run(&["--ctx", "1"], &["2 tokens", "context of 1 tokens"]);
    run(&["-n", "0"], &["'0'"]);
    run(&["--temp", "-1"], &["temperature", "-1"]);
    run(&["--top-p", "1.5"], &["top-p", "1.5"]);
    run(&["--min-p", "nan"], &["min-p", "NaN"]);
    run(&["--colour"], &["--colour"]);
    refused(&["run", model.path()], &["--prompt"]);
    refused(&["bench", model.path(), "--threads", "0"], &["--threads"]);
    refused(&["bench", model.path(), "-p", "0"], &["'0'"]);
    refused(&["sing"], &["sing"]);
}

#[test]
fn a_model_without_a_chat_template() {
    let with = Tiny::new().file();
    let at = with.windows(13).position(|bytes| bytes == b"chat_template").unwrap();
    let mut without = with.clone();
    without[at] = b'C';
    let file = TempFile::new(without);
    refused(
        &["run", file.path(), "-p", "x", "--chat"],
        &[file.path(), "chat_template"],
    );
}

#[test]
fn files_of_tokens() {
    let model = TempFile::model();
    let score = |bytes: &str, more: &[&str], parts: &[&str]| {
        let file = TempFile::new(bytes);
        let args = [&["score", model.path(), "--tokens", file.path()], more].concat();
        refused(&args, &[parts, &[file.path()]].concat());
    };
    refused(&["score", model.path(), "--tokens", "nowhere.json"], &["nowhere.json"]);
    score(
        "[{\"prompt_tokens\": [1],\n \"tokens\": [2}]",
        &[],
        &["line 2 column 14"],
    );
    score("", &[], &["line 1 column 0"]);
    score(r#"{"prompt_tokens": [1]}"#, &[], &["line 1"]);
    score(r#"[{"prompt_tokens": [2]}]"#, &[], &["tokens"]);
    score(
        r#"[{"prompt_tokens": [2], "tokens": [3]}, {"prompt_tokens": [2], "tokens": [3, 4, 260]}]"#,
        &[],
        &["entry 1", "tokens[2]", "token 260", "260 tokens, 0 to 259"],
    );
    score(
        r#"[{"prompt_tokens": [-3], "tokens": [3]}]"#,
        &[],
        &["entry 0", "prompt_tokens[0]", "-3"],
    );
    score(
        r#"[{"prompt_tokens": [2], "tokens": [3]}]"#,
        &["--compare"],
        &["nothing to compare"],
    );
    refused(&["score", model.path(), "--tokens", "x", "--top", "0"], &["--top"]);
}
