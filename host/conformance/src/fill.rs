//! What operands hold: made from a seed, so that every runner sees the same bytes.

use half::f16;
use hexloom::DType;

/// A generator of values.
#[derive(Clone, PartialEq, Debug)]
pub enum Fill {
    /// Uniform within -limit..limit.
    Uniform(f64),
    /// Uniform with NaN, infinities, zeros of both signs, subnormals and large numbers strewn in.
    Special,
    /// One value.
    Constant(f64),
    /// These values in storage order, repeated.
    Values(Vec<f64>),
    /// Whole numbers from 0 to below this.
    Below(u32),
    /// Whole numbers from 0 to below this, none twice within a row.
    Distinct(u32),
    /// 0, 1, 2 and so on.
    Counting,
    /// A causal mask for rows that end at the last column: 0 where visible, minus infinity elsewhere.
    Causal,
    /// All bits set: NaN, so that a read of what was never written is noticed.
    Junk,
}

/// A small generator of pseudo-random numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator that gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Uniform within 0..1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform below `n`.
    pub fn below(&mut self, n: u32) -> u32 {
        (self.unit() * f64::from(n)) as u32
    }
}

impl Fill {
    /// The elements of a dense tensor as bytes, in storage order; blocks of ggml's layout for quantised types.
    pub fn bytes(&self, dtype: DType, ne: [u32; 4], seed: u64) -> Vec<u8> {
        let elems = ne.iter().map(|&n| n as usize).product::<usize>();
        let units = elems / dtype.block_elems() as usize;
        let mut random = Random::new(seed);
        if *self == Self::Junk {
            return vec![0xff; units * dtype.block_bytes() as usize];
        }
        if dtype.is_quantized() {
            return (0..units).flat_map(|_| self.block(dtype, &mut random)).collect();
        }
        let values = self.values(ne, &mut random);
        values.into_iter().flat_map(|value| encode(dtype, value)).collect()
    }

    fn values(&self, ne: [u32; 4], random: &mut Random) -> Vec<f64> {
        let row = ne[0] as usize;
        let rows = ne[1] as usize * ne[2] as usize * ne[3] as usize;
        let elems = row * rows;
        match self {
            Self::Uniform(limit) => (0..elems).map(|_| limit * (2.0 * random.unit() - 1.0)).collect(),
            Self::Special => (0..elems).map(|_| special(random)).collect(),
            Self::Constant(value) => vec![*value; elems],
            Self::Values(values) => values.iter().copied().cycle().take(elems).collect(),
            Self::Below(n) => (0..elems).map(|_| f64::from(random.below(*n))).collect(),
            Self::Distinct(n) => (0..rows).flat_map(|_| distinct(*n, row, random)).collect(),
            Self::Counting => (0..elems).map(|idx| idx as f64).collect(),
            Self::Causal => {
                let visible = |idx: usize| idx % row + ne[1] as usize <= row + idx / row % ne[1] as usize;
                let value = |idx| if visible(idx) { 0.0 } else { f64::NEG_INFINITY };
                (0..elems).map(value).collect()
            }
            Self::Junk => vec![f64::NAN; elems],
        }
    }

    /// One block whose values lie within the limit of a uniform fill; other fills give the limit 1.
    fn block(&self, dtype: DType, random: &mut Random) -> Vec<u8> {
        let limit = match self {
            Self::Uniform(limit) => *limit,
            _ => 1.0,
        };
        let codes = dtype.block_bytes() - if dtype == DType::Q4_1 { 4 } else { 2 };
        let steps = match dtype {
            DType::Q4_0 => 8.0,
            DType::Q4_1 => 15.0,
            _ => 127.0,
        };
        let scale = limit * (0.5 + 0.5 * random.unit()) / steps;
        let sign = if random.below(2) == 0 { 1.0 } else { -1.0 };
        let mut block = f16::from_f64(sign * scale).to_le_bytes().to_vec();
        if dtype == DType::Q4_1 {
            block.extend(f16::from_f64(-sign * scale * 7.0).to_le_bytes());
        }
        block.extend((0..codes).map(|_| match dtype {
            DType::Q8_0 => (random.bits() as i8).max(-127) as u8,
            _ => random.bits() as u8,
        }));
        block
    }
}

/// The values of dense bytes; Q8_0 blocks are decoded.
pub fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let units = bytes.chunks_exact(dtype.block_bytes() as usize);
    units
        .flat_map(|unit| match (dtype, unit) {
            (DType::F32, &[a, b, c, d]) => vec![f32::from_le_bytes([a, b, c, d]).into()],
            (DType::F16, &[a, b]) => vec![f16::from_le_bytes([a, b]).into()],
            (DType::I32, &[a, b, c, d]) => vec![i32::from_le_bytes([a, b, c, d]).into()],
            (DType::I64, bytes) => bytes
                .try_into()
                .map_or(vec![], |bytes| vec![i64::from_le_bytes(bytes) as f64]),
            (DType::Q8_0, &[a, b, ref codes @ ..]) => {
                let scale = f64::from(f16::from_le_bytes([a, b]));
                codes.iter().map(|&code| scale * f64::from(code as i8)).collect()
            }
            _ => panic!("no destination of the case list has the type {dtype}"),
        })
        .collect()
}

fn encode(dtype: DType, value: f64) -> Vec<u8> {
    match dtype {
        DType::F32 => (value as f32).to_le_bytes().to_vec(),
        DType::F16 => f16::from_f64(value).to_le_bytes().to_vec(),
        DType::I32 => (value as i32).to_le_bytes().to_vec(),
        DType::I64 => (value as i64).to_le_bytes().to_vec(),
        _ => panic!("{dtype} is not encoded by value"),
    }
}

fn special(random: &mut Random) -> f64 {
    const SPECIAL: [f64; 10] = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        0.0,
        -0.0,
        1e-40,
        -1e-40,
        6e4,
        -6e4,
        88.8,
    ];
    match random.below(8) {
        0 => SPECIAL[random.below(10) as usize],
        _ => 4.0 * random.unit() - 2.0,
    }
}

fn distinct(n: u32, row: usize, random: &mut Random) -> Vec<f64> {
    assert!(row <= n as usize, "{row} distinct numbers below {n}");
    let mut all: Vec<u32> = (0..n).collect();
    for idx in (1..all.len()).rev() {
        all.swap(idx, random.below(idx as u32 + 1) as usize);
    }
    all.into_iter().take(row).map(f64::from).collect()
}
