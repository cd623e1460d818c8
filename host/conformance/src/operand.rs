//! An operand: type, dimensions, where its elements lie, what they hold.

use hexloom::DType;
use hexloom::abi::op::Shape;
use hexloom::abi::tile::TileLayout;

use crate::fill::Fill;

/// A described tensor.
#[derive(Clone, PartialEq, Debug)]
pub struct Operand {
    /// Element type.
    pub dtype: DType,
    /// Elements per dimension, innermost first.
    pub ne: [u32; 4],
    /// Where the elements lie.
    pub layout: Layout,
    /// What they hold.
    pub fill: Fill,
}

/// Where an operand's elements lie in the dense tensor around it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// Side by side.
    Dense,
    /// A constant: tiles for a quantised type, dense rows otherwise.
    Weight,
    /// Dimension `order[i]` of the operand is dimension `i` of the dense tensor.
    Permuted([usize; 4]),
    /// The dense tensor has this many elements more in a dimension, half of them (rounded down) in front.
    Padded(usize, u32),
    /// Every second element of each row.
    EverySecond,
}

/// A layout in numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    /// Dimensions of the dense tensor around the operand.
    pub around: [u32; 4],
    /// The operand's strides in bytes.
    pub nb: [u32; 4],
    /// Bytes from the start of the dense tensor to the operand's first element.
    pub offset: u64,
    /// Bytes of the dense tensor.
    pub bytes: u64,
}

impl Operand {
    /// A dense tensor of uniform values within -1..1.
    pub fn new(dtype: DType, ne: [u32; 4]) -> Self {
        Self {
            dtype,
            ne,
            layout: Layout::Dense,
            fill: Fill::Uniform(1.0),
        }
    }

    /// A dense F32 tensor.
    pub fn f32(ne: [u32; 4]) -> Self {
        Self::new(DType::F32, ne)
    }

    /// A dense F16 tensor.
    pub fn f16(ne: [u32; 4]) -> Self {
        Self::new(DType::F16, ne)
    }

    /// A dense I32 tensor that holds `fill`.
    pub fn i32(ne: [u32; 4], fill: Fill) -> Self {
        Self::new(DType::I32, ne).fill(fill)
    }

    /// A constant, in tiles when quantised.
    pub fn weight(dtype: DType, ne: [u32; 4]) -> Self {
        Self::new(dtype, ne).layout(Layout::Weight)
    }

    /// Sets the values.
    pub fn fill(mut self, fill: Fill) -> Self {
        self.fill = fill;
        self
    }

    /// Sets the layout.
    pub fn layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// Swaps the two innermost dimensions in memory.
    pub fn transposed(self) -> Self {
        self.layout(Layout::Permuted([1, 0, 2, 3]))
    }

    /// Whether its bytes are tiles.
    pub fn is_tiled(&self) -> bool {
        self.layout == Layout::Weight && self.dtype.is_quantized()
    }

    /// The layout in numbers.
    ///
    /// # Panics
    /// When the case list describes a tensor that cannot exist.
    pub fn placement(&self) -> Placement {
        let dense = |ne| Shape::dense(self.dtype, ne).expect("a tensor of the case list is whole blocks below 4 GiB");
        let whole = |around: [u32; 4], nb, offset| Placement {
            around,
            nb,
            offset,
            bytes: dense(around).extent_bytes().unwrap_or(0),
        };
        match self.layout {
            Layout::Weight if self.is_tiled() => {
                let tile = TileLayout::new(self.dtype, self.ne[0]).expect("a weight of the case list can be tiled");
                Placement {
                    around: self.ne,
                    nb: tile.strides(self.dtype, self.ne).expect("a weight is below 4 GiB"),
                    offset: 0,
                    bytes: tile.tensor_bytes(self.ne).expect("a weight is below 4 GiB"),
                }
            }
            Layout::Dense | Layout::Weight => whole(self.ne, dense(self.ne).nb, 0),
            Layout::Permuted(order) => {
                let around = order.map(|dim| self.ne[dim]);
                let mut nb = [0; 4];
                for (dim, stride) in order.into_iter().zip(dense(around).nb) {
                    nb[dim] = stride;
                }
                whole(around, nb, 0)
            }
            Layout::Padded(dim, n) => {
                let mut around = self.ne;
                around[dim] += n;
                let nb = dense(around).nb;
                whole(around, nb, u64::from(n / 2) * u64::from(nb[dim]))
            }
            Layout::EverySecond => {
                let mut around = self.ne;
                around[0] *= 2;
                let mut nb = dense(around).nb;
                nb[0] *= 2;
                whole(around, nb, 0)
            }
        }
    }
}
