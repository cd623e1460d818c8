//! Repacking quantised weights from ggml rows to the tiles of [`hexloom_abi::tile`], and exactly back.
//!
//! Work goes group by group (32 rows), so a caller needs one group of memory, can spread groups over threads, and writes
//! each group straight to its place in a shared buffer.

use hexloom_abi::DType;
use hexloom_abi::tile::{TILE_ROWS, TileLayout};

/// Elements of a tile along k, and of a block.
const K: usize = 32;
const ROWS: usize = TILE_ROWS as usize;

/// Packs up to 32 rows of ggml blocks into one group.
///
/// `rows` holds consecutive rows of `layout.k_tiles` blocks each; missing rows of a last group become zeros. `group` is
/// `layout.group_bytes` long.
///
/// # Panics
/// When a slice has another length than the layout says: a caller's mistake, sizes come from the same layout.
pub fn pack_group(dtype: DType, layout: &TileLayout, rows: &[u8], group: &mut [u8]) {
    let block_bytes = dtype.block_bytes() as usize;
    let k_tiles = layout.k_tiles as usize;
    assert_eq!(group.len(), layout.group_bytes as usize);
    assert!(rows.len() <= ROWS * k_tiles * block_bytes && rows.len().is_multiple_of(k_tiles * block_bytes));
    group.fill(0);
    let (codes, scales) = group.split_at_mut(layout.scales_offset as usize);
    let pad_row = rows.len() / (k_tiles * block_bytes);
    if dtype == DType::Q8_0 && pad_row < ROWS {
        // Codes are stored with 128 added, so that a missing row's zeros are 128; its scale of 0 hides them anyway.
        codes.fill(0x80);
    }
    for (row, blocks) in rows.chunks_exact(k_tiles * block_bytes).enumerate() {
        for (tile, block) in blocks.chunks_exact(block_bytes).enumerate() {
            let codes = &mut codes[tile * layout.code_bytes as usize..][..layout.code_bytes as usize];
            let scales = &mut scales[tile * layout.scale_bytes as usize..][..layout.scale_bytes as usize];
            match dtype {
                DType::Q4_0 => {
                    scales[2 * row..][..2].copy_from_slice(&block[..2]);
                    pack_nibbles(&block[2..], row, codes);
                }
                DType::Q4_1 => {
                    scales[4 * row..][..4].copy_from_slice(&block[..4]);
                    pack_nibbles(&block[4..], row, codes);
                }
                DType::Q8_0 => {
                    scales[2 * row..][..2].copy_from_slice(&block[..2]);
                    pack_bytes(&block[2..], row, codes);
                }
                _ => unreachable!("TileLayout exists for tiled types only"),
            }
        }
    }
}

/// The exact inverse of [`pack_group`] for the first `rows.len() / row_bytes` rows.
///
/// # Panics
/// As [`pack_group`].
pub fn unpack_group(dtype: DType, layout: &TileLayout, group: &[u8], rows: &mut [u8]) {
    let block_bytes = dtype.block_bytes() as usize;
    let k_tiles = layout.k_tiles as usize;
    assert_eq!(group.len(), layout.group_bytes as usize);
    assert!(rows.len() <= ROWS * k_tiles * block_bytes && rows.len().is_multiple_of(k_tiles * block_bytes));
    let (codes, scales) = group.split_at(layout.scales_offset as usize);
    for (row, blocks) in rows.chunks_exact_mut(k_tiles * block_bytes).enumerate() {
        for (tile, block) in blocks.chunks_exact_mut(block_bytes).enumerate() {
            let codes = &codes[tile * layout.code_bytes as usize..][..layout.code_bytes as usize];
            let scales = &scales[tile * layout.scale_bytes as usize..][..layout.scale_bytes as usize];
            match dtype {
                DType::Q4_0 => {
                    block[..2].copy_from_slice(&scales[2 * row..][..2]);
                    unpack_nibbles(codes, row, &mut block[2..]);
                }
                DType::Q4_1 => {
                    block[..4].copy_from_slice(&scales[4 * row..][..4]);
                    unpack_nibbles(codes, row, &mut block[4..]);
                }
                DType::Q8_0 => {
                    block[..2].copy_from_slice(&scales[2 * row..][..2]);
                    unpack_bytes(codes, row, &mut block[2..]);
                }
                _ => unreachable!("TileLayout exists for tiled types only"),
            }
        }
    }
}

/// ggml's 4-bit blocks hold element i in the low and i + 16 in the high nibble of byte i; a tile's vector j holds
/// `8j + b` low and `8j + 4 + b` high.
fn pack_nibbles(block: &[u8], row: usize, codes: &mut [u8]) {
    let code = |k: usize| if k < 16 { block[k] & 15 } else { block[k - 16] >> 4 };
    for (vector, codes) in codes.chunks_exact_mut(128).enumerate() {
        for (byte, packed) in codes[4 * row..][..4].iter_mut().enumerate() {
            *packed = code(8 * vector + byte) | code(8 * vector + 4 + byte) << 4;
        }
    }
}

fn unpack_nibbles(codes: &[u8], row: usize, block: &mut [u8]) {
    let code = |k: usize| {
        let packed = codes[k / 8 * 128 + 4 * row + k % 4];
        if k % 8 < 4 { packed & 15 } else { packed >> 4 }
    };
    for (idx, byte) in block.iter_mut().enumerate() {
        *byte = code(idx) | code(idx + 16) << 4;
    }
}

fn pack_bytes(block: &[u8], row: usize, codes: &mut [u8]) {
    for (vector, four) in block[..K].chunks_exact(4).enumerate() {
        for (packed, code) in codes[vector * 128 + 4 * row..][..4].iter_mut().zip(four) {
            *packed = code ^ 0x80;
        }
    }
}

fn unpack_bytes(codes: &[u8], row: usize, block: &mut [u8]) {
    for (k, code) in block.iter_mut().enumerate() {
        *code = codes[k / 4 * 128 + 4 * row + k % 4] ^ 0x80;
    }
}

#[cfg(test)]
mod tests;
