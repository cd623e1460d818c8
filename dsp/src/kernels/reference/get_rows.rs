//! GET_ROWS, element by element.

use hexloom_abi::{DType, Status};

use super::element::{indices, put};
use crate::kernels::OpArgs;
use crate::kernels::dequantize::Blocks;
use crate::kernels::get_rows::{check, table_row};

pub(super) fn get_rows(args: &OpArgs<'_>) -> Result<(), Status> {
    let (table, chosen, out) = (args.src(0)?, args.src(1)?, args.dst(0)?);
    check(&chosen, &out, table.ne()[1])?;
    for to @ [i0, i1, i2, i3] in indices(&out) {
        let row = table_row(&chosen, [i1, i2, i3], table.ne()[1]).ok_or(Status::IndexOutOfRange)?;
        let from = [row, i2, i3];
        if table.dtype() == DType::I32 {
            let value = table.element::<i32>(i0, from).get(0);
            out.element::<i32>(i0, [i1, i2, i3]).set(0, value);
        } else {
            let value = Blocks::new(&table, from).get(i0 / 32)[i0 % 32];
            put(&out, to, f64::from(value));
        }
    }
    Ok(())
}
