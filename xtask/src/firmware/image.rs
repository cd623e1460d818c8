//! One image: its facts, its build, its copy in the cache folder.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::Value;

use super::elf::Image;
use super::library;
use super::loader;
use super::tools::Tools;
use super::vendor;
use crate::process;
use crate::sdk::Sdk;
use crate::workspace::Workspace;

/// Scripts and lists that images are linked by.
pub(super) const LINK_FILES: &str = "toolchains/link";
/// The link script that gathers the table of log texts; it comes with `defmt`.
const LOG_TABLE: &str = "defmt.x";
/// The feature that leaves the dispatcher to the SDK's IDL compiler.
const SKEL_FEATURE: &str = "idl-skel";
/// Log texts below this level are left out of images.
const LOG_LEVEL: &str = "info";

/// A file of `toolchains/`; toolchains/README.md says what each key is.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImageFacts {
    target: String,
    arch: Option<String>,
    pub(super) cpu: String,
    pub(super) features: Vec<String>,
    #[serde(default)]
    llvm_args: Vec<String>,
    build: Product,
    pub(super) image: String,
    pub(super) max_bytes: u64,
}

/// What of the firmware workspace is built.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Product {
    /// A program of that name.
    Program(String),
    /// The library of that name, linked for the DSP's loader.
    Library(String),
}

impl ImageFacts {
    /// The facts of every image, in the order of their files' names.
    pub(crate) fn all(folder: &Path) -> Result<Vec<Self>> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
            paths.push(entry?.path());
        }
        paths.retain(|path| path.extension().is_some_and(|ext| ext == "toml"));
        paths.sort();
        let read = |path: &PathBuf| {
            let text = fs::read_to_string(path)?;
            toml::from_str(&text).with_context(|| path.display().to_string())
        };
        paths.iter().map(read).collect()
    }

    /// The architecture as it is called: `v73`.
    pub(crate) fn arch(&self) -> &str {
        self.arch.as_deref().unwrap_or_else(|| self.instruction_set())
    }

    /// The architecture that the code is compiled for, which is another's where both have the same instructions.
    pub(super) fn instruction_set(&self) -> &str {
        self.cpu.strip_prefix("hexagon").unwrap_or(&self.cpu)
    }

    pub(super) fn is_library(&self) -> bool {
        matches!(self.build, Product::Library(_))
    }

    /// The name of a library's copy with symbols.
    pub(super) fn with_symbols(&self) -> String {
        format!("{}.debug", self.image)
    }

    /// Flags for the compiler, one argument each.
    fn flags(&self, tools: &Tools) -> Vec<String> {
        let mut flags = vec![
            format!("-Ctarget-cpu={}", self.cpu),
            format!("-Ctarget-feature={}", self.features.join(",")),
        ];
        flags.extend(self.llvm_args.iter().map(|arg| format!("-Cllvm-args={arg}")));
        match self.build {
            Product::Program(_) => flags.extend([
                format!("-Clinker={}", tools.linker.display()),
                "-Clinker-flavor=ld.lld".to_owned(),
                format!("-Clink-arg=-T{LOG_TABLE}"),
            ]),
            Product::Library(_) => flags.push("-Crelocation-model=pic".to_owned()),
        }
        flags
    }
}

/// Builds an image in `target`, checks it, and puts it into `folder`; tells path and size. Libraries are linked by the SDK
/// where one is given.
pub(crate) fn make(
    workspace: &Workspace,
    (tools, sdk): (&Tools, Option<&Sdk>),
    facts: &ImageFacts,
    (target, folder): (&Path, &Path),
    deadline: Instant,
) -> Result<String> {
    let mut features = vec![facts.arch()];
    features.extend(sdk.map(|_| SKEL_FEATURE));
    let built = build(workspace, tools, facts, (target, &features.join(",")), deadline)?;
    match facts.build {
        Product::Program(_) => {
            let file = fs::read(&built.file).with_context(|| format!("cannot read {}", built.file.display()))?;
            publish(&file, &facts.image, folder)?;
            size_line(&file, facts, folder)
        }
        Product::Library(_) => {
            let lists = library::Lists::read(&workspace.root.join(LINK_FILES))?;
            let mut linked = match sdk {
                None => library::link(tools, &lists, &built, &facts.image, deadline)?,
                Some(sdk) => {
                    let idl = vendor::idl_folder(&workspace.root);
                    vendor::link(sdk, &idl, &lists, &built, facts, deadline)?
                }
            };
            for file in [&mut linked.with_symbols, &mut linked.stripped] {
                loader::stamp_arch(file, facts.arch())?;
            }
            lists.check(&linked.stripped, facts)?;
            publish(&linked.with_symbols, &facts.with_symbols(), folder)?;
            publish(&linked.stripped, &facts.image, folder)?;
            size_line(&linked.stripped, facts, folder)
        }
    }
}

/// What cargo has built.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Built {
    /// The program or static library.
    pub(super) file: PathBuf,
    /// The link script for log texts.
    pub(super) log_table: PathBuf,
}

impl Built {
    /// Takes what a message of cargo says about the artifact called `name` or about the link script.
    fn note(&mut self, message: &Value, name: &str) {
        let file = || Some(PathBuf::from(message["filenames"].as_array()?.first()?.as_str()?));
        let is_defmt = |id: &str| id.rsplit(['#', '/']).any(|part| part.starts_with("defmt@"));
        match message["reason"].as_str() {
            Some("compiler-artifact") if message["target"]["name"] == name => {
                self.file = file().unwrap_or_default();
            }
            Some("build-script-executed") if message["package_id"].as_str().is_some_and(is_defmt) => {
                self.log_table = Path::new(message["out_dir"].as_str().unwrap_or_default()).join(LOG_TABLE);
            }
            _ => {}
        }
    }
}

/// Compiles. What is out of date is cargo's to decide; it keeps the results of different flags side by side, `core`
/// included.
fn build(
    workspace: &Workspace,
    tools: &Tools,
    facts: &ImageFacts,
    (target, features): (&Path, &str),
    deadline: Instant,
) -> Result<Built> {
    let folder = workspace.root.join("dsp/firmware");
    let mut command = process::cargo();
    command.args([
        "build",
        "--release",
        "--locked",
        "--quiet",
        "--message-format=json-render-diagnostics",
        "--target",
        &facts.target,
    ]);
    let name = match &facts.build {
        Product::Program(name) => {
            command.args(["--bin", name]);
            name
        }
        Product::Library(name) => {
            command.arg("--lib");
            name
        }
    };
    command
        .args(["--features", features])
        .arg("--target-dir")
        .arg(target)
        .current_dir(&folder)
        .env("RUSTC", &tools.rustc)
        // What the images use of the compiler is unstable; the compiler is pinned by the set-up instead.
        .env("RUSTC_BOOTSTRAP", "1")
        // One separator that no path contains; it outranks flags from anywhere else.
        .env("CARGO_ENCODED_RUSTFLAGS", facts.flags(tools).join("\x1f"))
        .env("HEXLOOM_ARCH", facts.arch().trim_start_matches('v'))
        .env("DEFMT_LOG", LOG_LEVEL)
        .env_remove("RUSTC_WRAPPER")
        .env_remove("RUSTC_WORKSPACE_WRAPPER");
    let mut built = Built::default();
    let status = process::run_lines(&mut command, deadline, |line| match serde_json::from_str(line) {
        Ok(message) => built.note(&message, name),
        Err(_) => eprintln!("{line}"),
    })?;
    if !status.success() {
        bail!("building {} failed: {status}", facts.image);
    }
    if built.file.as_os_str().is_empty() || built.log_table.as_os_str().is_empty() {
        bail!("cargo built {}, and did not say where", facts.image);
    }
    Ok(built)
}

/// Writes a file to its place, whole or not at all.
fn publish(file: &[u8], name: &str, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let path = folder.join(name);
    if fs::read(&path).ok().as_deref() != Some(file) {
        let part = folder.join(format!("{name}.part"));
        fs::write(&part, file)?;
        fs::rename(&part, &path)?;
    }
    // The emulator loads only what the system would execute.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// Bytes of an image once it is loaded; an error when it has more than it may.
pub(super) fn check_size(file: &[u8], facts: &ImageFacts) -> Result<u64> {
    let bytes = Image::parse(file).with_context(|| facts.image.clone())?.loaded_bytes();
    if bytes > facts.max_bytes {
        bail!(
            "{}: {bytes} bytes of code and data, allowed {}",
            facts.image,
            facts.max_bytes
        );
    }
    Ok(bytes)
}

fn size_line(file: &[u8], facts: &ImageFacts, folder: &Path) -> Result<String> {
    let bytes = check_size(file, facts)?;
    Ok(format!(
        "{}: {:.1} KiB of code and data, at most {} KiB",
        folder.join(&facts.image).display(),
        bytes as f64 / 1024.0,
        facts.max_bytes / 1024
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_repository_is_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../toolchains");
        let all = ImageFacts::all(&folder).unwrap();
        let arches: Vec<&str> = all.iter().map(ImageFacts::arch).collect();
        assert_eq!(arches, ["v67", "v68", "v69", "v73", "v75", "v79", "v81"]);
        for facts in &all {
            assert!(facts.features.contains(&"+hvx-length128b".to_owned()), "{facts:?}");
            assert!(
                facts.features.contains(&format!("+hvx{}", facts.instruction_set())),
                "{facts:?}"
            );
        }
    }

    #[test]
    fn unknown_keys_are_refused() {
        let error = toml::from_str::<ImageFacts>("cpu = \"x\"\nfeature = []").unwrap_err();
        assert!(error.to_string().contains("feature"), "{error}");
        let error = toml::from_str::<Product>("plugin = \"x\"").unwrap_err();
        assert!(error.to_string().contains("plugin"), "{error}");
    }

    #[test]
    fn messages_of_cargo_name_the_artifact_and_the_link_script() {
        let mut built = Built::default();
        for message in [
            serde_json::json!({
                "reason": "compiler-artifact",
                "target": {"name": "hexloom_device"},
                "filenames": ["/t/libhexloom_device.a"],
            }),
            serde_json::json!({"reason": "compiler-artifact", "target": {"name": "core"}, "filenames": ["/t/core"]}),
            serde_json::json!({
                "reason": "build-script-executed",
                "package_id": "registry+https://index/#defmt@1.2.0",
                "out_dir": "/t/out",
            }),
            serde_json::json!({
                "reason": "build-script-executed",
                "package_id": "registry+https://index/#other@1.0.0",
                "out_dir": "/t/other",
            }),
            serde_json::json!({"reason": "build-finished"}),
        ] {
            built.note(&message, "hexloom_device");
        }
        let wanted = Built {
            file: "/t/libhexloom_device.a".into(),
            log_table: "/t/out/defmt.x".into(),
        };
        assert_eq!(built, wanted);
    }
}
