//! SET_ROWS and CPY.

use hexloom_abi::{DType, Opcode, Status};

use crate::support::{Case, Fill, Spec, kernel_tests};

const FLOATS: [DType; 2] = [DType::F32, DType::F16];

fn set_rows(rows: Spec, targets: Spec, out: Spec) -> Case {
    // Rows of the destination that no index names stay junk in the reference and in the kernels alike.
    Case::new(Opcode::SetRows).src(rows).src(targets).dst(out)
}

fn set_rows_types() -> impl Iterator<Item = Case> {
    let targets = [DType::I32, DType::I64].map(|dtype| {
        let values = [3.0, 0.0, 2.0, 2.0, 1.0, 0.0, 1.0, 3.0];
        Spec::new(dtype, [4, 2, 1, 1]).fill(Fill::Values(values.to_vec()))
    });
    FLOATS.into_iter().flat_map(move |from| {
        let targets = targets.clone();
        [DType::F32, DType::F16, DType::Q8_0].into_iter().flat_map(move |to| {
            let targets = targets.clone();
            [32, 96, 640].into_iter().flat_map(move |n0| {
                let rows = Spec::new(from, [n0, 4, 4, 3]).range(5.0).skewed();
                let out = Spec::new(to, [n0, 4, 4, 3]).strided(1, 1).skewed();
                targets
                    .clone()
                    .map(|targets| set_rows(rows.clone(), targets, out.clone()))
            })
        })
    })
}

fn set_rows_shapes() -> impl Iterator<Item = Case> {
    let one = || Spec::i32([1, 1, 1, 1], &[5]);
    [
        set_rows(Spec::f32([45, 1, 1, 1]), one(), Spec::f16([45, 6, 1, 1])),
        set_rows(Spec::f32([1, 1, 1, 1]), one(), Spec::f32([1, 9, 1, 1])),
        set_rows(
            Spec::f32([3000, 1, 2, 1]).strided(1, 7),
            one(),
            Spec::f16([3000, 6, 2, 1]),
        ),
        set_rows(
            Spec::f32([33, 0, 1, 1]),
            Spec::i32([0, 1, 1, 1], &[0]),
            Spec::f16([33, 6, 1, 1]),
        ),
        // All zero, one huge value, and magnitudes whose f16 scale is subnormal.
        set_rows(
            Spec::f32([64, 1, 1, 1]).fill(Fill::Value(0.0)),
            one(),
            Spec::new(DType::Q8_0, [64, 6, 1, 1]),
        ),
        set_rows(
            Spec::f32([64, 1, 1, 1]).range(1e6),
            one(),
            Spec::new(DType::Q8_0, [64, 6, 1, 1]),
        ),
        set_rows(
            Spec::f32([64, 1, 1, 1]).range(1e-4),
            one(),
            Spec::new(DType::Q8_0, [64, 6, 1, 1]),
        ),
        set_rows(
            Spec::f32([90, 1, 1, 1]).fill(Fill::Special),
            one(),
            Spec::f32([90, 6, 1, 1]),
        ),
    ]
    .into_iter()
}

/// Each index is looked at before anything is written.
fn set_rows_out_of_range() -> impl Iterator<Item = Case> {
    [-1, 6, i64::from(i32::MAX)].into_iter().flat_map(|bad| {
        [DType::I32, DType::I64].map(|dtype| {
            let targets = Spec::new(dtype, [2, 1, 1, 1]).fill(Fill::Values(vec![0.0, bad as f64]));
            set_rows(Spec::f32([8, 2, 1, 1]), targets, Spec::f16([8, 6, 1, 1])).fails_with(Status::IndexOutOfRange)
        })
    })
}

fn cpy(from: Spec, to: Spec) -> Case {
    Case::new(Opcode::Cpy).src(from).dst(to)
}

fn cpy_types() -> impl Iterator<Item = Case> {
    let shapes = [
        ([33, 3, 2, 2], [33, 3, 2, 2]),
        ([64, 6, 1, 1], [32, 12, 1, 1]),
        ([10, 6, 7, 1], [35, 3, 2, 2]),
        ([420, 1, 1, 1], [1, 1, 1, 420]),
        ([5, 0, 1, 1], [0, 9, 1, 1]),
        ([4100, 3, 1, 1], [100, 123, 1, 1]),
    ];
    let types = FLOATS
        .into_iter()
        .flat_map(|from| FLOATS.map(|to| (from, to)))
        .chain([(DType::I32, DType::I32), (DType::I64, DType::I64)]);
    types.flat_map(move |(from_type, to_type)| {
        shapes.into_iter().flat_map(move |(from, to)| {
            let from = Spec::new(from_type, from).range(1000.0);
            let to = Spec::new(to_type, to);
            [
                cpy(from.clone(), to.clone()),
                cpy(from.clone().strided(1, 1).skewed(), to.clone().strided(1, 3).skewed()),
                cpy(from.clone().transposed(), to.clone()),
                cpy(from.strided(3, 2), to.transposed()),
            ]
        })
    })
}

/// The case: equal shapes where one side's inner stride is not the element size.
fn cpy_inner_stride() -> impl Iterator<Item = Case> {
    FLOATS.into_iter().flat_map(|dtype| {
        let spec = || Spec::new(dtype, [40, 5, 3, 2]);
        [
            cpy(spec().strided(2, 0), spec()),
            cpy(spec(), spec().strided(2, 0)),
            cpy(spec().transposed(), spec().strided(3, 1)),
        ]
    })
}

fn cpy_special() -> impl Iterator<Item = Case> {
    let special = |dtype| Spec::new(dtype, [99, 8, 1, 1]).fill(Fill::Special);
    FLOATS
        .into_iter()
        .flat_map(move |from| FLOATS.map(|to| cpy(special(from), Spec::new(to, [99, 8, 1, 1]))))
}

kernel_tests! {
    set_rows_of_every_type: set_rows_types();
    set_rows_of_odd_shapes: set_rows_shapes();
    set_rows_out_of_range_writes_nothing: set_rows_out_of_range();
    cpy_between_types_and_shapes: cpy_types();
    cpy_with_an_inner_stride: cpy_inner_stride();
    cpy_of_special_values: cpy_special();
}
