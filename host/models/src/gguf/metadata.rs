//! Metadata: typed values under dotted keys.
//!
//! Numbers are kept, strings and arrays stay in the mapping as ranges: a vocabulary has some 100,000 strings, which
//! the tokenizer reads once.

use std::collections::HashMap;
use std::ops::Range;

use super::cursor::Cursor;
use crate::ModelError;

/// A Rust type that a metadata value can be read as.
///
/// Implemented for `u32`, `u64`, `f32`, `bool`, `&str`, and for vectors of `&str`, `u32`, `i32` and `f32`.
pub trait MetadataValue<'a>: Sized + sealed::Sealed {
    #[doc(hidden)]
    const EXPECTED: &'static str;
    #[doc(hidden)]
    fn read(value: &Value, file: &'a [u8]) -> Option<Self>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for u64 {}
    impl Sealed for f32 {}
    impl Sealed for bool {}
    impl Sealed for &str {}
    impl<T> Sealed for Vec<T> {}
}

/// A metadata value. Opaque outside this module: it is read through [`MetadataValue`].
#[derive(Debug)]
pub struct Value(Kind);

#[derive(Debug)]
enum Kind {
    Integer(i128),
    Float(f64),
    Bool(bool),
    /// Where the text lies in the file.
    Text(Range<usize>),
    /// Element type, count, and where the elements lie in the file.
    Array(Type, usize, Range<usize>),
}

impl Value {
    /// The value in a few words, for messages.
    pub(super) fn describe(&self) -> String {
        match &self.0 {
            Kind::Integer(value) => value.to_string(),
            Kind::Float(value) => format!("the number {value:?}"),
            Kind::Bool(value) => value.to_string(),
            Kind::Text(range) => format!("a string of {} bytes", range.len()),
            Kind::Array(ty, len, _) => format!("an array of {len} {}", ty.name()),
        }
    }
}

/// GGUF's value types other than array; the numbers are GGUF's.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Type {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    Text = 8,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

const ARRAY_CODE: u32 = 9;

impl Type {
    fn from_code(code: u32) -> Option<Self> {
        use Type::*;
        [U8, I8, U16, I16, U32, I32, F32, Bool, Text, U64, I64, F64]
            .into_iter()
            .find(|ty| *ty as u32 == code)
    }

    fn name(self) -> &'static str {
        match self {
            Type::U8 => "u8",
            Type::I8 => "i8",
            Type::U16 => "u16",
            Type::I16 => "i16",
            Type::U32 => "u32",
            Type::I32 => "i32",
            Type::F32 => "f32",
            Type::Bool => "bool",
            Type::Text => "strings",
            Type::U64 => "u64",
            Type::I64 => "i64",
            Type::F64 => "f64",
        }
    }

    /// Size of one element; of a string, the smallest size (its length).
    fn min_bytes(self) -> u64 {
        match self {
            Type::U8 | Type::I8 | Type::Bool => 1,
            Type::U16 | Type::I16 => 2,
            Type::U32 | Type::I32 | Type::F32 => 4,
            Type::Text | Type::U64 | Type::I64 | Type::F64 => 8,
        }
    }

    /// Reads one number from exactly [`Type::min_bytes`] bytes; `None` for text and for a bool that is neither 0 nor 1.
    fn number(self, bytes: &[u8]) -> Option<Kind> {
        Some(match self {
            Type::U8 => Kind::Integer(u8::from_le_bytes(bytes.try_into().ok()?).into()),
            Type::I8 => Kind::Integer(i8::from_le_bytes(bytes.try_into().ok()?).into()),
            Type::U16 => Kind::Integer(u16::from_le_bytes(bytes.try_into().ok()?).into()),
            Type::I16 => Kind::Integer(i16::from_le_bytes(bytes.try_into().ok()?).into()),
            Type::U32 => Kind::Integer(u32::from_le_bytes(bytes.try_into().ok()?).into()),
            Type::I32 => Kind::Integer(i32::from_le_bytes(bytes.try_into().ok()?).into()),
            Type::U64 => Kind::Integer(u64::from_le_bytes(bytes.try_into().ok()?).into()),
            Type::I64 => Kind::Integer(i64::from_le_bytes(bytes.try_into().ok()?).into()),
            Type::F32 => Kind::Float(f32::from_le_bytes(bytes.try_into().ok()?).into()),
            Type::F64 => Kind::Float(f64::from_le_bytes(bytes.try_into().ok()?)),
            Type::Bool => Kind::Bool(match bytes {
                [0] => false,
                [1] => true,
                _ => return None,
            }),
            Type::Text => return None,
        })
    }
}

/// Reads `n_pairs` pairs of key and value.
pub(super) fn parse(cursor: &mut Cursor<'_>, n_pairs: u64) -> Result<HashMap<String, Value>, ModelError> {
    let mut metadata = HashMap::new();
    for i in 0..n_pairs {
        let what = format_args!("the key of metadata pair {i}");
        let range = cursor.string(what)?;
        let key = cursor.text(range, what)?.to_owned();
        let code = cursor.u32(format_args!("the type of {key}"))?;
        let value = if code == ARRAY_CODE {
            array(cursor, &key)?
        } else {
            scalar(cursor, &key, code)?
        };
        if metadata.contains_key(&key) {
            return Err(ModelError::Duplicate {
                path: cursor.path().into(),
                what: "metadata key",
                name: key,
            });
        }
        metadata.insert(key, Value(value));
    }
    Ok(metadata)
}

fn value_type(cursor: &Cursor<'_>, key: &str, code: u32) -> Result<Type, ModelError> {
    Type::from_code(code).ok_or_else(|| ModelError::ValueType {
        path: cursor.path().into(),
        key: key.into(),
        code,
    })
}

fn scalar(cursor: &mut Cursor<'_>, key: &str, code: u32) -> Result<Kind, ModelError> {
    let ty = value_type(cursor, key, code)?;
    if ty == Type::Text {
        return Ok(Kind::Text(cursor.string(format_args!("the value of {key}"))?));
    }
    let range = cursor.take(ty.min_bytes(), format_args!("the value of {key}"))?;
    let bytes = cursor.bytes(range);
    ty.number(bytes).ok_or_else(|| ModelError::BadValue {
        path: cursor.path().into(),
        key: key.into(),
        value: format!("the byte {bytes:?}"),
        allowed: "0 or 1 (a bool)".into(),
    })
}

fn array(cursor: &mut Cursor<'_>, key: &str) -> Result<Kind, ModelError> {
    let code = cursor.u32(format_args!("the element type of {key}"))?;
    let ty = value_type(cursor, key, code)?;
    let len = cursor.count(ty.min_bytes(), format_args!("elements of {key}"))?;
    let range = if ty == Type::Text {
        let start = cursor.offset() as usize;
        for i in 0..len {
            cursor.string(format_args!("element {i} of {key}"))?;
        }
        start..cursor.offset() as usize
    } else {
        // `count` has checked that this product fits into the file.
        cursor.take(len * ty.min_bytes(), format_args!("the elements of {key}"))?
    };
    Ok(Kind::Array(ty, len as usize, range))
}

macro_rules! integer {
    ($ty:ty, $expected:literal) => {
        impl<'a> MetadataValue<'a> for $ty {
            const EXPECTED: &'static str = $expected;

            fn read(value: &Value, _: &'a [u8]) -> Option<Self> {
                match value.0 {
                    Kind::Integer(value) => value.try_into().ok(),
                    _ => None,
                }
            }
        }
    };
}

integer!(u32, "an integer from 0 to 2^32 - 1");
integer!(u64, "an integer from 0 to 2^64 - 1");

impl<'a> MetadataValue<'a> for f32 {
    const EXPECTED: &'static str = "a floating-point number";

    fn read(value: &Value, _: &'a [u8]) -> Option<Self> {
        match value.0 {
            Kind::Float(value) => Some(value as f32),
            _ => None,
        }
    }
}

impl<'a> MetadataValue<'a> for bool {
    const EXPECTED: &'static str = "a bool";

    fn read(value: &Value, _: &'a [u8]) -> Option<Self> {
        match value.0 {
            Kind::Bool(value) => Some(value),
            _ => None,
        }
    }
}

impl<'a> MetadataValue<'a> for &'a str {
    const EXPECTED: &'static str = "a string";

    fn read(value: &Value, file: &'a [u8]) -> Option<Self> {
        match &value.0 {
            Kind::Text(range) => std::str::from_utf8(file.get(range.clone())?).ok(),
            _ => None,
        }
    }
}

impl<'a> MetadataValue<'a> for Vec<&'a str> {
    const EXPECTED: &'static str = "an array of strings";

    fn read(value: &Value, file: &'a [u8]) -> Option<Self> {
        let Kind::Array(Type::Text, len, range) = &value.0 else {
            return None;
        };
        let mut rest = file.get(range.clone())?;
        // `len` has been checked against the file: each of its strings takes at least eight bytes there.
        let mut strings = Vec::with_capacity(*len);
        for _ in 0..*len {
            let (n_bytes, tail) = rest.split_first_chunk()?;
            let n_bytes = usize::try_from(u64::from_le_bytes(*n_bytes)).ok()?;
            let (text, tail) = tail.split_at_checked(n_bytes)?;
            strings.push(std::str::from_utf8(text).ok()?);
            rest = tail;
        }
        Some(strings)
    }
}

macro_rules! numbers {
    ($ty:ty, $expected:literal) => {
        impl<'a> MetadataValue<'a> for Vec<$ty> {
            const EXPECTED: &'static str = $expected;

            fn read(value: &Value, file: &'a [u8]) -> Option<Self> {
                let Kind::Array(ty, _, range) = &value.0 else {
                    return None;
                };
                let elements = file.get(range.clone())?.chunks_exact(ty.min_bytes() as usize);
                elements
                    .map(|bytes| <$ty>::read_number(ty.number(bytes)?))
                    .collect()
            }
        }
    };
}

numbers!(u32, "an array of integers from 0 to 2^32 - 1");
numbers!(i32, "an array of integers from -2^31 to 2^31 - 1");
numbers!(f32, "an array of floating-point numbers");

trait ReadNumber: Sized {
    fn read_number(kind: Kind) -> Option<Self>;
}

impl ReadNumber for u32 {
    fn read_number(kind: Kind) -> Option<Self> {
        if let Kind::Integer(value) = kind {
            value.try_into().ok()
        } else {
            None
        }
    }
}

impl ReadNumber for i32 {
    fn read_number(kind: Kind) -> Option<Self> {
        if let Kind::Integer(value) = kind {
            value.try_into().ok()
        } else {
            None
        }
    }
}

impl ReadNumber for f32 {
    fn read_number(kind: Kind) -> Option<Self> {
        if let Kind::Float(value) = kind {
            Some(value as f32)
        } else {
            None
        }
    }
}
