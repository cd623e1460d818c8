//! Quantised weights for tests: random blocks in ggml's row layout, and the same blocks as tiles.

use hexloom_abi::DType;
use hexloom_abi::tile::TileLayout;
use hexloom_dsp::hvx::plain::f32_to_f16;

use super::array::{Random, Spec};

/// A weight before it is laid out: per row, blocks of (scale, minimum, 32 codes from 0).
pub(crate) struct Weights {
    dtype: DType,
    ne: [u32; 4],
    blocks: Vec<(u16, u16, [u8; 32])>,
}

impl Weights {
    /// Random codes; scales within `scale / 2 ..= scale` of either sign.
    pub(crate) fn random(dtype: DType, ne: [u32; 4], scale: f32) -> Self {
        let mut random = Random(u64::from(ne[0]) << 20 | u64::from(ne[1]));
        let rows = ne[1] * ne[2] * ne[3];
        let blocks = (0..rows * (ne[0] / 32))
            .map(|_| {
                let sign = if random.next() & 1 == 0 { 1.0 } else { -1.0 };
                let size = sign * scale * (0.5 + 0.5 * random.unit() as f32);
                let minimum = scale * (random.unit() as f32 * 2.0 - 1.0) * 4.0;
                let codes = core::array::from_fn(|_| match dtype {
                    DType::Q8_0 => random.next() as u8,
                    _ => random.next() as u8 & 15,
                });
                (f32_to_f16(size), f32_to_f16(minimum), codes)
            })
            .collect();
        Self { dtype, ne, blocks }
    }

    /// In ggml's row layout.
    pub(crate) fn rows(&self) -> Spec {
        let mut bytes = Vec::new();
        for (scale, minimum, codes) in &self.blocks {
            bytes.extend(scale.to_le_bytes());
            if self.dtype == DType::Q4_1 {
                bytes.extend(minimum.to_le_bytes());
            }
            match self.dtype {
                DType::Q8_0 => bytes.extend(codes.map(|code| code.wrapping_sub(128))),
                _ => bytes.extend((0..16).map(|idx| codes[idx] | codes[idx + 16] << 4)),
            }
        }
        Spec::new(self.dtype, self.ne).fill(super::Fill::Bytes(bytes))
    }

    /// In the layout of [`hexloom_abi::tile`].
    pub(crate) fn tiled(&self) -> Spec {
        let layout = TileLayout::new(self.dtype, self.ne[0]).expect("whole blocks");
        let [_, n1, n2, n3] = self.ne.map(|n| n as usize);
        let group_bytes = layout.group_bytes as usize;
        let k_tiles = layout.k_tiles as usize;
        let mut bytes = vec![0u8; layout.tensor_bytes(self.ne).expect("a small tensor") as usize];
        for (idx, (scale, minimum, codes)) in self.blocks.iter().enumerate() {
            let (row, tile) = (idx / k_tiles % n1, idx % k_tiles);
            let matrix = idx / (k_tiles * n1);
            assert!(matrix < n2 * n3);
            let group = (matrix * n1.div_ceil(32) + row / 32) * group_bytes;
            let lane = row % 32;
            for (k, code) in codes.iter().enumerate() {
                if self.dtype == DType::Q8_0 {
                    bytes[group + tile * 1024 + k / 4 * 128 + 4 * lane + k % 4] = *code;
                } else {
                    let shift = if k % 8 < 4 { 0 } else { 4 };
                    bytes[group + tile * 512 + k / 8 * 128 + 4 * lane + k % 4] |= code << shift;
                }
            }
            let scales = group + layout.scales_offset as usize + tile * layout.scale_bytes as usize;
            if self.dtype == DType::Q4_1 {
                bytes[scales + 4 * lane..][..2].copy_from_slice(&scale.to_le_bytes());
                bytes[scales + 4 * lane + 2..][..2].copy_from_slice(&minimum.to_le_bytes());
            } else {
                bytes[scales + 2 * lane..][..2].copy_from_slice(&scale.to_le_bytes());
            }
        }
        Spec::tiled(self.dtype, self.ne, bytes)
    }
}
