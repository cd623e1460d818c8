//! The passes of a bench. Each warms up first: the first run of a graph prepares it and touches its memory.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hexloom::Session;
use hexloom_models::ModelError;
use hexloom_models::llama::Context;
use serde::Serialize;

/// Rounds that a speed is the mean of.
pub(super) const ROUNDS: u32 = 3;
/// Decode steps before anything is counted.
const WARM_UP_STEPS: usize = 4;
/// Fewest steps that host time is taken over, so that one in a hundred means something and the cache grows.
pub(super) const HOST_STEPS_MIN: u32 = 320;

/// Host time of decode steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct HostTime {
    pub(super) median_us: f64,
    pub(super) p99_us: f64,
}

/// DSP time of one kind of op in one decode step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct OpTime {
    pub(super) op: String,
    /// Ops of the kind.
    pub(super) n_ops: usize,
    /// Microseconds that they take together.
    pub(super) us: f64,
    /// Instruction packets of all threads; 0 where they cannot be counted.
    pub(super) packets: u64,
}

/// Fixed tokens, spread over the vocabulary.
pub(crate) fn tokens(n: u32, n_vocab: u32) -> Vec<u32> {
    (0..n)
        .map(|idx| (u64::from(idx) * 7919 % u64::from(n_vocab.max(1))) as u32)
        .collect()
}

/// Prompt tokens per second.
pub(super) fn prompt(context: &mut Context<'_>, tokens: &[u32], rounds: u32) -> Result<f64, ModelError> {
    let mut round = || {
        context.rewind(0);
        let start = Instant::now();
        context.eval(tokens)?;
        Ok(start.elapsed())
    };
    round()?;
    mean_speed(tokens.len(), rounds, round)
}

/// Decoded tokens per second, from an empty cache on.
pub(super) fn decode(context: &mut Context<'_>, tokens: &[u32], rounds: u32) -> Result<f64, ModelError> {
    warm_up(context, tokens)?;
    mean_speed(tokens.len(), rounds, || {
        context.rewind(0);
        let start = Instant::now();
        for token in tokens.chunks(1) {
            context.eval(token)?;
        }
        Ok(start.elapsed())
    })
}

/// Time of a decode step less the time inside the transport: patches and encoding are in it, the DSP is not.
pub(super) fn host(context: &mut Context<'_>, sessions: &[Session], tokens: &[u32]) -> Result<HostTime, ModelError> {
    let transport_ns = || sessions.iter().map(Session::transport_ns).sum::<u64>();
    warm_up(context, tokens)?;
    context.rewind(0);
    let mut times = Vec::with_capacity(tokens.len());
    for token in tokens.chunks(1) {
        let before = transport_ns();
        let start = Instant::now();
        let logits = context.eval(token)?;
        std::hint::black_box(logits);
        let all = start.elapsed().as_nanos() as u64;
        times.push(all.saturating_sub(transport_ns() - before));
    }
    Ok(HostTime::of(times))
}

/// DSP time by kind of op, and mappings made, as means over decode steps.
pub(super) fn ops(context: &mut Context<'_>, tokens: &[u32]) -> Result<(Vec<OpTime>, f64), ModelError> {
    context.rewind(0);
    context.set_profile(true);
    let mut kinds: BTreeMap<&'static str, (usize, u64, u64)> = BTreeMap::new();
    let mut n_maps = 0;
    for token in tokens.chunks(1) {
        context.eval(token)?;
        n_maps += context.maps_per_token();
        for cost in context.costs() {
            let kind = kinds
                .entry(cost.opcode.map_or("unknown", |opcode| opcode.name()))
                .or_default();
            kind.0 += 1;
            kind.1 += u64::from(cost.elapsed_ns);
            kind.2 += u64::from(cost.packets);
        }
    }
    context.set_profile(false);
    let mut ops: Vec<OpTime> = kinds
        .into_iter()
        .map(|(op, (n, ns, packets))| OpTime {
            op: op.to_owned(),
            n_ops: n / tokens.len(),
            us: ns as f64 / 1e3 / tokens.len() as f64,
            packets: packets / tokens.len() as u64,
        })
        .collect();
    ops.sort_by(|a, b| b.us.total_cmp(&a.us));
    ops.retain(|op| op.us > 0.0);
    Ok((ops, f64::from(n_maps) / tokens.len() as f64))
}

fn warm_up(context: &mut Context<'_>, tokens: &[u32]) -> Result<(), ModelError> {
    context.rewind(0);
    for token in tokens.chunks(1).take(WARM_UP_STEPS) {
        context.eval(token)?;
    }
    Ok(())
}

fn mean_speed(
    n_tokens: usize,
    rounds: u32,
    mut round: impl FnMut() -> Result<Duration, ModelError>,
) -> Result<f64, ModelError> {
    let mut all = Duration::ZERO;
    for _ in 0..rounds {
        all += round()?;
    }
    Ok((n_tokens * rounds as usize) as f64 / all.as_secs_f64().max(f64::MIN_POSITIVE))
}

impl HostTime {
    /// From nanoseconds per step, at least one.
    fn of(mut times: Vec<u64>) -> Self {
        times.sort_unstable();
        let at = |part: usize| times[(times.len() * part / 100).min(times.len() - 1)] as f64 / 1e3;
        Self {
            median_us: at(50),
            p99_us: at(99),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        let times = HostTime::of((1..=200).rev().map(|us| us * 1000).collect());
        assert_eq!((times.median_us, times.p99_us), (101.0, 199.0));
        assert_eq!(HostTime::of(vec![7000]).p99_us, 7.0);
    }

    #[test]
    fn tokens_are_in_range() {
        assert!(tokens(500, 100).iter().all(|&token| token < 100));
        assert_eq!(tokens(3, 1), [0, 0, 0]);
    }
}
