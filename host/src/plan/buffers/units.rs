//! Units: tensors of one layer, which are mapped and evicted together.

use std::collections::HashMap;

use super::TensorNeed;

/// The layer that a tensor's name carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Layer {
    /// Weights: `blk.N.…`.
    Weights(u64),
    /// KV cache: `cache_…_lN`.
    Cache(u64),
}

impl Layer {
    /// The layer in `name`, if it carries one.
    pub fn of(name: &str) -> Option<Self> {
        if let Some(rest) = name.strip_prefix("blk.") {
            let (digits, _) = rest.split_once('.')?;
            return number(digits).map(Self::Weights);
        }
        let (_, digits) = name.strip_prefix("cache_").and_then(|rest| rest.rsplit_once("_l"))?;
        number(digits).map(Self::Cache)
    }
}

/// Tensors that stay together.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Unit {
    pub(super) bytes: u64,
    /// By index in the list, ascending.
    pub(super) tensors: Vec<usize>,
}

/// Which tensors join a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Joining {
    /// All of one layer, wherever they are in the list.
    Layer,
    /// Those of one layer that follow each other.
    Run,
}

/// Units of at most `cap` bytes, or of one larger tensor, ordered by first tensor. A layer that is larger than the cap
/// becomes several units.
pub(super) fn units(tensors: &[TensorNeed<'_>], rounded: &[u64], cap: u64, joining: Joining) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    let mut open: HashMap<Layer, usize> = HashMap::new();
    for (idx, (tensor, &bytes)) in tensors.iter().zip(rounded).enumerate() {
        if bytes == 0 {
            continue;
        }
        let layer = Layer::of(tensor.name);
        if joining == Joining::Run {
            open.retain(|&other, _| Some(other) == layer);
        }
        match layer.and_then(|layer| open.get(&layer)) {
            Some(&unit) if units[unit].bytes.saturating_add(bytes) <= cap => {
                units[unit].bytes += bytes;
                units[unit].tensors.push(idx);
            }
            _ => {
                if let Some(layer) = layer {
                    open.insert(layer, units.len());
                }
                units.push(Unit {
                    bytes,
                    tensors: vec![idx],
                });
            }
        }
    }
    units
}

/// Digits alone: no sign, no blank.
fn number(digits: &str) -> Option<u64> {
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_come_from_names() {
        let cases = [
            ("blk.0.attn_q.weight", Some(Layer::Weights(0))),
            ("blk.31.ffn_up", Some(Layer::Weights(31))),
            ("cache_k_l7", Some(Layer::Cache(7))),
            ("cache_r_long_l12", Some(Layer::Cache(12))),
            ("blk.31", None),
            ("blk.+1.q", None),
            ("blk.x.q", None),
            ("blk..q", None),
            ("cache_k_l", None),
            ("cache_k_l1x", None),
            ("cache_l3", None),
            ("a.blk.1.q", None),
            ("blk.99999999999999999999.q", None),
            ("", None),
        ];
        for (name, layer) in cases {
            assert_eq!(Layer::of(name), layer, "{name}");
        }
    }
}
