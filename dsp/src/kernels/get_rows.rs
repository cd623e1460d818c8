//! GET_ROWS: rows of a table chosen by an index tensor, dequantised to F32; I32 tables are copied.
//!
//! All indices are checked before anything is written. Because the index tensor is shared memory, which its other owner
//! may change at any time, each is compared again when its row is copied, and what is compared is what is used.

use core::sync::atomic::{AtomicBool, Ordering};

use hexloom_abi::{DType, Status};

use super::dequantize::Blocks;
use super::rows::Row;
use super::{Context, OpArgs};
use crate::hvx::{self, Isa, Kernel, LANES, Part};
use crate::tensor::Tensor;

pub(super) fn get_rows<I: Isa>(cx: &Context<'_>, args: &OpArgs<'_>) -> Result<(), Status> {
    let kernel = GetRows {
        table: args.src(0)?,
        indices: args.src(1)?,
        out: args.dst(0)?,
        outside: AtomicBool::new(false),
    };
    check(&kernel.indices, &kernel.out, kernel.table.ne()[1])?;
    cx.run_rows::<I, _>(&kernel, args.op.dst(0))?;
    if kernel.outside.into_inner() {
        Err(Status::IndexOutOfRange)
    } else {
        Ok(())
    }
}

struct GetRows<'a> {
    table: Tensor<'a>,
    indices: Tensor<'a>,
    out: Tensor<'a>,
    outside: AtomicBool,
}

impl Kernel for GetRows<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        for row in part.range(self.out.rows()) {
            let index @ [i1, i2, i3] = self.out.row_index(row);
            match table_row(&self.indices, [i1, i2, i3], self.table.ne()[1]) {
                Some(chosen) => self.copy::<I>([chosen, i2, i3], index),
                None => self.outside.store(true, Ordering::Relaxed),
            }
        }
    }
}

impl GetRows<'_> {
    #[inline(always)]
    fn copy<I: Isa>(&self, from: [usize; 3], to: [usize; 3]) {
        match self.table.dtype() {
            DType::I32 => {
                let (from, to) = (self.table.row::<i32>(from), self.out.row::<i32>(to));
                for idx in 0..to.len() {
                    to.set(idx, from.get(idx));
                }
            }
            DType::F32 | DType::F16 | DType::Bf16 => {
                let (from, to) = (Row::new(&self.table, from), Row::new(&self.out, to));
                for start in to.starts() {
                    to.store::<I>(start, from.load::<I>(start, 0.0));
                }
            }
            _ => {
                let (from, to) = (Blocks::new(&self.table, from), self.out.row::<f32>(to));
                for block in 0..to.len() / LANES {
                    hvx::store::<I>(to, block * LANES, I::from_array(from.get(block)));
                }
            }
        }
    }
}

/// Fails when an index of any output row is negative or not below `n_rows`.
pub(super) fn check(indices: &Tensor<'_>, out: &Tensor<'_>, n_rows: usize) -> Result<(), Status> {
    let inside = |row| table_row(indices, out.row_index(row), n_rows).is_some();
    if (0..out.rows()).all(inside) {
        Ok(())
    } else {
        Err(Status::IndexOutOfRange)
    }
}

/// The row that index `[i0, i1, i2]` chooses, if the table has it.
#[inline(always)]
pub(super) fn table_row(indices: &Tensor<'_>, [i0, i1, i2]: [usize; 3], n_rows: usize) -> Option<usize> {
    let number = match indices.dtype() {
        DType::I64 => indices.element::<i64>(i0, [i1, i2, 0]).get(0),
        _ => i64::from(indices.element::<i32>(i0, [i1, i2, 0]).get(0)),
    };
    usize::try_from(number).ok().filter(|&row| row < n_rows)
}
