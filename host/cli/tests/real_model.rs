//! The real model against its reference scores. Skipped, loudly, where the model is not there.

mod support;

use serde_json::Value;
use support::{json, real_model, text};

const EXACT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/smollm2-exact.json");
const LLAMA_CPP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/smollm2-reference.json");

fn compare(model: &str, file: &str, more: &[&str]) -> Value {
    let args = ["score", model, "--tokens", file, "--compare", "--json"];
    json(&[&args[..], more].concat())
}

/// `same` of `of`, in percent.
fn percent(agreement: &Value, same: &str, of: &str) -> f64 {
    let number = |key: &str| agreement[key].as_f64().unwrap();
    100.0 * number(same) / number(of)
}

/// The bars are those for all 288 steps, which take half a minute on two cores.
#[test]
fn default_kernels_are_near_exact_arithmetic() {
    let Some(model) = real_model("default_kernels_are_near_exact_arithmetic") else {
        return;
    };
    let exact = compare(&model, EXACT, &[]);
    eprintln!("default kernels against exact arithmetic: {exact}");
    assert_eq!(exact["n_steps"], 288);
    assert!(percent(&exact, "same_first", "n_steps") >= 95.0, "{exact}");
    assert!(percent(&exact, "same_first_gap_02", "n_gap_02") >= 99.0, "{exact}");
    assert!(exact["mean_difference"].as_f64().unwrap() <= 0.12, "{exact}");
}

/// llama.cpp is itself 0.104 away from exact arithmetic on all steps, so this bar is no more than a guard.
#[test]
fn default_kernels_are_near_llama_cpp() {
    let Some(model) = real_model("default_kernels_are_near_llama_cpp") else {
        return;
    };
    let llama_cpp = compare(&model, LLAMA_CPP, &["--steps", "8"]);
    eprintln!("default kernels against llama.cpp, 48 steps: {llama_cpp}");
    assert!(llama_cpp["mean_difference"].as_f64().unwrap() <= 0.2, "{llama_cpp}");
}

/// The model of the matrix unit computes the prompts, the vector kernels all later steps. The first steps see little but the
/// unit, which is nearer to exact arithmetic than int8 activations are.
#[test]
fn the_matrix_unit_is_near_exact_arithmetic() {
    let Some(model) = real_model("the_matrix_unit_is_near_exact_arithmetic") else {
        return;
    };
    let prompts = compare(&model, EXACT, &["--matrix-unit", "model", "--steps", "1"]);
    eprintln!("matrix unit against exact arithmetic, after the prompts: {prompts}");
    assert_eq!(prompts["n_steps"], 6);
    assert_eq!(prompts["same_first_gap_005"], prompts["n_gap_005"], "{prompts}");
    let vector = compare(&model, EXACT, &["--matrix-unit", "off", "--steps", "1"]);
    let [unit, vector] = [prompts, vector].map(|agreement| agreement["mean_difference"].as_f64().unwrap());
    assert!(unit <= 0.08 && unit < vector, "{unit}, {vector} with int8 activations");
}

/// A part of the steps: the plain references are slow on purpose.
#[test]
fn plain_kernels_are_exact() {
    let Some(model) = real_model("plain_kernels_are_exact") else {
        return;
    };
    let exact = compare(&model, EXACT, &["--exact", "--steps", "4"]);
    eprintln!("plain kernels against exact arithmetic, 24 steps: {exact}");
    assert_eq!(exact["n_steps"], 24);
    assert_eq!(exact["same_first_gap_005"], exact["n_gap_005"], "{exact}");
    assert!(exact["mean_difference"].as_f64().unwrap() <= 0.005, "{exact}");
}

#[test]
fn it_speaks() {
    let Some(model) = real_model("it_speaks") else {
        return;
    };
    let capital = text(&[
        "run",
        &model,
        "-p",
        "The capital of France is",
        "-n",
        "4",
        "--ctx",
        "64",
    ]);
    assert!(capital.contains("Paris"), "{capital}");
    let answer = text(&[
        "run",
        &model,
        "--chat",
        "-p",
        "What is gravity?",
        "-n",
        "12",
        "--ctx",
        "128",
    ]);
    assert!(answer.contains("ravity"), "{answer}");
    let plan = json(&["plan", &model, "--ctx", "512", "--json"]);
    assert_eq!(plan["cache_bytes"], 512 * 2 * 2 * 192 * 30);
}
