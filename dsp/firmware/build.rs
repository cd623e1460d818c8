//! Tells the linker where the emulator image's script is, by a path that takes no part in the flags of other crates.

fn main() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../toolchains/link/program.x");
    println!("cargo::rerun-if-changed={script}");
    println!("cargo::rustc-link-arg-bins=-T{script}");
}
