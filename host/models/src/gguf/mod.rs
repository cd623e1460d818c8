//! The model file, memory-mapped and checked.
//!
//! GGUF is: a header, typed metadata, tensor descriptions, then aligned tensor data. [`Gguf::open`] checks all of it
//! once; afterwards every name leads to bytes that are there and of the size their type and shape call for. Numbers
//! from the file are never used to reserve memory and all arithmetic on them is checked, so that a hostile file costs
//! an error and no more. This module must not know what the tensors mean.

mod cursor;
mod metadata;
mod tensor;
mod writer;

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use crate::ModelError;
use cursor::Cursor;
use metadata::Value;

pub use metadata::MetadataValue;
pub use tensor::{TensorSource, TensorType};
pub use writer::Writer;

const MAGIC: [u8; 4] = *b"GGUF";
const VERSIONS: Range<u32> = 2..4;
const DEFAULT_ALIGNMENT: u32 = 32;
const ALIGNMENT_KEY: &str = "general.alignment";
const ARCHITECTURE_KEY: &str = "general.architecture";

/// An open model file whose structure has been checked.
///
/// The file stays mapped as long as this lives; strings and tensors are borrowed from the mapping.
#[derive(Debug)]
pub struct Gguf {
    path: PathBuf,
    map: Mmap,
    metadata: HashMap<String, Value>,
    tensors: HashMap<String, TensorInfo>,
}

/// A checked tensor description: `bytes` lies inside the file.
#[derive(Debug)]
struct TensorInfo {
    ty: TensorType,
    ne: [u64; 4],
    bytes: Range<usize>,
}

impl Gguf {
    /// Maps the file at `path` and checks its structure: version 2 or 3, little-endian.
    ///
    /// # Errors
    /// Whatever is wrong with the file, see [`ModelError`]; among it a tensor of a type outside
    /// [`TensorType::ALL`], because a model with one such tensor cannot run.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ModelError> {
        let path = path.as_ref().to_path_buf();
        let open_error = |source| ModelError::Open {
            path: path.clone(),
            source,
        };
        let file = File::open(&path).map_err(open_error)?;
        // An empty file cannot be mapped everywhere, and a folder opens but has no bytes.
        let file_type = file.metadata().map_err(open_error)?;
        if !file_type.is_file() {
            return Err(open_error(std::io::Error::other("it is not a regular file")));
        }
        if file_type.len() == 0 {
            return Err(cut_header(&path, 0));
        }
        // SAFETY: `Mmap::map` requires that the file does not shrink or change while it is mapped. Model files are
        // written once; a process that truncates one under us ends us with SIGBUS, which no check here can prevent.
        // What is read twice is checked twice (string getters validate UTF-8 again), so a change yields wrong
        // numbers or an error, never an access outside the mapping.
        let map = unsafe { Mmap::map(&file) }.map_err(open_error)?;
        let (metadata, tensors) = parse(&path, &map)?;
        Ok(Self {
            path,
            map,
            metadata,
            tensors,
        })
    }

    /// The file's path, as given to [`Gguf::open`].
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Length of the file in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.map.len() as u64
    }

    /// The metadata value `key`.
    ///
    /// # Errors
    /// [`ModelError::MissingKey`], or [`ModelError::KeyType`] when it is of another type than `T`. Integers of any
    /// width are accepted for `u32` and `u64` when they fit, `f64` for `f32`.
    pub fn get<'a, T: MetadataValue<'a>>(&'a self, key: &str) -> Result<T, ModelError> {
        self.find(key)?.ok_or_else(|| ModelError::MissingKey {
            path: self.path.clone(),
            key: key.into(),
        })
    }

    /// The metadata value `key`, or `None` when the file does not have it.
    ///
    /// # Errors
    /// [`ModelError::KeyType`] when it is there and of another type than `T`.
    pub fn find<'a, T: MetadataValue<'a>>(&'a self, key: &str) -> Result<Option<T>, ModelError> {
        let Some(value) = self.metadata.get(key) else {
            return Ok(None);
        };
        let found = T::read(value, &self.map).ok_or_else(|| ModelError::KeyType {
            path: self.path.clone(),
            key: key.into(),
            found: value.describe(),
            expected: T::EXPECTED,
        })?;
        Ok(Some(found))
    }

    /// The file's architecture, which must be one of `supported`.
    ///
    /// # Errors
    /// [`ModelError::Architecture`] with both; [`ModelError::MissingKey`].
    pub fn architecture(&self, supported: &[&'static str]) -> Result<&'static str, ModelError> {
        let found: &str = self.get(ARCHITECTURE_KEY)?;
        supported
            .iter()
            .find(|&&name| name == found)
            .copied()
            .ok_or_else(|| ModelError::Architecture {
                path: self.path.clone(),
                found: found.into(),
                supported: supported.to_vec(),
            })
    }

    /// The tensor `name`.
    ///
    /// # Errors
    /// [`ModelError::MissingTensor`].
    pub fn tensor(&self, name: &str) -> Result<TensorSource<'_>, ModelError> {
        self.find_tensor(name).ok_or_else(|| ModelError::MissingTensor {
            path: self.path.clone(),
            tensor: name.into(),
            n_tensors: self.tensors.len(),
        })
    }

    /// The tensor `name`, or `None` when the file does not have it (tied embeddings, optional biases).
    pub fn find_tensor(&self, name: &str) -> Option<TensorSource<'_>> {
        let (name, info) = self.tensors.get_key_value(name)?;
        Some(self.source(name, info))
    }

    /// All tensors, in no particular order.
    pub fn tensors(&self) -> impl Iterator<Item = TensorSource<'_>> {
        self.tensors.iter().map(|(name, info)| self.source(name, info))
    }

    /// Tells the system that a tensor's pages are not needed in memory any more; they are read again when touched.
    ///
    /// A loader calls this after it has copied a tensor, so that a model is not in memory twice.
    pub fn release(&self, tensor: &TensorSource<'_>) {
        let start = tensor.bytes().as_ptr() as usize - self.map.as_ptr() as usize;
        // SAFETY: the mapping is a shared, read-only one of a file, so dropping its pages loses nothing: the next read
        // brings the same bytes back. The range is that of a tensor of this file.
        let advised = unsafe {
            self.map
                .unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, tensor.bytes().len())
        };
        if let Err(error) = advised {
            log::debug!(
                "{}: pages of {} stay in memory: {error}",
                self.path.display(),
                tensor.name()
            );
        }
    }

    fn source<'a>(&'a self, name: &'a str, info: &TensorInfo) -> TensorSource<'a> {
        TensorSource::new(&self.path, name, info.ty, info.ne, &self.map[info.bytes.clone()])
    }
}

type Parsed = (HashMap<String, Value>, HashMap<String, TensorInfo>);

/// Smallest possible entries: a metadata pair is a key length, a type and one byte; a tensor description is a name
/// length, a dimension count, a type and an offset.
const MIN_PAIR_BYTES: u64 = 8 + 4 + 1;
const MIN_TENSOR_BYTES: u64 = 8 + 4 + 4 + 8;

fn parse(path: &Path, bytes: &[u8]) -> Result<Parsed, ModelError> {
    let n = bytes.len().min(MAGIC.len());
    if bytes[..n] != MAGIC[..n] {
        return Err(ModelError::NotGguf {
            path: path.into(),
            found: bytes[..n].to_vec(),
        });
    }
    let mut cursor = Cursor::new(path, bytes);
    cursor.take(MAGIC.len() as u64, format_args!("the magic"))?;
    let version = cursor.u32(format_args!("the version"))?;
    if !VERSIONS.contains(&version) {
        return Err(ModelError::Version {
            path: path.into(),
            version,
        });
    }
    let n_tensors = cursor.u64(format_args!("the tensor count"))?;
    let n_pairs = cursor.count(MIN_PAIR_BYTES, format_args!("metadata pairs"))?;
    cursor.check_count(n_tensors, MIN_TENSOR_BYTES, format_args!("tensors"))?;

    let metadata = metadata::parse(&mut cursor, n_pairs)?;
    let alignment = alignment(path, &metadata)?;
    let described = tensor::parse(&mut cursor, n_tensors)?;
    let data_start = cursor.offset().checked_next_multiple_of(alignment);

    let mut tensors = HashMap::new();
    for described in described {
        let bytes = described.place(path, data_start, alignment, bytes.len())?;
        let info = TensorInfo {
            ty: described.ty,
            ne: described.ne,
            bytes,
        };
        if tensors.insert(described.name.clone(), info).is_some() {
            return Err(ModelError::Duplicate {
                path: path.into(),
                what: "tensor",
                name: described.name,
            });
        }
    }
    Ok((metadata, tensors))
}

fn alignment(path: &Path, metadata: &HashMap<String, Value>) -> Result<u64, ModelError> {
    let Some(value) = metadata.get(ALIGNMENT_KEY) else {
        return Ok(DEFAULT_ALIGNMENT.into());
    };
    match u32::read(value, &[]) {
        Some(alignment) if alignment.is_power_of_two() && alignment >= 8 => Ok(alignment.into()),
        _ => Err(ModelError::BadValue {
            path: path.into(),
            key: ALIGNMENT_KEY.into(),
            value: value.describe(),
            allowed: "a power of two of at least 8".into(),
        }),
    }
}

fn cut_header(path: &Path, file_bytes: u64) -> ModelError {
    let end = MAGIC.len() as u64;
    ModelError::CutShort {
        path: path.into(),
        what: "the magic".into(),
        start: 0,
        end,
        file_bytes,
    }
}
