//! How much a device can map, without taking the memory that other programs run in.
//!
//! A device's driver takes real memory for every trial, and Android ends programs when memory is short.

use std::fs;

use hexloom::session::{MeasureEnd, Measured, measure_window};
use hexloom::transport::SessionAt;
use hexloom::{OpenError, Transport};

use crate::output::mib;

/// The part of the available memory that trials may take.
const PART: u64 = 2;

/// What trials found, and what they were allowed.
pub(crate) struct Budget {
    pub(crate) measured: Measured,
    /// Bytes that the system had available, where that is a bound.
    available_bytes: Option<u64>,
}

/// Measures a device whose allocations are real memory.
pub(crate) fn measure(transport: &dyn Transport, at: SessionAt) -> Result<Budget, OpenError> {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available_bytes = available(&text);
    let most_bytes = available_bytes.map_or(u64::MAX, |bytes| bytes / PART);
    Ok(Budget {
        measured: measure_window(transport, at, most_bytes)?,
        available_bytes,
    })
}

/// Measures one whose allocations are not touched and take nothing.
pub(crate) fn measure_unbounded(transport: &dyn Transport, at: SessionAt) -> Result<Budget, OpenError> {
    Ok(Budget {
        measured: measure_window(transport, at, u64::MAX)?,
        available_bytes: None,
    })
}

impl Budget {
    /// Why there may be more than was found; nothing when the window itself was the end.
    pub(crate) fn doubt(&self) -> Option<String> {
        match &self.measured.end {
            MeasureEnd::Window => None,
            MeasureEnd::Bound => {
                let available = mib(self.available_bytes.unwrap_or_default());
                Some(format!(
                    "more was not tried: half of the {available} of memory that are available here"
                ))
            }
            MeasureEnd::Memory(error) => Some(format!("more memory cannot be allocated here: {error}")),
        }
    }
}

/// The bytes that can be had without pressing others, in the text of `/proc/meminfo`.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read() {
        let text = "MemTotal:        8031512 kB\nMemFree:          100 kB\nMemAvailable:    4015756 kB\n";
        assert_eq!(available(text), Some(4_015_756 << 10));
        for none in [
            "",
            "MemAvailable: 12",
            "MemAvailable: x kB",
            "MemAvailable: 99999999999999999999 kB",
        ] {
            assert_eq!(available(none), None, "{none}");
        }
    }

    #[test]
    fn what_was_not_tried_is_told() {
        let budget = |end| Budget {
            measured: Measured { bytes: 1 << 30, end },
            available_bytes: Some(2 << 30),
        };
        assert_eq!(budget(MeasureEnd::Window).doubt(), None);
        assert!(
            budget(MeasureEnd::Bound)
                .doubt()
                .is_some_and(|why| why.contains("half of the 2048 MiB"))
        );
    }
}
