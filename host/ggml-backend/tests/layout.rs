//! Our declarations against real headers: the numbers that a C compiler finds in the ggml source folder that
//! `HEXLOOM_GGML_SOURCE` names. Without it the test says loudly that it was skipped.

use std::mem::offset_of;
use std::path::PathBuf;
use std::process::Command;

use ggml_hexloom::abi::{
    API_VERSION, Backend, BackendFns, Buffer, BufferFns, BufferType, BufferTypeFns, Device, DeviceFns, Graph, Props,
    Registry, Tensor,
};

/// The environment variable that names a folder with ggml's `include` and `src`.
const SOURCE_VAR: &str = "HEXLOOM_GGML_SOURCE";

/// What C is asked for, and what we have.
fn expected() -> Vec<(&'static str, usize)> {
    vec![
        ("GGML_BACKEND_API_VERSION", API_VERSION as usize),
        ("sizeof(struct ggml_tensor)", size_of::<Tensor>()),
        ("offsetof(struct ggml_tensor, op_params)", offset_of!(Tensor, op_params)),
        ("offsetof(struct ggml_tensor, src)", offset_of!(Tensor, src)),
        ("offsetof(struct ggml_tensor, view_src)", offset_of!(Tensor, view_src)),
        ("offsetof(struct ggml_tensor, data)", offset_of!(Tensor, data)),
        ("offsetof(struct ggml_tensor, name)", offset_of!(Tensor, name)),
        ("sizeof(struct ggml_cgraph)", size_of::<Graph>()),
        ("offsetof(struct ggml_cgraph, nodes)", offset_of!(Graph, nodes)),
        (
            "offsetof(struct ggml_cgraph, use_counts)",
            offset_of!(Graph, use_counts),
        ),
        (
            "offsetof(struct ggml_cgraph, visited_hash_set)",
            offset_of!(Graph, visited),
        ),
        ("sizeof(struct ggml_backend_dev_props)", size_of::<Props>()),
        ("sizeof(struct ggml_backend_reg)", size_of::<Registry>()),
        ("sizeof(struct ggml_backend_device)", size_of::<Device>()),
        (
            "offsetof(struct ggml_backend_device_i, supports_op)",
            offset_of!(DeviceFns, supports_op),
        ),
        ("sizeof(struct ggml_backend_buffer_type)", size_of::<BufferType>()),
        (
            "offsetof(struct ggml_backend_buffer_type_i, is_host)",
            offset_of!(BufferTypeFns, is_host),
        ),
        ("sizeof(struct ggml_backend_buffer)", size_of::<Buffer>()),
        (
            "offsetof(struct ggml_backend_buffer_i, clear)",
            offset_of!(BufferFns, clear),
        ),
        ("sizeof(struct ggml_backend)", size_of::<Backend>()),
        (
            "offsetof(struct ggml_backend_i, graph_compute)",
            offset_of!(BackendFns, graph_compute),
        ),
    ]
}

#[test]
fn structures_are_those_of_the_headers() {
    let Some(source) = std::env::var_os(SOURCE_VAR).map(PathBuf::from) else {
        eprintln!("SKIPPED: {SOURCE_VAR} names no ggml source folder; declarations are not compared with headers");
        return;
    };
    let expected = expected();
    let lines = expected
        .iter()
        .map(|(what, _)| format!("    printf(\"%zu\\n\", (size_t) ({what}));\n"));
    let program = format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include \"ggml-impl.h\"\n#include \"ggml-backend-impl.h\"\n\
         int main(void) {{\n{}    return 0;\n}}\n",
        lines.collect::<String>()
    );
    let folder = std::env::temp_dir().join(format!("hexloom-layout-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (file, binary) = (folder.join("layout.c"), folder.join("layout"));
    std::fs::write(&file, program).unwrap();
    let mut compiler = Command::new("cc");
    for part in ["include", "src"] {
        compiler.arg("-I").arg(source.join(part));
    }
    let status = compiler.arg(&file).arg("-o").arg(&binary).status().unwrap();
    assert!(
        status.success(),
        "cc does not compile ggml's headers in {}",
        source.display()
    );
    let output = Command::new(&binary).output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let found = String::from_utf8(output.stdout).unwrap();
    assert_eq!(found.lines().count(), expected.len());
    for ((what, ours), theirs) in expected.iter().zip(found.lines()) {
        assert_eq!(theirs, ours.to_string(), "{what}");
    }
}
