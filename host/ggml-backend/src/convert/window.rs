//! ggml's ops with a window over an image, in the parameters that hexloom's share (`hexloom::abi::window`).

use hexloom::abi::Opcode;
use hexloom::abi::limits::MAX_PARAMS;

use super::{Node, Why};
use crate::abi::{self, Tensor};

/// Along an axis that an op does not have.
const NO_STRIDE: u32 = 1;

/// Stride, padding, dilation and size along width, height and depth.
struct Axes([[u32; 4]; 3]);

/// The node of such an op; `None` for other ops.
pub(super) fn node(tensor: &Tensor) -> Option<Result<Node, Why>> {
    let given = tensor.op_params.map(i32::cast_unsigned);
    let size = |dim: usize| {
        tensor
            .src(0)
            .map_or(0, |weights| u32::try_from(weights.ne[dim]).unwrap_or(0))
    };
    let image = |dim: usize| {
        tensor
            .src(1)
            .map_or(0, |image| u32::try_from(image.ne[dim]).unwrap_or(0))
    };
    let axis = |stride: usize, padding: usize, dilation: usize, dim: usize| {
        [given[stride], given[padding], given[dilation], size(dim)]
    };
    let none = [NO_STRIDE, 0, 1, 1];
    let (opcode, axes, channels, dims, srcs) = match tensor.op()? {
        abi::Op::Im2col if given[6] != 0 => {
            let axes = [axis(0, 2, 4, 0), axis(1, 3, 5, 1), none];
            (Opcode::Im2col, axes, image(2), 2, vec![tensor.src(1)])
        }
        abi::Op::Im2col => (
            Opcode::Im2col,
            [axis(0, 2, 4, 0), none, none],
            image(1),
            1,
            vec![tensor.src(1)],
        ),
        abi::Op::Im2col3d => {
            let axes = [axis(0, 3, 6, 0), axis(1, 4, 7, 1), axis(2, 5, 8, 2)];
            (Opcode::Im2col, axes, given[9], 3, vec![tensor.src(1)])
        }
        abi::Op::Conv2d => {
            let axes = [axis(0, 2, 4, 0), axis(1, 3, 5, 1), none];
            (Opcode::Conv, axes, image(2), 2, vec![tensor.src(0), tensor.src(1)])
        }
        abi::Op::Conv3d => {
            let axes = [axis(0, 3, 6, 0), axis(1, 4, 7, 1), axis(2, 5, 8, 2)];
            (Opcode::Conv, axes, given[9], 3, vec![tensor.src(0), tensor.src(1)])
        }
        // ggml then divides by the elements inside the image, not by the window's.
        abi::Op::Pool1d if given[0] == 1 && given[3] > 0 => {
            return Some(Err("the mean of a window that leaves the image has no kernel"));
        }
        abi::Op::Pool1d => {
            let axes = [[given[2], given[3], 1, given[1]], none, none];
            (Opcode::Pool, axes, 1, 1, vec![tensor.src(0)])
        }
        abi::Op::Pool2d => {
            let axes = [
                [given[3], given[5], 1, given[1]],
                [given[4], given[6], 1, given[2]],
                none,
            ];
            (Opcode::Pool, axes, 1, 2, vec![tensor.src(0)])
        }
        _ => return None,
    };
    let mut params = Axes(axes).params();
    (params[12], params[13]) = (channels, dims);
    if opcode == Opcode::Pool {
        params[14] = given[0];
    }
    Some(Ok(Node {
        opcode,
        params,
        srcs: srcs.into_iter().map(Option::<&Tensor>::cloned).collect(),
        dst: *tensor,
        dst_2: None,
    }))
}

impl Axes {
    fn params(&self) -> [u32; MAX_PARAMS] {
        let mut params = [0; MAX_PARAMS];
        for (axis, numbers) in self.0.iter().enumerate() {
            for (kind, &number) in numbers.iter().enumerate() {
                params[3 * kind + axis] = number;
            }
        }
        params
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_one_kind_stand_together() {
        let params = Axes([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]).params();
        assert_eq!(params[..12], [1, 5, 9, 2, 6, 10, 3, 7, 11, 4, 8, 12]);
    }
}
