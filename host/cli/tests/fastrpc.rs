//! The program on a device, which is a driver library made of the simulator.

mod support;

use std::process::Output;

use cdsprpc::load::built;
use support::{TempFile, json, program, text};

fn on_device(args: &[&str]) -> Output {
    let library = built().expect("the library was built with this test");
    let mut command = program(args);
    command
        .env("HEXLOOM_CDSPRPC", library)
        .env("HEXLOOM_FAKE", "option arch=75; option cores=2");
    command.output().expect("the program starts")
}

#[test]
fn a_model_writes_the_same_text_as_on_the_simulator() {
    let model = TempFile::model();
    let args = ["run", model.path(), "-p", "abc", "-n", "12"];
    let wanted = text(&args);
    for devices in ["1", "HTP1:1", "NPU[0-1]"] {
        let output = on_device(&[&args[..], &["--device", "fastrpc", "--devices", devices]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{devices}: {said}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), wanted, "{devices}");
    }
}

#[test]
fn the_device_is_listed_with_what_it_has() {
    let output = on_device(&["devices", "--json"]);
    let devices: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an array");
    let device = &devices[2];
    assert_eq!(
        (&device["name"], &device["arch"]),
        (&"fastrpc".into(), &75.into()),
        "{device}"
    );
    assert_eq!(device["cores"], serde_json::json!(["cdsp", "cdsp1"]));
}

#[test]
fn a_missing_library_is_told_with_what_to_do() {
    let model = TempFile::model();
    let args = [
        "run",
        model.path(),
        "-p",
        "abc",
        "--device",
        "fastrpc",
        "--cdsprpc",
        "/no/such/library.so",
    ];
    let output = program(&args).output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    for part in ["device fastrpc", "/no/such/library.so", "HEXLOOM_CDSPRPC"] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    // A list of devices says what is lacking, and is no failure.
    let devices = json(&["devices", "--json"]);
    assert!(
        devices[2]["missing"].is_string() || devices[2]["arch"].is_number(),
        "{devices}"
    );
}

/// The doctor's object, and whether it found all well.
fn doctor(statements: &str, args: &[&str]) -> (serde_json::Value, bool) {
    let library = built().expect("the library was built with this test");
    let mut command = program(&[&["doctor", "--json"], args].concat());
    command.env("HEXLOOM_CDSPRPC", library).env("HEXLOOM_FAKE", statements);
    let output = command
        .env_remove("DSP_LIBRARY_PATH")
        .env_remove("ADSP_LIBRARY_PATH")
        .output()
        .expect("it starts");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    let ok = output.status.code() == Some(0);
    assert_eq!(report["ok"], ok, "{report}");
    for check in report["checks"].as_array().expect("checks") {
        let needs_remedy = check["state"] == "failed" || check["state"] == "warning";
        assert_eq!(check["remedy"].is_string(), needs_remedy, "{check}");
    }
    (report, ok)
}

/// One check's state and what was found.
fn check<'a>(report: &'a serde_json::Value, name: &str) -> (&'a str, &'a str) {
    let mut checks = report["checks"].as_array().expect("checks").iter();
    let check = checks
        .find(|check| check["name"] == name)
        .unwrap_or_else(|| panic!("no {name} in {report}"));
    (
        check["state"].as_str().expect("a state"),
        check["found"].as_str().expect("what was found"),
    )
}

#[test]
fn a_device_in_order_passes_the_doctor() {
    let model = TempFile::model();
    let (report, ok) = doctor("option arch=79; option threads=2", &["--model", model.path()]);
    assert!(ok, "{report}");
    for (name, words) in [
        ("calls", "all 19"),
        ("cores", "0 cdsp (domain 3, v79), 1 cdsp1"),
        ("driver library", "libcdsprpc.so"),
        ("signature", "unsigned process, the driver allows unsigned ones"),
        ("session", "unsigned process, in"),
        ("session", "v79, 2 threads"),
        ("self-test", "40 products are right"),
    ] {
        let (state, found) = check(&report, name);
        assert!(state == "ok" && found.contains(words), "{name}: {found}");
    }
    assert_eq!(check(&report, "DSP library").0, "warning");
    assert_eq!(report["skipped"], serde_json::json!([]));
    // The small model has no sense; what it writes is compared all the same.
    let (state, found) = check(&report, "canary prompts");
    assert!(state == "ok" || found.contains("both are continued by"), "{found}");
}

#[test]
fn each_fault_of_a_device_is_found_where_it_is() {
    for (statements, args, name, words) in [
        (
            "fail remote_handle64_open 0 0x72; fail remote_handle64_open 0 0x72",
            &[][..],
            "session",
            "refused the connection",
        ),
        (
            "fail remote_handle64_open 0 0x72",
            &[],
            "budget",
            "refused the connection",
        ),
        ("fail dspqueue_export 0 1", &[], "session", "creating the queue"),
        ("option arch=85", &[], "session", "libhexloom-v81.so"),
        ("", &["--core", "7"], "cores", "0 cdsp"),
        ("batch 1 0 die; batch 2 0 die", &[], "self-test", "wrong"),
    ] {
        let (report, ok) = doctor(&format!("option threads=1; {statements}"), args);
        let (state, found) = check(&report, name);
        assert!(
            !ok && state == "failed" && found.contains(words),
            "{statements}: {report}"
        );
    }
}

#[test]
fn the_doctor_speaks_to_people() {
    let output = on_device(&["doctor"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.ends_with("the NPU can be used; not checked: canary prompts\n"),
        "{said}"
    );
    let output = program(&["doctor", "--cdsprpc", "/no/such/library.so"])
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.starts_with("FAILED   driver library") && said.contains("-> install the device's driver"),
        "{said}"
    );
    assert!(said.contains("skipped  self-test"), "{said}");
}

/// A device that closes unsigned processes: every program opens a signed one by itself, and the variable says otherwise.
#[test]
fn processes_are_signed_where_the_driver_takes_no_others() {
    let closed = "option threads=1; option signed=1; option unsigned=0";
    let (report, ok) = doctor(closed, &[]);
    assert!(
        ok && check(&report, "session").1.contains(", signed process"),
        "{report}"
    );
    assert!(check(&report, "signature").1.starts_with("signed process"), "{report}");
    assert_eq!(report["skipped"], serde_json::json!(["canary prompts"]));
    let list = |process: &str| {
        let library = built().expect("the library was built with this test");
        let mut command = program(&["devices"]);
        command.env("HEXLOOM_CDSPRPC", library).env("HEXLOOM_FAKE", closed);
        let output = command.env("HEXLOOM_PROCESS", process).output().expect("it starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for (process, words) in [
        ("", "fastrpc  v73"),
        ("signed", "fastrpc  v73"),
        ("unsigned", "fastrpc  not here: opening"),
        ("both", "it can be `unsigned` or `signed`"),
    ] {
        let listed = list(process);
        assert!(listed.contains(words), "{process}: {listed}");
    }
}

/// Nothing is mapped by trial unless it is asked for.
#[test]
fn budgets_are_measured_on_request() {
    for (args, is_measured) in [
        (&["devices", "--json"][..], false),
        (&["devices", "--json", "--measure"], true),
    ] {
        let output = on_device(args);
        let devices: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an array");
        for idx in [0, 2] {
            assert_eq!(
                devices[idx]["budget_bytes"].is_number(),
                is_measured,
                "{}",
                devices[idx]
            );
        }
    }
}
