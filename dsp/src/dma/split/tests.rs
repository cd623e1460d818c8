//! Every byte of a transfer is in one piece, whatever its sizes and strides, and no piece is beyond a limit.

use std::collections::BTreeMap;
use std::vec::Vec;

use super::*;

/// What a descriptor moves, read back from its words alone: rows of (source, target, bytes).
fn decode(arch: Arch, words: [u32; 8]) -> Vec<(u64, u64, u64)> {
    let [_, control, source, target, w4, w5, w6, _] = words.map(u64::from);
    if control >> 24 & 3 == 0 {
        return Vec::from([(source, target, control & 0xff_ffff)]);
    }
    let (upper_source, upper_target, row_bytes, rows, source_stride, target_stride) = match arch {
        Arch::V68 => (0, 0, w5 & 0xffff, w5 >> 16, w6 & 0xffff, w6 >> 16),
        Arch::V75 | Arch::V81 => {
            let far = w4 & 0xff == 10;
            assert!(far || w4 == 9, "type {w4:#x}");
            assert!(!far || arch == Arch::V81);
            let upper = |shift: u64| if far { (w4 >> shift & 0xff) << 32 } else { 0 };
            let rows = w5 >> 24 | (w6 & 0xff) << 8;
            (upper(8), upper(16), w5 & 0xff_ffff, rows, w6 >> 8, control & 0xff_ffff)
        }
    };
    (0..rows)
        .map(|row| {
            (
                upper_source + source + row * source_stride,
                upper_target + target + row * target_stride,
                row_bytes,
            )
        })
        .collect()
}

/// Checks that the pieces copy exactly the transfer's bytes, by merging them into runs that no row boundary hides.
fn check(arch: Arch, transfer: Transfer) -> usize {
    let pieces = pieces(arch, &transfer).expect("within reach");
    let mut count = 0;
    // Target start -> (bytes, source): disjoint runs.
    let mut runs: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for piece in pieces {
        count += 1;
        for (source, target, bytes) in decode(arch, piece.encode()) {
            assert!(
                runs.insert(target, (bytes, source)).is_none(),
                "{target:#x} twice: {transfer:?}"
            );
        }
    }
    let mut merged: Vec<(u64, u64, u64)> = Vec::new();
    for (target, (bytes, source)) in runs {
        match merged.last_mut() {
            Some(last) if last.0 + last.2 == target && last.1 + last.2 == source => last.2 += bytes,
            Some(last) => {
                assert!(last.0 + last.2 <= target, "overlap at {target:#x}: {transfer:?}");
                merged.push((target, source, bytes));
            }
            None => merged.push((target, source, bytes)),
        }
    }
    let mut wanted: Vec<(u64, u64, u64)> = Vec::new();
    for row in 0..u64::from(transfer.rows) {
        let target = transfer.target + row * u64::from(transfer.target_stride);
        let source = transfer.source + row * u64::from(transfer.source_stride);
        let bytes = u64::from(transfer.row_bytes);
        match wanted.last_mut() {
            Some(last) if last.0 + last.2 == target && last.1 + last.2 == source => last.2 += bytes,
            _ if bytes > 0 => wanted.push((target, source, bytes)),
            _ => {}
        }
    }
    assert_eq!(merged, wanted, "{arch:?} {transfer:?}");
    count
}

const ARCHS: [Arch; 3] = [Arch::V68, Arch::V75, Arch::V81];

/// A small generator (splitmix64).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[test]
fn any_size_and_stride_covers_exactly_the_bytes() {
    let mut state = 1;
    for arch in ARCHS {
        for _ in 0..3000 {
            // Sizes around every limit: 16 bits, 24 bits, the linear piece.
            let base = [0, 1, 576, 65_535, 0xef_ff80, 0xff_ffff][random(&mut state) as usize % 6];
            let row_bytes = (base + random(&mut state) % 3) as u32;
            let gap = [0, 1, 64, 70_000, 0x100_0000][random(&mut state) as usize % 5];
            let most = (1u64 << 31) / (u64::from(row_bytes) + gap).max(1);
            let rows = random(&mut state) % most.clamp(1, 40);
            let transfer = Transfer {
                source: random(&mut state) % (1 << 30),
                target: (1 << 31) + random(&mut state) % 4096,
                row_bytes,
                rows: rows as u32,
                source_stride: row_bytes + [0, gap as u32][random(&mut state) as usize % 2],
                target_stride: row_bytes + [0, gap as u32][random(&mut state) as usize % 2],
            };
            if pieces(arch, &transfer).is_ok() {
                check(arch, transfer);
            }
        }
    }
}

#[test]
fn pieces_are_as_few_as_the_limits_allow() {
    let rows = |row_bytes, rows, source_stride, target_stride| Transfer {
        source: 0x1000,
        target: 0x8000_0000,
        row_bytes,
        rows,
        source_stride,
        target_stride,
    };
    // A group of weight rows is one linear piece everywhere.
    assert_eq!(
        ARCHS.map(|arch| check(arch, Transfer::linear(64, 1 << 31, 147_456))),
        [1; 3]
    );
    assert_eq!(
        ARCHS.map(|arch| check(arch, Transfer::linear(64, 1 << 31, 0xf0_0001))),
        [2; 3]
    );
    assert_eq!(ARCHS.map(|arch| check(arch, rows(576, 100, 576, 640))), [1; 3]);
    // More than 65,535 rows.
    assert_eq!(ARCHS.map(|arch| check(arch, rows(1, 65_536, 1, 2))), [2; 3]);
    // A stride of 17 bits goes row by row below v75, one of 25 bits everywhere.
    assert_eq!(ARCHS.map(|arch| check(arch, rows(64, 9, 65_536, 64))), [9, 1, 1]);
    assert_eq!(ARCHS.map(|arch| check(arch, rows(64, 9, 1 << 24, 64))), [9; 3]);
    assert_eq!(ARCHS.map(|arch| check(arch, rows(64, 0, 1, 1))), [0; 3]);
}

#[test]
fn addresses_of_40_bits_exist_above_v79_only() {
    let far = Transfer {
        source: 0x12_3456_7800,
        target: 0xd000_0000,
        row_bytes: 576,
        rows: 18,
        source_stride: 576,
        target_stride: 640,
    };
    assert_eq!(check(Arch::V81, far), 1);
    assert_eq!(check(Arch::V81, Transfer::linear(1 << 39, 1 << 30, 0xf0_0080)), 2);
    // Across the 32-bit border.
    assert_eq!(check(Arch::V81, Transfer::linear((1 << 32) - 128, 1 << 30, 256)), 1);
    let reach = |arch, source, bytes| pieces(arch, &Transfer::linear(source, 0, bytes)).err();
    for arch in [Arch::V68, Arch::V75] {
        assert_eq!(pieces(arch, &far).err(), Some(DmaError::Unreachable));
        assert_eq!(reach(arch, (1 << 32) - 128, 128), None);
        assert_eq!(reach(arch, (1 << 32) - 128, 129), Some(DmaError::Unreachable));
    }
    assert_eq!(reach(Arch::V81, (1 << 40) - 128, 129), Some(DmaError::Unreachable));
    assert_eq!(reach(Arch::V81, u64::MAX, 2), Some(DmaError::Unreachable));
}
