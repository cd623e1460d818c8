//! Both routes on a small library of assembly: the public tools, and the SDK's through the stand-in. Skipped, loudly, where
//! LLVM's assembler for Hexagon is missing.

use std::collections::BTreeSet;
use std::time::Duration;

use super::super::library;
use super::super::tools::Tools;
use super::*;
use crate::wanted::on_path;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// What the static library of Rust has: the functions that the dispatcher calls, calls of the DSP's system, and data with an
/// address in it.
const SOURCE: &str = "
    .section .text.api,\"ax\",@progbits
    .globl hexloom_open, hexloom_close, hexloom_call
    .type hexloom_open,@function
    .type hexloom_close,@function
    .type hexloom_call,@function
hexloom_open:
hexloom_close:
hexloom_call:
    { call qurt_sleep; allocframe(#8) }
    { r0 = add(pc, ##table@pcrel) }
    { call HAP_debug_v2 }
    { dealloc_return }
    .section .data.rel.ro.table,\"aw\",@progbits
    .globl table
table:
    .word hexloom_call
";

struct Bench {
    path: PathBuf,
    tools: Tools,
    facts: ImageFacts,
    built: Built,
    lists: Lists,
}

impl Bench {
    /// The small library, assembled; none where there are no tools for it.
    fn new(name: &str) -> Option<Self> {
        let (Some(assembler), Some(archiver)) = (on_path("llvm-mc-22"), on_path("llvm-ar-22")) else {
            eprintln!("SKIPPED: llvm-mc-22 is missing; install it with: apt-get install -y llvm-22");
            return None;
        };
        let workspace = crate::workspace::Workspace {
            root: ROOT.into(),
            cache: "no".into(),
        };
        let Some(linker) = super::super::tools::find_linker(&workspace) else {
            eprintln!("SKIPPED: no linker for Hexagon; install it with: apt-get install -y lld-22");
            return None;
        };
        let path = std::env::temp_dir().join(format!("hexloom-vendor-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("a.s"), SOURCE).unwrap();
        fs::write(path.join("log.x"), "SECTIONS { .defmt 0 (INFO) : { *(.defmt) } }\n").unwrap();
        let mut command = Command::new(assembler);
        command.args([
            "--triple=hexagon",
            "--mcpu=hexagonv73",
            "--filetype=obj",
            "--position-independent",
            "-o",
        ]);
        process::output(command.arg(path.join("a.o")).arg(path.join("a.s"))).unwrap();
        let file = path.join("liba.a");
        process::output(Command::new(archiver).arg("rcs").arg(&file).arg(path.join("a.o"))).unwrap();
        let all = ImageFacts::all(&Path::new(ROOT).join("toolchains")).unwrap();
        let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>();
        Some(Self {
            tools: Tools {
                rustc: "rustc".into(),
                linker,
                disassembler: "no".into(),
            },
            facts: all
                .into_iter()
                .find(|facts| facts.is_library() && facts.arch() == "v73")
                .unwrap(),
            built: Built {
                file,
                log_table: path.join("log.x"),
            },
            lists: Lists {
                exports: set(&["hexloom_call"]),
                undefined: ["qurt_sleep", "HAP_debug_v2"]
                    .map(|name| (name.to_owned(), set(&[])))
                    .into(),
                optional: [].into(),
                provided: set(&["qurt_sleep", "HAP_debug_v2"]),
                script: Path::new(ROOT).join("toolchains/link/library.x"),
            },
            path,
        })
    }

    fn sdk(&self) -> Sdk {
        // The stand-in takes its variables from a wrapper, as tests run side by side in one environment.
        let root = self.path.join("sdk");
        for (place, name) in [
            ("tools/HEXAGON_Tools/19.0.04/Tools/bin", "hexagon-clang"),
            ("ipc/fastrpc/qaic/bin", "qaic"),
        ] {
            use std::os::unix::fs::PermissionsExt as _;
            fs::create_dir_all(root.join(place)).unwrap();
            let wrapper = format!(
                "#!/bin/sh\nexport HEXLOOM_STAND_IN_CALLS={}/calls HEXLOOM_STAND_IN_LINKER={}\n\
                 exec {ROOT}/toolchains/sdk/stand-in/{place}/{name} \"$@\"\n",
                self.path.display(),
                self.tools.linker.display()
            );
            let path = root.join(place).join(name);
            fs::write(&path, wrapper).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::create_dir_all(root.join("incs/stddef")).unwrap();
        Sdk::at(Some(root)).unwrap()
    }

    fn deadline(&self) -> Instant {
        Instant::now() + Duration::from_secs(120)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[test]
fn both_routes_pass_the_same_check() {
    let Some(mut bench) = Bench::new("routes") else { return };
    let public = library::link(
        &bench.tools,
        &bench.lists,
        &bench.built,
        &bench.facts.image,
        bench.deadline(),
    )
    .unwrap();
    bench.lists.check(&public.stripped, &bench.facts).unwrap();
    bench.lists.exports = ["hexloom_skel_handle_invoke", "hexloom_skel_handle_invoke_uri"]
        .map(str::to_owned)
        .into();
    let sdk = bench.sdk();
    let idl = idl_folder(Path::new(ROOT));
    let vendor = link(&sdk, &idl, &bench.lists, &bench.built, &bench.facts, bench.deadline()).unwrap();
    bench.lists.check(&vendor.stripped, &bench.facts).unwrap();
    // The command lines that the SDK's tools were called with.
    let calls = fs::read_to_string(bench.path.join("calls")).unwrap();
    let calls: Vec<&str> = calls.lines().collect();
    assert_eq!(calls.len(), 4, "{calls:?}");
    let (path, includes) = (
        bench.path.display(),
        sdk.includes().map(|folder| format!("-I {}", folder.display())),
    );
    let work = format!("{path}/liba.sdk");
    assert_eq!(
        calls[0],
        format!(
            "qaic -mdll -o {work} {} {}/hexloom.idl",
            includes.join(" "),
            idl.display()
        )
    );
    assert_eq!(
        calls[1],
        format!(
            "hexagon-clang -mv73 -G0 -fpic -O2 -Wall -I {work} {} -c {work}/hexloom_skel.c -o {work}/hexloom_skel.o",
            includes.join(" ")
        )
    );
    for (call, strip) in [(calls[2], false), (calls[3], true)] {
        let shared =
            "hexagon-clang -mv73 -G0 -fpic -shared -Wl,-Bsymbolic -Wl,--gc-sections -Wl,-soname,libhexloom-v73.so";
        assert!(call.starts_with(shared), "{call}");
        assert!(
            call.ends_with(&format!(
                "{work}/hexloom_skel.o {path}/liba.a -o {work}/libhexloom-v73.so"
            )),
            "{call}"
        );
        assert_eq!(call.contains("-Wl,--strip-all"), strip);
        assert!(call.contains("-Wl,-u,hexloom_skel_handle_invoke "), "{call}");
    }
}

#[test]
fn an_sdk_without_a_tool_is_an_error_that_names_it() {
    let Some(bench) = Bench::new("missing") else { return };
    let sdk = bench.sdk();
    fs::remove_dir_all(bench.path.join("sdk/ipc")).unwrap();
    let idl = idl_folder(Path::new(ROOT));
    let error = link(&sdk, &idl, &bench.lists, &bench.built, &bench.facts, bench.deadline());
    let error = error.err().unwrap().to_string();
    assert!(error.contains("sdk/ipc/fastrpc/qaic"), "{error}");
}
