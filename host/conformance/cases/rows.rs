//! GET_ROWS and SET_ROWS: every table type, tiled ones included, both index types, broadcast indices.

use hexloom::DType;
use hexloom::abi::Opcode;

use crate::{Case, Fill, Layout, Operand};

const INDICES: [DType; 2] = [DType::I32, DType::I64];

/// Rows of a table chosen at random, some twice.
fn get(table: Operand, index: DType, n: u32) -> Case {
    let [k, rows, n2, n3] = table.ne;
    let dtype = if table.dtype == DType::I32 {
        DType::I32
    } else {
        DType::F32
    };
    Case::new(Opcode::GetRows)
        .named(format_args!(
            "{n} of {} {:?} {:?} by {index}",
            table.dtype, table.ne, table.layout
        ))
        .src(table)
        .src(Operand::new(index, [n, n2, n3, 1]).fill(Fill::Below(rows)))
        .dst(Operand::new(dtype, [k, n, n2, n3]).fill(Fill::Junk))
}

/// Rows stored at distinct places; `broadcast` has one list of places for all of dimension 2.
fn set(rows: Operand, into: Operand, index: DType, broadcast: bool) -> Case {
    let [_, n, n2, n3] = rows.ne;
    let lists = [n, if broadcast { 1 } else { n2 }, n3, 1];
    Case::new(Opcode::SetRows)
        .named(format_args!(
            "{} {:?} {:?} into {} {:?} {:?} by {index} {lists:?}",
            rows.dtype, rows.ne, rows.layout, into.dtype, into.ne, into.layout
        ))
        .src(rows)
        .src(Operand::new(index, lists).fill(Fill::Distinct(into.ne[1])))
        .dst(into)
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for index in INDICES {
        for dtype in [DType::F32, DType::F16, DType::Q4_0, DType::Q4_1, DType::Q8_0] {
            for k in [32, 224, 288] {
                cases.push(get(Operand::weight(dtype, [k, 70, 1, 1]), index, 5));
            }
            cases.push(get(Operand::weight(dtype, [64, 40, 3, 2]), index, 7));
            cases.push(get(Operand::new(dtype, [64, 9, 2, 1]), index, 4));
            cases.push(get(
                Operand::new(dtype, [64, 9, 2, 1]).layout(Layout::Padded(1, 3)),
                index,
                1,
            ));
        }
        cases.push(get(Operand::i32([5, 9, 1, 1], Fill::Counting), index, 3));
        cases.push(get(Operand::f32([37, 9, 1, 1]).layout(Layout::Padded(0, 3)), index, 20));

        for dtype in [DType::F32, DType::F16, DType::Q8_0] {
            for rows in [DType::F32, DType::F16] {
                let rows = |ne| Operand::new(rows, ne);
                cases.push(set(
                    rows([64, 3, 1, 1]),
                    Operand::new(dtype, [64, 10, 1, 1]),
                    index,
                    false,
                ));
                cases.push(set(
                    rows([96, 4, 3, 2]),
                    Operand::new(dtype, [96, 7, 3, 2]),
                    index,
                    true,
                ));
                cases.push(set(
                    rows([96, 4, 3, 2]),
                    Operand::new(dtype, [96, 7, 3, 2]),
                    index,
                    false,
                ));
                let padded = Operand::new(dtype, [64, 6, 2, 1]).layout(Layout::Padded(1, 2));
                cases.push(set(
                    rows([64, 5, 2, 1]).layout(Layout::Padded(0, 3)),
                    padded,
                    index,
                    false,
                ));
            }
        }
        cases.push(set(
            Operand::f32([33, 1, 1, 1]),
            Operand::f16([33, 4, 1, 1]),
            index,
            false,
        ));
        let large = Operand::f32([32, 3, 1, 1]).fill(Fill::Uniform(1e4));
        cases.push(set(large, Operand::new(DType::Q8_0, [32, 5, 1, 1]), index, false));
    }
    cases
}
