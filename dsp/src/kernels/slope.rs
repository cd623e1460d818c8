//! The slope that a head gives its mask, shared by SOFT_MAX and attention.

use crate::real;

/// Slope of head `head` of `n_heads`: a power of two for each head when `max_bias` is positive, else 1.
///
/// The first power-of-two many heads take the powers of 2^(-max_bias/n), the rest the odd powers of its root.
pub(super) fn slope(max_bias: f32, n_heads: usize, head: usize) -> f32 {
    let biased = max_bias > 0.0;
    if !biased {
        return 1.0;
    }
    let whole = 1usize << n_heads.max(1).ilog2();
    let steps = match head.checked_sub(whole) {
        None => (head + 1) as f64,
        Some(beyond) => (2 * beyond + 1) as f64 / 2.0,
    };
    real::exp(-f64::from(max_bias) * steps / whole as f64 * core::f64::consts::LN_2) as f32
}

#[cfg(test)]
mod tests {
    use super::slope;

    #[test]
    fn heads_take_powers_of_two() {
        for head in 0..8 {
            let expected = 0.5f32.powi(head as i32 + 1);
            assert!((slope(8.0, 8, head) - expected).abs() <= 1e-7 * expected);
            assert_eq!(slope(0.0, 8, head), 1.0);
        }
        // Twelve heads: eight as above, then 2^-0.5, 2^-1.5, 2^-2.5, 2^-3.5.
        for head in 0..4 {
            let expected = 0.5f32.powf(head as f32 + 0.5);
            assert!((slope(8.0, 12, 8 + head) - expected).abs() <= 1e-6 * expected);
        }
    }
}
