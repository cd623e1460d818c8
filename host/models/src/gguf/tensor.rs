//! Tensor descriptions: type, extents and where the data lies.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use super::cursor::Cursor;
use crate::ModelError;

/// The element types that hexloom has kernels for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TensorType {
    /// 32-bit floating point.
    F32,
    /// 16-bit floating point.
    F16,
    /// Blocks of 32: an f16 scale and 4-bit values minus 8; 18 bytes.
    Q4_0,
    /// Blocks of 32: f16 scale, f16 minimum, 4-bit values; 20 bytes.
    Q4_1,
    /// Blocks of 32: an f16 scale and 8-bit signed values; 34 bytes.
    Q8_0,
}

impl TensorType {
    /// Every supported type.
    pub const ALL: [Self; 5] = [Self::F32, Self::F16, Self::Q4_0, Self::Q4_1, Self::Q8_0];
    /// Their names, for messages.
    pub(crate) const SUPPORTED: &'static str = "F32, F16, Q4_0, Q4_1, Q8_0";

    /// ggml's number for the type.
    pub fn code(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q4_0 => 2,
            Self::Q4_1 => 3,
            Self::Q8_0 => 8,
        }
    }

    /// Elements of a block, which lie along the first extent; 1 for plain types.
    pub fn block_elems(self) -> u64 {
        match self {
            Self::F32 | Self::F16 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q8_0 => 32,
        }
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q8_0 => 34,
        }
    }

    fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|ty| ty.code() == code)
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A tensor of the file: what it is, and its bytes in the mapping.
///
/// The bytes are contiguous, innermost extent first, exactly as long as type and extents call for, and start at a
/// multiple of the file's alignment (at least 8).
#[derive(Clone, Copy)]
pub struct TensorSource<'a> {
    path: &'a Path,
    name: &'a str,
    ty: TensorType,
    ne: [u64; 4],
    bytes: &'a [u8],
}

impl<'a> TensorSource<'a> {
    pub(super) fn new(path: &'a Path, name: &'a str, ty: TensorType, ne: [u64; 4], bytes: &'a [u8]) -> Self {
        Self {
            path,
            name,
            ty,
            ne,
            bytes,
        }
    }

    /// The tensor's name.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// The element type.
    pub fn ty(&self) -> TensorType {
        self.ty
    }

    /// The extents in elements, innermost first, filled up with ones. None is zero.
    pub fn ne(&self) -> [u64; 4] {
        self.ne
    }

    /// The data.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The tensor itself if its extents are `ne`, filled up with ones.
    ///
    /// # Errors
    /// [`ModelError::WrongShape`]; also when `ne` has more than four extents.
    pub fn with_shape(self, ne: &[u64]) -> Result<Self, ModelError> {
        let mut expected = [1; 4];
        let fits = ne.len() <= expected.len();
        expected.iter_mut().zip(ne).for_each(|(to, from)| *to = *from);
        if fits && self.ne == expected {
            return Ok(self);
        }
        Err(ModelError::WrongShape {
            path: self.path.into(),
            tensor: self.name.into(),
            found: self.ne,
            expected,
        })
    }

    /// The tensor itself if its type is one of `types`.
    ///
    /// # Errors
    /// [`ModelError::WrongType`].
    pub fn with_type(self, types: &[TensorType]) -> Result<Self, ModelError> {
        if types.contains(&self.ty) {
            return Ok(self);
        }
        let names: Vec<String> = types.iter().map(TensorType::to_string).collect();
        Err(ModelError::WrongType {
            path: self.path.into(),
            tensor: self.name.into(),
            found: self.ty,
            expected: names.join(" or "),
        })
    }
}

impl fmt::Debug for TensorSource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, ty, ne, n_bytes) = (self.name, self.ty, self.ne, self.bytes.len());
        write!(f, "{name}: {ty} {ne:?}, {n_bytes} bytes")
    }
}

/// A tensor description whose data has not been found yet.
pub(super) struct Described {
    pub(super) name: String,
    pub(super) ty: TensorType,
    pub(super) ne: [u64; 4],
    n_bytes: u64,
    offset: u64,
}

/// Reads `n_tensors` descriptions.
pub(super) fn parse(cursor: &mut Cursor<'_>, n_tensors: u64) -> Result<Vec<Described>, ModelError> {
    (0..n_tensors).map(|i| Described::parse(cursor, i)).collect()
}

impl Described {
    fn parse(cursor: &mut Cursor<'_>, i: u64) -> Result<Self, ModelError> {
        let path = cursor.path();
        let what = format_args!("the name of tensor {i}");
        let range = cursor.string(what)?;
        let name = cursor.text(range, what)?.to_owned();

        let bad = |name: &str, ne: &[u64], reason| {
            Err(ModelError::Extents {
                path: path.into(),
                tensor: name.into(),
                ne: ne.to_vec(),
                reason,
            })
        };
        let n_dims = cursor.u32(format_args!("the number of dimensions of tensor {name}"))?;
        let mut ne = [1; 4];
        if n_dims as usize > ne.len() {
            return bad(&name, &[], "it has more than 4 dimensions");
        }
        for extent in &mut ne[..n_dims as usize] {
            *extent = cursor.u64(format_args!("the extents of tensor {name}"))?;
        }
        let code = cursor.u32(format_args!("the type of tensor {name}"))?;
        let offset = cursor.u64(format_args!("the offset of tensor {name}"))?;
        let Some(ty) = TensorType::from_code(code) else {
            let found = ggml_name(code).map_or_else(|| format!("type number {code}"), str::to_owned);
            return Err(ModelError::Quantisation {
                path: path.into(),
                tensor: name,
                found,
            });
        };
        if ne.contains(&0) {
            return bad(&name, &ne, "none may be 0");
        }
        if !ne[0].is_multiple_of(ty.block_elems()) {
            return bad(&name, &ne, "the first is no multiple of 32, the block of its type");
        }
        let blocks = ne[1..]
            .iter()
            .try_fold(ne[0] / ty.block_elems(), |product, extent| product.checked_mul(*extent));
        let Some(n_bytes) = blocks.and_then(|blocks| blocks.checked_mul(ty.block_bytes())) else {
            return bad(&name, &ne, "their product is too large for any file");
        };
        Ok(Self {
            name,
            ty,
            ne,
            n_bytes,
            offset,
        })
    }

    /// The range of the file that holds the data. `data_start` is `None` when it is too large for a u64.
    pub(super) fn place(
        &self,
        path: &Path,
        data_start: Option<u64>,
        alignment: u64,
        file_bytes: usize,
    ) -> Result<Range<usize>, ModelError> {
        if !self.offset.is_multiple_of(alignment) {
            let (path, tensor, offset) = (path.into(), self.name.clone(), self.offset);
            return Err(ModelError::TensorMisaligned {
                path,
                tensor,
                offset,
                alignment,
            });
        }
        let file_bytes = file_bytes as u64;
        let start = data_start.and_then(|start| start.checked_add(self.offset));
        let end = start.and_then(|start| start.checked_add(self.n_bytes));
        match (start, end) {
            (Some(start), Some(end)) if end <= file_bytes => Ok(start as usize..end as usize),
            _ => Err(ModelError::TensorOutside {
                path: path.into(),
                tensor: self.name.clone(),
                start: start.unwrap_or(u64::MAX),
                end: end.unwrap_or(u64::MAX),
                file_bytes,
            }),
        }
    }
}

/// ggml's names of the types that are not supported, so that the message can name what the user downloaded.
fn ggml_name(code: u32) -> Option<&'static str> {
    Some(match code {
        6 => "Q5_0",
        7 => "Q5_1",
        9 => "Q8_1",
        10 => "Q2_K",
        11 => "Q3_K",
        12 => "Q4_K",
        13 => "Q5_K",
        14 => "Q6_K",
        15 => "Q8_K",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        20 => "IQ4_NL",
        21 => "IQ3_S",
        22 => "IQ2_S",
        23 => "IQ4_XS",
        24 => "I8",
        25 => "I16",
        26 => "I32",
        27 => "I64",
        28 => "F64",
        29 => "IQ1_M",
        30 => "BF16",
        34 => "TQ1_0",
        35 => "TQ2_0",
        39 => "MXFP4",
        _ => return None,
    })
}
