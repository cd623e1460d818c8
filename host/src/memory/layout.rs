//! Where many long-lived tensors lie: weights and KV caches, packed by layer into few buffers.
//!
//! Tensors of one layer (`blk.N.` or `cache_*_lN`) that follow each other form a unit that stays together, so that a
//! layer's data is mapped and evicted as one. Units are placed first-fit into buffers no larger than the cap; a unit
//! larger than the cap gets a buffer of its own. Buffers are ordered largest first, the order in which they are mapped.

use hexloom_abi::layout::align_up;
use hexloom_abi::limits::LINE_BYTES;

/// Where one tensor lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Index into [`BufferLayout::buffer_bytes`].
    pub buffer: usize,
    /// Byte offset, a multiple of 128.
    pub offset: u64,
}

/// A plan for a list of tensors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BufferLayout {
    /// Bytes of each buffer, largest first.
    pub buffer_bytes: Vec<u64>,
    /// Place of each tensor, in the order of the list.
    pub places: Vec<Place>,
}

struct Unit {
    layer: Option<(Kind, u32)>,
    tensors: Vec<usize>,
    bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Weights,
    Cache,
}

/// Plans `tensors` (name, bytes) into buffers of at most `cap` bytes.
pub fn plan<'a>(tensors: impl IntoIterator<Item = (&'a str, u64)>, cap: u64) -> BufferLayout {
    let sizes: Vec<(&str, u64)> = tensors
        .into_iter()
        .map(|(name, bytes)| (name, align_up(bytes, LINE_BYTES).unwrap_or(u64::MAX)))
        .collect();
    let units = units(&sizes, cap);
    let mut buffers: Vec<(u64, Vec<&Unit>)> = Vec::new();
    for unit in &units {
        let fits = |bytes: u64| bytes.saturating_add(unit.bytes) <= cap;
        match buffers.iter_mut().find(|(bytes, _)| fits(*bytes)) {
            Some((bytes, inside)) => {
                *bytes += unit.bytes;
                inside.push(unit);
            }
            None => buffers.push((unit.bytes, vec![unit])),
        }
    }
    buffers.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let mut places = vec![Place { buffer: 0, offset: 0 }; sizes.len()];
    for (buffer, (_, inside)) in buffers.iter().enumerate() {
        let mut offset = 0;
        for &tensor in inside.iter().flat_map(|unit| &unit.tensors) {
            places[tensor] = Place { buffer, offset };
            offset += sizes[tensor].1;
        }
    }
    BufferLayout {
        buffer_bytes: buffers.iter().map(|(bytes, _)| *bytes).collect(),
        places,
    }
}

fn units(sizes: &[(&str, u64)], cap: u64) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    for (idx, &(name, bytes)) in sizes.iter().enumerate() {
        let layer = layer_of(name);
        if let Some(last) = units.last_mut()
            && layer.is_some()
            && last.layer == layer
            && last.bytes.saturating_add(bytes) <= cap
        {
            last.tensors.push(idx);
            last.bytes += bytes;
        } else {
            units.push(Unit {
                layer,
                tensors: vec![idx],
                bytes,
            });
        }
    }
    units
}

/// The layer that a tensor's name carries: `blk.N.…` or `cache_…_lN`.
fn layer_of(name: &str) -> Option<(Kind, u32)> {
    if let Some(rest) = name.strip_prefix("blk.") {
        let (number, _) = rest.split_once('.')?;
        return Some((Kind::Weights, number.parse().ok()?));
    }
    let rest = name.strip_prefix("cache_")?;
    let (_, number) = rest.split_once("_l")?;
    Some((Kind::Cache, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(tensors: &[(&str, u64)], cap: u64) -> BufferLayout {
        let layout = plan(tensors.iter().copied(), cap);
        for (a, (place_a, (_, bytes_a))) in layout.places.iter().zip(tensors).enumerate() {
            assert!(place_a.offset.is_multiple_of(128));
            assert!(place_a.offset + bytes_a <= layout.buffer_bytes[place_a.buffer]);
            for (place_b, (_, bytes_b)) in layout.places.iter().zip(tensors).skip(a + 1) {
                let apart = place_a.buffer != place_b.buffer
                    || place_a.offset + bytes_a <= place_b.offset
                    || place_b.offset + bytes_b <= place_a.offset
                    || *bytes_a == 0
                    || *bytes_b == 0;
                assert!(apart, "{place_a:?} {place_b:?}");
            }
        }
        assert!(layout.buffer_bytes.is_sorted_by(|a, b| a >= b));
        layout
    }

    #[test]
    fn layers_stay_together() {
        let tensors = [
            ("token_embd.weight", 1000),
            ("blk.0.q", 300),
            ("blk.0.k", 300),
            ("blk.1.q", 300),
            ("blk.1.k", 300),
            ("cache_k_l0", 128),
            ("cache_v_l0", 128),
        ];
        let layout = check(&tensors, 1536);
        let buffers: Vec<usize> = layout.places.iter().map(|place| place.buffer).collect();
        assert_eq!(buffers[1], buffers[2]);
        assert_eq!(buffers[3], buffers[4]);
        assert_eq!(layout.buffer_bytes.len(), 2);
    }

    #[test]
    fn one_tensor_over_the_cap_gets_its_own_buffer() {
        let layout = check(&[("a", 100), ("big", 5000), ("b", 100)], 1024);
        assert_eq!(layout.buffer_bytes, [5120, 256]);
    }

    #[test]
    fn nothing_and_empty_tensors() {
        assert!(check(&[], 10).buffer_bytes.is_empty());
        check(&[("a", 0), ("b", 0), ("c", 1)], 128);
    }
}
