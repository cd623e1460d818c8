//! Which ops the DSP's kernels take: one rule set that the host asks before it encodes and the DSP asks before it dispatches.
//!
//! Because both sides call [`check`], nothing is claimed that the DSP would refuse. Operand order and parameters per op
//! are in `docs/abi.md`. Row kernels take any strides and both float types; the rules below name what remains.

mod operands;
mod sync;

use crate::code::{DType, Opcode};
use crate::limits::MAX_NX;
use crate::op::{Op, Shape};
use crate::{recurrence, window};

/// Why an op has no kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unsupported {
    /// Which part of the op.
    pub at: Part,
    /// What about it.
    pub reason: Reason,
}

/// The part of an op that a refusal is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The opcode itself.
    Op,
    /// An operand that is read.
    Src(u8),
    /// An operand that is written.
    Dst(u8),
    /// A parameter.
    Param(u8),
}

/// What about a part has no kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// No kernel on this version for the opcode.
    NoKernel,
    /// The operand is required and absent.
    Missing,
    /// The data type is not one of those that the op takes in this place.
    DType,
    /// The dimensions do not fit the op or the other operands.
    Shape,
    /// The strides are not those that the kernel can walk.
    Strides,
    /// A quantised weight must be repacked into tiles first.
    NotTiled,
    /// Tiles cannot be read in this place.
    Tiled,
    /// The parameter's value is outside what the kernel takes.
    Value,
    /// The session's scratch memory cannot hold what the op needs at least.
    Scratch,
    /// The operand lies in an extended buffer, and the op needs its address.
    Extended,
    /// The op knows no operand in this place.
    Unknown,
}

impl Unsupported {
    /// One number for [`crate::BatchReply::detail`]: part kind in bits 15..8, index in bits 7..0.
    pub fn detail(&self) -> u32 {
        match self.at {
            Part::Op => 0,
            Part::Src(idx) => 0x100 | u32::from(idx),
            Part::Dst(idx) => 0x200 | u32::from(idx),
            Part::Param(idx) => 0x300 | u32::from(idx),
        }
    }
}

pub(crate) type Check = Result<(), Unsupported>;

/// Whether the kernels take this op; scratch memory is checked apart, by [`crate::scratch::check`].
pub fn check(op: &Op) -> Check {
    kernel(op)?;
    operands::check(op)
}

/// Whether the kernel of the opcode takes the operands that it knows.
fn kernel(op: &Op) -> Check {
    match op.opcode {
        Opcode::MulMat => matmul(op, 1, false),
        Opcode::MulMatAdd => matmul(op, 1, true),
        Opcode::MulMatNx => matmul(op, op.n_srcs().saturating_sub(1), false),
        Opcode::Add | Opcode::Sub | Opcode::Mul | Opcode::Div => binary(op),
        _ if op.opcode.is_function() => unary(op),
        Opcode::RmsNorm | Opcode::Norm | Opcode::L2Norm | Opcode::Cumsum => unary(op),
        Opcode::Sum | Opcode::SumRows | Opcode::Mean => reduction(op),
        Opcode::RmsNormMul => {
            unary(op)?;
            let weight = floats(op, Part::Src(1))?;
            let out = dst(op, 0)?;
            let repeats = repeats(weight, out) && weight.ne[0] == out.ne[0];
            ensure(repeats, Part::Src(1), Reason::Shape)
        }
        Opcode::Swiglu | Opcode::Geglu | Opcode::GegluErf | Opcode::GegluQuick | Opcode::Reglu => gated(op),
        Opcode::Rope => rope(op),
        Opcode::SoftMax => soft_max(op),
        Opcode::FlashAttnExt => attention(op),
        Opcode::GetRows => get_rows(op),
        Opcode::SetRows => set_rows(op),
        Opcode::Cpy => cpy(op),
        Opcode::Argmax => {
            let x = of_type(op, Part::Src(0), &[DType::F32])?;
            let out = of_type(op, Part::Dst(0), &[DType::I32])?;
            ensure(x.ne[0] > 0, Part::Src(0), Reason::Shape)?;
            ensure(
                out.elems() == x.rows() && out.dense_everywhere(),
                Part::Dst(0),
                Reason::Shape,
            )
        }
        Opcode::Argsort => argsort(op),
        Opcode::CountEqual => {
            let a = of_type(op, Part::Src(0), &[DType::I32])?;
            let b = of_type(op, Part::Src(1), &[DType::I32])?;
            let out = of_type(op, Part::Dst(0), &[DType::I64])?;
            ensure(a.ne == b.ne, Part::Src(1), Reason::Shape)?;
            ensure(out.elems() == 1, Part::Dst(0), Reason::Shape)
        }
        Opcode::LinearAttn => recurrence::check(op),
        Opcode::Im2col | Opcode::Conv | Opcode::Pool => window::check(op),
        Opcode::OutProd => out_prod(op),
        Opcode::MulMatId => matmul_id(op),
        Opcode::Fence => sync::fence(op),
        Opcode::CpyFence => {
            cpy(op)?;
            sync::signal(op, Part::Dst(1))
        }
        Opcode::MdevGroup => sync::group(op),
        Opcode::Allreduce => sync::allreduce(op, false),
        Opcode::AllreduceAdd => sync::allreduce(op, true),
        _ => Err(refuse(Part::Op, Reason::NoKernel)),
    }
}

/// Whether an op that [`check`] takes can have the sources of `srcs` (bit i is source i) in extended buffers, which have no
/// address: they are brought to scratch memory. Destinations and fences never lie in one.
pub fn check_extended(op: &Op, srcs: u16, dsts: u16) -> Check {
    let reaches = !matches!(
        op.opcode,
        Opcode::Fence | Opcode::CpyFence | Opcode::MdevGroup | Opcode::Allreduce | Opcode::AllreduceAdd
    );
    for idx in 0..u16::BITS {
        let bit = 1u16.checked_shl(idx).unwrap_or(0);
        let idx = u8::try_from(idx).unwrap_or(u8::MAX);
        ensure(dsts & bit == 0, Part::Dst(idx), Reason::Extended)?;
        ensure(srcs & bit == 0 || reaches, Part::Src(idx), Reason::Extended)?;
    }
    Ok(())
}

const FLOATS: &[DType] = &[DType::F32, DType::F16, DType::Bf16];
const INTEGERS: &[DType] = &[DType::I8, DType::I32, DType::I64];

fn matmul(op: &Op, n_weights: usize, with_add: bool) -> Check {
    ensure((1..=MAX_NX).contains(&n_weights), Part::Op, Reason::Shape)?;
    let x_part = Part::Src(small(n_weights));
    let x = floats(op, x_part)?;
    ensure(x.rows_dense(), x_part, Reason::Strides)?;
    for idx in 0..n_weights {
        let (part, out_part) = (Part::Src(small(idx)), Part::Dst(small(idx)));
        let weight = operand(op, part)?;
        let out = of_type(op, out_part, &[DType::F32])?;
        ensure(weight.ne[0] == x.ne[0] && weight.ne[0] > 0, part, Reason::Shape)?;
        readable(weight, part)?;
        let divides = |large: u32, small: u32| small != 0 && large.checked_rem(small) == Some(0);
        ensure(
            divides(x.ne[2], weight.ne[2]) && divides(x.ne[3], weight.ne[3]),
            part,
            Reason::Shape,
        )?;
        ensure(
            out.ne == [weight.ne[1], x.ne[1], x.ne[2], x.ne[3]],
            out_part,
            Reason::Shape,
        )?;
        ensure(out.rows_dense(), out_part, Reason::Strides)?;
    }
    if with_add {
        let addend = of_type(op, Part::Src(2), &[DType::F32])?;
        let out = dst(op, 0)?;
        ensure(
            addend.ne[0] == out.ne[0] && addend.repeats_into(out),
            Part::Src(2),
            Reason::Shape,
        )?;
        ensure(addend.rows_dense(), Part::Src(2), Reason::Strides)?;
    }
    Ok(())
}

/// Whether a row of the operand can be read as f32: any type but integers, its elements side by side or in tiles.
fn readable(shape: &Shape, part: Part) -> Check {
    ensure(!INTEGERS.contains(&shape.dtype), part, Reason::DType)?;
    ensure(shape.tiled || shape.rows_dense(), part, Reason::Strides)
}

/// Whether floats can be stored as a quantised type.
pub const fn is_encoded(dtype: DType) -> bool {
    matches!(
        dtype,
        DType::Q4_0 | DType::Q4_1 | DType::Q5_0 | DType::Q5_1 | DType::Q8_0
    )
}

fn binary(op: &Op) -> Check {
    let a = floats(op, Part::Src(0))?;
    let b = floats(op, Part::Src(1))?;
    let out = floats(op, Part::Dst(0))?;
    ensure(out.ne == a.ne, Part::Dst(0), Reason::Shape)?;
    ensure(repeats(b, a), Part::Src(1), Reason::Shape)
}

/// Whether `small` repeats in `large`, or is as empty as that in the same dimensions.
fn repeats(small: &Shape, large: &Shape) -> bool {
    let mut each = small.ne.iter().zip(&large.ne);
    each.all(|(&small, &large)| small == large || large.checked_rem(small) == Some(0))
}

fn unary(op: &Op) -> Check {
    let x = floats(op, Part::Src(0))?;
    let out = floats(op, Part::Dst(0))?;
    ensure(out.ne == x.ne, Part::Dst(0), Reason::Shape)
}

fn gated(op: &Op) -> Check {
    let x = floats(op, Part::Src(0))?;
    let out = floats(op, Part::Dst(0))?;
    ensure(op.param(0) <= 1, Part::Param(0), Reason::Value)?;
    if op.src(1).is_some() {
        let gate = floats(op, Part::Src(1))?;
        ensure(x.ne == out.ne, Part::Src(0), Reason::Shape)?;
        ensure(gate.ne == out.ne, Part::Src(1), Reason::Shape)
    } else {
        let halves = out.ne[0].checked_mul(2) == Some(x.ne[0]);
        ensure(halves && x.ne[1..] == out.ne[1..], Part::Src(0), Reason::Shape)
    }
}

/// Rotary embedding with pairs (2i, 2i+1).
pub const ROPE_NORMAL: u32 = 0;
/// Rotary embedding with pairs (i, i + n/2).
pub const ROPE_NEOX: u32 = 2;

/// Whether a rotary embedding turns backwards.
pub const ROPE_BACK: u32 = 1;

fn rope(op: &Op) -> Check {
    unary(op)?;
    let x = floats(op, Part::Src(0))?;
    let positions = of_type(op, Part::Src(1), &[DType::I32])?;
    let n_dims = op.param(1);
    let mode = op.param(2);
    ensure(n_dims > 0 && n_dims.is_multiple_of(2), Part::Param(1), Reason::Value)?;
    let end = op.param(15).checked_add(n_dims);
    ensure(end.is_some_and(|end| end <= x.ne[0]), Part::Param(15), Reason::Value)?;
    ensure(op.param(3) <= ROPE_BACK, Part::Param(3), Reason::Value)?;
    ensure(mode == ROPE_NORMAL || mode == ROPE_NEOX, Part::Param(2), Reason::Value)?;
    let base = op.param_f32(5);
    ensure(base > 0.0 && base.is_finite(), Part::Param(5), Reason::Value)?;
    let is_vector = |shape: &Shape| shape.rows() > 0 && shape.dense_everywhere();
    let enough = positions.ne[0] >= x.ne[2];
    ensure(enough && is_vector(positions), Part::Src(1), Reason::Shape)?;
    if op.src(2).is_some() {
        let factors = of_type(op, Part::Src(2), &[DType::F32])?;
        let enough = u64::from(factors.ne[0]) >= u64::from(n_dims / 2);
        ensure(enough && is_vector(factors), Part::Src(2), Reason::Shape)?;
    }
    Ok(())
}

fn soft_max(op: &Op) -> Check {
    unary(op)?;
    let x = of_type(op, Part::Src(0), &[DType::F32])?;
    ensure(x.ne[0] > 0 && x.rows_dense(), Part::Src(0), Reason::Strides)?;
    let out = of_type(op, Part::Dst(0), &[DType::F32])?;
    ensure(out.rows_dense(), Part::Dst(0), Reason::Strides)?;
    if op.src(1).is_some() {
        mask(op, 1, x.ne[0], x.ne[1], [x.ne[2], x.ne[3]])?;
    }
    sinks(op, 2, x.ne[2])
}

fn attention(op: &Op) -> Check {
    let q = floats(op, Part::Src(0))?;
    let (k, v) = (operand(op, Part::Src(1))?, operand(op, Part::Src(2))?);
    readable(k, Part::Src(1))?;
    readable(v, Part::Src(2))?;
    let out = floats(op, Part::Dst(0))?;
    let [dk, n_tokens, n_heads, n_seqs] = q.ne;
    let [dv, n_kv, n_kv_heads, kv_seqs] = v.ne;
    for (idx, tensor) in [(0u8, q), (1, k), (2, v)] {
        ensure(tensor.rows_dense() && !tensor.tiled, Part::Src(idx), Reason::Strides)?;
        let size = tensor.ne[0];
        ensure(
            size > 0 && size.is_multiple_of(8) && size <= MAX_HEAD,
            Part::Src(idx),
            Reason::Shape,
        )?;
    }
    ensure(
        k.ne == [dk, n_kv, n_kv_heads, kv_seqs] && n_kv > 0,
        Part::Src(1),
        Reason::Shape,
    )?;
    let grouped = n_kv_heads != 0
        && n_heads.checked_rem(n_kv_heads) == Some(0)
        && kv_seqs != 0
        && n_seqs.checked_rem(kv_seqs) == Some(0);
    ensure(grouped, Part::Src(2), Reason::Shape)?;
    ensure(
        out.ne == [dv, n_heads, n_tokens, n_seqs] && out.rows_dense(),
        Part::Dst(0),
        Reason::Shape,
    )?;
    if op.src(3).is_some() {
        mask(op, 3, n_kv, n_tokens, [n_heads, n_seqs])?;
    }
    sinks(op, 4, n_heads)
}

/// Largest head size of attention.
pub const MAX_HEAD: u32 = 576;

fn mask(op: &Op, idx: u8, n_kv: u32, rows: u32, outer: [u32; 2]) -> Check {
    let mask = floats(op, Part::Src(idx))?;
    let [m2, m3] = [mask.ne[2], mask.ne[3]];
    let divides = |large: u32, small: u32| small != 0 && large.checked_rem(small) == Some(0);
    let fits = mask.ne[0] == n_kv && mask.ne[1] >= rows && divides(outer[0], m2) && divides(outer[1], m3);
    ensure(fits, Part::Src(idx), Reason::Shape)?;
    ensure(mask.rows_dense(), Part::Src(idx), Reason::Strides)
}

fn sinks(op: &Op, idx: u8, n_heads: u32) -> Check {
    if op.src(usize::from(idx)).is_none() {
        return Ok(());
    }
    let sinks = of_type(op, Part::Src(idx), &[DType::F32])?;
    ensure(
        sinks.elems() == u64::from(n_heads) && sinks.dense_everywhere(),
        Part::Src(idx),
        Reason::Shape,
    )
}

fn get_rows(op: &Op) -> Check {
    let table = operand(op, Part::Src(0))?;
    let idx = of_type(op, Part::Src(1), &[DType::I32, DType::I64])?;
    let out = operand(op, Part::Dst(0))?;
    let typed = match table.dtype {
        DType::I32 => out.dtype == DType::I32,
        DType::I8 | DType::I64 => false,
        _ => out.dtype == DType::F32,
    };
    ensure(typed, Part::Src(0), Reason::DType)?;
    ensure(table.rows_dense() || table.tiled, Part::Src(0), Reason::Strides)?;
    ensure(out.rows_dense(), Part::Dst(0), Reason::Strides)?;
    ensure(
        out.ne == [table.ne[0], idx.ne[0], idx.ne[1], idx.ne[2]],
        Part::Dst(0),
        Reason::Shape,
    )?;
    ensure(
        idx.ne[1] == table.ne[2] && idx.ne[2] == table.ne[3] && idx.ne[3] == 1,
        Part::Src(1),
        Reason::Shape,
    )
}

fn set_rows(op: &Op) -> Check {
    let rows = floats(op, Part::Src(0))?;
    let idx = of_type(op, Part::Src(1), &[DType::I32, DType::I64])?;
    let out = operand(op, Part::Dst(0))?;
    ensure(
        FLOATS.contains(&out.dtype) || is_encoded(out.dtype),
        Part::Dst(0),
        Reason::DType,
    )?;
    ensure(rows.rows_dense(), Part::Src(0), Reason::Strides)?;
    ensure(out.rows_dense() && !out.tiled, Part::Dst(0), Reason::Strides)?;
    let same = rows.ne[0] == out.ne[0] && rows.ne[2] == out.ne[2] && rows.ne[3] == out.ne[3];
    ensure(same, Part::Dst(0), Reason::Shape)?;
    let [i0, i1, i2, _] = idx.ne;
    let broadcast =
        i1 != 0 && i2 != 0 && rows.ne[2].checked_rem(i1) == Some(0) && rows.ne[3].checked_rem(i2) == Some(0);
    ensure(
        i0 == rows.ne[1] && broadcast && idx.ne[3] == 1,
        Part::Src(1),
        Reason::Shape,
    )
}

fn out_prod(op: &Op) -> Check {
    let a = operand(op, Part::Src(0))?;
    let b = floats(op, Part::Src(1))?;
    let out = of_type(op, Part::Dst(0), &[DType::F32])?;
    ensure(!INTEGERS.contains(&a.dtype), Part::Src(0), Reason::DType)?;
    ensure(
        a.tiled || a.rows_dense() || FLOATS.contains(&a.dtype),
        Part::Src(0),
        Reason::Strides,
    )?;
    let divides = |large: u32, small: u32| small != 0 && large.checked_rem(small) == Some(0);
    ensure(a.ne[1] == b.ne[1], Part::Src(1), Reason::Shape)?;
    ensure(
        divides(b.ne[2], a.ne[2]) && divides(b.ne[3], a.ne[3]),
        Part::Src(0),
        Reason::Shape,
    )?;
    ensure(
        out.ne == [a.ne[0], b.ne[0], b.ne[2], b.ne[3]],
        Part::Dst(0),
        Reason::Shape,
    )?;
    ensure(out.rows_dense(), Part::Dst(0), Reason::Strides)
}

fn reduction(op: &Op) -> Check {
    let x = floats(op, Part::Src(0))?;
    let out = floats(op, Part::Dst(0))?;
    ensure(x.ne[0] > 0, Part::Src(0), Reason::Shape)?;
    let [_, rest @ ..] = x.ne;
    let [n0, others @ ..] = out.ne;
    let fits = match op.opcode {
        Opcode::Sum => out.ne == [1; 4],
        _ => n0 == 1 && others == rest,
    };
    ensure(fits, Part::Dst(0), Reason::Shape)
}

fn argsort(op: &Op) -> Check {
    let x = of_type(op, Part::Src(0), &[DType::F32])?;
    let out = of_type(op, Part::Dst(0), &[DType::I32])?;
    ensure(op.param(0) <= 1, Part::Param(0), Reason::Value)?;
    ensure(
        out.ne[0] <= x.ne[0] && out.ne[1..] == x.ne[1..],
        Part::Dst(0),
        Reason::Shape,
    )?;
    ensure(out.rows_dense(), Part::Dst(0), Reason::Strides)
}

fn matmul_id(op: &Op) -> Check {
    let weights = operand(op, Part::Src(0))?;
    let x = floats(op, Part::Src(1))?;
    let ids = of_type(op, Part::Src(2), &[DType::I32])?;
    let out = of_type(op, Part::Dst(0), &[DType::F32])?;
    readable(weights, Part::Src(0))?;
    let [k, n, _, one] = weights.ne;
    ensure(one == 1 && k > 0, Part::Src(0), Reason::Shape)?;
    let [x0, x1, x2, x3] = x.ne;
    let [used, tokens, i2, i3] = ids.ne;
    let repeats = x1 != 0 && used.checked_rem(x1) == Some(0);
    ensure(
        x0 == k && repeats && x2 == tokens && x3 == 1,
        Part::Src(1),
        Reason::Shape,
    )?;
    ensure(i2 == 1 && i3 == 1, Part::Src(2), Reason::Shape)?;
    ensure(out.ne == [n, used, tokens, 1], Part::Dst(0), Reason::Shape)
}

fn cpy(op: &Op) -> Check {
    let from = operand(op, Part::Src(0))?;
    let to = operand(op, Part::Dst(0))?;
    ensure(!from.tiled, Part::Src(0), Reason::Tiled)?;
    ensure(!to.tiled, Part::Dst(0), Reason::Tiled)?;
    let plain = |shape: &Shape| FLOATS.contains(&shape.dtype);
    let whole = |shape: &Shape| matches!(shape.dtype, DType::I32 | DType::I64);
    let blocks = |shape: &Shape| shape.dtype.is_quantized() && shape.rows_dense();
    let number = |shape: &Shape| matches!(shape.dtype, DType::F32 | DType::I32);
    let typed = match (plain(from), plain(to)) {
        (true, true) => true,
        (true, false) => blocks(to) && is_encoded(to.dtype) || number(from) && number(to),
        (false, true) => blocks(from) || number(from) && number(to),
        (false, false) => from.dtype == to.dtype && (whole(from) || blocks(from) && blocks(to)),
    };
    ensure(typed, Part::Src(0), Reason::DType)?;
    // A block is copied whole, or read and made from elements that lie in one row.
    let in_rows = from.dtype.is_quantized() || to.dtype.is_quantized();
    let block = from.dtype.block_elems().max(to.dtype.block_elems());
    let whole_blocks = |shape: &Shape| u64::from(shape.ne[0]).checked_rem(block) == Some(0);
    ensure(
        !in_rows || whole_blocks(from) && whole_blocks(to),
        Part::Dst(0),
        Reason::Shape,
    )?;
    ensure(from.elems() == to.elems(), Part::Dst(0), Reason::Shape)
}

fn src_part(idx: u32) -> Part {
    Part::Src(u8::try_from(idx).unwrap_or(u8::MAX))
}

fn operand(op: &Op, part: Part) -> Result<&Shape, Unsupported> {
    let found = match part {
        Part::Src(idx) => op.src(usize::from(idx)),
        Part::Dst(idx) => op.dst(usize::from(idx)),
        Part::Op | Part::Param(_) => None,
    };
    found.ok_or(refuse(part, Reason::Missing))
}

fn dst(op: &Op, idx: u8) -> Result<&Shape, Unsupported> {
    operand(op, Part::Dst(idx))
}

pub(crate) fn of_type<'a>(op: &'a Op, part: Part, allowed: &[DType]) -> Result<&'a Shape, Unsupported> {
    let shape = operand(op, part)?;
    ensure(!shape.tiled, part, Reason::Tiled)?;
    ensure(allowed.contains(&shape.dtype), part, Reason::DType)?;
    Ok(shape)
}

pub(crate) fn floats(op: &Op, part: Part) -> Result<&Shape, Unsupported> {
    of_type(op, part, FLOATS)
}

fn small(idx: usize) -> u8 {
    u8::try_from(idx).unwrap_or(u8::MAX)
}

pub(crate) fn refuse(at: Part, reason: Reason) -> Unsupported {
    Unsupported { at, reason }
}

pub(crate) fn ensure(holds: bool, at: Part, reason: Reason) -> Check {
    if holds { Ok(()) } else { Err(refuse(at, reason)) }
}
