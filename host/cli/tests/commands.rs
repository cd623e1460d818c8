//! Each command end to end on a small model, for people and for machines.

mod support;

use std::io::Read;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use support::{TempFile, json, output, program, text};

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn tokens(value: &Value) -> Vec<u64> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|token| token.as_u64().unwrap())
        .collect()
}

#[test]
fn run_writes_text() {
    let model = TempFile::model();
    let args = ["run", model.path(), "-p", "abc", "-n", "8"];
    let output = output(&args);
    assert_eq!(output.status.code(), Some(0));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("text: 8 tokens") && stderr.contains("tokens/s"),
        "{stderr}"
    );
    assert_eq!(
        stderr.lines().count(),
        1,
        "no progress bar without a terminal: {stderr}"
    );
    let report = json(&[&args[..], &["--json"]].concat());
    assert_eq!(keys(&report), ["end", "prompt_tokens", "text", "timings", "tokens"]);
    assert_eq!(tokens(&report["prompt_tokens"]), [0, 259], "the text's token after BOS");
    assert_eq!(tokens(&report["tokens"]).len(), 8);
    assert_eq!(report["end"], "limit");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.strip_suffix('\n'), report["text"].as_str());
}

#[test]
fn run_is_repeatable() {
    let model = TempFile::model();
    let run = |more: &[&str]| {
        let args = [&["run", model.path(), "-p", "abc", "-n", "12", "--json"], more].concat();
        tokens(&json(&args)["tokens"])
    };
    let one_thread = run(&["--threads", "1"]);
    assert_eq!(one_thread, run(&["--threads", "2"]));
    assert_eq!(one_thread, run(&["--threads", "7"]));
    let warm = |seed| {
        run(&[
            "--temp", "2", "--top-k", "40", "--top-p", "0.95", "--min-p", "0.01", "--seed", seed,
        ])
    };
    assert_eq!(warm("1"), warm("1"));
    assert_ne!(warm("1"), warm("2"));
}

#[test]
fn run_ends_at_a_full_context() {
    let model = TempFile::model();
    let report = json(&["run", model.path(), "-p", "abc", "--ctx", "5", "--json"]);
    assert_eq!(report["end"], "full context");
    // Five are evaluated, and what follows the fifth is chosen.
    assert_eq!(tokens(&report["tokens"]).len(), 4);
}

#[test]
fn chat_uses_the_template() {
    let model = TempFile::model();
    let args = ["run", model.path(), "-n", "1", "--json", "-p"];
    let chat = json(&[&args[..], &["hi", "--chat"]].concat());
    let plain = json(&[&args[..], &["[user] hi"]].concat());
    assert_eq!(chat["prompt_tokens"], plain["prompt_tokens"]);
}

#[test]
fn score_agrees_with_run() {
    let model = TempFile::model();
    let report = json(&["run", model.path(), "-p", "abc ab", "-n", "10", "--json"]);
    let entry = json!({"prompt": "ignored", "prompt_tokens": report["prompt_tokens"], "tokens": report["tokens"]});
    let other = json!({"prompt_tokens": [5, 6, 7], "tokens": [9]});
    let file = TempFile::new(json!([entry, other, entry]).to_string());
    let score = |file: &TempFile, more: &[&str]| {
        let args = [&["score", model.path(), "--tokens", file.path()], more].concat();
        json(&args)
    };
    let scores = score(&file, &["--top", "3"]);
    assert_eq!(scores.as_array().unwrap().len(), 3);
    assert_eq!(scores[0], scores[2], "texts do not influence each other");
    let steps = scores[0]["steps"].as_array().unwrap();
    let first: Vec<u64> = steps.iter().map(|step| step["top"][0][0].as_u64().unwrap()).collect();
    assert_eq!(
        first,
        tokens(&report["tokens"]),
        "greedy text is the most probable token of each step"
    );
    for step in steps {
        assert_eq!(keys(step), ["ref", "top"]);
        assert_eq!(step["ref"], json!([]));
        let probs: Vec<f64> = (0..3).map(|at| step["top"][at][1].as_f64().unwrap()).collect();
        assert!(probs[0] <= 0.0 && probs.is_sorted_by(|a, b| a >= b), "{probs:?}");
    }

    let mut with_steps = entry.clone();
    with_steps["steps"] = scores[0]["steps"].clone();
    let file = TempFile::new(json!([with_steps]).to_string());
    let again = score(&file, &["--top", "3"]);
    for step in again[0]["steps"].as_array().unwrap() {
        assert_eq!(step["ref"], step["top"]);
    }
    let agreement = score(&file, &["--compare", "--json"]);
    assert_eq!(
        (&agreement["n_steps"], &agreement["same_first"]),
        (&json!(10), &json!(10))
    );
    assert!(agreement["max_difference"].as_f64().unwrap() < 1e-6, "{agreement}");
    let table = text(&["score", model.path(), "--tokens", file.path(), "--compare"]);
    assert!(table.contains("10 of    10  100.00 %"), "{table}");

    let exact = score(&file, &["--compare", "--json", "--exact"]);
    let mean = exact["mean_difference"].as_f64().unwrap();
    assert!(
        mean > 0.0 && mean < 0.2,
        "quantised activations differ, and not by much: {exact}"
    );
    let short = score(&file, &["--entries", "1", "--steps", "4"]);
    assert_eq!(
        short[0]["steps"].as_array().unwrap()[..],
        again_top10(&score(&file, &[]), 4)[..]
    );
}

fn again_top10(scores: &Value, n: usize) -> Vec<Value> {
    scores[0]["steps"].as_array().unwrap()[..n].to_vec()
}

#[test]
fn bench_reports_speed_and_time() {
    let model = TempFile::model();
    for device in ["sim", "null"] {
        let args = [
            "bench",
            model.path(),
            "-p",
            "16",
            "-n",
            "8",
            "--threads",
            "2",
            "--device",
            device,
        ];
        let report = json(&[&args[..], &["--json"]].concat());
        for key in [
            "prompt_tokens_per_s",
            "decode_tokens_per_s",
            "host_us_per_token",
            "host_us_per_token_p99",
        ] {
            assert!(report[key].as_f64().unwrap() > 0.0, "{key}: {report}");
        }
        assert!(report["host_steps"].as_u64().unwrap() >= 300);
        let ops = report["dsp_us_per_op"].as_array().unwrap();
        let names: Vec<&str> = ops.iter().map(|op| op["op"].as_str().unwrap()).collect();
        assert_eq!(names.contains(&"FLASH_ATTN_EXT"), device == "sim", "{names:?}");
        let table = text(&args);
        assert!(table.contains("decode of 8"), "{table}");
    }
}

#[test]
fn plan_adds_up() {
    let model = TempFile::model();
    let plan = |ctx: &str| json(&["plan", model.path(), "--ctx", ctx, "--json"]);
    let number = |plan: &Value, key: &str| plan[key].as_u64().unwrap();
    let (small, large) = (plan("512"), plan("1024"));
    for plan in [&small, &large] {
        let parts = ["weight_bytes", "cache_bytes", "compute_bytes", "pinned_bytes"];
        let sum: u64 = parts.iter().map(|key| number(plan, key)).sum();
        assert_eq!(sum, number(plan, "total_bytes"));
        assert_eq!(plan["fits"], json!(true));
    }
    assert_eq!(number(&small, "cache_bytes"), 512 * 2 * 2 * 64);
    // Both are measured, so this holds the planner to what longer contexts are computed by: a mask of one f16 per
    // context token for the decode graph, and one per token of a prompt piece.
    let more = number(&large, "compute_bytes") - number(&small, "compute_bytes");
    assert_eq!(more, 512 * 2 * 65);
    let most = number(&small, "n_ctx_max");
    assert_eq!(most, number(&large, "n_ctx_max"));
    assert_eq!(plan(&most.to_string())["fits"], json!(true));
    assert_eq!(plan(&(most + 64).to_string())["fits"], json!(false));
    let default = json(&["plan", model.path(), "--json"]);
    assert_eq!(number(&default, "n_ctx"), u64::from(support::tiny::N_CTX_TRAIN));
    let table = text(&["plan", model.path()]);
    assert!(
        table.contains("KV cache, 256 tokens") && table.contains("fits,"),
        "{table}"
    );
    let table = text(&["plan", model.path(), "--ctx", "4000000000"]);
    assert!(table.contains("does not fit"), "{table}");
}

#[test]
fn plan_shows_the_window() {
    let model = TempFile::model();
    let whole = json(&["plan", model.path(), "--json"]);
    let window = &whole["window"];
    assert_eq!(window["stream"], Value::Null);
    let buffers = window["buffers"].as_array().unwrap();
    assert_eq!(
        (&buffers[0]["name"], &buffers[0]["start"]),
        (&json!("queue and fences"), &json!(0))
    );
    assert!(buffers.iter().all(|buffer| buffer["start"].is_u64()), "{window}");
    let mapped: u64 = buffers.iter().map(|buffer| buffer["bytes"].as_u64().unwrap()).sum();
    assert_eq!(
        window["bytes"].as_u64().unwrap() - mapped,
        window["largest_hole_bytes"].as_u64().unwrap()
    );

    // A page less than everything needs: weights take turns.
    let picture = TempFile::new("");
    let less = (mapped - 4096).to_string();
    let args = [
        "plan",
        model.path(),
        "--window",
        &less,
        "--arch",
        "v73",
        "--svg",
        picture.path(),
    ];
    let streamed = json(&[&args[..], &["--json"]].concat());
    assert_eq!(
        (&streamed["fits"], &streamed["window"]["arch"]),
        (&json!(false), &json!(73))
    );
    let stream = &streamed["window"]["stream"];
    let (maps, bound) = (
        stream["maps_per_token"].as_f64().unwrap(),
        stream["lower_bound"].as_f64().unwrap(),
    );
    assert!(0.0 < bound && bound <= maps && maps <= 2.0, "{stream}");
    let svg = std::fs::read_to_string(picture.path()).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("token 0, batch 0"), "{svg}");
    let table = text(&args);
    assert!(
        table.contains("maps and") && table.contains("evict: weights"),
        "{table}"
    );

    // Older architectures have less.
    for (arch, mib) in [("v69", 3000), ("v73", 3000), ("v75", 3200), ("v81", 3200)] {
        let plan = json(&["plan", model.path(), "--arch", arch, "--json"]);
        assert_eq!(plan["window"]["bytes"].as_u64(), Some(mib << 20), "{arch}");
    }

    let table = text(&["plan", model.path(), "--window", "4096"]);
    assert!(table.contains("cannot run in this window"), "{table}");
}

#[test]
fn devices_are_listed() {
    let devices = json(&["devices", "--json"]);
    let names: Vec<&str> = devices
        .as_array()
        .unwrap()
        .iter()
        .map(|device| device["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["sim", "emu", "fastrpc", "null"]);
    assert!(devices[0]["threads"].as_u64().unwrap() > 0 && devices[0]["window_bytes"].as_u64().unwrap() > 1 << 30);
    let table = text(&["devices"]);
    assert_eq!(table.lines().count(), 5, "{table}");
}

#[test]
fn a_missing_image_gives_the_command_that_builds_it() {
    let model = TempFile::model();
    let lacking = |args: &[&str]| {
        let mut command = program(args);
        command
            .env("HEXLOOM_EMULATOR_IMAGE", "/no/such/image.elf")
            .output()
            .unwrap()
    };
    let output = lacking(&["run", model.path(), "-p", "abc", "--device", "emu"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(
        said.trim_end(),
        "hexloom: device emu: HEXLOOM_EMULATOR_IMAGE names /no/such/image.elf, which does not exist; `cargo xtask firmware` \
         builds the image"
    );
    let output = lacking(&["devices"]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("emu      not here: HEXLOOM_EMULATOR_IMAGE names"));
}

#[test]
fn help_and_version_succeed() {
    assert!(text(&["--help"]).contains("Exit code"));
    assert!(text(&["run", "--help"]).contains("130"));
    assert!(text(&["--version"]).contains(env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_closed_pipe_is_no_error() {
    let model = TempFile::model();
    for args in [&["run", model.path(), "-p", "abc", "-n", "200"][..], &["devices"]] {
        let mut child = program(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            (output.status.code(), &output.stderr[..]),
            (Some(0), &b""[..]),
            "{args:?}"
        );
    }
}

#[test]
fn ctrl_c_ends_with_the_text_so_far() {
    let model = TempFile::model();
    let args = ["run", model.path(), "-p", "abc", "-n", "100000", "--ctx", "200000"];
    let mut child = program(&args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    let sent = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(output.stdout.ends_with(b"\n"));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("ended by interrupt"), "{stderr}");
}
