//! MUL_MAT, MUL_MAT_ADD, MUL_MAT_NX: prepares the activation in scratch once, then multiplies every weight with it.
//!
//! When scratch does not hold all activation rows they are taken in pieces; each result depends on its own row alone,
//! so the bits are the same. A matrix unit takes over what it serves ([`crate::hmx::matmul`]). Tiled weights are in
//! [`tiled`](super::matmul_tiled), float weights in [`float`](super::matmul_float), [`split`](super::matmul_split) deals
//! the work to threads, and [`stream`](super::matmul_stream) brings the weights by DMA where the machine has it.

use core::ops::Range;

use hexloom_abi::limits::MAX_NX;
use hexloom_abi::{Opcode, Status};

use super::matmul_float::float_unit;
use super::matmul_split::{Split, Unit};
use super::matmul_stream::{Groups, PrimedPrepare, Products};
use super::matmul_tiled::tiled_unit;
use super::quantize::{Form, Prepare, Prepared};
use super::{Constants, Context, OpArgs};
use crate::hmx;
use crate::hvx::{self, Isa, Kernel, LANES, Part};
use crate::tensor::{Span, Tensor};

/// One weight with where its product goes.
#[derive(Clone, Copy)]
pub(crate) struct Product<'a> {
    pub(crate) weight: Tensor<'a>,
    pub(crate) out: Tensor<'a>,
    /// Added to the product: one row or more, repeated over the output.
    addend: Option<Tensor<'a>>,
    /// Whether DMA may bring the weight.
    pub(super) streamed: bool,
}

/// The forms that activations are prepared in, one after the other.
const FORMS: [Form; 3] = [Form::Codes, Form::FineCodes, Form::Floats];

pub(super) fn matmul<I: Isa>(cx: &Context<'_>, args: &OpArgs<'_>) -> Result<(), Status> {
    let sources = cx.streaming.map_or(Constants::default(), |streaming| streaming.sources);
    let (x, mut products) = operands(args, sources)?;
    if let Some(unit) = cx.unit() {
        hmx::matmul::take_over::<I>(cx, unit, x, &mut products)?;
    }
    let scratch = cx.take::<u8>(scratch_bytes(cx, args))?;
    let forms = FORMS.map(|form| of_form(&products, &x, form));
    for (idx, chosen) in forms.iter().enumerate().filter(|(_, chosen)| is_any(chosen)) {
        let rows = Prepared::new::<I>(scratch, x.ne()[0], FORMS[idx]);
        let last = !forms[idx + 1..].iter().any(is_any);
        in_pieces::<I>(cx, x, rows, chosen, last)?;
    }
    Ok(())
}

/// The products of an op's first phase, as it will run them with the scratch of `cx`; `None` if it will not.
pub(super) fn first_phase<'a, I: Isa>(cx: &Context<'a>, args: &OpArgs<'a>, sources: Constants) -> Option<Products<'a>> {
    let (x, products) = operands(args, sources).ok()?;
    // What the matrix unit takes over reads its weights where they lie.
    let stays = |product: &Product<'_>| cx.unit().is_none() || !hmx::matmul::serves(product, &x);
    let products = products.map(|product| product.filter(stays));
    let scratch = cx.scratch.part(0, scratch_bytes(cx, args));
    let forms = FORMS.map(|form| of_form(&products, &x, form));
    let (idx, chosen) = forms.iter().enumerate().find(|(_, chosen)| is_any(chosen))?;
    let rows = Prepared::new::<I>(scratch, x.ne()[0], FORMS[idx]);
    let count = piece_rows(&rows).ok()?.min(x.rows());
    (count > 0).then(|| deal(chosen, &x, 0..count, cx.n_threads()))
}

/// The activation, and the weights with where their products go.
fn operands<'a>(args: &OpArgs<'a>, sources: Constants) -> Result<(Tensor<'a>, [Option<Product<'a>>; MAX_NX]), Status> {
    let with_add = args.op.opcode == Opcode::MulMatAdd;
    let n_weights = args.op.n_srcs() - 1 - usize::from(with_add);
    let mut products = [None; MAX_NX];
    for (idx, product) in products.iter_mut().enumerate().take(n_weights) {
        let weight = args.src(idx)?;
        *product = Some(Product {
            weight,
            out: args.dst(idx)?,
            addend: if with_add { Some(args.src(2)?) } else { None },
            streamed: weight.shape().tiled && sources.has(idx),
        });
    }
    Ok((args.src(n_weights)?, products))
}

/// Scratch that an op takes of an untouched context.
fn scratch_bytes(cx: &Context<'_>, args: &OpArgs<'_>) -> usize {
    let need = hexloom_abi::scratch::need(&args.op, cx.n_threads() as u32).full;
    cx.scratch.len().min(usize::try_from(need).unwrap_or(usize::MAX)) / 128 * 128
}

fn of_form<'a>(products: &[Option<Product<'a>>; MAX_NX], x: &Tensor<'_>, form: Form) -> [Option<Product<'a>>; MAX_NX] {
    products.map(|product| product.filter(|product| Form::of(&product.weight, x.rows()) == form))
}

fn is_any(products: &[Option<Product<'_>>; MAX_NX]) -> bool {
    products.iter().any(Option::is_some)
}

/// Activation rows that are prepared at a time.
fn piece_rows(rows: &Prepared<'_>) -> Result<usize, Status> {
    match rows.capacity() {
        0 => Err(Status::ScratchTooSmall),
        few @ 1..4 => Ok(few),
        many => Ok(many / 4 * 4),
    }
}

/// Deals the products with some activation rows to threads.
fn deal<'a>(
    products: &[Option<Product<'a>>; MAX_NX],
    x: &Tensor<'_>,
    rows: Range<usize>,
    n_threads: usize,
) -> Products<'a> {
    products.map(|product| product.map(|product| (product, Split::new(&product.weight, x, rows.clone(), n_threads))))
}

fn in_pieces<I: Isa>(
    cx: &Context<'_>,
    x: Tensor<'_>,
    rows: Prepared<'_>,
    products: &[Option<Product<'_>>; MAX_NX],
    last: bool,
) -> Result<(), Status> {
    let total = x.rows();
    if total == 0 {
        return Ok(());
    }
    let piece = piece_rows(&rows)?;
    let deal = |first: usize| deal(products, &x, first..(first + piece).min(total), cx.n_threads());
    for first in (0..total).step_by(piece) {
        let then = first + piece;
        let phase = Multiply {
            rows,
            products: deal(first),
            first,
            groups: Groups::new::<I>(cx, (then < total).then(|| deal(then)), last),
        };
        rows.begin::<I>(piece.min(total - first));
        let prepare = Prepare {
            x,
            first,
            count: piece.min(total - first),
            to: rows,
        };
        match &phase.groups {
            Some(groups) if groups.is_idle() => cx.run::<I, _>(&PrimedPrepare {
                prepare,
                groups,
                products: &phase.products,
            })?,
            _ => cx.run_sized::<I, _>(&prepare, (prepare.count * rows.k()) as u64)?,
        }
        cx.run::<I, _>(&phase)?;
    }
    Ok(())
}

/// All products with one piece of prepared activation rows.
struct Multiply<'a> {
    rows: Prepared<'a>,
    products: Products<'a>,
    /// Number of the first prepared row.
    first: usize,
    /// How the weights come, if by DMA.
    groups: Option<Groups<'a>>,
}

impl Kernel for Multiply<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        let units = |entry: &Option<(Product<'_>, Split)>| entry.as_ref().map_or(0, |(_, split)| split.units());
        let total = self.products.iter().map(units).sum();
        let mine = part.range(total);
        let mut lane = self
            .groups
            .as_ref()
            .and_then(|groups| groups.lane(&self.products, part));
        let mut before = 0;
        for (product, split) in self.products.iter().flatten() {
            let end = before + split.units();
            let mut idx = mine.start.max(before) - before;
            let stop = mine.end.min(end).saturating_sub(before);
            while idx < stop {
                let group_end = split.next_group(idx).min(stop);
                if product.weight.shape().tiled {
                    let group = split.unit(idx);
                    let mut bytes = product.weight.tile_group(group.group, group.matrix);
                    if product.streamed
                        && let Some(lane) = &mut lane
                    {
                        bytes = lane.take(bytes);
                    }
                    for unit in idx..group_end {
                        tiled_unit::<I>(product, bytes, &self.rows, self.first, &split.unit(unit));
                    }
                } else {
                    for unit in idx..group_end {
                        float_unit::<I>(product, &self.rows, self.first, &split.unit(unit));
                    }
                }
                idx = group_end;
            }
            before = end;
        }
    }
}

impl<'a> Product<'a> {
    /// The weight's row length and the output rows of a unit's group: first and how many.
    #[inline(always)]
    pub(crate) fn group_rows(&self, unit: &Unit) -> (usize, usize) {
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
    pub(crate) fn store<I: Isa>(&self, row: usize, unit: &Unit, x: I::F32) {
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
