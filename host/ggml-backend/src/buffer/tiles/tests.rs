//! Rows and tiles of one buffer, written and read in every order.

use std::sync::Arc;

use hexloom::{Buffer, DType, Session, SessionOptions};
use hexloom_sim::NullTransport;

use super::{Tiles, Weight};

const OFFSET: u64 = 256;

struct Fixture {
    buffer: Buffer,
    tiles: Tiles,
    weight: Weight,
    rows: Vec<u8>,
}

/// A weight whose rows are written, not tiled yet.
fn fixture(dtype: DType, ne: [u32; 4]) -> Fixture {
    let session = Session::open(Arc::new(NullTransport), SessionOptions::default()).unwrap();
    let weight = Weight::new(dtype, ne).unwrap();
    let buffer = session.alloc("weights", OFFSET + weight.bytes() + 64).unwrap();
    let rows: Vec<u8> = (0..weight.row_bytes()).map(|i| (i * 37 % 251) as u8).collect();
    buffer.write(OFFSET, &rows).unwrap();
    Fixture {
        buffer,
        tiles: Tiles::default(),
        weight,
        rows,
    }
}

impl Fixture {
    fn read(&self, at: usize, len: usize) -> Vec<u8> {
        let mut data = vec![0; len];
        self.tiles.read(&self.buffer, OFFSET + at as u64, &mut data).unwrap();
        data
    }
}

#[test]
fn reads_see_rows_whatever_the_layout() {
    for (dtype, ne) in [
        (DType::Q4_0, [64, 33, 1, 1]),
        (DType::Q4_1, [32, 5, 2, 3]),
        (DType::Q8_0, [96, 64, 1, 2]),
    ] {
        let mut f = fixture(dtype, ne);
        f.tiles.tile(&f.buffer, OFFSET, &f.weight).unwrap();
        assert!(f.tiles.is_tiled(OFFSET));
        let mut raw = vec![0; f.rows.len()];
        f.buffer.read(OFFSET, &mut raw).unwrap();
        assert_ne!(raw, f.rows, "tiles are not rows");
        assert_eq!(f.read(0, f.rows.len()), f.rows);
        assert_eq!(f.read(7, 50), f.rows[7..57]);
        assert!(f.tiles.untile(&f.buffer, OFFSET + 3..OFFSET + 4).unwrap());
        f.buffer.read(OFFSET, &mut raw).unwrap();
        assert_eq!(raw, f.rows);
    }
}

#[test]
fn only_what_overlaps_is_touched() {
    let mut f = fixture(DType::Q8_0, [32, 32, 1, 1]);
    f.tiles.tile(&f.buffer, OFFSET, &f.weight).unwrap();
    assert!(!f.tiles.untile(&f.buffer, 0..OFFSET).unwrap());
    assert!(!f.tiles.forget(OFFSET + f.weight.bytes()..OFFSET + f.weight.bytes() + 9));
    assert!(f.tiles.is_tiled(OFFSET));
    assert!(f.tiles.forget(OFFSET + f.weight.bytes() - 1..OFFSET + f.weight.bytes()));
    assert!(!f.tiles.is_tiled(OFFSET));
}

#[test]
fn another_shape_at_the_same_place_is_tiled_anew() {
    let mut f = fixture(DType::Q4_0, [64, 64, 1, 1]);
    f.tiles.tile(&f.buffer, OFFSET, &f.weight).unwrap();
    let half = Weight::new(DType::Q4_0, [64, 32, 1, 1]).unwrap();
    f.tiles.tile(&f.buffer, OFFSET, &half).unwrap();
    assert_eq!(f.read(0, f.rows.len()), f.rows);
}
