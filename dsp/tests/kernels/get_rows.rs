//! GET_ROWS.

use hexloom_abi::{DType, Opcode, Status};

use crate::support::weights::Weights;
use crate::support::{Case, Spec, kernel_tests};

const QUANTIZED: [DType; 3] = [DType::Q4_0, DType::Q4_1, DType::Q8_0];
const CHOSEN: [i64; 6] = [0, 39, 7, 7, 31, 32];

kernel_tests! {
    plain_tables: [DType::F32, DType::F16, DType::I32].into_iter().flat_map(|dtype| {
        [1, 31, 32, 33, 100].map(|n| chosen(Spec::new(dtype, [n, 40, 1, 1]).range(100.0)))
    });
    strided_tables: [DType::F32, DType::F16].map(|dtype| chosen(Spec::new(dtype, [33, 40, 1, 1]).strided(1, 3).skewed()));
    quantized_rows: QUANTIZED.into_iter().flat_map(|dtype| {
        [32, 96, 576].map(|n| chosen(Weights::random(dtype, [n, 40, 1, 1], 0.1).rows()))
    });
    quantized_tiles: QUANTIZED.into_iter().flat_map(|dtype| {
        [32, 96, 576].map(|n| chosen(Weights::random(dtype, [n, 40, 1, 1], 0.1).tiled()))
    });
    several_matrices: QUANTIZED.into_iter().flat_map(|dtype| {
        let weights = Weights::random(dtype, [64, 40, 3, 2], 0.1);
        [weights.tiled(), weights.rows()]
    }).chain([Spec::f16([64, 40, 3, 2])]).map(matrices);
    indices_of_eight_bytes: [with_indices(Spec::new(DType::F32, [5, 40, 1, 1]), eight_bytes(&CHOSEN))];
    no_rows: [with_indices(Spec::new(DType::F32, [5, 40, 1, 1]), Spec::i32([0, 1, 1, 1], &[0]))];
    outside: [40, -1, i64::from(i32::MAX), i64::from(i32::MIN)].into_iter().flat_map(|bad| {
        let table = || Weights::random(DType::Q8_0, [32, 40, 1, 1], 0.1);
        [Spec::new(DType::F32, [5, 40, 1, 1]), table().rows(), table().tiled()].map(|table| {
            with_indices(table, Spec::i32([3, 1, 1, 1], &[1, bad, 2])).fails_with(Status::IndexOutOfRange)
        })
    });
    outside_by_eight_bytes: [i64::MIN, i64::MAX, 1 << 32].map(|bad| {
        with_indices(Spec::new(DType::F32, [5, 40, 1, 1]), eight_bytes(&[bad])).fails_with(Status::IndexOutOfRange)
    });
}

/// Tiles give the same rows as the row layout.
#[test]
fn tiles_equal_rows() {
    for dtype in QUANTIZED {
        let weights = Weights::random(dtype, [96, 40, 1, 1], 0.1);
        let [tiles, rows] = [weights.tiled(), weights.rows()].map(|table| {
            let outputs = crate::support::case::outputs(&chosen(table), None);
            outputs.iter().flat_map(|out| out.values()).collect::<Vec<_>>()
        });
        assert_eq!(tiles, rows, "{dtype}");
    }
}

fn chosen(table: Spec) -> Case {
    with_indices(table, Spec::i32([CHOSEN.len() as u32, 1, 1, 1], &CHOSEN))
}

fn matrices(table: Spec) -> Case {
    let indices: Vec<i64> = (0..30).map(|idx| idx * 7 % 40).collect();
    with_indices(table, Spec::i32([5, 3, 2, 1], &indices))
}

fn with_indices(table: Spec, indices: Spec) -> Case {
    let [n0, n1, n2, _] = indices.shape.ne;
    let dtype = match table.shape.dtype {
        DType::I32 => DType::I32,
        _ => DType::F32,
    };
    let out = Spec::new(dtype, [table.shape.ne[0], n0, n1, n2]);
    Case::new(Opcode::GetRows).src(table).src(indices).dst(out)
}

fn eight_bytes(values: &[i64]) -> Spec {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Spec::new(DType::I64, [values.len() as u32, 1, 1, 1]).fill(crate::support::Fill::Bytes(bytes))
}
