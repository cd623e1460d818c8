//! Weights on their way from the file to their places: checked for their role, cut, repacked into tiles if their type has
//! them, written.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use hexloom::abi::tile::{TILE_ROWS, TileLayout};
use hexloom::plan::buffers::TensorNeed;
use hexloom::{DType, MapError, repack};

use super::roles::{Cut, Piece, Role, is_idle};
use super::stored::{convert, stored};
use super::weights::{Model, Progress, Weight};
use crate::ModelError;
use crate::gguf::{Gguf, TensorSource, TensorType};

/// A piece of a weight on its way from the file to its place.
pub(super) struct Pending<'a> {
    pub(super) source: TensorSource<'a>,
    pub(super) piece: Piece,
    pub(super) dtype: DType,
    /// Shape of the piece.
    pub(super) ne: [u32; 4],
    pub(super) bytes: u64,
}

/// Finds every tensor that `roles` name and checks its shape and type. A tensor that has no role is an error: the file
/// wants something computed that the graph does not compute.
pub(super) fn pending<'a>(gguf: &'a Gguf, roles: &[Role]) -> Result<Vec<Pending<'a>>, ModelError> {
    let mut all = Vec::new();
    for role in roles {
        let Some(source) = gguf.find_tensor(&role.name) else {
            if role.optional {
                continue;
            }
            gguf.tensor(&role.name)?;
            continue;
        };
        let ne: Vec<u64> = role.ne.iter().copied().map(u64::from).collect();
        let types: &[TensorType] = if role.matrix {
            &TensorType::ALL
        } else {
            &[TensorType::F32]
        };
        let source = source.with_shape(&ne)?.with_type(types)?;
        all.push(Pending::new(gguf, source, role)?);
    }
    let named: HashSet<&str> = roles.iter().map(|role| role.name.as_str()).collect();
    let unused = gguf.tensors().map(|source| source.name());
    let unused = unused.filter(|name| !named.contains(name) && !is_idle(name)).min();
    match unused {
        Some(name) => Err(ModelError::UnusedTensor {
            path: gguf.path().to_owned(),
            tensor: name.to_owned(),
        }),
        None => Ok(all),
    }
}

/// Repacks and writes everything, on all processors; the file's pages are given back as soon as they are used.
pub(super) fn write_all(
    gguf: &Gguf,
    pending: &[Pending<'_>],
    model: &Model,
    progress: Progress<'_>,
) -> Result<(), ModelError> {
    let total = model.bytes();
    let next = AtomicUsize::new(0);
    let done = AtomicU64::new(0);
    let failure = Mutex::new(None);
    let work = || {
        let mut group = Vec::new();
        loop {
            let idx = next.fetch_add(1, Ordering::Relaxed);
            let Some((pending, weight)) = pending
                .get(idx)
                .and_then(|pending| Some((pending, model.weight(pending)?)))
            else {
                return;
            };
            for unit in 0..pending.n_units() {
                match pending.write_unit(unit, weight, &mut group) {
                    Ok(bytes) => {
                        let done = done.fetch_add(bytes, Ordering::Relaxed) + bytes;
                        if unit.is_multiple_of(64) {
                            progress(done, total);
                        }
                    }
                    Err(error) => {
                        *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                        return;
                    }
                }
            }
            gguf.release(&pending.source);
        }
    };
    std::thread::scope(|scope| {
        let n_threads = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 1..n_threads {
            scope.spawn(work);
        }
        work();
    });
    progress(total, total);
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

impl<'a> Pending<'a> {
    fn new(gguf: &Gguf, source: TensorSource<'a>, role: &Role) -> Result<Self, ModelError> {
        let dtype = stored(source.ty());
        let mut ne = [1; 4];
        ne.iter_mut().zip(&role.ne).for_each(|(to, from)| *to = *from);
        match &role.piece.cut {
            Cut::Whole => {}
            Cut::Rows(rows) => ne[1] = rows.end - rows.start,
            Cut::Columns(columns) => ne[0] = columns.end - columns.start,
        }
        let bytes = match dtype.is_tileable() {
            true => TileLayout::new(dtype, ne[0]).and_then(|layout| {
                layout.strides(dtype, ne)?;
                layout.tensor_bytes(ne)
            }),
            false => dtype
                .row_bytes(ne[0].into())
                .and_then(|row| row.checked_mul(ne[1..].iter().copied().map(u64::from).product())),
        };
        let bytes = bytes.filter(|_| role.piece.cut.is_between_blocks(source.ty()));
        let bytes = bytes.ok_or_else(|| ModelError::BadValue {
            path: gguf.path().to_owned(),
            key: format!("shape of {}", source.name()),
            value: format!("{ne:?}"),
            allowed: format!(
                "rows of whole blocks of {} elements and below 4 GiB in all",
                source.ty().block_elems()
            ),
        })?;
        Ok(Self {
            source,
            piece: role.piece.clone(),
            dtype,
            ne,
            bytes,
        })
    }

    /// What the piece needs of a buffer.
    pub(super) fn need(&self) -> TensorNeed<'_> {
        TensorNeed::new(self.source.name(), self.bytes)
    }

    /// Units that can be written apart: groups of 32 rows of a matrix.
    fn n_units(&self) -> usize {
        TileLayout::groups(self.ne[1]) as usize
    }

    /// Writes one unit to the weight's place and gives its bytes there.
    fn write_unit(&self, unit: usize, weight: &Weight, group: &mut Vec<u8>) -> Result<u64, MapError> {
        let first = unit * TILE_ROWS as usize;
        let n_rows = (self.ne[1] as usize - first).min(TILE_ROWS as usize);
        let rows = convert(self.source.ty(), self.rows(first..first + n_rows));
        let Some(layout) = TileLayout::new(self.dtype, self.ne[0]) else {
            let row_bytes = rows.len() as u64 / n_rows as u64;
            weight.buffer.write(weight.offset + first as u64 * row_bytes, &rows)?;
            return Ok(rows.len() as u64);
        };
        group.resize(layout.group_bytes as usize, 0);
        repack::pack_group(self.dtype, &layout, &rows, group);
        let offset = weight.offset + unit as u64 * u64::from(layout.group_bytes);
        weight.buffer.write(offset, group)?;
        Ok(group.len() as u64)
    }

    /// The piece's bytes of some of its rows, as they are in the file if whole rows are wanted.
    fn rows(&self, rows: Range<usize>) -> std::borrow::Cow<'a, [u8]> {
        let bytes = self.source.bytes();
        let [file_columns, ..] = self.source.ne();
        let of = |columns: u64| self.source.ty().dtype().row_bytes(columns).unwrap_or(0) as usize;
        let row_bytes = of(file_columns);
        let whole = |rows: Range<usize>| &bytes[rows.start * row_bytes..rows.end * row_bytes];
        match &self.piece.cut {
            Cut::Whole => whole(rows).into(),
            Cut::Rows(cut) => {
                let start = cut.start as usize;
                whole(start + rows.start..start + rows.end).into()
            }
            Cut::Columns(cut) => {
                let columns = of(cut.start.into())..of(cut.end.into());
                let row = |row: usize| whole(row..row + 1)[columns.clone()].iter().copied();
                rows.flat_map(row).collect::<Vec<u8>>().into()
            }
        }
    }
}
