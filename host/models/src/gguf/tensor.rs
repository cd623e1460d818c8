//! Tensor descriptions: type, extents and where the data lies.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use hexloom::DType;

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
    /// The upper half of 32-bit floating point.
    Bf16,
    /// Blocks of 32: an f16 scale and 4-bit values minus 8; 18 bytes.
    Q4_0,
    /// Blocks of 32: f16 scale, f16 minimum, 4-bit values; 20 bytes.
    Q4_1,
    /// Blocks of 32: an f16 scale and 5-bit values minus 16; 22 bytes.
    Q5_0,
    /// Blocks of 32: f16 scale, f16 minimum, 5-bit values; 24 bytes.
    Q5_1,
    /// Blocks of 32: an f16 scale and 8-bit signed values; 34 bytes.
    Q8_0,
    /// Blocks of 256 2-bit values with scales and minima of 16; 84 bytes.
    Q2K,
    /// Blocks of 256 3-bit values with scales of 16; 110 bytes.
    Q3K,
    /// Blocks of 256 4-bit values with scales and minima of 32; 144 bytes.
    Q4K,
    /// Blocks of 256 5-bit values with scales and minima of 32; 176 bytes.
    Q5K,
    /// Blocks of 256 6-bit values with scales of 16; 210 bytes.
    Q6K,
    /// Blocks of 32: an f16 scale and 4-bit numbers of a table's values; 18 bytes.
    Iq4Nl,
    /// Blocks of 256 such numbers with scales of 32; 136 bytes.
    Iq4Xs,
    /// Blocks of 32: a power of two and 4-bit floats; 17 bytes.
    Mxfp4,
}

impl TensorType {
    /// Every supported type.
    pub const ALL: [Self; 16] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q2K,
        Self::Q3K,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
        Self::Iq4Nl,
        Self::Iq4Xs,
        Self::Mxfp4,
    ];

    /// hexloom's type of the same elements.
    pub fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::F16 => DType::F16,
            Self::Bf16 => DType::Bf16,
            Self::Q4_0 => DType::Q4_0,
            Self::Q4_1 => DType::Q4_1,
            Self::Q5_0 => DType::Q5_0,
            Self::Q5_1 => DType::Q5_1,
            Self::Q8_0 => DType::Q8_0,
            Self::Q2K => DType::Q2K,
            Self::Q3K => DType::Q3K,
            Self::Q4K => DType::Q4K,
            Self::Q5K => DType::Q5K,
            Self::Q6K => DType::Q6K,
            Self::Iq4Nl => DType::Iq4Nl,
            Self::Iq4Xs => DType::Iq4Xs,
            Self::Mxfp4 => DType::Mxfp4,
        }
    }

    /// ggml's number for the type.
    pub fn code(self) -> u32 {
        self.dtype().number()
    }

    /// Elements of a block, which lie along the first extent; 1 for plain types.
    pub fn block_elems(self) -> u64 {
        self.dtype().block_elems()
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> u64 {
        self.dtype().block_bytes()
    }

    /// Names of every supported type, for messages.
    pub(crate) fn supported() -> String {
        Self::ALL.map(|ty| ty.to_string()).join(", ")
    }

    fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|ty| ty.code() == code)
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.dtype().fmt(f)
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
            let reason = match ty.block_elems() {
                256 => "the first is no multiple of 256, the block of its type",
                _ => "the first is no multiple of 32, the block of its type",
            };
            return bad(&name, &ne, reason);
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
        9 => "Q8_1",
        15 => "Q8_K",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        21 => "IQ3_S",
        22 => "IQ2_S",
        24 => "I8",
        25 => "I16",
        26 => "I32",
        27 => "I64",
        28 => "F64",
        29 => "IQ1_M",
        34 => "TQ1_0",
        35 => "TQ2_0",
        _ => return None,
    })
}
