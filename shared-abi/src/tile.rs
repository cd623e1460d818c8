//! The tiled layout of quantised weights: 32 rows x 32 k per tile, in the order in which `vrmpy` consumes it.
//!
//! A weight matrix is cut into groups of 32 rows (the last one padded with zeros). A group holds first the codes of all
//! its tiles along k, then their scales, so that every vector load of codes is aligned:
//!
//! ```text
//! group = [ k-tile 0 codes | k-tile 1 codes | ... ][ k-tile 0 scales | k-tile 1 scales | ... ][ padding to 128 ]
//! ```
//!
//! - 4-bit codes (512 bytes a tile): vector j of four holds in byte `4*row + b` the code of `k = 8j + b` in the low and
//!   of `k = 8j + 4 + b` in the high nibble. One `and` and one shift give two unsigned `vrmpy` operands.
//! - 8-bit codes (1024 bytes a tile): vector g of eight holds in byte `4*row + b` the code of `k = 4g + b`, plus 128, so
//!   that both kinds are unsigned and the constant is removed by one correction with the activation sum.
//! - scales: 32 f16 a tile, by row. `Q4_1` has each row's minimum, f16, behind its scale: one multiplication of halves by
//!   one widens both, with no shuffle.

use crate::code::DType;
use crate::layout::align_up;
use crate::limits::LINE_BYTES;

/// Rows of a tile, and lanes of a vector of 32-bit accumulators.
pub const TILE_ROWS: u32 = 32;
/// Elements along k of a tile, equal to the block length of every tiled type.
pub const TILE_K: u32 = 32;

/// Byte counts of one tiled matrix type at a given row length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TileLayout {
    /// Tiles along k.
    pub k_tiles: u32,
    /// Bytes of a tile's codes.
    pub code_bytes: u32,
    /// Bytes of a tile's scales (and minima).
    pub scale_bytes: u32,
    /// Offset of the scales in a group.
    pub scales_offset: u32,
    /// Bytes of a group of 32 rows.
    pub group_bytes: u32,
}

impl TileLayout {
    /// The layout of rows of `k` elements; `None` for types that are not tiled, a `k` that is not a multiple of 32, or
    /// a group of 4 GiB or more.
    pub fn new(dtype: DType, k: u32) -> Option<Self> {
        let (code_bytes, scale_bytes) = match dtype {
            DType::Q4_0 => (512u32, 64u32),
            DType::Q4_1 => (512, 128),
            DType::Q8_0 => (1024, 64),
            _ => return None,
        };
        if k == 0 || !k.is_multiple_of(TILE_K) {
            return None;
        }
        let k_tiles = k.checked_div(TILE_K)?;
        let scales_offset = k_tiles.checked_mul(code_bytes)?;
        let scales = k_tiles.checked_mul(scale_bytes)?;
        let used = u64::from(scales_offset).checked_add(u64::from(scales))?;
        let group_bytes = u32::try_from(align_up(used, LINE_BYTES)?).ok()?;
        Some(Self {
            k_tiles,
            code_bytes,
            scale_bytes,
            scales_offset,
            group_bytes,
        })
    }

    /// Groups that `rows` rows need.
    pub fn groups(rows: u32) -> u32 {
        rows.div_ceil(TILE_ROWS)
    }

    /// Byte strides of a tiled tensor: block, group, matrix, and matrix of matrices; `None` when one exceeds u32.
    pub fn strides(&self, dtype: DType, ne: [u32; 4]) -> Option<[u32; 4]> {
        let [_, rows, n2, _] = ne;
        let slice = self.group_bytes.checked_mul(Self::groups(rows))?;
        let block = u32::try_from(dtype.block_bytes()).ok()?;
        Some([block, self.group_bytes, slice, slice.checked_mul(n2)?])
    }

    /// Bytes of a whole tiled tensor.
    pub fn tensor_bytes(&self, ne: [u32; 4]) -> Option<u64> {
        let [_, rows, n2, n3] = ne;
        u64::from(self.group_bytes)
            .checked_mul(u64::from(Self::groups(rows)))?
            .checked_mul(u64::from(n2))?
            .checked_mul(u64::from(n3))
    }
}
