//! The device nodes that a driver opens, and whether this user may.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use hexloom_fastrpc::find::System;

use super::Check;

const NAME: &str = "device nodes";

/// Nodes of the DSP, of which one is enough: newer kernels have the first ones, older vendor kernels the last.
const DSP_NODES: [&str; 4] = [
    "dev/fastrpc-cdsp",
    "dev/fastrpc-cdsp-secure",
    "dev/fastrpc-cdsp1",
    "dev/adsprpc-smd",
];
/// Where shared memory comes from; one is enough.
const HEAP_NODES: [&str; 3] = ["dev/dma_heap/system", "dev/dma_heap/qcom,system", "dev/ion"];

/// Looks at the nodes below `root`, as a system's user. A driver has ways around a node that is closed, so that the session
/// decides what that means.
pub(super) fn check(root: &Path, system: System) -> Check {
    let (dsp, heap) = (look(root, &DSP_NODES), look(root, &HEAP_NODES));
    let found = format!("DSP: {}; memory: {}", dsp.found, heap.found);
    match (dsp.access, heap.access) {
        (Access::Open, Access::Open) => Check::ok(NAME, found),
        (Access::Denied(group), _) | (_, Access::Denied(group)) => Check::suspicion(NAME, found, remedy(system, group)),
        // Whether a driver manages without them, the session shows.
        _ => {
            let remedy =
                "if no session opens, install a kernel with the FastRPC driver (fastrpc.ko) and its device tree";
            Check::warning(NAME, found, remedy)
        }
    }
}

/// What opens a node to this user, or to the group's members.
fn remedy(system: System, group: Option<String>) -> String {
    match (system, group) {
        // Nobody has groups to give there: which kind of program may open a node is in SELinux's rules.
        (System::Android, _) => {
            "run it from `adb shell`, which may open more than an app does; `cargo xtask adb logs` shows \
                                 what SELinux has denied"
                .to_owned()
        }
        (_, Some(group)) => format!("sudo usermod -aG {group} $USER, then log in again"),
        (_, None) => "let this user open the nodes: a udev rule that gives them a group, and the user in it".to_owned(),
    }
}

struct Looked {
    found: String,
    access: Access,
}

enum Access {
    Open,
    /// By the group that could, when it is not root's.
    Denied(Option<String>),
    Missing,
}

/// The first of `nodes` that opens, else the first that is there.
fn look(root: &Path, nodes: &[&str]) -> Looked {
    let mut denied = None;
    for node in nodes {
        let path = root.join(node);
        match OpenOptions::new().read(true).open(&path) {
            Ok(_) => {
                let found = format!("/{node} opens");
                let access = Access::Open;
                return Looked { found, access };
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                denied.get_or_insert_with(|| (format!("/{node}: {error}"), group(root, &path)));
            }
        }
    }
    match denied {
        Some((found, group)) => Looked {
            found,
            access: Access::Denied(group),
        },
        None => Looked {
            found: format!("none of {}", nodes.join(", ")),
            access: Access::Missing,
        },
    }
}

/// The group of a node, if members of it may open it and it is not root's.
fn group(root: &Path, path: &Path) -> Option<String> {
    let facts = fs::metadata(path).ok()?;
    let may = facts.mode() & 0o060 == 0o060 && facts.gid() != 0;
    let groups = fs::read_to_string(root.join("etc/group")).unwrap_or_default();
    may.then(|| group_name(&groups, facts.gid()).unwrap_or_else(|| facts.gid().to_string()))
}

/// A group's name in the text of `/etc/group`.
fn group_name(groups: &str, gid: u32) -> Option<String> {
    let mut lines = groups.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let line = lines.find(|line| line.get(2).is_some_and(|number| number.parse() == Ok(gid)))?;
    line.first()
        .filter(|name| !name.is_empty())
        .map(|name| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn nodes_that_open_and_nodes_that_are_missing() {
        let root = std::env::temp_dir().join(format!("hexloom-nodes-{}", std::process::id()));
        let check = |system| super::check(&root, system);
        let empty = check(System::Linux);
        assert_eq!(empty.state, State::Warning);
        assert!(
            empty.found.contains("fastrpc-cdsp") && empty.remedy.is_some_and(|remedy| remedy.contains("fastrpc.ko"))
        );
        fs::create_dir_all(root.join("dev/dma_heap")).expect("a folder");
        fs::write(root.join("dev/adsprpc-smd"), "").expect("a file");
        assert_eq!(check(System::Linux).state, State::Warning);
        fs::write(root.join("dev/dma_heap/system"), "").expect("a file");
        let good = check(System::Linux);
        assert_eq!((good.state, good.remedy), (State::Ok, None));
        assert!(good.found.contains("/dev/adsprpc-smd opens"), "{}", good.found);
        // What is there and is no file that opens, whoever asks.
        fs::remove_file(root.join("dev/adsprpc-smd")).expect("it is there");
        std::os::unix::fs::symlink("fastrpc-cdsp", root.join("dev/fastrpc-cdsp")).expect("a link to itself");
        for (system, words) in [(System::Linux, "udev"), (System::Android, "SELinux")] {
            let mut denied = check(system);
            assert_eq!(denied.state, State::Failed);
            assert!(
                denied.remedy.as_ref().is_some_and(|remedy| remedy.contains(words)),
                "{denied:?}"
            );
            denied.acquit();
            assert_eq!(denied.state, State::Warning);
        }
        assert!(remedy(System::Linux, Some("fastrpc".to_owned())).contains("-aG fastrpc"));
        assert!(!remedy(System::Android, Some("system".to_owned())).contains("sudo"));
        fs::remove_dir_all(&root).expect("it is there");
    }

    #[test]
    fn groups_have_names() {
        let groups = "root:x:0:\nfastrpc:x:984:me\n:x:7:\n";
        assert_eq!(group_name(groups, 984).as_deref(), Some("fastrpc"));
        assert_eq!((group_name(groups, 7), group_name(groups, 98)), (None, None));
    }
}
