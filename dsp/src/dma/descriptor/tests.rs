//! Golden bytes of every kind of descriptor, and the limits of its fields.

use super::*;

fn bits<const N: u32>(value: u64) -> Bits<N> {
    Bits::new(value).expect("within the field")
}

fn bytes<const N: usize>(words: [u32; N]) -> std::vec::Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn rows<const SIZE: u32, const ADDRESS: u32>(source: u64) -> Rows<SIZE, ADDRESS> {
    Rows {
        source: bits(source),
        target: bits(0xd000_0080),
        row_bytes: bits(0x0240),
        rows: bits(0x0312),
        source_stride: bits(0x0480),
        target_stride: bits(0x0280),
    }
}

#[test]
fn linear() {
    let linear = Linear {
        source: bits(0x1234_5680),
        target: bits(0xd000_0080),
        bytes: bits(0xab_cdef),
    };
    #[rustfmt::skip]
    let golden = [
        0, 0, 0, 0,
        0xef, 0xcd, 0xab, 0x30,
        0x80, 0x56, 0x34, 0x12,
        0x80, 0x00, 0x00, 0xd0,
    ];
    assert_eq!(bytes(linear.encode()), golden);
    assert_eq!(bytes(Descriptor::Linear(linear).encode())[..16], golden);
}

#[test]
fn rows_below_v75() {
    #[rustfmt::skip]
    let golden = [
        0, 0, 0, 0,
        0x00, 0x00, 0x00, 0x31,
        0x80, 0x56, 0x34, 0x12,
        0x80, 0x00, 0x00, 0xd0,
        0, 0, 0, 0,
        0x40, 0x02, 0x12, 0x03,
        0x80, 0x04, 0x80, 0x02,
        0, 0, 0, 0,
    ];
    assert_eq!(bytes(Descriptor::Narrow(rows(0x1234_5680)).encode()), golden);
}

#[test]
fn rows_from_v75() {
    #[rustfmt::skip]
    let golden = [
        0, 0, 0, 0,
        0x80, 0x02, 0x00, 0x31,
        0x80, 0x56, 0x34, 0x12,
        0x80, 0x00, 0x00, 0xd0,
        9, 0, 0, 0,
        0x40, 0x02, 0x00, 0x12,
        0x03, 0x80, 0x04, 0x00,
        0, 0, 0, 0,
    ];
    assert_eq!(bytes(Descriptor::Wide(rows(0x1234_5680)).encode()), golden);
}

#[test]
fn rows_above_v79_with_upper_address_bytes() {
    #[rustfmt::skip]
    let golden = [
        0, 0, 0, 0,
        0x80, 0x02, 0x00, 0x31,
        0x80, 0x56, 0x34, 0x12,
        0x80, 0x00, 0x00, 0xd0,
        10, 0x9a, 0x00, 0,
        0x40, 0x02, 0x00, 0x12,
        0x03, 0x80, 0x04, 0x00,
        0, 0, 0, 0,
    ];
    assert_eq!(bytes(Descriptor::Far(rows(0x9a_1234_5680)).encode()), golden);
}

#[test]
fn every_field_at_its_limit_leaves_its_neighbours_alone() {
    let wide = WideRows {
        source: bits(0),
        target: bits(0),
        row_bytes: bits(0xff_ffff),
        rows: bits(0),
        source_stride: bits(0xff_ffff),
        target_stride: bits(0xff_ffff),
    };
    assert_eq!(wide.encode(), [0, 0x31ff_ffff, 0, 0, 9, 0x00ff_ffff, 0xffff_ff00, 0]);
    let full = WideRows {
        rows: bits(0xffff),
        row_bytes: bits(0),
        source_stride: bits(0),
        target_stride: bits(0),
        ..wide
    };
    assert_eq!(full.encode(), [0, 0x3100_0000, 0, 0, 9, 0xff00_0000, 0xff, 0]);
    let narrow = NarrowRows {
        source: bits(0),
        target: bits(0),
        row_bytes: bits(0xffff),
        rows: bits(0),
        source_stride: bits(0xffff),
        target_stride: bits(0),
    };
    assert_eq!(narrow.encode(), [0, 0x3100_0000, 0, 0, 0, 0xffff, 0xffff, 0]);
}

#[test]
fn what_a_field_does_not_hold_is_no_number_of_it() {
    assert_eq!(Bits::<16>::new(65_535).map(Bits::get), Some(65_535));
    assert_eq!(Bits::<16>::new(65_536), None);
    assert_eq!(Bits::<24>::new(1 << 24), None);
    assert_eq!(Bits::<40>::new(1 << 40), None);
    assert_eq!(Bits::<32>::MAX, u64::from(u32::MAX));
}

#[test]
fn generations() {
    for (version, arch) in [
        (68, Arch::V68),
        (73, Arch::V68),
        (75, Arch::V75),
        (79, Arch::V75),
        (81, Arch::V81),
    ] {
        assert_eq!(Arch::of(version), arch, "v{version}");
    }
}

#[test]
fn the_done_bit_is_the_engines() {
    let place = Place::default();
    place.store(&Descriptor::Wide(rows(0x80)));
    assert!(!place.is_done());
    let before = place.words();
    place.set_done();
    assert!(place.is_done());
    let after = place.words();
    assert_eq!(after[1], before[1] | 0x8000_0000);
    assert_eq!((after[0], &after[2..]), (before[0], &before[2..]));
    place.store(&Descriptor::Wide(rows(0x80)));
    assert!(!place.is_done(), "a place that is used again is not done");
}
