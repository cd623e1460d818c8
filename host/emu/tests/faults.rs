//! Faults in a kernel of the real image: typed errors that tell them apart and name the op, and the same session works
//! again after each.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hexloom::transport::DeathCause;
use hexloom::{DType, Fault, Graph, PreparedGraph, RunError, Session, SessionOptions, TensorId, WaitError};
use hexloom_emu::{EmuOptions, EmuTransport};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};

/// Code that a kernel begins with, and what comes of it.
const FAULTS: [(&str, &[u32], DeathCause); 3] = [
    // v0.qf32 = vadd(v0.sf,v0.sf): floating point of the vector unit, from v68 on.
    ("instruction", &[0x1fa0_e020], DeathCause::IllegalInstruction),
    // r0 = #0; r1 = memw(r0+#0).
    ("address", &[0x7800_c000, 0x9180_c001], DeathCause::BadAddress),
    // { r0 = #7; r6 = #94 }; trap0(#1): exit_group(7).
    ("exit", &[0x7800_40e0, 0x7800_cbc6, 0x5400_c004], DeathCause::Exit(7)),
];

/// A copy of the image in which the kernel of SUB begins with `code`.
fn image_with_a_fault(image: &Path, name: &str, code: &[u32]) -> PathBuf {
    let mut file = std::fs::read(image).unwrap();
    let at = {
        let elf = object::File::parse(&*file).unwrap();
        let is_kernel = |name: &str| name.contains("Isa6invoke") && name.contains("6binary") && name.contains("4Rare");
        let kernel = elf.symbols().find(|symbol| symbol.name().is_ok_and(is_kernel));
        let kernel = kernel.expect("the image has a kernel for SUB with a symbol");
        let text = elf.section_by_index(kernel.section_index().unwrap()).unwrap();
        (text.file_range().unwrap().0 + kernel.address() - text.address()) as usize
    };
    for (at, word) in (at..).step_by(4).zip(code) {
        file[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
    let path = std::env::temp_dir().join(format!("hexloom-{name}-{}.elf", std::process::id()));
    std::fs::write(&path, &file).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn prepare(session: &Session, name: &str, subtract: bool) -> (PreparedGraph, TensorId, TensorId) {
    let mut graph = Graph::new();
    let a = graph.input("a", DType::F32, [64, 3, 1, 1]).unwrap();
    let out = match subtract {
        true => graph.sub("out", a, a).unwrap(),
        false => graph.add("out", a, a).unwrap(),
    };
    graph.output(out);
    (session.prepare(name, graph).unwrap(), a, out)
}

#[test]
fn faults_are_told_apart_and_the_session_reopens() {
    let found = match EmuOptions::find() {
        Ok(options) => options,
        Err(error) => return eprintln!("SKIPPED: {error}"),
    };
    for (name, code, cause) in FAULTS {
        let image = image_with_a_fault(&found.image, name, code);
        let options = EmuOptions {
            image: image.clone(),
            ..found.clone()
        };
        let session = Session::open(Arc::new(EmuTransport::new(options)), SessionOptions::default()).unwrap();
        let (mut sums, a, out) = prepare(&session, "sums", false);
        sums.write(a, 0, &1.5f32.to_le_bytes().repeat(192)).unwrap();
        sums.run().unwrap();
        assert_eq!(sums.floats(out).unwrap(), [3.0; 192]);

        let (mut differences, _, _) = prepare(&session, "differences", true);
        let lost = match differences.run() {
            Err(RunError::Wait(WaitError::Lost(lost))) => lost,
            other => panic!("{name}: not lost: {other:?}"),
        };
        let Fault::Died(death) = &lost.fault else {
            panic!("{name}: not a death: {lost}");
        };
        assert_eq!(death.cause, cause, "{name}: {lost}");
        assert_eq!(lost.batch, "differences");
        assert!(
            lost.op.as_deref().is_some_and(|op| op.contains("out")),
            "{name}: {lost}"
        );

        session.reopen().unwrap();
        sums.write(a, 0, &2.5f32.to_le_bytes().repeat(192)).unwrap();
        sums.run().unwrap();
        assert_eq!(sums.floats(out).unwrap(), [5.0; 192]);
        std::fs::remove_file(image).unwrap();
    }
}
