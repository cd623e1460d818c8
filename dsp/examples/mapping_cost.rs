//! What finding a batch's buffers costs when all are mapped: `cargo run --release -p hexloom-dsp --example mapping_cost`.
//!
//! The limit is 2 us a batch, at the most buffers that a batch and a table can have.

use std::hint::black_box;
use std::sync::atomic::AtomicU32;
use std::time::Instant;

use hexloom_abi::limits::{MAX_BUFFERS, MAX_MAPPINGS, WINDOW_BYTES_DEFAULT};
use hexloom_abi::{BufferDesc, Status};
use hexloom_dsp::Platform;
use hexloom_dsp::mapping::{MappingTable, PinnedBuffer};
use hexloom_dsp::platform::Mapped;

const ROUNDS: u32 = 1_000_000;

/// Maps whatever it is asked for, each fd at an address of its own.
struct AnyMap;

impl Platform for AnyMap {
    fn map(&self, buffer: &BufferDesc) -> Result<Mapped, Status> {
        Ok(Mapped::window(u64::from(buffer.fd) << 20, buffer.bytes))
    }
    fn unmap(&self, _fd: u32, _mapped: Mapped) {}
    fn clean(&self, _address: u64, _bytes: u64) {}
    fn invalidate(&self, _address: u64, _bytes: u64) {}
    fn cycles(&self) -> u64 {
        0
    }
    fn nanos(&self) -> u64 {
        0
    }
    fn wait(&self, _word: &AtomicU32, _expected: u32, _timeout_us: u32) {}
    fn wake(&self, _word: &AtomicU32) {}
}

fn main() {
    let pinned = PinnedBuffer {
        fd: 1,
        address: 1 << 30,
        bytes: 1 << 20,
    };
    let desc = |fd: u32| BufferDesc {
        bytes: 1 << 20,
        generation: fd.into(),
        fd,
        ..BufferDesc::default()
    };
    let all: Vec<BufferDesc> = (2..2 + MAX_MAPPINGS as u32).map(desc).collect();
    let mut table = MappingTable::new(WINDOW_BYTES_DEFAULT);
    let mut resolve = |buffers: &[BufferDesc]| {
        let found = table.resolve(&AnyMap, black_box(buffers), pinned);
        black_box(found).expect("everything can be mapped");
    };
    let batches: Vec<&[BufferDesc]> = all.chunks(MAX_BUFFERS as usize).collect();
    batches.iter().for_each(|buffers| resolve(buffers));
    let start = Instant::now();
    for round in 0..ROUNDS as usize {
        resolve(batches[round % batches.len()]);
    }
    let ns = start.elapsed().as_nanos() / u128::from(ROUNDS);
    println!("{ns} ns a batch of {MAX_BUFFERS} buffers in a table of {MAX_MAPPINGS}");
}
