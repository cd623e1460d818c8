//! Log-probabilities of a row of logits.
//!
//! Sums are made in f64: over 49,152 tokens an f32 sum would lose about as much as good kernels differ by.

use std::cmp::Ordering;

use crate::ModelError;

/// A row of logits with the logarithm of its softmax sum.
#[derive(Clone, Copy, Debug)]
pub struct LogProbs<'a> {
    logits: &'a [f32],
    log_sum: f64,
}

impl<'a> LogProbs<'a> {
    /// Reads a row of logits, one per token of the vocabulary. Negative infinity stands for "never".
    ///
    /// # Errors
    /// [`ModelError::BadLogit`] for NaN and positive infinity, [`ModelError::NoLogit`] when none is finite.
    pub fn new(logits: &'a [f32]) -> Result<Self, ModelError> {
        let max = f64::from(largest(logits)?.1);
        let sum: f64 = logits.iter().map(|&logit| (f64::from(logit) - max).exp()).sum();
        Ok(Self {
            logits,
            log_sum: max + sum.ln(),
        })
    }

    /// The log-probability of `token`.
    ///
    /// # Errors
    /// [`ModelError::TokenRange`].
    pub fn of(&self, token: u32) -> Result<f32, ModelError> {
        let logit = self.logits.get(token as usize).ok_or(ModelError::TokenRange {
            token,
            vocabulary: self.logits.len(),
        })?;
        Ok(self.normalise(*logit))
    }

    /// The `n` most probable tokens with their log-probabilities, most probable first; fewer if there are not `n`
    /// tokens. Of equal ones the lower token comes first.
    pub fn top(&self, n: usize) -> Vec<(u32, f32)> {
        let mut candidates = candidates(self.logits);
        keep_top(&mut candidates, n);
        candidates
            .iter_mut()
            .for_each(|(_, logit)| *logit = self.normalise(*logit));
        candidates
    }

    fn normalise(&self, logit: f32) -> f32 {
        (f64::from(logit) - self.log_sum) as f32
    }
}

/// The token with the largest logit and that logit; of equal ones the lower token.
pub(crate) fn largest(logits: &[f32]) -> Result<(u32, f32), ModelError> {
    let mut best = (0, f32::NEG_INFINITY);
    for (token, &logit) in logits.iter().enumerate() {
        if logit.is_nan() || logit == f32::INFINITY {
            return Err(ModelError::BadLogit { token, value: logit });
        }
        if logit > best.1 {
            best = (token as u32, logit);
        }
    }
    if best.1 == f32::NEG_INFINITY {
        return Err(ModelError::NoLogit { n_logits: logits.len() });
    }
    Ok(best)
}

/// Pairs of token and logit, in token order.
pub(crate) fn candidates(logits: &[f32]) -> Vec<(u32, f32)> {
    (0..).zip(logits.iter().copied()).collect()
}

/// Keeps the `n` candidates with the largest logits and sorts them, largest first, then by token.
pub(crate) fn keep_top(candidates: &mut Vec<(u32, f32)>, n: usize) {
    let kept = sort_top(candidates, n).len();
    candidates.truncate(kept);
}

/// Brings the `n` candidates with the largest logits to the front and sorts them; the rest is in no
/// particular order. Gives the front.
pub(crate) fn sort_top(candidates: &mut [(u32, f32)], n: usize) -> &[(u32, f32)] {
    let n = n.min(candidates.len());
    if 0 < n && n < candidates.len() {
        candidates.select_nth_unstable_by(n - 1, likelier);
    }
    candidates[..n].sort_unstable_by(likelier);
    &candidates[..n]
}

fn likelier(a: &(u32, f32), b: &(u32, f32)) -> Ordering {
    b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_a_hand_made_softmax() {
        // exp of these is 1, 2, 4 and 1, in all 8.
        let ln2 = std::f32::consts::LN_2;
        let logits = [100.0, 100.0 + ln2, 100.0 + 2.0 * ln2, 100.0];
        let probs = LogProbs::new(&logits).unwrap();
        for (token, expected) in [(0, 0.125f32), (1, 0.25), (2, 0.5), (3, 0.125)] {
            assert!(
                (probs.of(token).unwrap().exp() - expected).abs() < 1e-5,
                "token {token}"
            );
        }
        let top: Vec<u32> = probs.top(3).into_iter().map(|(token, _)| token).collect();
        assert_eq!(top, [2, 1, 0], "of equal tokens the lower comes first");
        assert_eq!(probs.top(9).len(), 4);
        assert!(probs.top(0).is_empty());
        assert!(matches!(
            probs.of(4),
            Err(ModelError::TokenRange {
                token: 4,
                vocabulary: 4
            })
        ));
    }

    #[test]
    fn never_is_a_probability_of_zero() {
        let logits = [0.0, f32::NEG_INFINITY];
        let probs = LogProbs::new(&logits).unwrap();
        assert_eq!(probs.of(0).unwrap(), 0.0);
        assert_eq!(probs.of(1).unwrap(), f32::NEG_INFINITY);
    }

    #[test]
    fn damaged_logits_are_named() {
        let nan = LogProbs::new(&[0.0, f32::NAN]).unwrap_err();
        assert_eq!(
            nan.to_string(),
            "the logit of token 1 is NaN: the model's output is damaged"
        );
        assert!(matches!(
            LogProbs::new(&[f32::INFINITY]),
            Err(ModelError::BadLogit { token: 0, .. })
        ));
        assert!(matches!(LogProbs::new(&[]), Err(ModelError::NoLogit { n_logits: 0 })));
        assert!(matches!(
            LogProbs::new(&[f32::NEG_INFINITY; 3]),
            Err(ModelError::NoLogit { n_logits: 3 })
        ));
    }
}
