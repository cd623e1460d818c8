//! The guest's 32-bit address space is a real window: 4 GiB of buffers go through it, 1.75 GiB in each batch, and data stays
//! right while mappings are evicted and made again.

use std::sync::Arc;

use hexloom::{Buffer, DType, Graph, PreparedGraph, Session, SessionOptions, TensorId};
use hexloom_emu::{EmuOptions, EmuTransport};

const BYTES: u64 = 256 << 20;
/// 4 GiB in all.
const N_BUFFERS: usize = 16;
/// Which of them a batch uses.
const RANGES: [std::ops::Range<usize>; 3] = [0..7, 5..12, 9..16];

/// Offsets of 32 elements at both ends of a buffer.
const PLACES: [u64; 2] = [0, BYTES - 128];

/// Adds the elements at both ends of all `buffers`.
fn sum_of(session: &Session, buffers: &[Buffer]) -> (PreparedGraph, TensorId) {
    let mut graph = Graph::new();
    let mut sum = None;
    for buffer in buffers {
        for at in PLACES {
            let x = graph
                .placed(buffer.name(), DType::F32, [32, 1, 1, 1], buffer, at)
                .unwrap();
            sum = Some(match sum {
                Some(sum) => graph.add("sum", sum, x).unwrap(),
                None => x,
            });
        }
    }
    let sum = sum.unwrap();
    graph.output(sum);
    (session.prepare("both ends of all buffers", graph).unwrap(), sum)
}

fn value(round: usize, buffer: usize, place: usize) -> f32 {
    ((round * N_BUFFERS + buffer) * PLACES.len() + place) as f32
}

#[test]
fn more_than_the_window_holds() {
    let options = match EmuOptions::find() {
        Ok(options) => options,
        Err(error) => return eprintln!("SKIPPED: {error}"),
    };
    let session = Session::open(Arc::new(EmuTransport::new(options)), SessionOptions::default()).unwrap();
    let alloc = |idx| session.alloc(&format!("buffer {idx}"), BYTES).unwrap();
    let buffers: Vec<Buffer> = (0..N_BUFFERS).map(alloc).collect();
    let mut parts = RANGES.map(|range| (sum_of(&session, &buffers[range.clone()]), range));
    for round in 0..3 {
        for (idx, buffer) in buffers.iter().enumerate() {
            for (place, at) in PLACES.into_iter().enumerate() {
                let x = value(round, idx, place).to_le_bytes();
                buffer.write(at, &x.repeat(32)).unwrap();
            }
        }
        for ((prepared, sum), range) in &mut parts {
            prepared.run().unwrap();
            let values = range
                .clone()
                .flat_map(|idx| [0, 1].map(|place| value(round, idx, place)));
            let wanted: f32 = values.sum();
            assert_eq!(prepared.floats(*sum).unwrap(), [wanted; 32], "round {round}, {range:?}");
        }
    }
}
