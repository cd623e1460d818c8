//! Elements of any type by index, as f64.

use hexloom_abi::DType;

use crate::hvx::plain::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use crate::kernels::dequantize::Blocks;
use crate::tensor::Tensor;

/// Indices in all four dimensions, innermost first.
pub type Index = [usize; 4];

/// Element `index`; integers as numbers, quantised types dequantised.
pub fn get(tensor: &Tensor<'_>, [i0, rest @ ..]: Index) -> f64 {
    match tensor.dtype() {
        DType::F32 => f64::from(tensor.element::<f32>(i0, rest).get(0)),
        DType::F16 => f64::from(f16_to_f32(tensor.element::<u16>(i0, rest).get(0))),
        DType::Bf16 => f64::from(bf16_to_f32(tensor.element::<u16>(i0, rest).get(0))),
        DType::I8 => f64::from(tensor.element::<i8>(i0, rest).get(0)),
        DType::I32 => f64::from(tensor.element::<i32>(i0, rest).get(0)),
        DType::I64 => tensor.element::<i64>(i0, rest).get(0) as f64,
        _ => f64::from(Blocks::new(tensor, rest).get(i0 / 32)[i0 % 32]),
    }
}

/// Stores a float as F32, F16 or BF16, rounded to nearest even.
///
/// # Panics
/// For other types.
pub fn put(tensor: &Tensor<'_>, [i0, rest @ ..]: Index, value: f64) {
    match tensor.dtype() {
        DType::F32 => tensor.element::<f32>(i0, rest).set(0, value as f32),
        DType::F16 => tensor.element::<u16>(i0, rest).set(0, f32_to_f16(value as f32)),
        DType::Bf16 => tensor.element::<u16>(i0, rest).set(0, f32_to_bf16(value as f32)),
        other => panic!("{} is no float destination", other.name()),
    }
}

/// Every index of a tensor in storage order.
pub fn indices(tensor: &Tensor<'_>) -> impl Iterator<Item = Index> + use<> {
    let ne = tensor.ne();
    (0..ne.iter().product()).map(move |place| unravel(place, ne))
}

/// Indices in dimensions 1 to 3 of every row in storage order.
pub fn rows(tensor: &Tensor<'_>) -> impl Iterator<Item = [usize; 3]> + use<> {
    let [_, n1, n2, n3] = tensor.ne();
    (0..n1 * n2 * n3).map(move |row| [row % n1, row / n1 % n2, row / (n1 * n2)])
}

/// The index of the element that is `place`-th in storage order.
pub fn unravel(place: usize, [n0, n1, n2, _]: [usize; 4]) -> Index {
    [
        place % n0,
        place / n0 % n1,
        place / (n0 * n1) % n2,
        place / (n0 * n1 * n2),
    ]
}

/// `index` within a tensor that repeats in every dimension.
pub fn wrap(index: Index, tensor: &Tensor<'_>) -> Index {
    let ne = tensor.ne();
    core::array::from_fn(|dim| index[dim] % ne[dim])
}
