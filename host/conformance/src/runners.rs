//! The runners of each transport: what must not change a result.

use std::sync::Arc;

use hexloom::{OpenError, SessionOptions};
use hexloom_emu::{EmuOptions, EmuTransport};
use hexloom_sim::{KernelSet, SimOptions, SimTransport};

use crate::suite::{Runner, Suite};

/// Scratch memory of the emulator image.
const EMU_SCRATCH: u64 = 8 << 20;

/// The emulator with one and several threads, compared bit for bit with the simulator.
pub fn emu(options: &EmuOptions) -> Result<Suite, OpenError> {
    let sim = |name: &str, reference| {
        let transport = SimTransport::new(SimOptions {
            n_threads: 2,
            scratch_bytes: EMU_SCRATCH,
            ..SimOptions::default()
        });
        let options = SessionOptions {
            reference,
            ..SessionOptions::default()
        };
        Runner::open(name, Arc::new(transport), options)
    };
    let emu = |name: &str, n_threads| {
        let transport = EmuTransport::new(options.clone());
        let options = SessionOptions {
            n_threads,
            ..SessionOptions::default()
        };
        Runner::open(name, Arc::new(transport), options)
    };
    let runners = vec![sim("sim", false)?, emu("emu 1 thread", 1)?, emu("emu 3 threads", 3)?];
    Ok(Suite::new(sim("sim reference", true)?, runners))
}

/// The simulator: one and many threads, four sizes of scratch memory, junk in it, and every kernel set of this machine.
pub fn sim() -> Result<Suite, OpenError> {
    let open = |name: &str, n_threads, scratch_bytes, junk_scratch, kernels, reference| {
        let transport = SimTransport::new(SimOptions {
            n_threads,
            scratch_bytes,
            junk_scratch,
            kernels,
            ..SimOptions::default()
        });
        let options = SessionOptions {
            reference,
            ..SessionOptions::default()
        };
        Runner::open(name, Arc::new(transport), options)
    };
    let best = Some(KernelSet::best());
    let reference = open("sim reference", 1, 8 << 20, true, None, true)?;
    let mut runners = vec![
        open("sim 1 thread", 1, 8 << 20, false, best, false)?,
        open("sim 2 threads, junk", 2, 8 << 20, true, best, false)?,
        open("sim 5 threads", 5, 8 << 20, false, best, false)?,
        open("sim 4 MiB scratch, junk", 2, 4 << 20, true, best, false)?,
        open("sim 2 MiB scratch, junk", 2, 2 << 20, true, best, false)?,
        // Too little for some ops: they must be refused, not run wrongly.
        open("sim 256 KiB scratch, junk", 3, 256 << 10, true, best, false)?,
    ];
    if KernelSet::best() != KernelSet::Plain {
        runners.push(open(
            "sim plain kernels",
            2,
            8 << 20,
            true,
            Some(KernelSet::Plain),
            false,
        )?);
    }
    Ok(Suite::new(reference, runners))
}

/// Devices with IEEE floats (v79 and later): a model of their instructions, compared bit for bit with this machine's.
pub fn ieee_model() -> Result<Suite, OpenError> {
    let runners = vec![
        model("sim", KernelSet::best(), 3, false)?,
        model("ieee model", KernelSet::Ieee, 3, false)?,
    ];
    Ok(Suite::new(model("sim reference", KernelSet::best(), 1, true)?, runners))
}

/// Devices with qfloat (v68 to v75): a model of their instructions, within the tolerances of all runners, and bit for bit on
/// any number of threads.
pub fn qfloat_model() -> Result<Suite, OpenError> {
    let runners = vec![
        model("qfloat model", KernelSet::Qfloat, 1, false)?,
        model("qfloat model, 3 threads", KernelSet::Qfloat, 3, false)?,
    ];
    let reference = model("sim reference", KernelSet::best(), 1, true)?;
    Ok(Suite::new(reference, runners))
}

fn model(name: &str, kernels: KernelSet, n_threads: u32, reference: bool) -> Result<Runner, OpenError> {
    let transport = SimTransport::new(SimOptions {
        n_threads,
        junk_scratch: true,
        kernels: Some(kernels),
        ..SimOptions::default()
    });
    let options = SessionOptions {
        reference,
        ..SessionOptions::default()
    };
    Runner::open(name, Arc::new(transport), options)
}
