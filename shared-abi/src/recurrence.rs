//! Linear attention: LINEAR_ATTN and what its operands are.
//!
//! Each head of each sequence has a state S of V rows of D elements. For each token, with the token's decay w, key k, value v
//! and query r, the rule of parameter 0 says what becomes of every row `s` of S, and what its element of the result is:
//!
//! | rule | c | s after the token | result |
//! | --- | --- | --- | --- |
//! | [`PLAIN`] | - | `w s + beta v k` | `scale * r s` after |
//! | [`DELTA`] | `k (w s)` | `w s + beta (v - c) k` | the same |
//! | [`LOW_RANK`] | `a s` | `w s + v k + c b` | the same |
//! | [`BONUS`] | - | `w s + v k` | `scale * r (s + u v k)`, s before |
//!
//! | operand | shape |
//! | --- | --- |
//! | sources 0 r, 2 k | `[D, H', T, N']` |
//! | source 1 w | `[D or 1, H', T, N']` |
//! | source 3 v | `[V, H, T, N]` |
//! | source 4 state before | `[D, V, H, N]` |
//! | source 5 beta (absent with [`PLAIN`]: 1), a or u | `[1, H', T, N']`, `[D, H', T, N']` or `[D, H', 1, 1]` |
//! | source 6 b | `[D, H', T, N']` |
//! | destination 0 | `[V, H, T, N]` |
//! | destination 1 states after the last K tokens, newest first | `[D, V, H, K N]`, sequences side by side |
//!
//! H' divides H: head h reads head `h % H'`, or with parameter 2 [`GROUPED`] head `h / (H / H')`. N' divides N: sequence n reads
//! `n / (N / N')`. Parameter 1 is the scale, f32. Rows of the states may have any stride.

use crate::code::DType;
use crate::op::{Op, Shape};
use crate::support::{Check, Part, Reason, ensure, floats, of_type};

/// The state takes in the token.
pub const PLAIN: u32 = 0;
/// It takes in what it did not know of the token (the gated delta rule).
pub const DELTA: u32 = 1;
/// It is also multiplied by a matrix of rank one (RWKV-7).
pub const LOW_RANK: u32 = 2;
/// It is read before the token is taken in, and the token apart (RWKV-6).
pub const BONUS: u32 = 3;

/// Parameter 2: heads that follow each other share an operand's head; without it those that are H' apart.
pub const GROUPED: u32 = 1;

pub(crate) fn check(op: &Op) -> Check {
    let rule = op.param(0);
    ensure(rule <= BONUS, Part::Param(0), Reason::Value)?;
    ensure(op.param(2) <= GROUPED, Part::Param(2), Reason::Value)?;
    let out = of_type(op, Part::Dst(0), &[DType::F32])?;
    let before = of_type(op, Part::Src(4), &[DType::F32])?;
    let after = of_type(op, Part::Dst(1), &[DType::F32])?;
    let [n_values, heads, tokens, seqs] = out.ne;
    let [width, ..] = before.ne;
    ensure(width > 0 && seqs > 0, Part::Src(4), Reason::Shape)?;
    ensure(before.ne == [width, n_values, heads, seqs], Part::Src(4), Reason::Shape)?;
    let kept = after.ne[3].checked_div(seqs).unwrap_or(0);
    let fits = after.ne[..3] == before.ne[..3] && kept.checked_mul(seqs) == Some(after.ne[3]);
    ensure(fits && (1..=tokens).contains(&kept), Part::Dst(1), Reason::Shape)?;
    ensure(floats(op, Part::Src(3))?.ne == out.ne, Part::Src(3), Reason::Shape)?;
    let per_token = |part: Part, allowed: [u32; 2], n: u32| -> Check {
        let shape: &Shape = floats(op, part)?;
        let [n0, n1, n2, n3] = shape.ne;
        let divides = n1 != 0 && heads.checked_rem(n1) == Some(0);
        let fits = allowed.contains(&n0) && divides && n2 == n && n3 != 0 && seqs.checked_rem(n3) == Some(0);
        ensure(fits, part, Reason::Shape)
    };
    per_token(Part::Src(0), [width; 2], tokens)?;
    per_token(Part::Src(1), [width, 1], tokens)?;
    per_token(Part::Src(2), [width; 2], tokens)?;
    match rule {
        PLAIN if op.src(5).is_none() => {}
        PLAIN | DELTA => per_token(Part::Src(5), [1; 2], tokens)?,
        LOW_RANK => {
            per_token(Part::Src(5), [width; 2], tokens)?;
            per_token(Part::Src(6), [width; 2], tokens)?;
        }
        BONUS => per_token(Part::Src(5), [width; 2], 1)?,
        _ => {}
    }
    Ok(())
}
