//! ROPE: pairs of a row are turned by an angle that grows with the token's position.
//!
//! Frequencies are computed once per op in f64 and kept in *turns* (1 turn = 2 pi) as three f32 whose products with a
//! position's two parts are exact or small, so that the angle's fraction of a turn stays good to 1e-7 at any position
//! that a model has. Sines and cosines are computed once per token and thread and shared by the heads.

use hexloom_abi::Status;
use hexloom_abi::op::Op;
use hexloom_abi::support::{ROPE_BACK, ROPE_NEOX};

use super::rows::Row;
use super::{Context, OpArgs};
use crate::hvx::{self, Isa, Kernel, LANES, Part, math};
use crate::real;
use crate::tensor::{Span, Tensor};

pub(super) fn rope<I: Isa>(cx: &Context<'_>, args: &OpArgs<'_>) -> Result<(), Status> {
    let n_dims = args.op.param(1) as usize;
    let padded = |len: usize| len.next_multiple_of(LANES);
    let turns = [(); 3].map(|()| cx.take::<f32>(padded(n_dims / 2)));
    let [head, rest, low] = turns;
    let turns = Turns {
        head: head?,
        rest: rest?,
        low: low?,
    };
    let angles = Angles::new(&args.op);
    let factors = args.src_opt(2).map(|factors| Row::new(&factors, [0; 3]));
    turns.fill(&angles, n_dims / 2, factors);
    let kernel = Rope {
        x: args.src(0)?,
        positions: args.src(1)?,
        out: args.dst(0)?,
        first: args.op.param(15) as usize,
        n_dims,
        back: args.op.param(3) == ROPE_BACK,
        neox: args.op.param(2) == ROPE_NEOX,
        magnitude: angles.magnitude as f32,
        turns,
        tables: cx.take(2 * padded(n_dims) * cx.n_threads())?,
    };
    cx.run_rows::<I, _>(&kernel, args.op.dst(0))
}

/// What the parameters say about angles, in f64.
pub(super) struct Angles {
    /// Frequency of a pair divided by that of the pair before.
    pub(super) ratio: f64,
    freq_scale: f64,
    ext_factor: f64,
    /// Pairs between which YaRN goes over from the original to the scaled frequency.
    ramp: [f64; 2],
    /// Factor on sine and cosine.
    pub(super) magnitude: f64,
}

impl Angles {
    pub(super) fn new(op: &Op) -> Self {
        let n_dims = f64::from(op.param(1));
        let n_ctx_orig = f64::from(op.param(4));
        let [base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow] =
            [5, 6, 7, 8, 9, 10].map(|idx| f64::from(op.param_f32(idx)));
        // The pair that makes `beta` turns over the original context.
        let log_base = real::ln(base);
        let pair = |beta: f64| n_dims * real::ln(n_ctx_orig / (beta * core::f64::consts::TAU)) / (2.0 * log_base);
        let (first, last) = (real::floor(pair(beta_fast)), real::ceil(pair(beta_slow)));
        let stretch = match ext_factor {
            0.0 => 1.0,
            _ => 1.0 + 0.1 * real::ln(1.0 / freq_scale),
        };
        Self {
            ratio: real::exp(-2.0 / n_dims * log_base),
            freq_scale,
            ext_factor,
            ramp: [first.max(0.0), last.min(n_dims - 1.0)],
            magnitude: attn_factor * stretch,
        }
    }

    /// Radians per position of pair `pair`, whose plain frequency is `power`, under its frequency factor.
    pub(super) fn frequency(&self, pair: usize, power: f64, factor: f64) -> f64 {
        let plain = power / factor;
        let scaled = self.freq_scale * plain;
        if self.ext_factor == 0.0 {
            return scaled;
        }
        let [first, last] = self.ramp;
        let along = (pair as f64 - first) / (last - first).max(0.001);
        let mix = (1.0 - along.clamp(0.0, 1.0)) * self.ext_factor;
        scaled * (1.0 - mix) + plain * mix
    }
}

/// Turns per position and pair: `head + rest + low`, 12 bits, 12 bits and what is left.
struct Turns<'a> {
    head: Span<'a, f32>,
    rest: Span<'a, f32>,
    low: Span<'a, f32>,
}

impl Turns<'_> {
    fn fill(&self, angles: &Angles, n_pairs: usize, factors: Option<Row<'_>>) {
        let mut power = 1.0;
        for pair in 0..self.head.len() {
            let mut turns = 0.0;
            if pair < n_pairs {
                let factor = factors.map_or(1.0, |factors| f64::from(factors.get(pair)));
                turns = angles.frequency(pair, power, factor) / core::f64::consts::TAU;
                power *= angles.ratio;
            }
            let near = turns as f32;
            let head = upper_half(near);
            self.head.set(pair, head);
            self.rest.set(pair, near - head);
            self.low.set(pair, (turns - f64::from(near)) as f32);
        }
    }

    /// The fractions of a turn of 32 pairs at `position`.
    #[inline(always)]
    fn at<I: Isa>(&self, start: usize, position: f32) -> I::F32 {
        let head = hvx::load::<I>(self.head, start);
        let rest = hvx::load::<I>(self.rest, start);
        let low = hvx::load::<I>(self.low, start);
        let upper = upper_half(position);
        let [upper, lower, position] = [upper, position - upper, position].map(I::splat);
        // Products of 12 by 12 bits are exact, so whole turns can be taken off each before anything is rounded.
        let large = I::exact_add(
            fraction::<I>(I::exact_mul(upper, head)),
            fraction::<I>(I::exact_mul(lower, head)),
        );
        let middle = fraction::<I>(I::exact_mul(upper, rest));
        let small = I::add(I::mul(lower, rest), I::mul(position, low));
        let sum = I::exact_add(fraction::<I>(large), I::exact_add(middle, small));
        let sum = fraction::<I>(sum);
        I::min(I::splat(1.0), I::max(I::splat(-1.0), sum))
    }
}

/// The 12 leading bits of a float.
#[inline(always)]
fn upper_half(x: f32) -> f32 {
    f32::from_bits(x.to_bits() & !0xfff)
}

/// Turns without whole turns.
#[inline(always)]
fn fraction<I: Isa>(turns: I::F32) -> I::F32 {
    let limit = 1_073_741_824.0;
    let bounded = I::max(I::min(turns, I::splat(limit)), I::splat(-limit));
    I::exact_sub(turns, I::to_float(I::to_int(bounded)))
}

struct Rope<'a> {
    x: Tensor<'a>,
    positions: Tensor<'a>,
    out: Tensor<'a>,
    /// The first element that is turned.
    first: usize,
    n_dims: usize,
    /// Turns by the negative angle.
    back: bool,
    neox: bool,
    magnitude: f32,
    turns: Turns<'a>,
    /// Cosines, then sines, of each thread.
    tables: Span<'a, f32>,
}

impl Kernel for Rope<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        let [len, ..] = self.out.ne();
        let positions = self.positions.row::<i32>([0; 3]);
        let table_len = self.n_dims.next_multiple_of(LANES);
        let cos = self.tables.part(2 * table_len * part.idx, table_len);
        let sin = self.tables.part(2 * table_len * part.idx + table_len, table_len);
        let mut token = usize::MAX;
        for row in part.range(self.out.rows()) {
            let index = self.out.row_index(row);
            if index[1] != token {
                token = index[1];
                self.fill_tables::<I>(positions.get(token) as f32, cos, sin);
            }
            let x = Row::new(&self.x, index);
            let out = Row::new(&self.out, index);
            let (turned, to) = (x.part(self.first, self.n_dims), out.part(self.first, self.n_dims));
            if self.neox {
                self.turn_halves::<I>(turned, to, cos, sin);
            } else {
                self.turn_neighbours::<I>(turned, to, cos, sin);
            }
            let end = self.first + self.n_dims;
            for (start, len) in [(0, self.first), (end, len - end)] {
                let (x, out) = (x.part(start, len), out.part(start, len));
                for start in x.starts() {
                    out.store::<I>(start, x.load::<I>(start, 0.0));
                }
            }
        }
    }
}

impl Rope<'_> {
    /// Neox: one value per pair. Normal: one per element, the sine of the pair's first element negated.
    #[inline(always)]
    fn fill_tables<I: Isa>(&self, position: f32, cos: Span<'_, f32>, sin: Span<'_, f32>) {
        let n_pairs = self.n_dims / 2;
        let magnitude = I::splat(self.magnitude);
        for start in (0..n_pairs).step_by(LANES) {
            let (s, c) = math::sin_cos_turns::<I>(self.turns.at::<I>(start, position));
            let signed = if self.back { -self.magnitude } else { self.magnitude };
            let (s, c) = (I::mul(s, I::splat(signed)), I::mul(c, magnitude));
            if self.neox {
                hvx::store::<I>(sin, start, s);
                hvx::store::<I>(cos, start, c);
                continue;
            }
            let (s, c) = (I::to_array(s), I::to_array(c));
            for lane in 0..LANES.min(n_pairs - start) {
                let first = 2 * (start + lane);
                cos.set(first, c[lane]);
                cos.set(first + 1, c[lane]);
                sin.set(first, -s[lane]);
                sin.set(first + 1, s[lane]);
            }
        }
    }

    /// Pairs (i, i + n/2).
    #[inline(always)]
    fn turn_halves<I: Isa>(&self, x: Row<'_>, out: Row<'_>, cos: Span<'_, f32>, sin: Span<'_, f32>) {
        let half = self.n_dims / 2;
        let (x0, x1) = (x.part(0, half), x.part(half, half));
        let (out0, out1) = (out.part(0, half), out.part(half, half));
        for start in x0.starts() {
            let (c, s) = (hvx::load::<I>(cos, start), hvx::load::<I>(sin, start));
            let (a, b) = (x0.load::<I>(start, 0.0), x1.load::<I>(start, 0.0));
            out0.store::<I>(start, I::sub(I::mul(a, c), I::mul(b, s)));
            out1.store::<I>(start, I::add(I::mul(a, s), I::mul(b, c)));
        }
    }

    /// Pairs (2i, 2i + 1).
    #[inline(always)]
    fn turn_neighbours<I: Isa>(&self, x: Row<'_>, out: Row<'_>, cos: Span<'_, f32>, sin: Span<'_, f32>) {
        for start in x.starts() {
            let (c, s) = (hvx::load::<I>(cos, start), hvx::load::<I>(sin, start));
            let a = x.load::<I>(start, 0.0);
            out.store::<I>(start, I::add(I::mul(a, c), I::mul(I::swap_pairs(a), s)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hexloom_abi::Opcode;

    /// An op with the YaRN parameters.
    fn yarn() -> Op {
        let mut params = [0; 16];
        (params[1], params[4]) = (128, 512);
        let floats = [10_000.0f32, 1.4245, 0.7465, 1.4245, 32.0, 1.0];
        for (param, value) in params[5..].iter_mut().zip(floats) {
            *param = value.to_bits();
        }
        Op {
            opcode: Opcode::Rope,
            params,
            srcs: [None; 10],
            dsts: [None; 4],
        }
    }

    /// Kernel and reference share [`Angles`], so it is held against the formulas written out once more.
    #[test]
    fn yarn_frequencies_follow_the_formulas() {
        let angles = Angles::new(&yarn());
        let [scale, ext, attn] = [1.4245f32, 0.7465, 1.4245].map(f64::from);
        let expected = attn * (1.0 + 0.1 * (1.0 / scale).ln());
        assert!((angles.magnitude - expected).abs() < 1e-12);
        // 128 ln(512 / (32 * 2 pi)) / (2 ln 10000) = 6.49 and 128 ln(512 / (2 pi)) / (2 ln 10000) = 30.58.
        assert_eq!(angles.ramp, [6.0, 31.0]);
        let mut power = 1.0;
        for pair in 0..64 {
            let plain = 10_000f64.powf(-2.0 * f64::from(pair) / 128.0) / 1.5;
            let kept = 1.0 - ((f64::from(pair) - 6.0) / 25.0).clamp(0.0, 1.0);
            let expected = scale * plain * (1.0 - kept * ext) + plain * kept * ext;
            let got = angles.frequency(pair as usize, power, 1.5);
            assert!(
                (got - expected).abs() <= 1e-13 * expected,
                "pair {pair}: {got}, not {expected}"
            );
            power *= angles.ratio;
        }
    }

    #[test]
    fn without_extension_only_the_scale_counts() {
        let mut op = yarn();
        op.params[7] = 0;
        let angles = Angles::new(&op);
        assert_eq!(angles.magnitude, f64::from(1.4245f32));
        assert_eq!(angles.frequency(3, 0.5, 2.0), f64::from(1.4245f32) * 0.25);
    }
}
