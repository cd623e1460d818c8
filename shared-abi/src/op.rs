//! An op with its operands' shapes: what support and scratch rules look at on either side.
//!
//! The host fills an [`Op`] from graph nodes before anything is encoded; the DSP fills it from checked descriptors. No
//! address is in it.

use crate::code::{DType, Opcode};
use crate::descriptor::{TENSOR_TILED, TensorDesc};
use crate::limits::{MAX_DSTS, MAX_PARAMS, MAX_SRCS};

/// Shape, strides and type of an operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Element type.
    pub dtype: DType,
    /// Whether the bytes are weight tiles.
    pub tiled: bool,
    /// Elements per dimension, innermost first.
    pub ne: [u32; 4],
    /// Byte strides per dimension.
    pub nb: [u32; 4],
}

/// One op's code, parameters and operand shapes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Op {
    /// What to do.
    pub opcode: Opcode,
    /// Parameters, floats as bits.
    pub params: [u32; MAX_PARAMS],
    /// Operands read.
    pub srcs: [Option<Shape>; MAX_SRCS],
    /// Operands written.
    pub dsts: [Option<Shape>; MAX_DSTS],
}

impl Op {
    /// Parameter `idx` as a float.
    pub fn param_f32(&self, idx: usize) -> f32 {
        f32::from_bits(self.param(idx))
    }

    /// Parameter `idx`; 0 beyond the last.
    pub fn param(&self, idx: usize) -> u32 {
        self.params.get(idx).copied().unwrap_or(0)
    }

    /// Operand `idx`, if present.
    pub fn src(&self, idx: usize) -> Option<&Shape> {
        self.srcs.get(idx).and_then(Option::as_ref)
    }

    /// Destination `idx`, if present.
    pub fn dst(&self, idx: usize) -> Option<&Shape> {
        self.dsts.get(idx).and_then(Option::as_ref)
    }

    /// Number of leading operands that are present.
    pub fn n_srcs(&self) -> usize {
        self.srcs.iter().take_while(|src| src.is_some()).count()
    }
}

impl Shape {
    /// A dense tensor in row layout; `None` when a row is not whole blocks or a stride exceeds u32.
    pub fn dense(dtype: DType, ne: [u32; 4]) -> Option<Self> {
        let [n0, n1, n2, _] = ne;
        let row = u32::try_from(dtype.row_bytes(u64::from(n0))?).ok()?;
        let matrix = row.checked_mul(n1)?;
        let nb = [
            u32::try_from(dtype.block_bytes()).ok()?,
            row,
            matrix,
            matrix.checked_mul(n2)?,
        ];
        Some(Self {
            dtype,
            tiled: false,
            ne,
            nb,
        })
    }

    /// Elements of all dimensions together.
    pub fn elems(&self) -> u64 {
        self.ne
            .iter()
            .fold(1u64, |product, &n| product.saturating_mul(u64::from(n)))
    }

    /// Rows: dimensions 1 to 3 together.
    pub fn rows(&self) -> u64 {
        let [_, rest @ ..] = self.ne;
        rest.iter()
            .fold(1u64, |product, &n| product.saturating_mul(u64::from(n)))
    }

    /// Whether the elements of a row lie side by side.
    pub fn rows_dense(&self) -> bool {
        let [nb0, ..] = self.nb;
        u64::from(nb0) == self.dtype.block_bytes()
    }

    /// Whether all elements lie side by side in order; dimensions of one element may have any stride.
    pub fn dense_everywhere(&self) -> bool {
        if self.tiled {
            return false;
        }
        let [n0, n1, n2, n3] = self.ne;
        let [_, b1, b2, b3] = self.nb;
        let Some(row) = self.dtype.row_bytes(u64::from(n0)) else {
            return false;
        };
        let matrix = row.saturating_mul(u64::from(n1));
        let slab = matrix.saturating_mul(u64::from(n2));
        self.rows_dense()
            && (n1 <= 1 || u64::from(b1) == row)
            && (n2 <= 1 || u64::from(b2) == matrix)
            && (n3 <= 1 || u64::from(b3) == slab)
    }

    /// Whether this shape repeats a whole number of times in every dimension of `other`.
    pub fn repeats_into(&self, other: &Self) -> bool {
        self.ne
            .iter()
            .zip(&other.ne)
            .all(|(&small, &large)| small != 0 && large.checked_rem(small) == Some(0))
    }

    /// Bytes from the first to one past the last element; 0 when there is none, `None` on overflow.
    pub fn extent_bytes(&self) -> Option<u64> {
        if self.elems() == 0 {
            return Some(0);
        }
        if self.tiled {
            let [k, ..] = self.ne;
            return crate::tile::TileLayout::new(self.dtype, k)?.tensor_bytes(self.ne);
        }
        let [n0, ..] = self.ne;
        let blocks = u64::from(n0).checked_div(self.dtype.block_elems())?;
        let mut end = self.dtype.block_bytes();
        let counts = [
            blocks,
            u64::from(self.ne[1]),
            u64::from(self.ne[2]),
            u64::from(self.ne[3]),
        ];
        for (&count, &stride) in counts.iter().zip(&self.nb) {
            end = end.checked_add(count.checked_sub(1)?.checked_mul(u64::from(stride))?)?;
        }
        Some(end)
    }
}

impl TryFrom<&TensorDesc> for Shape {
    type Error = u32;

    /// Fails with the number of an unknown data type.
    fn try_from(desc: &TensorDesc) -> Result<Self, u32> {
        Ok(Self {
            dtype: DType::try_from(desc.dtype)?,
            tiled: desc.flags & TENSOR_TILED != 0,
            ne: desc.ne,
            nb: desc.nb,
        })
    }
}
