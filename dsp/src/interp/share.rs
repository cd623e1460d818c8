//! A group member's share of an op: the same op on a part of its rows.
//!
//! An op is cut along one dimension of its destinations, and its sources with it, so kernels know nothing of groups. The cut
//! is such that each result is computed from what it is computed from in the whole op, so the bits are the same; and no
//! 128-byte line of a destination belongs to two members, whose caches do not see each other. An op that has no such cut is
//! left to member 0.

use hexloom_abi::limits::LINE_BYTES;
use hexloom_abi::op::Shape;
use hexloom_abi::{Opcode, TensorDesc};

use super::operands::{Operands, cut};

/// A range of a dimension: first and how many.
type Range = (u32, u32);

/// How a source goes with a cut of the destination.
enum Follow {
    /// It is read as a whole.
    Whole,
    /// It is cut at the same place of this dimension.
    Along(usize),
    /// The same, in units of so many destination elements.
    Per(usize, u32),
    /// The cut is not possible.
    Never,
}

/// What member `member` of `n_members` does of an op that passed the support check; `None` when that is nothing.
pub(super) fn of_member<'a>(operands: &Operands<'a>, member: u32, n_members: u32) -> Option<Operands<'a>> {
    let dims = dims(operands);
    let units = |dim: usize| units(operands, dim);
    let Some(most) = dims.iter().copied().max_by_key(|&dim| units(dim).min(n_members)) else {
        return (member == 0).then(|| operands.clone());
    };
    let dim = dims
        .iter()
        .copied()
        .find(|&dim| units(dim) >= n_members)
        .unwrap_or(most);
    // With several destinations each member must have something of all of them.
    let several = operands.dsts.iter().flatten().count() > 1;
    match units(dim) >= if several { n_members } else { 2 } {
        true => part(operands, dim, member, n_members),
        false => (member == 0).then(|| operands.clone()),
    }
}

/// Dimensions of the destinations along which the op may be cut, the best first.
fn dims(operands: &Operands<'_>) -> &'static [usize] {
    match operands.opcode {
        Opcode::Add | Opcode::Sub | Opcode::Mul | Opcode::Div => &[3, 2, 1, 0],
        Opcode::Silu | Opcode::Gelu | Opcode::GeluErf | Opcode::GeluQuick | Opcode::Scale | Opcode::Clamp => {
            &[3, 2, 1, 0]
        }
        Opcode::Swiglu | Opcode::Geglu | Opcode::GegluErf | Opcode::GegluQuick | Opcode::Reglu | Opcode::Cpy => {
            &[3, 2, 1, 0]
        }
        Opcode::RmsNorm | Opcode::RmsNormMul | Opcode::Norm => &[3, 2, 1],
        Opcode::SumRows | Opcode::Mean | Opcode::L2Norm | Opcode::Cumsum | Opcode::Argsort => &[3, 2, 1],
        Opcode::MulMat | Opcode::MulMatAdd | Opcode::MulMatNx | Opcode::SetRows => &[0],
        Opcode::Rope | Opcode::FlashAttnExt | Opcode::GetRows => &[1],
        Opcode::SoftMax => &[2, 1],
        opcode if opcode.is_function() => &[3, 2, 1, 0],
        _ => &[],
    }
}

/// Pieces into which the smallest destination can be cut along `dim`; 0 when the op has no such cut.
fn units(operands: &Operands<'_>, dim: usize) -> u32 {
    let mut least = u32::MAX;
    for (idx, dst) in operands.dsts.iter().enumerate() {
        let Some(dst) = dst else { continue };
        let Some(unit) = unit(operands, dst, dim) else { return 0 };
        let follows = operands.srcs.iter().enumerate().all(|(src_idx, src)| {
            src.as_ref()
                .is_none_or(|src| !matches!(follow(operands, src_idx, src, idx, dst, dim), Follow::Never))
        });
        if !follows {
            return 0;
        }
        least = least.min(dst.ne[dim].div_ceil(unit));
    }
    if least == u32::MAX { 0 } else { least }
}

/// Elements along `dim` that a part of the destination has a multiple of, so that parts share no line; `None` if they do.
fn unit(operands: &Operands<'_>, dst: &TensorDesc, dim: usize) -> Option<u32> {
    let shape = Shape::try_from(dst).ok()?;
    if shape.dtype.is_quantized() {
        return None;
    }
    let line = LINE_BYTES as u32;
    let mut on_lines = dst.offset.is_multiple_of(LINE_BYTES);
    let mut inner = shape.dtype.block_bytes();
    for (k, (&n, &stride)) in shape.ne.iter().zip(&shape.nb).enumerate() {
        if n > 1 {
            // Dimensions lie within each other in their order, and outer ones move whole lines.
            on_lines &= u64::from(stride) >= inner && (k <= dim || stride.is_multiple_of(line));
            inner = u64::from(stride) * u64::from(n);
        }
    }
    let stride = shape.nb[dim];
    let lines = 1 << (line.trailing_zeros() - stride.trailing_zeros().min(line.trailing_zeros()));
    // Heads that share keys stay together.
    let heads = match operands.opcode {
        Opcode::FlashAttnExt => shape.ne[1].checked_div(operands.src(1).ok()?.ne[2])?,
        _ => 1,
    };
    // What is read in blocks is cut between them.
    let blocks = match (operands.opcode, dim) {
        (Opcode::Cpy, 0) => Shape::try_from(operands.src(0).ok()?).ok()?.dtype.block_elems() as u32,
        _ => 1,
    };
    let lines = blocks.max(lines);
    let unit = heads.checked_mul(lines >> heads.trailing_zeros().min(u32::trailing_zeros(lines)))?;
    (on_lines && unit > 0).then_some(unit)
}

fn follow(
    operands: &Operands<'_>,
    src_idx: usize,
    src: &TensorDesc,
    dst_idx: usize,
    dst: &TensorDesc,
    dim: usize,
) -> Follow {
    // What repeats is read whole where it has one element, and otherwise goes along.
    let repeated = |src_dim: usize, dst_dim: usize| match src.ne[src_dim] {
        1 => Follow::Whole,
        n if n == dst.ne[dst_dim] => Follow::Along(src_dim),
        _ => Follow::Never,
    };
    let is_biased = f32::from_bits(operands.params[1]) != 0.0;
    let n_weights = operands.dsts.iter().flatten().count();
    match (operands.opcode, src_idx) {
        (Opcode::MulMat | Opcode::MulMatAdd | Opcode::MulMatNx, idx) if idx < n_weights => match idx == dst_idx {
            true => Follow::Along(1),
            false => Follow::Whole,
        },
        (Opcode::MulMatAdd, 2) => repeated(0, 0),
        (Opcode::MulMat | Opcode::MulMatAdd | Opcode::MulMatNx, _) => Follow::Whole,
        (Opcode::SetRows, 0) | (Opcode::Rope, 0) => Follow::Along(dim),
        (Opcode::SetRows | Opcode::Rope, _) | (Opcode::GetRows, 0) => Follow::Whole,
        (Opcode::GetRows, _) => Follow::Along(0),
        // The slope of a head follows from its number.
        (Opcode::FlashAttnExt, _) if is_biased => Follow::Never,
        (Opcode::FlashAttnExt, 0) => Follow::Along(2),
        (Opcode::FlashAttnExt, 1 | 2) => match dst.ne[1].checked_div(src.ne[2]) {
            Some(heads) => Follow::Per(2, heads),
            None => Follow::Never,
        },
        (Opcode::FlashAttnExt, 3) => repeated(2, 1),
        (Opcode::FlashAttnExt, _) => repeated(0, 1),
        (Opcode::SoftMax, _) if is_biased && dim == 2 => Follow::Never,
        (Opcode::SoftMax, 1) if dim == 1 => Follow::Along(1),
        (Opcode::SoftMax, 2) if dim == 1 => Follow::Whole,
        (Opcode::SoftMax, 2) => repeated(0, 2),
        // Both halves in one row.
        (Opcode::Swiglu | Opcode::Geglu | Opcode::GegluErf | Opcode::GegluQuick | Opcode::Reglu, _)
            if dim == 0 && operands.srcs[1].is_none() =>
        {
            Follow::Never
        }
        // Elements go over in storage order, which is by index only between equal dimensions.
        (Opcode::Cpy, _) if src.ne != dst.ne => Follow::Never,
        _ => repeated(dim, dim),
    }
}

/// The part of an op that is cut along `dim` in whole units.
fn part<'a>(operands: &Operands<'a>, dim: usize, member: u32, n_members: u32) -> Option<Operands<'a>> {
    let mut mine = operands.clone();
    for dst_idx in 0..operands.dsts.len() {
        let Some(dst) = &operands.dsts[dst_idx] else { continue };
        let (start, len) = range(dst.ne[dim], unit(operands, dst, dim)?, member, n_members);
        if len == 0 {
            return None;
        }
        for (src_idx, src) in operands.srcs.iter().enumerate() {
            let Some(src) = src else { continue };
            mine.srcs[src_idx] = Some(match follow(operands, src_idx, src, dst_idx, dst, dim) {
                // Of several weights each goes with its own destination.
                Follow::Whole => continue,
                Follow::Along(src_dim) => cut(src, src_dim, start, len),
                Follow::Per(src_dim, n) => cut(src, src_dim, start / n, len / n),
                Follow::Never => return None,
            });
        }
        mine.dsts[dst_idx] = Some(cut(dst, dim, start, len));
    }
    Some(mine)
}

/// A member's elements of `n`, in whole units but for the last.
fn range(n: u32, unit: u32, member: u32, n_members: u32) -> Range {
    let units = u64::from(n.div_ceil(unit));
    // At most `n`, which is a u32.
    let at = |member: u32| (units * u64::from(member) / u64::from(n_members) * u64::from(unit)).min(n.into()) as u32;
    let (start, end) = (at(member), at(member + 1));
    (start, end - start)
}
