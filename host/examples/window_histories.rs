//! Maps, moves and failures of random sessions in a modelled window, with hexloom's plan, the reference's, and none.
//!
//! `cargo run --release -p hexloom --example window_histories -- [HISTORIES [SEED [WINDOW_BYTES]]]`

use std::error::Error;

use hexloom::plan::buffers::BufferLimits;
use hexloom::plan::window::{Costs, HistoryOptions, Making, Replay, Way, Window};

/// Space comes back up to so many calls after an unmap.
const LATE_CALLS: u64 = 12;
const REFERENCE_CAP: u64 = 256 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let numbers = std::env::args().skip(1).map(|text| text.parse());
    let numbers: Vec<u64> = numbers.collect::<Result<_, _>>()?;
    let number = |idx: usize, default| numbers.get(idx).copied().unwrap_or(default);
    let (histories, seed) = (number(0, 1000), number(1, 1));
    let window_bytes = number(2, hexloom_abi::limits::WINDOW_BYTES_DEFAULT);
    let reference = |making| Way::FirstFit {
        cap_bytes: REFERENCE_CAP,
        making,
    };
    let ways = [
        ("hexloom", Way::Hexloom(BufferLimits::new(79, window_bytes))),
        ("reference's plan, our rule of making room", reference(Making::Stretch)),
        ("reference", reference(Making::DropAll)),
        ("no plan", Way::Apart),
    ];
    let mut totals = [Costs::default(); 4];
    let mut worse = [(0, 0); 4];
    for seed in seed..seed.saturating_add(histories) {
        let history = HistoryOptions::new(window_bytes).history(seed);
        let mut costs = [Costs::default(); 4];
        for (costs, (_, way)) in costs.iter_mut().zip(&ways) {
            let window = Window::new(window_bytes).with_late_frees(LATE_CALLS, seed);
            let mut replay = Replay::new(window, *way);
            history.iter().try_for_each(|event| replay.step(event))?;
            *costs = replay.costs();
        }
        for (idx, own) in costs.iter().enumerate() {
            totals[idx] += *own;
            worse[idx].0 += u64::from(own.defragmentations > costs[2].defragmentations);
            worse[idx].1 += u64::from(own.remapped_bytes > costs[2].remapped_bytes);
        }
    }
    println!("{histories} histories from seed {seed}, window of {window_bytes} bytes, at most 98 % live");
    println!(
        "| way | failures | defragmentations | re-mapped GiB | maps | evictions | waits | worse than the reference |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for (((name, _), costs), (more, bytes)) in ways.iter().zip(totals).zip(worse) {
        println!(
            "| {name} | {} | {} | {:.1} | {} | {} | {} | {more} in number, {bytes} in bytes |",
            costs.failures,
            costs.defragmentations,
            costs.remapped_bytes as f64 / f64::from(1 << 30),
            costs.maps,
            costs.evictions,
            costs.waits,
        );
    }
    Ok(())
}
