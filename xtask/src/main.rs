//! `cargo xtask`: a thin entry; every command lives in the library beside it.

fn main() -> std::process::ExitCode {
    xtask::main()
}
