//! Mel filters: how much of each frequency of the spectrum each band of the mel scale hears.
//!
//! Slaney's scale and norm, which Whisper was trained with: the scale is linear up to 1 kHz and logarithmic above; a
//! filter is a triangle between its neighbours' peaks, and its area is the same for every band.

const SAMPLE_RATE: f64 = 16_000.0;
const N_FFT: usize = 400;
/// Frequencies of the spectrum, 40 Hz apart.
pub(super) const N_BINS: usize = N_FFT / 2 + 1;

const LINEAR_HZ_PER_MEL: f64 = 200.0 / 3.0;
const LOG_FROM_HZ: f64 = 1000.0;
const LOG_FROM_MEL: f64 = LOG_FROM_HZ / LINEAR_HZ_PER_MEL;
/// 27 steps of the logarithmic part are a factor of 6.4.
const LOG_STEPS: f64 = 27.0;
const LOG_FACTOR: f64 = 6.4;

/// One row of weights for each band.
pub(super) fn filters(n_mels: usize) -> Vec<[f32; N_BINS]> {
    let top = mel_of_hz(SAMPLE_RATE / 2.0);
    let corners: Vec<f64> = (0..n_mels + 2)
        .map(|idx| hz_of_mel(top * idx as f64 / (n_mels + 1) as f64))
        .collect();
    corners.windows(3).map(filter).collect()
}

fn filter(corners: &[f64]) -> [f32; N_BINS] {
    let (low, peak, high) = (corners[0], corners[1], corners[2]);
    std::array::from_fn(|bin| {
        let hz = bin as f64 * SAMPLE_RATE / N_FFT as f64;
        let rise = (hz - low) / (peak - low);
        let fall = (high - hz) / (high - peak);
        (rise.min(fall).max(0.0) * 2.0 / (high - low)) as f32
    })
}

fn mel_of_hz(hz: f64) -> f64 {
    if hz < LOG_FROM_HZ {
        hz / LINEAR_HZ_PER_MEL
    } else {
        LOG_FROM_MEL + (hz / LOG_FROM_HZ).ln() / LOG_FACTOR.ln() * LOG_STEPS
    }
}

fn hz_of_mel(mel: f64) -> f64 {
    if mel < LOG_FROM_MEL {
        mel * LINEAR_HZ_PER_MEL
    } else {
        LOG_FROM_HZ * ((mel - LOG_FROM_MEL) * LOG_FACTOR.ln() / LOG_STEPS).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_bends_at_1_khz_and_goes_both_ways() {
        for (hz, mel) in [(500.0, 7.5), (1000.0, 15.0), (6400.0, 42.0)] {
            assert!((mel_of_hz(hz) - mel).abs() < 1e-12, "{hz} Hz");
        }
        for hz in [0.0, 40.0, 999.0, 1001.0, 8000.0] {
            assert!((hz_of_mel(mel_of_hz(hz)) - hz).abs() < 1e-9);
        }
    }

    /// The first numbers of the filters that Whisper's own package carries.
    #[test]
    fn the_first_bands_are_whispers() {
        let filters = filters(80);
        assert_eq!(filters.len(), 80);
        assert_eq!(filters[0][0], 0.0);
        assert!((filters[0][1] - 0.024_862_59).abs() < 1e-8);
        assert!((filters[1][1] - 0.001_990_82).abs() < 1e-8);
    }

    #[test]
    fn wide_bands_have_the_area_of_narrow_ones() {
        for filter in &filters(80)[60..] {
            let area = filter.iter().sum::<f32>() * 40.0;
            assert!((area - 1.0).abs() < 0.03, "{area}");
        }
    }
}
