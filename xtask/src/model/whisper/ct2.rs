//! CTranslate2's `model.bin`: named variables, one after the other.
//!
//! Little-endian. u32 version (6); the specification's name; u32 revision; u32 number of variables. A variable is its
//! name, u8 rank, u32 per dimension (slowest first), u8 type, u32 bytes, and the bytes. A name is a u16 length that
//! counts a closing NUL, and as many bytes. Aliases follow, which nothing here needs.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};

const VERSION: u32 = 6;
const SPECIFICATION: &str = "WhisperSpec";
/// The type code of F16.
const F16: u8 = 4;

/// One F16 variable.
#[derive(Debug)]
pub(super) struct Variable<'a> {
    /// Slowest dimension first.
    pub(super) shape: Vec<u32>,
    pub(super) bytes: &'a [u8],
}

/// The F16 variables of a model.
pub(super) struct Variables<'a>(BTreeMap<&'a str, Variable<'a>>);

impl<'a> Variables<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self> {
        let mut rest = Rest(bytes);
        let version = rest.u32()?;
        ensure!(version == VERSION, "version {version} is not read, only {VERSION}");
        let specification = rest.name()?;
        ensure!(
            specification == SPECIFICATION,
            "a {specification}, not a {SPECIFICATION}"
        );
        let _revision = rest.u32()?;
        let n_variables = rest.u32()?;
        let mut variables = BTreeMap::new();
        for _ in 0..n_variables {
            let name = rest.name()?;
            let rank = rest.u8()?;
            let shape: Vec<u32> = (0..rank).map(|_| rest.u32()).collect::<Result<_>>()?;
            let dtype = rest.u8()?;
            let n_bytes = rest.u32()?;
            let bytes = rest.take(n_bytes as usize)?;
            if dtype != F16 {
                continue;
            }
            let product = shape.iter().try_fold(2_u64, |n, &dim| n.checked_mul(dim.into()));
            ensure!(
                product == Some(n_bytes.into()),
                "{name} is {shape:?} in {n_bytes} bytes"
            );
            variables.insert(name, Variable { shape, bytes });
        }
        Ok(Self(variables))
    }

    pub(super) fn get(&self, name: &str) -> Result<&Variable<'a>> {
        self.0.get(name).with_context(|| format!("there is no F16 {name}"))
    }

    /// Layers of the part of the model under `half`.
    pub(super) fn n_layers(&self, half: &str) -> u32 {
        let has = |layer: &u32| {
            let begin = format!("{half}/layer_{layer}/");
            self.0
                .range(begin.as_str()..)
                .next()
                .is_some_and(|(name, _)| name.starts_with(&begin))
        };
        (0..u32::MAX).take_while(has).count() as u32
    }
}

/// What is not read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, n_bytes: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self
            .0
            .split_at_checked(n_bytes)
            .with_context(|| format!("the file ends {} bytes early", n_bytes - self.0.len()))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.take(N)?.try_into()?)
    }

    fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn name(&mut self) -> Result<&'a str> {
        let n_bytes = u16::from_le_bytes(self.array()?);
        let name = std::str::from_utf8(self.take(n_bytes.into())?)?;
        Ok(name.strip_suffix('\0').unwrap_or(name))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A file of F16 variables; the numbers of each count up from 0.
    pub(in super::super) fn file(variables: &[(&str, &[u32])]) -> Vec<u8> {
        let name = |text: &str| [&(text.len() as u16 + 1).to_le_bytes(), text.as_bytes(), &[0]].concat();
        let mut file = [VERSION.to_le_bytes().to_vec(), name(SPECIFICATION)].concat();
        file.extend(3_u32.to_le_bytes());
        file.extend((variables.len() as u32).to_le_bytes());
        for (text, shape) in variables {
            file.extend(name(text));
            file.push(shape.len() as u8);
            file.extend(shape.iter().flat_map(|dim| dim.to_le_bytes()));
            let numbers: Vec<u8> = (0..shape.iter().product::<u32>())
                .flat_map(|number| (number as u16).to_le_bytes())
                .collect();
            file.push(F16);
            file.extend((numbers.len() as u32).to_le_bytes());
            file.extend(numbers);
        }
        file
    }

    #[test]
    fn variables_and_layers_are_found() {
        let bytes = file(&[
            ("encoder/layer_0/w", &[2, 3]),
            ("encoder/layer_1/w", &[]),
            ("encoder/x", &[1]),
        ]);
        let variables = Variables::parse(&bytes).unwrap();
        assert_eq!(variables.get("encoder/layer_0/w").unwrap().shape, [2, 3]);
        assert_eq!(variables.get("encoder/layer_0/w").unwrap().bytes[8..], [4, 0, 5, 0]);
        assert_eq!(variables.n_layers("encoder"), 2);
        assert_eq!(variables.n_layers("decoder"), 0);
        assert!(variables.get("x").unwrap_err().to_string().contains("no F16 x"));
    }

    #[test]
    fn cut_files_are_refused_at_every_length() {
        let whole = file(&[("a", &[2, 2])]);
        for n_bytes in 0..whole.len() {
            assert!(Variables::parse(&whole[..n_bytes]).is_err(), "{n_bytes} bytes");
        }
    }

    #[test]
    fn a_shape_that_is_not_its_bytes_is_refused() {
        let mut bytes = file(&[("a", &[2, 2])]);
        let shape = bytes.len() - 8 - 4 - 1 - 4;
        bytes[shape] = 3;
        let error = Variables::parse(&bytes).err().unwrap().to_string();
        assert!(error.contains("a is [2, 3] in 8 bytes"), "{error}");
    }
}
