//! Trials for members of the vector layer: every operation over random lanes and special values, to be compared bit by bit.

use std::cell::RefCell;
use std::vec::Vec;

use super::{Isa, Kernel, LANES, Part};

/// Kernels see only shared references; a test records what each member gave.
struct Recorder<F>(RefCell<Vec<u32>>, F);

// SAFETY: the tests run one part on one thread.
unsafe impl<F> Sync for Recorder<F> {}

/// Operations whose results are recorded.
pub(super) trait Trial: Copy {
    fn run<I: Isa>(&self, record: &mut Vec<u32>);
}

impl<F: Trial> Kernel for Recorder<F> {
    #[inline(always)]
    fn run<I: Isa>(&self, _part: Part) {
        self.1.run::<I>(&mut self.0.borrow_mut());
    }
}

fn record<I: Isa, F: Trial>(trial: F) -> Vec<u32> {
    let recorder = Recorder(RefCell::new(Vec::new()), trial);
    I::invoke(&recorder, Part { idx: 0, count: 1 });
    recorder.0.into_inner()
}

/// Runs a trial on both members; equal bits, but any NaN equals any other.
pub(super) fn compare<A: Isa, B: Isa, F: Trial>(trial: F) {
    let (first, second) = (record::<A, F>(trial), record::<B, F>(trial));
    assert!(!first.is_empty());
    for (idx, (a, b)) in first.iter().zip(&second).enumerate() {
        let both_nan = f32::from_bits(*a).is_nan() && f32::from_bits(*b).is_nan();
        assert!(
            a == b || both_nan,
            "value {idx}: {} {a:#x}, {} {b:#x}",
            A::NAME,
            B::NAME
        );
    }
    assert_eq!(first.len(), second.len());
}

/// xorshift: test data needs no more.
fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

const SPECIAL: [u32; 16] = [
    0,
    0x8000_0000,
    1,
    0x8000_0001,
    0x007f_ffff,
    0x3f80_0000,
    0xbf80_0000,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0x7f80_0001,
    0x477f_e000,
    0x477f_f000,
    0x3380_0000,
    0x3300_0000,
    0x7f7f_ffff,
];

/// Random bits, ordinary values, and every pair of special values.
pub(super) fn float_vectors() -> Vec<[f32; LANES]> {
    let mut seed = 7;
    let mut vectors = Vec::new();
    for round in 0..64usize {
        vectors.push(core::array::from_fn(|lane| match round % 4 {
            0 => f32::from_bits(random(&mut seed) as u32),
            1 => (random(&mut seed) as i32 as f32) * 1e-7,
            2 => f32::from_bits(SPECIAL[(lane + round) % 16]),
            _ => f32::from_bits(SPECIAL[(lane * (round / 4 + 1) + lane / 16) % 16]),
        }));
    }
    vectors
}

fn put<I: Isa>(record: &mut Vec<u32>, x: I::F32) {
    record.extend(I::to_array(x).map(f32::to_bits));
}

fn put_i<I: Isa>(record: &mut Vec<u32>, x: I::I32) {
    put::<I>(record, I::from_bits(x));
}

#[derive(Clone, Copy)]
pub(super) struct Floats;

impl Trial for Floats {
    #[inline(always)]
    fn run<I: Isa>(&self, record: &mut Vec<u32>) {
        let vectors = float_vectors();
        for (idx, lanes) in vectors.iter().enumerate() {
            let a = I::from_array(*lanes);
            let b = I::from_array(vectors[(idx + 1) % vectors.len()]);
            for x in [
                I::add(a, b),
                I::sub(a, b),
                I::mul(a, b),
                I::div(a, b),
                I::max(a, b),
                I::min(a, b),
            ] {
                put::<I>(record, x);
            }
            put::<I>(record, I::sqrt(a));
            put_i::<I>(record, I::gt(a, b));
            put_i::<I>(record, I::eq(a, b));
            put::<I>(record, I::select(I::gt(a, b), a, b));
            record.push(I::sum(a).to_bits());
            record.push(I::max_lane(a).to_bits());
            put::<I>(record, I::splat(lanes[3]));
            let mut halves = [0u16; LANES];
            // SAFETY: 32 halves are 64 writable bytes.
            unsafe { I::store_f16(halves.as_mut_ptr(), a) };
            record.extend(halves.map(u32::from));
            // SAFETY: 32 halves are 64 readable bytes.
            put::<I>(record, unsafe { I::load_f16(halves.as_ptr()) });
            let mut pairs = [0u16; 2 * LANES];
            // SAFETY: 64 halves are 128 writable bytes.
            unsafe { I::store_f16_pair(pairs.as_mut_ptr(), a, b) };
            record.extend(pairs.map(u32::from));
            // SAFETY: 64 halves are 128 readable bytes.
            for x in unsafe { I::load_f16_pair(pairs.as_ptr()) } {
                put::<I>(record, x);
            }
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Halves;

impl Trial for Halves {
    #[inline(always)]
    fn run<I: Isa>(&self, record: &mut Vec<u32>) {
        for start in (0..=u16::MAX).step_by(LANES) {
            let halves: [u16; LANES] = core::array::from_fn(|lane| start + lane as u16);
            // SAFETY: 32 halves are 64 readable bytes.
            put::<I>(record, unsafe { I::load_f16(halves.as_ptr()) });
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Integers;

impl Trial for Integers {
    #[inline(always)]
    fn run<I: Isa>(&self, record: &mut Vec<u32>) {
        let mut seed = 3;
        for round in 0..64i32 {
            let a: [i32; LANES] = core::array::from_fn(|_| random(&mut seed) as i32);
            let b: [i32; LANES] = core::array::from_fn(|lane| {
                if lane % 5 == 0 {
                    a[lane]
                } else {
                    random(&mut seed) as i32
                }
            });
            let bytes: [i8; LANES] = core::array::from_fn(|_| random(&mut seed) as i8);
            // SAFETY: 32 integers are 128 readable bytes.
            let (a, b) = (unsafe { I::load_i32(a.as_ptr()) }, unsafe { I::load_i32(b.as_ptr()) });
            for x in [
                I::add_i(a, b),
                I::sub_i(a, b),
                I::and(a, b),
                I::or(a, b),
                I::xor(a, b),
                I::gt_i(a, b),
            ] {
                put_i::<I>(record, x);
            }
            for x in [
                I::shl::<1>(a),
                I::shl::<23>(a),
                I::sar::<1>(a),
                I::sar::<31>(a),
                I::splat_i(round),
            ] {
                put_i::<I>(record, x);
            }
            put::<I>(record, I::to_float(a));
            // Ties and large values, within i32.
            let scaled = I::mul(I::to_float(a), I::splat([0.5, 0.25, 1e-3, 0.999][round as usize % 4]));
            put_i::<I>(record, I::to_int(scaled));
            put_i::<I>(record, I::to_int(I::mul(I::to_float(I::sar::<24>(a)), I::splat(0.5))));
            // SAFETY: 32 readable bytes.
            let wide = unsafe { I::load_i8(bytes.as_ptr()) };
            put_i::<I>(record, wide);
            let mut narrow = [0i32; LANES / 4];
            // SAFETY: 32 writable bytes, aligned as integers are.
            unsafe { I::store_i8(narrow.as_mut_ptr().cast(), wide) };
            record.extend(narrow.map(|four| four as u32));
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Tiles;

/// Codes where tiles have theirs.
#[repr(C, align(128))]
struct Line([u8; 1024]);

impl Tiles {
    #[inline(always)]
    fn rows<I: Isa, const N: usize>(record: &mut Vec<u32>, Line(codes): &Line, act: &[[i8; 32]; 4]) {
        let rows: [*const i8; N] = core::array::from_fn(|row| act[row].as_ptr());
        let sums: [i32; N] = core::array::from_fn(|row| act[row].iter().map(|&x| i32::from(x)).sum());
        // SAFETY: 1024 bytes of codes on a line are more than 512, and each row has 32 activations.
        for x in unsafe { I::dot_tile_u4(codes.as_ptr(), rows, sums.map(|sum| -8 * sum)) } {
            put_i::<I>(record, x);
        }
        // SAFETY: 1024 bytes of codes, and each row has 32 activations.
        for x in unsafe { I::dot_tile_u8(codes.as_ptr(), rows, sums.map(|sum| -128 * sum)) } {
            put_i::<I>(record, x);
        }
    }
}

impl Trial for Tiles {
    #[inline(always)]
    fn run<I: Isa>(&self, record: &mut Vec<u32>) {
        let mut seed = 11;
        for round in 0..32 {
            // Extremes first: every code and activation at the ends of its range.
            let codes = Line(core::array::from_fn(|_| match round {
                0 => 0xff,
                1 => 0,
                _ => random(&mut seed) as u8,
            }));
            let act = core::array::from_fn(|row| {
                core::array::from_fn(|_| match (round, row % 2) {
                    (0 | 1, 0) => 127,
                    (0 | 1, _) => -127,
                    _ => (random(&mut seed) as i8).max(-127),
                })
            });
            Self::rows::<I, 1>(record, &codes, &act);
            Self::rows::<I, 2>(record, &codes, &act);
            Self::rows::<I, 3>(record, &codes, &act);
            Self::rows::<I, 4>(record, &codes, &act);
        }
    }
}
