//! CPY: elements in storage order from one shape to another, with conversion.
//!
//! Work goes by runs: the elements that lie in one row on both sides. Quantised blocks are copied whole, read as f32 or
//! made from 32 floats; rows on both sides are then whole blocks, so a run is, too.

use hexloom_abi::{DType, Status};

use super::dequantize::Blocks;
use super::rows::{Pieces, Row};
use super::{Context, OpArgs, encode};
use crate::hvx::{Isa, Kernel, LANES, Part};
use crate::tensor::{Plain, Span, Tensor};

pub(super) fn cpy<I: Isa>(cx: &Context<'_>, args: &OpArgs<'_>) -> Result<(), Status> {
    let kernel = Cpy {
        from: args.src(0)?,
        to: args.dst(0)?,
    };
    cx.run_sized::<I, _>(&kernel, args.op.dst(0).map_or(0, |out| out.elems()))
}

struct Cpy<'a> {
    from: Tensor<'a>,
    to: Tensor<'a>,
}

/// `len` elements from `from.1` of row `from.0` to `to.1` of row `to.0`.
struct Run {
    from: ([usize; 3], usize),
    to: ([usize; 3], usize),
    len: usize,
}

impl Kernel for Cpy<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        let ([from_len, ..], [to_len, ..]) = (self.from.ne(), self.to.ne());
        // Threads get whole blocks of the larger kind.
        let block = |tensor: &Tensor<'_>| tensor.dtype().block_elems() as usize;
        let unit = block(&self.from).max(block(&self.to)).max(LANES);
        for piece in Pieces::of_units(part, self.to.rows(), to_len, unit) {
            let to = self.to.row_index(piece.row);
            let mut at = piece.start;
            while at < piece.end {
                let place = piece.row * to_len + at;
                let start = place % from_len;
                let run = Run {
                    from: (self.from.row_index(place / from_len), start),
                    to: (to, at),
                    len: (piece.end - at).min(from_len - start),
                };
                at += run.len;
                let (from, to) = (self.from.dtype(), self.to.dtype());
                match (from, to) {
                    _ if from.is_quantized() && from == to => self.move_blocks(&run),
                    _ if from.is_quantized() => self.decode_run(&run),
                    _ if to.is_quantized() => self.encode_run::<I>(&run),
                    (DType::Bf16, DType::Bf16) => self.move_run::<u16>(&run),
                    (DType::I32, DType::F32) | (DType::F32, DType::I32) => self.number_run(&run),
                    (DType::F16, DType::F16) => self.move_run::<u16>(&run),
                    (DType::F32, DType::F32) | (DType::I32, DType::I32) => self.move_run::<u32>(&run),
                    (DType::I64, DType::I64) => self.move_run::<i64>(&run),
                    _ => self.convert_run::<I>(&run),
                }
            }
        }
    }
}

impl Cpy<'_> {
    /// Between types of the same bits.
    #[inline(always)]
    fn move_run<T: Plain>(&self, run: &Run) {
        let ((from_row, from_start), (to_row, to_start)) = (run.from, run.to);
        if self.from.shape().rows_dense() && self.to.shape().rows_dense() {
            let from = self.from.row::<T>(from_row).part(from_start, run.len);
            self.to.row::<T>(to_row).part(to_start, run.len).copy_from(from);
            return;
        }
        for idx in 0..run.len {
            let value = self.from.element::<T>(from_start + idx, from_row).get(0);
            self.to.element::<T>(to_start + idx, to_row).set(0, value);
        }
    }

    /// Whole blocks of one type.
    #[inline(always)]
    fn move_blocks(&self, run: &Run) {
        let (from, to) = (
            run_bytes(&self.from, run.from, run.len),
            run_bytes(&self.to, run.to, run.len),
        );
        to.copy_from(from);
    }

    #[inline(always)]
    fn decode_run(&self, run: &Run) {
        let ((from_row, from_start), (to_row, to_start)) = (run.from, run.to);
        let (from, to) = (Blocks::new(&self.from, from_row), Row::new(&self.to, to_row));
        for start in (0..run.len).step_by(LANES) {
            for (lane, value) in from.get((from_start + start) / LANES).into_iter().enumerate() {
                to.set(to_start + start + lane, value);
            }
        }
    }

    #[inline(always)]
    fn encode_run<I: Isa>(&self, run: &Run) {
        let ((from_row, from_start), (to_row, to_start)) = (run.from, run.to);
        let (from, to) = (Row::new(&self.from, from_row), self.to.row_bytes(to_row));
        let size = self.to.dtype().block_bytes() as usize;
        for start in (0..run.len).step_by(LANES) {
            let lanes = I::to_array(from.load::<I>(from_start + start, 0.0));
            let at = (to_start + start) / LANES * size;
            encode::block(self.to.dtype(), &lanes, to.part(at, size));
        }
    }

    /// Between I32 and F32; towards integers by truncation, which saturates.
    #[inline(always)]
    fn number_run(&self, run: &Run) {
        let ((from_row, from_start), (to_row, to_start)) = (run.from, run.to);
        for idx in 0..run.len {
            let (at, to) = (from_start + idx, to_start + idx);
            if self.from.dtype() == DType::I32 {
                let value = self.from.element::<i32>(at, from_row).get(0);
                self.to.element::<f32>(to, to_row).set(0, value as f32);
            } else {
                let value = self.from.element::<f32>(at, from_row).get(0);
                self.to.element::<i32>(to, to_row).set(0, value as i32);
            }
        }
    }

    #[inline(always)]
    fn convert_run<I: Isa>(&self, run: &Run) {
        let ((from_row, from_start), (to_row, to_start)) = (run.from, run.to);
        let from = Row::new(&self.from, from_row).part(from_start, run.len);
        let to = Row::new(&self.to, to_row).part(to_start, run.len);
        for start in from.starts() {
            to.store::<I>(start, from.load::<I>(start, 0.0));
        }
    }
}

/// The bytes of `len` elements, whole blocks, from `start` of a row.
#[inline(always)]
fn run_bytes<'a>(tensor: &Tensor<'a>, (row, start): ([usize; 3], usize), len: usize) -> Span<'a, u8> {
    let (size, elems) = (
        tensor.dtype().block_bytes() as usize,
        tensor.dtype().block_elems() as usize,
    );
    tensor.row_bytes(row).part(start / elems * size, len / elems * size)
}
