//! The model against numbers worked out by hand, and the layout of tiles against its definition.

use std::vec;
use std::vec::Vec;

use hexloom_abi::DType;
use hexloom_abi::tile::TileLayout;

use super::model::Model;
use super::tile::{self, TileSpace, element};
use super::{MatrixUnit, RUN_TILES, SCALE_HALVES, TILE, TILE_BYTES, TILE_ELEMS};
use crate::hvx::plain::{Plain, f16_to_f32, f32_to_f16};
use crate::tensor::Span;

/// Memory for tiles.
struct Memory(Vec<u128>);

impl Memory {
    fn new(tiles: usize) -> Self {
        Self(vec![u128::MAX; (tiles + 2) * TILE_BYTES / 16])
    }

    fn space(&mut self) -> TileSpace<'_> {
        // SAFETY: the bytes of the vector, which this borrow keeps; bytes need no alignment.
        TileSpace::new(unsafe { Span::new(self.0.as_mut_ptr().cast(), self.0.len() * 16) })
    }
}

fn fill(tile: Span<'_, u16>, value: impl Fn(usize, usize) -> f32) {
    for row in 0..TILE {
        for column in 0..TILE {
            let at = 64 * (row / 2) + 2 * column + row % 2;
            tile.set(at, f32_to_f16(value(row, column)));
        }
    }
}

/// One product of tiles, scaled.
fn product(act: impl Fn(usize, usize) -> f32, weight: impl Fn(usize, usize) -> f32, scale: f32) -> Vec<f32> {
    let mut memory = Memory::new(4);
    let mut space = memory.space();
    let [a, w, out, scales] = [(); 4].map(|()| space.take(1));
    fill(a, act);
    fill(w, weight);
    tile::fill_scales(scales);
    for idx in 0..2 * TILE {
        scales.set(idx, f32_to_f16(scale));
    }
    let mut unit = Model::<Plain>::new();
    unit.clear();
    unit.multiply(a, w);
    unit.set_scale(scales.part(0, SCALE_HALVES));
    unit.store(out);
    (0..TILE_ELEMS)
        .map(|idx| element(out, idx / TILE, idx % TILE))
        .collect()
}

fn is(k: usize, column: usize) -> f32 {
    f32::from(u8::from(k == column))
}

#[test]
fn a_product_is_rows_by_columns() {
    let out = product(|row, _| (row + 1) as f32, |_, column| (column + 1) as f32, 1.0);
    for (idx, value) in out.into_iter().enumerate() {
        assert_eq!(value, (32 * (idx / TILE + 1) * (idx % TILE + 1)) as f32);
    }
    let moved = |k: usize, column: usize| is(k, (column + 5) % TILE);
    let out = product(|row, k| (row * TILE + k) as f32, moved, 0.5);
    for (idx, value) in out.into_iter().enumerate() {
        let (row, column) = (idx / TILE, idx % TILE);
        assert_eq!(value, (row * TILE + (column + 5) % TILE) as f32 * 0.5);
    }
}

#[test]
fn results_round_once_to_nearest_even() {
    let terms = [
        // Sums in f16 would stay at 2048: its neighbours are 2 apart.
        (vec![2048.0, 0.5, 0.5, 0.5, 0.5, 0.5], 2050.0),
        (vec![2048.0, 1.0], 2048.0),
        (vec![2050.0, 1.0], 2052.0),
        (vec![-2048.0, -3.0], -2052.0),
        (vec![65504.0, 15.0], 65504.0),
        (vec![65504.0, 16.0], f32::INFINITY),
        (vec![65504.0, 1000.0, -2000.0], 64512.0),
        (vec![6e-8, -1e-8], f16_to_f32(1)),
    ];
    for (terms, wanted) in terms {
        let act = |_, k: usize| terms.get(k).copied().unwrap_or(0.0);
        let out = product(act, |_, _| 1.0, 1.0);
        assert!(out.iter().all(|&x| x == wanted), "{terms:?}: {} not {wanted}", out[0]);
    }
}

#[test]
fn runs_of_tiles_add_up_until_the_accumulator_is_cleared() {
    let mut memory = Memory::new(2 * RUN_TILES + 2);
    let mut space = memory.space();
    let (acts, weights) = (space.take(RUN_TILES), space.take(RUN_TILES));
    for idx in 0..RUN_TILES {
        fill(tile::tile(acts, idx), |row, k| is(row, k) * idx as f32);
        fill(tile::tile(weights, idx), |_, column| column as f32);
    }
    let (out, scales) = (space.take(1), space.take_elems(SCALE_HALVES));
    tile::fill_scales(scales);
    let mut unit = Model::<Plain>::new();
    unit.set_scale(scales);
    unit.clear();
    unit.multiply(acts, weights);
    unit.multiply(tile::tile(acts, 3), tile::tile(weights, 0));
    unit.store(out);
    // 0 + 1 + ... + 31, and 3 again.
    assert!((0..TILE).all(|row| element(out, row, 2) == 2.0 * 499.0));
    unit.clear();
    unit.multiply(tile::tile(acts, 3), tile::tile(weights, 0));
    unit.store(out);
    assert!((0..TILE).all(|row| element(out, row, 2) == 6.0));
}

/// A product, and what its f16 left over, are the product to 22 bits.
#[test]
fn a_stored_result_can_be_taken_away_again() {
    let mut memory = Memory::new(6);
    let mut space = memory.space();
    let [act, weight, minus, out, rest, scales] = [(); 6].map(|()| space.take(1));
    fill(act, |row, k| (row * 7 + k * 13) as f32 / 97.0);
    fill(weight, |k, column| (k * 5 + column * 3) as f32 / 89.0);
    tile::fill_negative_identity(minus);
    tile::fill_scales(scales);
    let mut unit = Model::<Plain>::new();
    unit.set_scale(scales.part(0, SCALE_HALVES));
    unit.clear();
    unit.multiply(act, weight);
    unit.store(out);
    unit.clear();
    unit.multiply(act, weight);
    unit.multiply(out, minus);
    unit.store(rest);
    for row in 0..TILE {
        for column in 0..TILE {
            let terms = (0..TILE).map(|k| f64::from(element(act, row, k)) * f64::from(element(weight, k, column)));
            let exact: f64 = terms.sum();
            let found = f64::from(element(out, row, column)) + f64::from(element(rest, row, column));
            assert!((found - exact).abs() <= exact.abs() * 5e-7, "{found} not {exact}");
        }
    }
}

#[test]
#[should_panic(expected = "is_multiple_of")]
fn a_tile_off_its_boundary_is_noticed() {
    let mut memory = Memory::new(4);
    let span = memory.space().take(3);
    Model::<Plain>::new().multiply(span.part(64, TILE_ELEMS), span.part(2 * TILE_ELEMS, TILE_ELEMS));
}

#[test]
#[should_panic(expected = "contains")]
fn a_run_that_is_too_long_is_noticed() {
    let mut memory = Memory::new(2 * RUN_TILES + 2);
    let mut space = memory.space();
    let [act, weight] = [(); 2].map(|()| space.take(RUN_TILES + 1));
    Model::<Plain>::new().multiply(act, weight);
}

#[test]
fn space_depends_on_length_alone() {
    let mut memory = Memory::new(6);
    let all = memory.0.len() * 16;
    for skip in (0..TILE_BYTES).step_by(128) {
        let start = memory.0.as_mut_ptr().cast::<u8>().wrapping_add(skip);
        // SAFETY: bytes of the vector from `skip` on, which the borrow keeps.
        let part = unsafe { Span::new(start, all - TILE_BYTES) };
        let mut space = TileSpace::new(part);
        assert_eq!(space.tiles(), 6);
        assert!((space.take(6).as_ptr() as usize).is_multiple_of(TILE_BYTES));
    }
    for bytes in [0, 128, TILE_BYTES, 2 * TILE_BYTES - 1] {
        // SAFETY: fewer bytes of the same vector.
        let part = unsafe { Span::new(memory.0.as_mut_ptr().cast::<u8>(), bytes) };
        assert_eq!(TileSpace::new(part).tiles(), 0);
    }
}

#[test]
fn powers_lie_just_above() {
    for magnitude in [1e-37f32, 3e-5, 0.5, 0.75, 1.0, 65504.0, 1e30, 3e38] {
        let power = tile::power_above(magnitude).expect("a finite number");
        let above = 2f64.powi(power);
        assert!(
            above > f64::from(magnitude) && above <= 2.0 * f64::from(magnitude),
            "{magnitude}"
        );
    }
    assert_eq!(tile::power_above(0.0), Some(-126));
    assert_eq!(tile::power_above(f32::INFINITY), None);
    assert_eq!(tile::power_above(f32::NAN), None);
    for power in [-126, -1, 0, 1, 127] {
        assert_eq!(tile::power_of_two(power), 2f32.powi(power));
    }
    // Sums of k activations below 2^power stay below 2^14.
    for k in [1, 31, 32, 33, 576, 1 << 14] {
        assert!(k as f64 * 2f64.powi(tile::act_power(k)) <= 16384.0);
    }
}

#[test]
fn transposed_rows_are_columns() {
    let mut memory = Memory::new(1);
    let tile = memory.space().take(1);
    let rows: [[f32; TILE]; TILE] = core::array::from_fn(|row| core::array::from_fn(|k| (row * TILE + k) as f32));
    tile::fill_transposed::<Plain>(tile, &rows);
    for (column, row) in rows.iter().enumerate() {
        for (k, value) in row.iter().enumerate() {
            assert_eq!(element(tile, k, column), *value);
        }
    }
}

#[test]
fn two_terms_hold_what_f16_drops() {
    let mut memory = Memory::new(2);
    let mut space = memory.space();
    let [first, rest] = [(); 2].map(|()| space.take(1));
    let even: [f32; TILE] = core::array::from_fn(|k| (k as f32 + 0.1).sqrt() * 30.0);
    let odd = even.map(|x| -x / 7.0);
    tile::store_pair_in_two::<Plain>(first, rest, 3, even, odd);
    for (k, (even, odd)) in even.into_iter().zip(odd).enumerate() {
        for (row, wanted) in [(6, even), (7, odd)] {
            let found = element(first, row, k) + element(rest, row, k);
            assert!((found - wanted).abs() <= wanted.abs() * 2.5e-7, "{found} not {wanted}");
        }
    }
}

/// Scales whose products with codes pass f16's range, and small ones, come back through the factors.
#[test]
fn quantized_tiles_hold_their_elements() {
    for dtype in [DType::Q4_0, DType::Q4_1, DType::Q8_0] {
        let layout = TileLayout::new(dtype, 64).expect("two tiles");
        let mut group: Vec<u16> = (0..layout.group_bytes / 2).map(|idx| (idx * 40_503) as u16).collect();
        let scales = layout.scales_offset as usize / 2;
        for (idx, half) in group[scales..].iter_mut().enumerate() {
            let size = [60_000.0, -1e-5, 0.02, 0.0][idx % 4];
            *half = f32_to_f16(size);
        }
        // SAFETY: the vector's bytes, which live as long as the span.
        let bytes = unsafe { Span::new(group.as_mut_ptr().cast::<u8>(), group.len() * 2) };
        let mut memory = Memory::new(3);
        let mut space = memory.space();
        let (to, factors) = (space.take(2), space.take_elems::<f32>(TILE));
        tile::fill_quantized::<Plain>(to, factors, dtype, bytes, &layout);
        let half = |at: usize| f16_to_f32(u16::from_le_bytes([bytes.get(2 * at), bytes.get(2 * at + 1)]));
        for row in 0..TILE {
            for k in 0..64 {
                let (idx, k) = (k / TILE, k % TILE);
                let codes = idx * layout.code_bytes as usize;
                let of_tile = scales + idx * layout.scale_bytes as usize / 2;
                let minima = usize::from(dtype == DType::Q4_1);
                let scale = f64::from(half(of_tile + row + minima * row));
                let wanted = match dtype {
                    DType::Q8_0 => scale * (f64::from(bytes.get(codes + k / 4 * 128 + 4 * row + k % 4)) - 128.0),
                    _ => {
                        let byte = bytes.get(codes + k / 8 * 128 + 4 * row + k % 4);
                        let code = f64::from(if k % 8 < 4 { byte & 15 } else { byte >> 4 });
                        match dtype {
                            DType::Q4_1 => scale * code + f64::from(half(of_tile + 2 * row + 1)),
                            _ => scale * (code - 8.0),
                        }
                    }
                };
                let stored = element(tile::tile(to, idx), k, row);
                let found = f64::from(stored) * f64::from(factors.get(row));
                assert!(stored.abs() <= 1.0, "{dtype} row {row} k {k}: {stored}");
                let limit = wanted.abs() * 5e-4 + f64::from(factors.get(row)) * 3e-8;
                assert!(
                    (found - wanted).abs() <= limit,
                    "{dtype} row {row} k {k}: {found} not {wanted}"
                );
            }
        }
    }
}
