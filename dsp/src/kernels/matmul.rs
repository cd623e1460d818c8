//! MUL_MAT, MUL_MAT_ADD, MUL_MAT_NX: prepares the activation in scratch once, then multiplies every weight with it.
//!
//! When scratch does not hold all activation rows they are taken in pieces; each result depends on its own row alone,
//! so the bits are the same. Tiled weights are in [`tiled`](super::matmul_tiled), float weights in
//! [`float`](super::matmul_float), and [`split`](super::matmul_split) deals the work to threads.

use hexloom_abi::limits::MAX_NX;
use hexloom_abi::{Opcode, Status};

use super::matmul_float::float_unit;
use super::matmul_split::{Split, Unit};
use super::matmul_tiled::tiled_unit;
use super::quantize::{Form, Prepare, Prepared};
use super::{Context, OpArgs};
use crate::hvx::{self, Isa, Kernel, LANES, Part};
use crate::tensor::{Span, Tensor};

/// One weight with where its product goes.
#[derive(Clone, Copy)]
pub(super) struct Product<'a> {
    pub(super) weight: Tensor<'a>,
    pub(super) out: Tensor<'a>,
    /// Added to the product: one row or more, repeated over the output.
    addend: Option<Tensor<'a>>,
}

pub(super) fn matmul<I: Isa>(cx: &Context<'_>, args: &OpArgs<'_>) -> Result<(), Status> {
    let with_add = args.op.opcode == Opcode::MulMatAdd;
    let n_weights = args.op.n_srcs() - 1 - usize::from(with_add);
    let x = args.src(n_weights)?;
    let mut products = [None; MAX_NX];
    for (idx, product) in products.iter_mut().enumerate().take(n_weights) {
        *product = Some(Product {
            weight: args.src(idx)?,
            out: args.dst(idx)?,
            addend: if with_add { Some(args.src(2)?) } else { None },
        });
    }
    let need = hexloom_abi::scratch::need(&args.op, cx.n_threads() as u32).full;
    let bytes = cx.scratch_left().min(need as usize);
    let scratch = cx.take::<u8>(bytes / 128 * 128)?;
    for form in [Form::Codes, Form::FineCodes, Form::Floats] {
        let chosen = products.map(|product| product.filter(|product| Form::of(&product.weight, x.rows()) == form));
        if chosen.iter().any(Option::is_some) {
            let rows = Prepared::new::<I>(scratch, x.ne()[0], form);
            in_pieces::<I>(cx, x, rows, &chosen)?;
        }
    }
    Ok(())
}

fn in_pieces<I: Isa>(
    cx: &Context<'_>,
    x: Tensor<'_>,
    rows: Prepared<'_>,
    products: &[Option<Product<'_>>; MAX_NX],
) -> Result<(), Status> {
    let total = x.rows();
    let piece = match rows.capacity() {
        0 if total > 0 => return Err(Status::ScratchTooSmall),
        few @ 0..4 => few,
        many => many / 4 * 4,
    };
    let mut first = 0;
    while first < total {
        let count = piece.min(total - first);
        let prepare = Prepare {
            x,
            first,
            count,
            to: rows,
        };
        cx.run_sized::<I, _>(&prepare, (count * rows.k()) as u64)?;
        cx.run::<I, _>(&Multiply {
            rows,
            products: products.map(|product| {
                product.map(|product| {
                    let split = Split::new(&product.weight, &x, first..first + count, cx.n_threads());
                    (product, split)
                })
            }),
            first,
        })?;
        first += count;
    }
    Ok(())
}

/// All products with one piece of prepared activation rows.
struct Multiply<'a> {
    rows: Prepared<'a>,
    products: [Option<(Product<'a>, Split)>; MAX_NX],
    /// Number of the first prepared row.
    first: usize,
}

impl Kernel for Multiply<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        let units = |entry: &Option<(Product<'_>, Split)>| entry.as_ref().map_or(0, |(_, split)| split.units());
        let total = self.products.iter().map(units).sum();
        let mine = part.range(total);
        let mut before = 0;
        for entry in &self.products {
            let Some((product, split)) = entry else { continue };
            let end = before + split.units();
            for unit in mine.start.max(before)..mine.end.min(end) {
                let unit = split.unit(unit - before);
                if product.weight.shape().tiled {
                    tiled_unit::<I>(product, &self.rows, self.first, &unit);
                } else {
                    float_unit::<I>(product, &self.rows, self.first, &unit);
                }
            }
            before = end;
        }
    }
}

impl<'a> Product<'a> {
    /// The weight's row length and the output rows of a unit's group: first and how many.
    #[inline(always)]
    pub(super) fn group_rows(&self, unit: &Unit) -> (usize, usize) {
        let start = unit.group * LANES;
        (start, (self.out.ne()[0] - start).min(LANES))
    }

    /// Output row `row`, and the addend's row that goes with it.
    #[inline(always)]
    pub(super) fn out_row(&self, row: usize) -> (Span<'a, f32>, Option<Span<'a, f32>>) {
        let index = self.out.row_index(row);
        let addend = match self.addend {
            Some(addend) => {
                let [_, n1, n2, n3] = addend.ne();
                Some(addend.row([index[0] % n1, index[1] % n2, index[2] % n3]))
            }
            None => None,
        };
        (self.out.row(index), addend)
    }

    /// Stores a group's results for activation row `row`, plus the addend. The addend may be the output itself.
    #[inline(always)]
    pub(super) fn store<I: Isa>(&self, row: usize, unit: &Unit, x: I::F32) {
        let (start, count) = self.group_rows(unit);
        let (out, addend) = self.out_row(row);
        // No closures here: vector code inside one is compiled without the instruction set's features.
        let whole = count == LANES;
        let x = match addend {
            Some(addend) if whole => I::add(x, hvx::load::<I>(addend, start)),
            Some(addend) => I::add(x, hvx::load_partial::<I>(addend, start, count, 0.0)),
            None => x,
        };
        if whole {
            hvx::store::<I>(out, start, x);
        } else {
            hvx::store_partial::<I>(out, start, count, x);
        }
    }
}
