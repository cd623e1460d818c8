//! The whole of `adb` against the stand-in, with shell scripts as the package's programs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value;

use super::*;
use crate::dist::package::Package;
use crate::dist::target::Target;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// A folder with a stand-in, a package and the phone's folder; gone with the value.
struct Bench {
    path: PathBuf,
}

impl Bench {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("hexloom-adb-{name}-{}", std::process::id()));
        for folder in ["p/bin", "p/dsp", "phone"] {
            fs::create_dir_all(path.join(folder)).unwrap();
        }
        let bench = Self { path };
        let env = fs::read_to_string(format!("{ROOT}/toolchains/adb/hexloom-env.sh")).unwrap();
        bench.program("p/bin/hexloom-env.sh", &env);
        bench.program("p/bin/hexloom", SCRIPT);
        bench.program("p/bin/hexloom-conformance", SCRIPT);
        Package::seal(&bench.path.join("p"), Target::LinuxArm64, "1.0.0", 1).unwrap();
        bench
    }

    fn program(&self, place: &str, text: &str) {
        let path = self.path.join(place);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// The stand-in with the phone in a state, as a program of its own: tests run side by side in one environment.
    fn phone_in(&self, state: &str, release: &str) -> Result<Phone> {
        let adb = format!(
            "#!/bin/sh\nexport HEXLOOM_STAND_IN_STATE={state} HEXLOOM_STAND_IN_CALLS={}/calls \
             HEXLOOM_STAND_IN_RELEASE={release}\nexec {ROOT}/toolchains/adb/stand-in/adb \"$@\"\n",
            self.path.display()
        );
        self.program("adb", &adb);
        let folder = format!("{}/phone/hexloom", self.path.display());
        let deadline = Instant::now() + Duration::from_secs(60);
        Phone::reach(self.path.join("adb"), Some("stand-in".into()), &folder, deadline)
    }

    fn phone(&self) -> Phone {
        self.phone_in("device", "").unwrap()
    }

    fn push(&self, phone: &Phone, model: Option<&Path>) -> Result<ExitCode> {
        push::run(phone, &self.path.join("p"), model)
    }

    fn kept(&self, name: &str) -> Value {
        serde_json::from_str(&fs::read_to_string(self.path.join("kept").join(name)).unwrap()).unwrap()
    }

    fn calls(&self, word: &str) -> usize {
        let calls = fs::read_to_string(self.path.join("calls")).unwrap();
        calls.lines().filter(|line| line.contains(word)).count()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Prints as JSON what a program was called with and what it finds in its environment, as the case list's report does.
const SCRIPT: &str = r#"#!/bin/sh
echo "a line for people" >&2
case "$*" in *broken*) exit 1 ;; esac
echo "{\"args\": \"$*\", \"libraries\": \"$LD_LIBRARY_PATH\", \"dsp\": \"$ADSP_LIBRARY_PATH|$DSP_LIBRARY_PATH\","
echo " \"process\": \"$HEXLOOM_PROCESS\","
echo " \"runners\": [{\"name\": \"fastrpc\", \"ran\": 3, \"unsupported\": 1, \"gaps\": 0}],"
case "$*" in *wrong*) echo ' "failures": ["add"]}'; exit 1 ;; esac
echo ' "failures": []}'
"#;

#[test]
fn a_package_is_pushed_once_and_checked() {
    let bench = Bench::new("push");
    let phone = bench.phone();
    let model = bench.path.join("m.gguf");
    fs::write(&model, "GGUF").unwrap();
    bench.push(&phone, Some(&model)).unwrap();
    assert_eq!(bench.calls(" push "), 5);
    assert_eq!(
        fs::read_to_string(bench.path.join("phone/hexloom/models/m.gguf")).unwrap(),
        "GGUF"
    );
    let mode = fs::metadata(bench.path.join("phone/hexloom/bin/hexloom"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o755);
    bench.push(&phone, Some(&model)).unwrap();
    assert_eq!(bench.calls(" push "), 5);
    // One that has changed on the phone is sent again.
    fs::write(bench.path.join("phone/hexloom/bin/hexloom"), "x").unwrap();
    bench.push(&phone, None).unwrap();
    assert_eq!(bench.calls(" push "), 6);
    // A package that is not what its manifest says is not sent.
    fs::write(bench.path.join("p/bin/hexloom"), "x").unwrap();
    bench.push(&phone, None).unwrap_err();
}

#[test]
fn a_package_for_another_system_is_refused() {
    let bench = Bench::new("system");
    let phone = bench.phone_in("device", "15").unwrap();
    let error = bench.push(&phone, None).unwrap_err().to_string();
    assert!(
        error.contains("Android 15") && error.contains("--target android"),
        "{error}"
    );
}

#[test]
fn a_phone_that_does_not_answer_is_named_with_the_remedy() {
    let bench = Bench::new("state");
    for (state, words) in [
        ("none", "USB debugging"),
        ("several", "--serial"),
        ("unauthorized", "accept this computer's key"),
        ("offline", "kill-server"),
        ("recovery", "adb devices"),
    ] {
        let Err(error) = bench.phone_in(state, "") else {
            panic!("{state}")
        };
        assert!(error.to_string().contains(words), "{error}");
    }
    let far = Instant::now() + Duration::from_secs(60);
    let Err(error) = Phone::reach("hexloom-no-adb".into(), None, "/tmp/x", far) else {
        panic!()
    };
    assert!(format!("{error:#}").contains("variable ADB"), "{error:#}");
    let Err(error) = Phone::reach("sh".into(), None, "/tmp/a b", far) else {
        panic!()
    };
    assert!(error.to_string().contains("--folder"), "{error}");
}

#[test]
fn programs_run_with_the_packages_paths_and_their_results_are_kept() {
    let bench = Bench::new("run");
    let phone = bench.phone();
    let model = bench.path.join("m.gguf");
    fs::write(&model, "GGUF").unwrap();
    bench.push(&phone, Some(&model)).unwrap();
    let run = Run {
        device: "fastrpc".into(),
        model: "m.gguf".into(),
    };
    let workspace = Workspace {
        root: ROOT.into(),
        cache: bench.path.clone(),
    };
    let kept = bench.path.join("kept");
    let families = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let code = results::test(&phone, &run, &families(&["add"]), &workspace, &kept).unwrap();
    assert_eq!(code, ExitCode::SUCCESS);
    let found = bench.kept("test.json");
    assert_eq!(found["cases"]["args"], "fastrpc --json add");
    let folder = format!("{}/phone/hexloom", bench.path.display());
    assert_eq!(found["cases"]["libraries"], format!("{folder}/lib"));
    assert_eq!(found["cases"]["dsp"], format!("{folder}/dsp|{folder}/dsp"));
    assert!(
        found["scores"]["args"].as_str().unwrap().contains("--compare"),
        "{found}"
    );
    // Failures of the list are an exit code, a program that ends without JSON is an error.
    let code = results::test(&phone, &run, &families(&["wrong"]), &workspace, &kept).unwrap();
    assert_ne!(code, ExitCode::SUCCESS);
    let error = results::test(&phone, &run, &families(&["broken"]), &workspace, &kept).unwrap_err();
    assert!(error.to_string().contains("no JSON"), "{error}");
    assert_eq!(found["cases"]["process"], "");
    let phone = phone.with_process("signed").unwrap();
    results::bench(&phone, &run, &kept).unwrap();
    assert_eq!(bench.kept("bench.json")["process"], "signed");
    assert!(
        bench.kept("bench.json")["args"]
            .as_str()
            .unwrap()
            .starts_with("bench models/m.gguf")
    );
}

#[test]
fn logs_are_switched_on_and_fetched() {
    let bench = Bench::new("logs");
    let phone = bench.phone();
    bench.push(&phone, None).unwrap();
    phone.make_folder("dsp").unwrap();
    let mask = bench.path.join("phone/hexloom/dsp/hexloom.farf");
    logs::switch(&phone, true).unwrap();
    assert_eq!(fs::read_to_string(&mask).unwrap(), "0x1f\n");
    logs::switch(&phone, false).unwrap();
    assert!(!mask.exists());
    let kept = bench.path.join("kept");
    logs::fetch(&phone, &kept, |lines| {
        Ok(lines
            .iter()
            .map(|line| line.replace("hexloom-frame 73", "decoded"))
            .collect())
    })
    .unwrap();
    let found = bench.kept("logs.json");
    assert_eq!(found["kernel"].as_array().unwrap().len(), 1);
    let system = found["system"].as_array().unwrap();
    assert_eq!(system.len(), 3);
    assert!(
        system[2].as_str().unwrap().ends_with("CDSP: decoded d0003000 0102ff"),
        "{system:?}"
    );
    // Without a decoder the digits stay.
    logs::fetch(&phone, &kept, |_| anyhow::bail!("no decoder")).unwrap();
    let found = bench.kept("logs.json");
    assert!(
        found["system"][2]
            .as_str()
            .unwrap()
            .contains("hexloom-frame 73 d0003000"),
        "{found}"
    );
}

#[test]
fn a_kind_of_process_that_there_is_not_is_refused() {
    let bench = Bench::new("process");
    let Err(error) = bench.phone().with_process("signed; reboot") else {
        panic!("a third kind")
    };
    assert!(error.to_string().contains("HEXLOOM_PROCESS"), "{error}");
}
