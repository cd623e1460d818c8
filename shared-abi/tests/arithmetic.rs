//! Length arithmetic against the same sums in 128 bits.

use hexloom_abi::layout::{BlockCounts, BlockLayout, align_up};
use hexloom_abi::op::Shape;
use hexloom_abi::tile::TileLayout;
use hexloom_abi::{DType, limits, scratch};
use proptest::prelude::*;

/// Devices before v75 have a smaller window, and no length beyond 31 bits.
#[test]
fn limits_of_architectures() {
    for (arch, window, map) in [
        (68, 3000, 1u64 << 31),
        (73, 3000, 1 << 31),
        (75, 3200, u64::MAX),
        (81, 3200, u64::MAX),
    ] {
        assert_eq!(
            (limits::window_bytes(arch), limits::map_bytes_max(arch)),
            (window << 20, map),
            "v{arch}"
        );
        assert_eq!(limits::has_extended_mappings(arch), arch >= 81);
    }
}

fn dtype() -> impl Strategy<Value = DType> {
    prop::sample::select(DType::ALL.to_vec())
}

fn count() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0..20_000u32, 1 => any::<u32>(), 1 => Just(u32::MAX)]
}

fn line(value: u128) -> u128 {
    value.div_ceil(128) * 128
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn block_layout(n in prop::array::uniform5(count()), profiled in any::<bool>()) {
        let counts = BlockCounts {
            n_buffers: n[0], n_tensors: n[1], n_ops: n[2], profiled, n_traces: n[3], n_threads: n[4],
        };
        let [buffers, tensors, ops, traces, threads] = n.map(u128::from);
        let tensors_offset = line(buffers * 32);
        let ops_offset = tensors_offset + line(tensors * 64);
        let progress_offset = ops_offset + line(ops * 128);
        let profiles_offset = progress_offset + 128;
        let traces_offset = profiles_offset + if profiled { line(ops * 64) } else { 0 };
        let row = line(traces * 8);
        let bytes = traces_offset + row * threads;
        let wanted = [tensors_offset, ops_offset, progress_offset, profiles_offset, traces_offset, row, bytes];
        match BlockLayout::new(&counts) {
            Some(got) => {
                let got = [
                    got.tensors_offset, got.ops_offset, got.progress_offset, got.profiles_offset, got.traces_offset,
                    got.trace_row_bytes, got.bytes,
                ];
                prop_assert_eq!(got.map(u128::from), wanted);
            }
            None => prop_assert!(bytes > u128::from(u64::MAX)),
        }
    }

    #[test]
    fn aligned(value in any::<u64>(), shift in 0..20u32) {
        let wanted = u128::from(value).div_ceil(1 << shift) << shift;
        prop_assert_eq!(align_up(value, 1 << shift).map(u128::from), Some(wanted).filter(|&w| w < 1 << 64));
    }

    #[test]
    fn rows(dtype in dtype(), elems in prop_oneof![0..100_000u64, any::<u64>()]) {
        let blocks = u128::from(elems) / u128::from(dtype.block_elems());
        let whole = elems % dtype.block_elems() == 0;
        let wanted = Some(blocks * u128::from(dtype.block_bytes())).filter(|&bytes| whole && bytes < 1 << 64);
        prop_assert_eq!(dtype.row_bytes(elems).map(u128::from), wanted);
    }

    #[test]
    fn dense_strides(dtype in dtype(), ne in prop::array::uniform4(prop_oneof![0..300u32, any::<u32>()])) {
        let [n0, n1, n2, _] = ne.map(u128::from);
        let row = n0 / u128::from(dtype.block_elems()) * u128::from(dtype.block_bytes());
        let wanted = [u128::from(dtype.block_bytes()), row, row * n1, row * n1 * n2];
        let whole = n0 % u128::from(dtype.block_elems()) == 0;
        match Shape::dense(dtype, ne) {
            Some(shape) => {
                prop_assert_eq!(shape.nb.map(u128::from), wanted);
                prop_assert!(shape.dense_everywhere());
            }
            None => prop_assert!(!whole || wanted.iter().any(|&stride| stride >= 1 << 32)),
        }
    }

    #[test]
    fn extents(dtype in dtype(), ne in prop::array::uniform4(count()), nb in prop::array::uniform4(any::<u32>())) {
        let shape = Shape { dtype, tiled: false, ne, nb };
        let blocks = u128::from(ne[0]) / u128::from(dtype.block_elems());
        let counts = [blocks, ne[1].into(), ne[2].into(), ne[3].into()];
        let empty = ne.contains(&0);
        if empty {
            prop_assert_eq!(shape.extent_bytes(), Some(0));
        } else if blocks > 0 {
            let steps = counts.iter().zip(nb).map(|(count, stride)| (count - 1) * u128::from(stride));
            let wanted = steps.sum::<u128>() + u128::from(dtype.block_bytes());
            prop_assert_eq!(shape.extent_bytes().map(u128::from), Some(wanted).filter(|&bytes| bytes < 1 << 64));
        }
    }

    #[test]
    fn tiles(dtype in dtype(), k in prop_oneof![0..9000u32, any::<u32>()], rest in prop::array::uniform3(count())) {
        let per_tile: u128 = match dtype {
            DType::Q4_0 => 576,
            DType::Q4_1 => 640,
            DType::Q8_0 => 1088,
            _ => 0,
        };
        let group = line(u128::from(k / 32) * per_tile);
        let exists = per_tile != 0 && k != 0 && k % 32 == 0 && group < 1 << 32;
        let layout = TileLayout::new(dtype, k);
        prop_assert_eq!(layout.is_some(), exists);
        if let Some(layout) = layout {
            prop_assert_eq!(u128::from(layout.group_bytes), group);
            let [rows, n2, n3] = rest.map(u128::from);
            let wanted = group * rows.div_ceil(32) * n2 * n3;
            let got = layout.tensor_bytes([k, rest[0], rest[1], rest[2]]);
            if wanted != 0 {
                prop_assert_eq!(got.map(u128::from), Some(wanted).filter(|&bytes| bytes < 1 << 64));
            }
        }
    }

    #[test]
    fn scratch_rows(k in any::<u32>()) {
        prop_assert_eq!(u128::from(scratch::quantized_row_bytes(k)), u128::from(k / 32) * 512 + 128);
        prop_assert_eq!(u128::from(scratch::float_row_bytes(k)), line(u128::from(k) * 4));
    }
}
