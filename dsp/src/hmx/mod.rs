//! The matrix unit (HMX, v73 and later): products of 32x32 tiles of f16, for matmuls of many rows and for attention.
//!
//! [`MatrixUnit`] is the unit as six instructions make it: clear the accumulator, add products of runs of tiles to it,
//! choose a column scale, store. [`words`] emits the instructions on a device, [`model`] computes the same elsewhere.
//! `tile` is what fills and reads tiles; `matmul` and `attention` are the ops.
//!
//! The unit stores f16 only and says nothing of infinities and NaN, so both ops bring their operands into its range by
//! powers of two, keep what f16 drops in second terms where precision needs it, and take values that are not finite out
//! before they reach a tile. What does not fit the unit, by its shape or its values, stays with the vector kernels.

pub(crate) mod attention;
mod attention_drive;
mod attention_step;
pub(crate) mod matmul;
mod matmul_step;
pub mod model;
pub(crate) mod tile;
mod transpose;
pub mod words;

use crate::tensor::Span;

/// Rows and columns of a tile.
pub const TILE: usize = 32;
/// Elements of a tile.
pub const TILE_ELEMS: usize = TILE * TILE;
/// Bytes of a tile, and the boundary that each lies on.
pub const TILE_BYTES: usize = TILE_ELEMS * 2;
/// Tiles that one instruction takes at most.
pub const RUN_TILES: usize = 32;
/// Halves of a column scale block: 64 scales, of which the unit's 32 columns use equal ones, then 64 offsets of zero.
pub const SCALE_HALVES: usize = 128;

pub(crate) use hexloom_abi::unit::FEW_ROWS;

/// The accumulator of one tile of results, and what can be done to it.
///
/// An activation or result tile holds element (row, column) at half `64 * (row / 2) + 2 * column + (row & 1)`, a weight
/// tile (k, column) at `64 * (k / 2) + 2 * column + (k & 1)`. Both lie on a boundary of [`TILE_BYTES`] in scratch memory.
pub trait MatrixUnit {
    /// Sets the accumulator to zero.
    fn clear(&mut self);

    /// Adds the products of 1 to [`RUN_TILES`] activation tiles along k with as many weight tiles.
    ///
    /// # Panics
    /// Where debug assertions are on: when the spans are not as many whole tiles on their boundary.
    fn multiply(&mut self, act: Span<'_, u16>, weight: Span<'_, u16>);

    /// Chooses the scales that the next stored result is multiplied by, [`SCALE_HALVES`] halves on a boundary of 256
    /// bytes.
    fn set_scale(&mut self, scales: Span<'_, u16>);

    /// Stores the scaled accumulator as a tile of f16, rounded to nearest even. What the accumulator then holds is not
    /// defined.
    fn store(&mut self, to: Span<'_, u16>);
}

/// Which matrix unit a session drives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnitKind {
    /// The software model.
    Model,
    /// The machine's own.
    #[cfg(target_arch = "hexagon")]
    Device,
}

/// Whether a session uses the matrix unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MatrixUse {
    /// Where the machine has one.
    #[default]
    IfThere,
    /// Where the machine has one, elsewhere the model.
    OrModel,
    /// Never.
    Off,
}

impl MatrixUse {
    /// The unit to drive on a machine that has one or not.
    pub fn unit(self, is_there: bool) -> Option<UnitKind> {
        match (self, is_there) {
            (Self::Off, _) => None,
            #[cfg(target_arch = "hexagon")]
            (_, true) => Some(UnitKind::Device),
            (Self::OrModel, _) => Some(UnitKind::Model),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
