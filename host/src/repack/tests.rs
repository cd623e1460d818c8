//! Repacking and back is the identity on the original bytes, and tiles hold what the layout says.

use super::*;

fn bytes(n: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    (0..n).map(step).collect()
}

#[test]
fn round_trip_is_exact() {
    for dtype in [DType::Q4_0, DType::Q4_1, DType::Q8_0] {
        for k in [32, 224, 256, 288, 2880] {
            for n_rows in [1, 5, 31, 32] {
                let layout = TileLayout::new(dtype, k).unwrap();
                let row_bytes = dtype.row_bytes(k.into()).unwrap() as usize;
                let original = bytes(row_bytes * n_rows, k + n_rows as u32);
                let mut group = vec![0xaa; layout.group_bytes as usize];
                pack_group(dtype, &layout, &original, &mut group);
                let mut back = vec![0x55; original.len()];
                unpack_group(dtype, &layout, &group, &mut back);
                assert_eq!(back, original, "{dtype} k {k} rows {n_rows}");
            }
        }
    }
}

/// Element (row, k) of one Q4_0 tile is where the layout's text says, and padding rows are zero.
#[test]
fn nibbles_lie_where_the_layout_says() {
    let layout = TileLayout::new(DType::Q4_0, 32).unwrap();
    let n_rows = 3;
    let original = bytes(18 * n_rows, 7);
    let mut group = vec![0xaa; layout.group_bytes as usize];
    pack_group(DType::Q4_0, &layout, &original, &mut group);
    for row in 0..32 {
        for k in 0..32 {
            let byte = group[k / 8 * 128 + 4 * row + k % 4];
            let code = if k % 8 < 4 { byte & 15 } else { byte >> 4 };
            let expected = match (row < n_rows, k < 16) {
                (false, _) => 0,
                (true, true) => original[18 * row + 2 + k] & 15,
                (true, false) => original[18 * row + 2 + k - 16] >> 4,
            };
            assert_eq!(code, expected, "row {row} k {k}");
        }
        let scale = &group[512 + 2 * row..][..2];
        let expected: &[u8] = if row < n_rows {
            &original[18 * row..][..2]
        } else {
            &[0, 0]
        };
        assert_eq!(scale, expected);
    }
}

/// Each row's minimum lies behind its scale.
#[test]
fn minima_alternate_with_scales() {
    let layout = TileLayout::new(DType::Q4_1, 64).unwrap();
    let original = bytes(2 * 20 * 32, 9);
    let mut group = vec![0xaa; layout.group_bytes as usize];
    pack_group(DType::Q4_1, &layout, &original, &mut group);
    for (idx, block) in original.chunks_exact(20).enumerate() {
        let (row, tile) = (idx / 2, idx % 2);
        assert_eq!(
            group[1024 + 128 * tile + 4 * row..][..4],
            block[..4],
            "row {row} tile {tile}"
        );
    }
}
