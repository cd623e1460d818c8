//! The hottest loop of the emulator image: dot products in HVX, the float part in one pass over a tile's lanes.
//!
//! It is written for what QEMU 7.2 takes long for: a vector store, which it commits byte by byte (one a tile and row is left),
//! and every branch, taken or not, because it does not chain blocks of code (so loops over lanes are written out, and
//! bounds are checked once before the loop over tiles).

use super::{Codes, Hexagon, Isa, LANES, Line, Row, Tiles, line};
use crate::hvx::tiles::Record;

#[inline(never)]
pub(super) fn dot_rows<C: Codes, const N: usize>(tiles: &Tiles<'_>, rows: &[Row<'_>; N]) -> [Line; N] {
    let record = Record::of::<Hexagon>();
    let halves = LANES * (1 + C::MINIMUM as usize);
    let code_bytes = C::BITS * 128;
    let mut codes = tiles.codes().part(0, tiles.count() * code_bytes).as_ptr().cast_const();
    let mut scales = tiles.scales().part(0, tiles.count() * halves).as_ptr().cast_const();
    let mut records = rows.map(|row| {
        row.records()
            .part(0, tiles.count() * record.bytes)
            .as_ptr()
            .cast_const()
    });
    let mut totals = [Line([0.0; LANES]); N];
    for _ in 0..tiles.count() {
        // The pointers have advanced by whole tiles and records, fewer than the checked lengths hold; records lie on a boundary
        // of 4 bytes.
        let starts = match C::ZERO_POINT {
            0 => [0; N],
            // SAFETY: as above.
            8 => records.map(|at| unsafe { at.wrapping_add(record.offset).cast::<i32>().read() }),
            // SAFETY: as above.
            _ => records.map(|at| unsafe { at.wrapping_add(record.wide_offset).cast::<i32>().read() }),
        };
        let act = records.map(<*const u8>::cast::<i8>);
        let dots = if C::BITS == 4 {
            // SAFETY: as above; a tile of 4-bit codes has 512 bytes.
            unsafe { Hexagon::dot_tile_u4(codes, act, starts) }
        } else {
            // SAFETY: as above; a tile of 8-bit codes has 1024 bytes.
            unsafe { Hexagon::dot_tile_u8(codes, act, starts) }
        };
        // SAFETY: as above; each tile has 32 scales.
        let scale = unsafe { Hexagon::load_f16(scales) };
        for ((total, at), dot) in totals.iter_mut().zip(records).zip(dots) {
            // SAFETY: as above.
            let factor = unsafe { at.wrapping_add(record.scale).cast::<f32>().read() };
            add_dots(total, &scale, factor, &line(dot));
        }
        if C::MINIMUM {
            // SAFETY: as above; types with minima have 32 of them behind a tile's scales.
            let minimum = unsafe { Hexagon::load_f16(scales.wrapping_add(LANES)) };
            for (total, at) in totals.iter_mut().zip(records) {
                // SAFETY: as above.
                let factor = unsafe { at.wrapping_add(record.sum).cast::<f32>().read() };
                add_product(total, &minimum, factor);
            }
        }
        codes = codes.wrapping_add(code_bytes);
        scales = scales.wrapping_add(halves);
        records = records.map(|at| at.wrapping_add(record.bytes));
    }
    totals
}

/// `total += (scale * factor) * dot`; the bits of `dot` are integers.
#[inline(never)]
fn add_dots(total: &mut Line, scale: &Line, factor: f32, dot: &Line) {
    every_lane!(lane => total.0[lane] += scale.0[lane] * factor * dot.0[lane].to_bits() as i32 as f32);
}

/// `total += x * factor`.
#[inline(never)]
fn add_product(total: &mut Line, x: &Line, factor: f32) {
    every_lane!(lane => total.0[lane] += x.0[lane] * factor);
}
