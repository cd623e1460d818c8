//! Tensors for tests: a [`Spec`] says type, shape, strides, alignment and values; an [`Array`] owns the bytes.

use hexloom_abi::DType;
use hexloom_abi::op::Shape;
use hexloom_abi::tile::TileLayout;
use hexloom_dsp::Tensor;
use hexloom_dsp::hvx::plain::{f16_to_f32, f32_to_f16};

/// Bytes around a tensor that nothing may write.
const GUARD: usize = 256;
/// What unwritten memory holds: a NaN as f32 and as f16.
const JUNK: u8 = 0xff;

/// What a tensor is filled with.
#[derive(Clone, Debug)]
pub(crate) enum Fill {
    /// Uniform within -limit..limit; whole numbers for integer types.
    Random(f64),
    /// Uniform with NaN, infinities, zeros of both signs, subnormals and huge numbers strewn in.
    Special,
    /// One value everywhere.
    Value(f64),
    /// These values in storage order, repeated.
    Values(Vec<f64>),
    /// These bytes as the whole extent (quantised rows and tiles).
    Bytes(Vec<u8>),
}

/// A tensor to build.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) shape: Shape,
    pub(crate) fill: Fill,
    /// Bytes by which the base is off a 128-byte line.
    pub(crate) skew: usize,
}

/// A tensor with its memory.
pub(crate) struct Array {
    pub(crate) shape: Shape,
    memory: Vec<u128>,
    base: usize,
    extent: usize,
}

/// A small generator (splitmix64), so that every run sees the same numbers.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in 0..1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

impl Spec {
    /// A dense tensor of random values within -1..1.
    pub(crate) fn new(dtype: DType, ne: [u32; 4]) -> Self {
        Self {
            shape: Shape::dense(dtype, ne).expect("whole blocks"),
            fill: Fill::Random(1.0),
            skew: 0,
        }
    }

    pub(crate) fn f32(ne: [u32; 4]) -> Self {
        Self::new(DType::F32, ne)
    }

    pub(crate) fn f16(ne: [u32; 4]) -> Self {
        Self::new(DType::F16, ne)
    }

    /// Indices or positions in storage order.
    pub(crate) fn i32(ne: [u32; 4], values: &[i64]) -> Self {
        let values = values.iter().map(|&value| value as f64).collect();
        Self::new(DType::I32, ne).fill(Fill::Values(values))
    }

    /// Weight tiles with the given bytes.
    pub(crate) fn tiled(dtype: DType, ne: [u32; 4], bytes: Vec<u8>) -> Self {
        let nb = TileLayout::new(dtype, ne[0])
            .and_then(|tile| tile.strides(dtype, ne))
            .expect("a shape that tiles hold");
        let shape = Shape {
            dtype,
            tiled: true,
            ne,
            nb,
        };
        Self {
            shape,
            fill: Fill::Bytes(bytes),
            skew: 0,
        }
    }

    pub(crate) fn fill(mut self, fill: Fill) -> Self {
        self.fill = fill;
        self
    }

    /// Values within -limit..limit.
    pub(crate) fn range(self, limit: f64) -> Self {
        self.fill(Fill::Random(limit))
    }

    /// The base is off a line by one element (two bytes for quantised types).
    pub(crate) fn skewed(mut self) -> Self {
        self.skew = match self.shape.dtype.is_quantized() {
            true => 2,
            false => self.shape.dtype.block_bytes() as usize,
        };
        self
    }

    /// Elements of a row lie `step` elements apart, and rows, matrices and slabs have gaps of `gap` blocks.
    pub(crate) fn strided(mut self, step: u32, gap: u32) -> Self {
        let [n0, n1, n2, _] = self.shape.ne;
        let block = self.shape.dtype.block_bytes() as u32;
        let blocks = n0 / self.shape.dtype.block_elems() as u32;
        let b1 = (blocks * step + gap) * block;
        let b2 = b1 * n1 + gap * block;
        self.shape.nb = [block * step, b1, b2, b2 * n2 + gap * block];
        self
    }

    /// Dimensions 0 and 1 change places in memory: elements of a row are a column apart.
    pub(crate) fn transposed(mut self) -> Self {
        let [n0, n1, n2, _] = self.shape.ne;
        let size = self.shape.dtype.block_bytes() as u32;
        self.shape.nb = [size * n1, size, size * n0 * n1, size * n0 * n1 * n2];
        self
    }

    /// Builds the tensor; `seed` makes its values.
    pub(crate) fn build(&self, seed: u64) -> Array {
        let mut array = Array::junk(self.shape, self.skew);
        let mut random = Random(seed);
        if let Fill::Bytes(bytes) = &self.fill {
            assert_eq!(bytes.len(), array.extent, "bytes of the whole tensor");
            let base = array.base;
            array.bytes_mut()[base..base + bytes.len()].copy_from_slice(bytes);
            return array;
        }
        for (idx, element) in indices(self.shape.ne).enumerate() {
            let value = self.value(idx, &mut random);
            array.put(element, value, &mut random);
        }
        array
    }

    fn value(&self, idx: usize, random: &mut Random) -> f64 {
        let uniform = random.unit() * 2.0 - 1.0;
        match &self.fill {
            Fill::Random(limit) => uniform * limit,
            Fill::Value(value) => *value,
            Fill::Values(values) => values[idx % values.len()],
            Fill::Special => match random.next() % 24 {
                0 => f64::NAN,
                1 => f64::INFINITY,
                2 => f64::NEG_INFINITY,
                3 => 0.0,
                4 => -0.0,
                5 => uniform * 1e-39,
                6 => uniform * 1e38,
                7 => uniform * 1e4,
                _ => uniform,
            },
            Fill::Bytes(_) => 0.0,
        }
    }
}

impl Array {
    /// A tensor whose memory, guards included, is junk.
    pub(crate) fn junk(shape: Shape, skew: usize) -> Self {
        let extent = shape.extent_bytes().expect("a small shape") as usize;
        let memory = vec![u128::from_ne_bytes([JUNK; 16]); (extent + skew + 2 * GUARD + 128).div_ceil(16)];
        let line = memory.as_ptr().cast::<u8>().align_offset(128);
        Self {
            shape,
            memory,
            base: line + GUARD + skew,
            extent,
        }
    }

    /// The tensor that kernels see.
    pub(crate) fn tensor(&mut self) -> Tensor<'_> {
        let (base, shape) = (self.base, self.shape);
        let bytes = &mut self.bytes_mut()[base..];
        // SAFETY: `extent` bytes from `base` lie in `memory`, which this borrow keeps; the base is aligned by construction.
        unsafe { Tensor::new(bytes.as_mut_ptr(), shape) }
    }

    /// Bytes of every element (or block), side by side in storage order.
    pub(crate) fn element_bytes(&self) -> Vec<u8> {
        let size = self.shape.dtype.block_bytes() as usize;
        self.offsets()
            .flat_map(|at| &self.bytes()[at..at + size])
            .copied()
            .collect()
    }

    /// Values of every element in storage order.
    pub(crate) fn values(&self) -> Vec<f64> {
        indices(self.shape.ne).map(|element| self.get(element)).collect()
    }

    /// # Panics
    /// When a byte that belongs to no element, before, between or after them, has been written; or, unless `may_write`,
    /// any byte at all.
    pub(crate) fn assert_guards(&self, what: &str, may_write: bool) {
        let size = self.shape.dtype.block_bytes() as usize;
        let mut owned = vec![false; self.bytes().len()];
        for at in self.offsets() {
            owned[at..at + size].fill(may_write);
        }
        for (at, (&byte, owned)) in self.bytes().iter().zip(owned).enumerate() {
            let offset = at as i64 - self.base as i64;
            assert!(
                owned || byte == JUNK,
                "{what}: wrote byte {offset} of its destination, which it had to leave alone"
            );
        }
    }

    /// Takes the values of `other`, which has the same type and dimensions.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        let size = self.shape.dtype.block_bytes() as usize;
        let (to, from): (Vec<_>, Vec<_>) = (self.offsets().collect(), other.offsets().collect());
        for (to, from) in to.into_iter().zip(from) {
            let bytes = other.bytes()[from..from + size].to_vec();
            self.bytes_mut()[to..to + size].copy_from_slice(&bytes);
        }
    }

    fn bytes(&self) -> &[u8] {
        let len = self.memory.len() * 16;
        // SAFETY: `memory` owns `len` initialised bytes, and bytes need no alignment.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let len = self.memory.len() * 16;
        // SAFETY: as in `bytes`; any bytes are a value of u128.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_mut_ptr().cast(), len) }
    }

    /// Positions in `bytes` of every element or block in storage order.
    fn offsets(&self) -> impl Iterator<Item = usize> + '_ {
        let [n0, n1, n2, n3] = self.shape.ne;
        let blocks = n0 / self.shape.dtype.block_elems() as u32;
        indices([blocks, n1, n2, n3]).map(|element| self.base + self.offset(element))
    }

    fn offset(&self, element: [usize; 4]) -> usize {
        element
            .iter()
            .zip(self.shape.nb)
            .map(|(&idx, stride)| idx * stride as usize)
            .sum()
    }

    fn get(&self, [i0, i1, i2, i3]: [usize; 4]) -> f64 {
        let block = self.shape.dtype.block_elems() as usize;
        let at = self.base + self.offset([i0 / block, i1, i2, i3]);
        let bytes = &self.bytes()[at..];
        let half = |at: usize| f64::from(f16_to_f32(u16::from_le_bytes([bytes[at], bytes[at + 1]])));
        match self.shape.dtype {
            DType::F32 => f64::from(f32::from_le_bytes(bytes[..4].try_into().expect("four bytes"))),
            DType::F16 => half(0),
            DType::I8 => f64::from(bytes[0] as i8),
            DType::I32 => f64::from(i32::from_le_bytes(bytes[..4].try_into().expect("four bytes"))),
            DType::I64 => i64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as f64,
            DType::Q8_0 => half(0) * f64::from(bytes[2 + i0 % 32] as i8),
            other => panic!("{other} rows are no destination of these tests"),
        }
    }

    fn put(&mut self, [i0, i1, i2, i3]: [usize; 4], value: f64, random: &mut Random) {
        let block = self.shape.dtype.block_elems() as usize;
        let at = self.base + self.offset([i0 / block, i1, i2, i3]);
        let dtype = self.shape.dtype;
        let bytes = &mut self.bytes_mut()[at..];
        match dtype {
            DType::F32 => bytes[..4].copy_from_slice(&(value as f32).to_le_bytes()),
            DType::F16 => bytes[..2].copy_from_slice(&f32_to_f16(value as f32).to_le_bytes()),
            DType::I8 => bytes[0] = value as i8 as u8,
            DType::I32 => bytes[..4].copy_from_slice(&(value as i32).to_le_bytes()),
            DType::I64 => bytes[..8].copy_from_slice(&(value as i64).to_le_bytes()),
            DType::Q8_0 => {
                bytes[..2].copy_from_slice(&f32_to_f16(1.0 / 127.0).to_le_bytes());
                bytes[2 + i0 % 32] = (value.clamp(-1.0, 1.0) * 127.0) as i8 as u8;
            }
            DType::Q4_0 | DType::Q4_1 => {
                let header = dtype.block_bytes() as usize - 16;
                for scale in bytes[..header].chunks_exact_mut(2) {
                    scale.copy_from_slice(&f32_to_f16(0.05).to_le_bytes());
                }
                bytes[header + i0 % 16] = random.next() as u8;
            }
            other => panic!("{other} is not filled by these tests"),
        }
    }
}

/// Every index of `ne` in storage order.
fn indices(ne: [u32; 4]) -> impl Iterator<Item = [usize; 4]> {
    let [n0, n1, n2, n3] = ne.map(|n| n as usize);
    (0..n0 * n1 * n2 * n3).map(move |idx| [idx % n0, idx / n0 % n1, idx / (n0 * n1) % n2, idx / (n0 * n1 * n2)])
}
