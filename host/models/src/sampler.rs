//! Choice of the next token from a row of logits.
//!
//! The filters run in llama.cpp's order, top-k, top-p, min-p, then temperature, so that the same settings mean the same
//! here. The random numbers are SplitMix64: eight bytes of state, and the same sequence for a seed on every machine.

use crate::ModelError;
use crate::log_probs::{candidates, keep_top, largest, sort_top};

/// How tokens are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplerOptions {
    /// 0 chooses the most probable token always; 1 follows the model's distribution; more is flatter.
    pub temperature: f32,
    /// Only the `top_k` most probable tokens; 0 is all.
    pub top_k: usize,
    /// Only the most probable tokens that together have this probability; 1 is all.
    pub top_p: f32,
    /// Only tokens at least this fraction as probable as the most probable one; 0 is all.
    pub min_p: f32,
    /// Start of the random sequence.
    pub seed: u64,
}

impl Default for SamplerOptions {
    /// Greedy: temperature 0, no filter, seed 0.
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            seed: 0,
        }
    }
}

/// Chooses tokens; the same options and logits give the same tokens.
#[derive(Clone, Debug)]
pub struct Sampler {
    options: SamplerOptions,
    random: SplitMix64,
}

impl Sampler {
    /// Checks the options.
    ///
    /// # Errors
    /// [`ModelError::SamplerOption`] when one is outside its range.
    pub fn new(options: SamplerOptions) -> Result<Self, ModelError> {
        let check = |name, value: f32, ok: bool, allowed| {
            if ok {
                Ok(())
            } else {
                Err(ModelError::SamplerOption { name, value, allowed })
            }
        };
        let SamplerOptions {
            temperature,
            top_p,
            min_p,
            seed,
            ..
        } = options;
        check(
            "temperature",
            temperature,
            temperature >= 0.0 && temperature.is_finite(),
            "a number of at least 0",
        )?;
        check("top-p", top_p, top_p > 0.0 && top_p <= 1.0, "more than 0 and at most 1")?;
        check("min-p", min_p, (0.0..=1.0).contains(&min_p), "0 to 1")?;
        Ok(Self {
            options,
            random: SplitMix64(seed),
        })
    }

    /// Chooses a token. Takes one random number unless the temperature is 0.
    ///
    /// # Errors
    /// [`ModelError::BadLogit`] for NaN and positive infinity, [`ModelError::NoLogit`] when none is finite.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32, ModelError> {
        let (best, max) = largest(logits)?;
        let SamplerOptions {
            temperature,
            top_k,
            top_p,
            min_p,
            ..
        } = self.options;
        if temperature == 0.0 {
            return Ok(best);
        }
        let mut candidates = candidates(logits);
        if top_k != 0 {
            keep_top(&mut candidates, top_k);
        }
        if top_p < 1.0 {
            keep_mass(&mut candidates, max, top_p);
        }
        if min_p > 0.0 {
            let least = max + min_p.ln();
            candidates.retain(|(_, logit)| *logit >= least);
        }
        Ok(pick(&candidates, max, temperature, self.random.unit()))
    }
}

/// Keeps the fewest, most probable candidates that together have at least the probability `mass`.
///
/// Those are few most often, so a growing front is sorted rather than the vocabulary.
fn keep_mass(candidates: &mut Vec<(u32, f32)>, max: f32, mass: f32) {
    let total: f64 = candidates.iter().map(|(_, logit)| weight(*logit, max, 1.0)).sum();
    let mut n = 64;
    loop {
        let front = sort_top(candidates, n);
        let mut missing = total * f64::from(mass);
        let enough = front.iter().position(|(_, logit)| {
            missing -= weight(*logit, max, 1.0);
            missing <= 0.0
        });
        if let Some(last) = enough {
            return candidates.truncate(last + 1);
        }
        if n >= candidates.len() {
            return;
        }
        n *= 8;
    }
}

/// The candidate at the fraction `at` (0 to 1) of the probability that all have together.
fn pick(candidates: &[(u32, f32)], max: f32, temperature: f32, at: f64) -> u32 {
    let total: f64 = candidates
        .iter()
        .map(|(_, logit)| weight(*logit, max, temperature))
        .sum();
    let mut rest = total * at;
    let mut chosen = 0;
    for &(token, logit) in candidates {
        let weight = weight(logit, max, temperature);
        // A weight of zero is never chosen, also not by the rounding of the last subtraction.
        if weight > 0.0 {
            chosen = token;
            rest -= weight;
            if rest < 0.0 {
                break;
            }
        }
    }
    chosen
}

fn weight(logit: f32, max: f32, temperature: f32) -> f64 {
    ((f64::from(logit) - f64::from(max)) / f64::from(temperature)).exp()
}

/// Steele, Lea and Flood's generator: a counter and a mixing function.
#[derive(Clone, Debug)]
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 (included) to 1 (excluded) with 53 random bits.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logits of the probabilities 0.4, 0.3, 0.2 and 0.1, in another order.
    fn logits() -> [f32; 4] {
        [0.1f32.ln(), 0.4f32.ln(), 0.2f32.ln(), 0.3f32.ln()]
    }

    /// How often each token comes in 20,000 draws, as a fraction.
    fn frequencies(options: SamplerOptions, logits: [f32; 4]) -> [f64; 4] {
        let mut sampler = Sampler::new(options).unwrap();
        let mut counts = [0; 4];
        for _ in 0..20_000 {
            counts[sampler.sample(&logits).unwrap() as usize] += 1;
        }
        counts.map(|count: u32| f64::from(count) / 20_000.0)
    }

    fn check(options: SamplerOptions, expected: [f64; 4]) {
        for (token, (found, expected)) in frequencies(options, logits()).iter().zip(expected).enumerate() {
            // Five standard deviations of the largest variance; a probability of zero is exact.
            let tolerance = if expected == 0.0 { 0.0 } else { 0.018 };
            assert!(
                (found - expected).abs() <= tolerance,
                "{options:?}, token {token}: {found}, not {expected}"
            );
        }
    }

    fn warm() -> SamplerOptions {
        SamplerOptions {
            temperature: 1.0,
            seed: 7,
            ..Default::default()
        }
    }

    #[test]
    fn follows_the_distribution() {
        check(warm(), [0.1, 0.4, 0.2, 0.3]);
        // Temperature 0.5 squares the probabilities: 0.01, 0.16, 0.04, 0.09 of 0.30.
        check(
            SamplerOptions {
                temperature: 0.5,
                ..warm()
            },
            [0.0333, 0.5333, 0.1333, 0.3],
        );
    }

    #[test]
    fn filters() {
        check(SamplerOptions { top_k: 1, ..warm() }, [0.0, 1.0, 0.0, 0.0]);
        check(SamplerOptions { top_k: 2, ..warm() }, [0.0, 4.0 / 7.0, 0.0, 3.0 / 7.0]);
        check(SamplerOptions { top_k: 9, ..warm() }, [0.1, 0.4, 0.2, 0.3]);
        check(
            SamplerOptions { top_p: 0.75, ..warm() },
            [0.0, 4.0 / 9.0, 2.0 / 9.0, 3.0 / 9.0],
        );
        check(SamplerOptions { top_p: 0.01, ..warm() }, [0.0, 1.0, 0.0, 0.0]);
        check(
            SamplerOptions { min_p: 0.6, ..warm() },
            [0.0, 4.0 / 7.0, 0.0, 3.0 / 7.0],
        );
        check(
            SamplerOptions {
                top_k: 3,
                top_p: 0.7,
                min_p: 0.4,
                ..warm()
            },
            [0.0, 4.0 / 7.0, 0.0, 3.0 / 7.0],
        );
    }

    #[test]
    fn top_p_looks_as_far_as_it_must() {
        // 1,000 equal tokens: half of the probability is the first 500, sorted in three steps.
        let mut kept = candidates(&[1.0; 1000]);
        keep_mass(&mut kept, 1.0, 0.5);
        assert_eq!(kept, candidates(&[1.0; 500]));
        let mut kept = candidates(&[1.0; 1000]);
        keep_mass(&mut kept, 1.0, 0.999_99);
        assert_eq!(kept.len(), 1000);
    }

    #[test]
    fn never_is_never() {
        let frequencies = frequencies(warm(), [0.0, f32::NEG_INFINITY, 0.0, f32::NEG_INFINITY]);
        assert_eq!((frequencies[1], frequencies[3]), (0.0, 0.0));
    }

    #[test]
    fn a_seed_fixes_the_tokens() {
        let draw = |seed| {
            let mut sampler = Sampler::new(SamplerOptions { seed, ..warm() }).unwrap();
            (0..64).map(|_| sampler.sample(&logits()).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn the_random_sequence_is_splitmix64() {
        // First values for seed 1234567 as published with the algorithm's reference implementations.
        let mut random = SplitMix64(1234567);
        assert_eq!(random.next(), 6457827717110365317);
        assert_eq!(random.next(), 3203168211198807973);
        assert_eq!(random.next(), 9817491932198370423);
    }

    #[test]
    fn greedy_takes_the_lower_of_equals() {
        let mut sampler = Sampler::new(SamplerOptions::default()).unwrap();
        assert_eq!(sampler.sample(&[0.0, 2.0, 2.0]).unwrap(), 1);
    }

    #[test]
    fn extremes_do_not_panic() {
        for temperature in [1e-30, 1e30] {
            let mut sampler = Sampler::new(SamplerOptions { temperature, ..warm() }).unwrap();
            let token = sampler.sample(&[f32::MIN, f32::MAX, f32::NEG_INFINITY]).unwrap();
            assert!(token < 2);
        }
        for options in [SamplerOptions::default(), warm()] {
            let mut sampler = Sampler::new(options).unwrap();
            assert!(matches!(
                sampler.sample(&[f32::NAN, 1.0]),
                Err(ModelError::BadLogit { token: 0, .. })
            ));
            assert!(matches!(
                sampler.sample(&[1.0, f32::INFINITY]),
                Err(ModelError::BadLogit { token: 1, .. })
            ));
            assert!(matches!(sampler.sample(&[]), Err(ModelError::NoLogit { .. })));
        }
    }

    #[test]
    fn options_out_of_range_are_named() {
        let refused = |options| Sampler::new(options).unwrap_err().to_string();
        assert_eq!(
            refused(SamplerOptions {
                temperature: -1.0,
                ..warm()
            }),
            "the sampling option temperature is -1, allowed is a number of at least 0"
        );
        assert!(
            refused(SamplerOptions {
                temperature: f32::NAN,
                ..warm()
            })
            .contains("temperature is NaN")
        );
        assert!(refused(SamplerOptions { top_p: 0.0, ..warm() }).contains("top-p is 0"));
        assert!(
            refused(SamplerOptions {
                top_p: f32::NAN,
                ..warm()
            })
            .contains("top-p is NaN")
        );
        assert!(refused(SamplerOptions { min_p: 1.5, ..warm() }).contains("min-p is 1.5"));
    }
}
