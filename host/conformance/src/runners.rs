//! The runners of each transport: what must not change a result.

use std::sync::Arc;
use std::time::Duration;

use hexloom::{MatrixUnit, OpenError, SessionOptions};
use hexloom_emu::{EmuOptions, EmuTransport};
use hexloom_sim::{DmaOptions, KernelSet, SimOptions, SimTransport};

use crate::suite::{Runner, Suite};

/// Scratch memory of the emulator image.
const EMU_SCRATCH: u64 = 8 << 20;

/// The emulator with one and several threads, compared bit for bit with the simulator. With [`MatrixUnit::Model`] both
/// run the matrix unit's model.
pub fn emu(options: &EmuOptions, matrix_unit: MatrixUnit) -> Result<Suite, OpenError> {
    let sim = |name: &str, reference| {
        let transport = SimTransport::new(SimOptions {
            n_threads: 2,
            scratch_bytes: EMU_SCRATCH,
            ..SimOptions::default()
        });
        let options = SessionOptions {
            reference,
            matrix_unit,
            ..SessionOptions::default()
        };
        Runner::open(name, Arc::new(transport), options)
    };
    let emu = |name: &str, n_threads| {
        let transport = EmuTransport::new(options.clone());
        let options = SessionOptions {
            n_threads,
            matrix_unit,
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

/// The simulator as a v81 with every weight outside the window, beside one with weights inside: one and several threads,
/// sizes of scratch memory, junk in it.
pub fn extended() -> Result<Suite, OpenError> {
    let open = |name: &str, n_threads, scratch_bytes, extended_weights| {
        let transport = SimTransport::new(SimOptions {
            arch: 81,
            n_threads,
            scratch_bytes,
            junk_scratch: true,
            ..SimOptions::default()
        });
        let options = SessionOptions {
            extended_weights,
            ..SessionOptions::default()
        };
        Runner::open(name, Arc::new(transport), options)
    };
    let runners = vec![
        open("v81", 2, 8 << 20, false)?,
        open("v81 extended, 1 thread", 1, 8 << 20, true)?,
        open("v81 extended, 3 threads", 3, 8 << 20, true)?,
        open("v81 extended, 1 MiB scratch", 2, 1 << 20, true)?,
    ];
    Ok(Suite::new(reference()?, runners))
}

/// The simulator with the matrix unit's model: one and several threads, sizes of scratch memory, junk in it, and every
/// kernel set of this machine.
pub fn matrix_unit() -> Result<Suite, OpenError> {
    let best = KernelSet::best();
    let mut runners = vec![
        with_unit("sim+hmx 1 thread", 1, 8 << 20, best)?,
        with_unit("sim+hmx 3 threads", 3, 8 << 20, best)?,
        with_unit("sim+hmx 2 MiB scratch", 2, 2 << 20, best)?,
    ];
    if best != KernelSet::Plain {
        runners.push(with_unit("sim+hmx plain kernels", 2, 8 << 20, KernelSet::Plain)?);
    }
    Ok(Suite::new(reference()?, runners))
}

/// The same with so little scratch memory that vector kernels serve what the unit cannot, beside what it can.
pub fn matrix_unit_little_scratch() -> Result<Suite, OpenError> {
    let runner = with_unit("sim+hmx 256 KiB scratch", 3, 256 << 10, KernelSet::best())?;
    Ok(Suite::new(reference()?, vec![runner]))
}

/// Vector kernels and the matrix unit's model side by side, whose bits differ where the unit serves.
pub fn vector_and_unit() -> Result<Suite, OpenError> {
    let transport = SimTransport::default();
    let vector = Runner::open("sim", Arc::new(transport), SessionOptions::default())?;
    let unit = with_unit("sim+hmx", 0, 8 << 20, KernelSet::best())?;
    Ok(Suite::new(reference()?, vec![vector, unit]))
}

fn with_unit(name: &str, n_threads: u32, scratch_bytes: u64, kernels: KernelSet) -> Result<Runner, OpenError> {
    let transport = SimTransport::new(SimOptions {
        n_threads,
        scratch_bytes,
        junk_scratch: n_threads > 1,
        kernels: Some(kernels),
        ..SimOptions::default()
    });
    let options = SessionOptions {
        matrix_unit: MatrixUnit::Model,
        ..SessionOptions::default()
    };
    Runner::open(name, Arc::new(transport), options)
}

fn reference() -> Result<Runner, OpenError> {
    let options = SessionOptions {
        reference: true,
        ..SessionOptions::default()
    };
    Runner::open("sim reference", Arc::new(SimTransport::default()), options)
}

/// The simulator with weights by DMA: an engine of each generation, quick, slow, late and out of order, one to four threads
/// and little scratch memory, all compared bit for bit with direct reads.
pub fn dma() -> Result<Suite, OpenError> {
    let open = |name: &str, n_threads, scratch_bytes, dma, reference| {
        let transport = SimTransport::new(SimOptions {
            n_threads,
            scratch_bytes,
            junk_scratch: true,
            dma,
            ..SimOptions::default()
        });
        let options = SessionOptions {
            reference,
            ..SessionOptions::default()
        };
        Runner::open(name, Arc::new(transport), options)
    };
    let of = |arch| DmaOptions {
        arch,
        ..DmaOptions::default()
    };
    let slow = DmaOptions {
        transfer_time: Duration::from_micros(20),
        ..of(81)
    };
    let runners = vec![
        open("sim", 2, 8 << 20, None, false)?,
        open("sim+dma 1 thread", 1, 8 << 20, Some(of(73)), false)?,
        open("sim+dma 2 threads", 2, 8 << 20, Some(of(79)), false)?,
        open("sim+dma 3 threads, late", 3, 8 << 20, Some(DmaOptions::harsh()), false)?,
        open("sim+dma 4 threads, slow", 4, 8 << 20, Some(slow), false)?,
        open(
            "sim+dma 256 KiB scratch, late",
            3,
            256 << 10,
            Some(DmaOptions::harsh()),
            false,
        )?,
    ];
    Ok(Suite::new(open("sim reference", 1, 8 << 20, None, true)?, runners))
}

/// The simulator as harsh as it gets, without and with the DMA engine, compared bit for bit with the kind one: caches that
/// are not coherent, evictions, late frees, spurious failures, pauses, junk.
pub fn harsh(seed: u64) -> Result<Suite, OpenError> {
    let open =
        |name: &str, sim: SimOptions| Runner::open(name, Arc::new(SimTransport::new(sim)), SessionOptions::default());
    let with = |n_threads, seed| SimOptions {
        n_threads,
        ..SimOptions::harsh(seed)
    };
    let without_dma = SimOptions {
        dma: None,
        ..with(2, seed)
    };
    let little_scratch = SimOptions {
        scratch_bytes: 512 << 10,
        ..with(3, seed + 1)
    };
    let runners = vec![
        open("sim", SimOptions::default())?,
        open("sim, harsh", without_dma)?,
        open("sim+dma, harsh", with(1, seed + 2))?,
        open("sim+dma 512 KiB scratch, harsh", little_scratch)?,
    ];
    Ok(Suite::new(reference()?, runners))
}

/// Devices with IEEE floats (v79 and later): a model of their instructions, compared bit for bit with this machine's. Only
/// for ops without tiled weights, whose products are qfloat on every device.
#[cfg(feature = "float-model")]
pub fn ieee_model() -> Result<Suite, OpenError> {
    let runners = vec![
        model("sim", KernelSet::best(), 3)?,
        model("ieee model", KernelSet::Ieee, 3)?,
    ];
    Ok(Suite::new(reference()?, runners))
}

/// The same for products: on any number of threads the same bits, within the tolerances of all runners.
#[cfg(feature = "float-model")]
pub fn ieee_products() -> Result<Suite, OpenError> {
    let runners = vec![
        model("ieee model", KernelSet::Ieee, 1)?,
        model("ieee model, 3 threads", KernelSet::Ieee, 3)?,
    ];
    Ok(Suite::new(reference()?, runners))
}

/// Devices with qfloat (v68 to v75): a model of their instructions, within the tolerances of all runners, and bit for bit on
/// any number of threads.
#[cfg(feature = "float-model")]
pub fn qfloat_model() -> Result<Suite, OpenError> {
    let runners = vec![
        model("qfloat model", KernelSet::Qfloat, 1)?,
        model("qfloat model, 3 threads", KernelSet::Qfloat, 3)?,
    ];
    Ok(Suite::new(reference()?, runners))
}

#[cfg(feature = "float-model")]
fn model(name: &str, kernels: KernelSet, n_threads: u32) -> Result<Runner, OpenError> {
    let transport = SimTransport::new(SimOptions {
        n_threads,
        junk_scratch: true,
        kernels: Some(kernels),
        ..SimOptions::default()
    });
    Runner::open(name, Arc::new(transport), SessionOptions::default())
}
