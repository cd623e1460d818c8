//! Standard output, and how numbers are shown to people.

use std::io::Write;

use serde::Serialize;

use crate::failure::Failure;

/// Writes text and flushes it.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Writes one JSON value and a line end.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_string(value).map_err(|error| Failure::Output(error.into()))?;
    text.push('\n');
    print(&text)
}

/// Bytes in MiB with as many digits as help.
pub(crate) fn mib(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    match mib {
        ..10.0 => format!("{mib:.2} MiB"),
        10.0..1000.0 => format!("{mib:.1} MiB"),
        _ => format!("{mib:.0} MiB"),
    }
}

/// A whole number with a comma between groups of three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (idx, digit) in digits.chars().enumerate() {
        if idx > 0 && (digits.len() - idx).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        let groups = [0, 999, 1000, 1_234_567].map(grouped);
        assert_eq!(groups, ["0", "999", "1,000", "1,234,567"]);
        let sizes = [0, 1 << 20, 98_362_432, 3_355_443_200].map(mib);
        assert_eq!(sizes, ["0.00 MiB", "1.00 MiB", "93.8 MiB", "3200 MiB"]);
    }
}
