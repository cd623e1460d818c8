//! How fast tiled weights are read and multiplied: `cargo run --release -p hexloom-dsp --example matmul_speed [THREADS]`.
//!
//! One activation row must run at the speed of memory, 64 rows at that of the multipliers; the numbers that matter are
//! GB/s of weights in the first case and billions of multiplications (GMAC/s) in the second. The weights are larger
//! than any cache.

#[path = "../tests/support/platform.rs"]
mod platform;

use std::time::Instant;

use hexloom_abi::op::{Op, Shape};
use hexloom_abi::tile::TileLayout;
use hexloom_abi::{DType, Opcode, scratch};
use hexloom_dsp::kernels::{Context, OpArgs};
use hexloom_dsp::pool::Fork;
use hexloom_dsp::pool::Pool;
use hexloom_dsp::{KernelSet, Span, Tensor};
use platform::{TestPlatform, with_pool};

const K: u32 = 1536;
const N: u32 = 576;
const MATRICES: u32 = 120;

fn main() {
    let n_threads = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(2);
    println!("{n_threads} threads");
    with_pool(n_threads, |pool| {
        for dtype in [DType::Q4_0, DType::Q4_1, DType::Q8_0] {
            for rows in [1, 2, 3, 4, 16, 64] {
                measure(pool, KernelSet::best(), dtype, rows);
            }
        }
        for rows in [1, 64] {
            measure(pool, KernelSet::Reference, DType::Q4_1, rows);
        }
    });
}

fn measure(pool: &Pool<TestPlatform>, set: KernelSet, dtype: DType, rows: u32) {
    let tile = TileLayout::new(dtype, K).expect("K is whole tiles");
    let ne = [K, N, MATRICES, 1];
    let weights = Shape {
        dtype,
        tiled: true,
        ne,
        nb: tile.strides(dtype, ne).expect("a small tensor"),
    };
    let x = Shape::dense(DType::F32, [K, rows, 1, 1]).expect("a small tensor");
    let out = Shape::dense(DType::F32, [N, rows, 1, 1]).expect("a small tensor");
    let bytes = tile.tensor_bytes(ne).expect("a small tensor") as usize;
    let mut memory = [bytes, (K * rows * 4) as usize, (N * rows * 4) as usize, 8 << 20].map(filled);

    let mut op = Op {
        opcode: Opcode::MulMat,
        params: [0; 16],
        srcs: [None; 10],
        dsts: [None; 4],
    };
    let matrix = Shape {
        ne: [K, N, 1, 1],
        ..weights
    };
    op.srcs[0] = Some(matrix);
    op.srcs[1] = Some(x);
    op.dsts[0] = Some(out);
    assert!(scratch::need(&op, pool.n_threads()).full <= 8 << 20);
    let [weight_ptr, x_ptr, out_ptr, scratch_ptr] = memory.each_mut().map(|memory| line(memory));

    let mut seconds = Vec::new();
    let passes = if set == KernelSet::Reference { 1 } else { 5 };
    for _ in 0..passes {
        for idx in 0..MATRICES {
            let start = Instant::now();
            let at = weight_ptr.wrapping_add((idx * weights.nb[2]) as usize);
            let mut args = OpArgs {
                op,
                srcs: [None; 10],
                dsts: [None; 4],
            };
            // SAFETY: matrix `idx` lies in the first memory block, on a line.
            args.srcs[0] = Some(unsafe { Tensor::new(at, matrix) });
            // SAFETY: the second block was made for the activation.
            args.srcs[1] = Some(unsafe { Tensor::new(x_ptr, x) });
            // SAFETY: the third block was made for the output.
            args.dsts[0] = Some(unsafe { Tensor::new(out_ptr, out) });
            // SAFETY: the fourth block has 8 MiB.
            let scratch = unsafe { Span::new(scratch_ptr, 8 << 20) };
            set.run(&Context::new(pool, scratch), &args).expect("a supported op");
            seconds.push(start.elapsed().as_secs_f64());
        }
    }
    // The first quartile: other programs on the machine disturb the mean.
    seconds.sort_by(f64::total_cmp);
    let best = seconds[seconds.len() / 4];
    let macs = f64::from(K) * f64::from(N) * f64::from(rows);
    println!(
        "{set:?} {dtype} {rows:>3} rows: {:>6.1} GB/s of weights, {:>6.1} GMAC/s",
        f64::from(weights.nb[2]) / best / 1e9,
        macs / best / 1e9
    );
}

/// Memory with small finite numbers in it, read as any type, and room to start on a line.
fn filled(bytes: usize) -> Vec<u32> {
    (0..(bytes + 128) / 4)
        .map(|idx| 0x2c00_2c00 + ((idx as u32).wrapping_mul(2_654_435_761) >> 24))
        .collect()
}

/// The first line of 128 bytes in it.
fn line(memory: &mut [u32]) -> *mut u8 {
    let base = memory.as_mut_ptr().cast::<u8>();
    base.wrapping_add(base.align_offset(128))
}
