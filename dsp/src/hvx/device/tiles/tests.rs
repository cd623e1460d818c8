//! The loop reads what it was given and nothing else, whatever the number of tiles.

use std::vec;
use std::vec::Vec;

use hexloom_abi::DType;
use hexloom_abi::tile::TileLayout;

use super::super::model::{Model, within};
use super::super::{Device, Qfloat};
use super::*;
use crate::hvx::tiles::{Q4_0, Q4_1, Q8_0};
use crate::hvx::{Isa, plain};
use crate::tensor::Span;

type Ours = Device<Model, Qfloat>;

/// Zeroed memory on a line.
struct Memory {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Memory {
    fn new(len: usize) -> Self {
        let bytes = vec![0; len + LINE];
        let start = bytes.as_ptr().align_offset(LINE);
        Self { bytes, start, len }
    }

    fn span(&mut self) -> Span<'_, u8> {
        // SAFETY: `start + len` is at most the vector's length, and the span borrows the vector.
        unsafe { Span::new(self.bytes.as_mut_ptr().wrapping_add(self.start), self.len) }
    }
}

fn range(span: &Span<'_, u8>) -> core::ops::Range<usize> {
    span.as_ptr().addr()..span.as_ptr().addr() + span.len()
}

/// `N` rows of ones against `count` tiles of ones with scales of 1 and minima of 2.
fn run<C: Codes, const N: usize>(dtype: DType, count: usize) {
    let layout = TileLayout::new(dtype, 32 * count as u32).expect("a tiled type");
    let mut group = Memory::new(layout.group_bytes as usize);
    let group = group.span();
    for at in 0..layout.scales_offset as usize {
        let one = if C::BITS == 8 { 129 } else { 0x11 };
        group.set(at, one);
    }
    for at in 0..count * layout.scale_bytes as usize / 2 {
        let is_minimum = C::MINIMUM && at % 2 == 1;
        let [low, high] = plain::f32_to_f16(if is_minimum { 2.0 } else { 1.0 }).to_le_bytes();
        group.set(layout.scales_offset as usize + 2 * at, low);
        group.set(layout.scales_offset as usize + 2 * at + 1, high);
    }
    let mut memory: [Memory; N] = core::array::from_fn(|_| Memory::new(Row::bytes::<Ours>(count)));
    let memory = memory.each_mut().map(Memory::span);
    let mut given = vec![range(&group)];
    let rows = memory.map(|span| {
        let row = Row::new::<Ours>(span, count);
        row.begin();
        for block in 0..count {
            row.set::<Ours>(block, Ours::splat_i(1), 1.0, 32);
        }
        given.push(range(&row.records()));
        row
    });
    let sums = within(&given, || dot_rows::<Model, C, N>(&Tiles::new(group, &layout), &rows));
    let code = if C::ZERO_POINT == 8 { -7.0 } else { 1.0 };
    let per_element = code + if C::MINIMUM { 2.0 } else { 0.0 };
    for sum in sums {
        let wanted = 32.0 * count as f32 * per_element;
        for lane in Ours::to_array(sum) {
            assert!(
                (lane - wanted).abs() <= wanted.abs() * 1e-6,
                "{dtype} {count}: {lane} not {wanted}"
            );
        }
    }
}

#[test]
fn every_load_is_inside_tiles_and_records() {
    for count in 1..6 {
        run::<Q4_0, 1>(DType::Q4_0, count);
        run::<Q4_0, 3>(DType::Q4_0, count);
        run::<Q4_1, 1>(DType::Q4_1, count);
        run::<Q4_1, 4>(DType::Q4_1, count);
        run::<Q8_0, 1>(DType::Q8_0, count);
        run::<Q8_0, 2>(DType::Q8_0, count);
    }
}

#[test]
#[should_panic(expected = "leaves")]
fn a_load_beyond_is_found() {
    let mut memory = Memory::new(2 * LINE);
    let span = memory.span();
    let short = range(&span).start..range(&span).end - 1;
    // SAFETY: the second line of two.
    within(&[short], || unsafe { Model::vmem(span.as_ptr().wrapping_add(LINE)) });
}
