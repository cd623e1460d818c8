//! Rows as kernels see them: floats of any type with any stride, 32 at a time; and how rows are dealt to threads.

use hexloom_abi::DType;

use crate::hvx::plain::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use crate::hvx::{self, Isa, LANES, Part};
use crate::tensor::{Span, Tensor};

/// A run of floats in one row of a tensor.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    cells: Cells<'a>,
    start: usize,
    len: usize,
}

#[derive(Clone, Copy)]
enum Cells<'a> {
    F32(Span<'a, f32>),
    F16(Span<'a, u16>),
    /// Elements that do not lie side by side, and bf16.
    Apart(Tensor<'a>, [usize; 3]),
}

impl<'a> Row<'a> {
    /// Row `index` (dimensions 1 to 3) of a float tensor.
    #[inline(always)]
    pub(crate) fn new(tensor: &Tensor<'a>, index: [usize; 3]) -> Self {
        let cells = match tensor.dtype() {
            DType::F32 if tensor.nb()[0] == 4 => Cells::F32(tensor.row(index)),
            DType::F16 if tensor.nb()[0] == 2 => Cells::F16(tensor.row(index)),
            _ => Cells::Apart(*tensor, index),
        };
        Self {
            cells,
            start: 0,
            len: tensor.ne()[0],
        }
    }

    /// Row `index` of a tensor that repeats in dimensions 1 to 3.
    #[inline(always)]
    pub(crate) fn repeated(tensor: &Tensor<'a>, [i1, i2, i3]: [usize; 3]) -> Self {
        let [_, n1, n2, n3] = tensor.ne();
        Self::new(tensor, [i1 % n1, i2 % n2, i3 % n3])
    }

    /// The `len` elements from `start`.
    #[inline(always)]
    pub(crate) fn part(self, start: usize, len: usize) -> Self {
        assert!(start <= self.len && len <= self.len - start, "part outside a row");
        Self {
            cells: self.cells,
            start: self.start + start,
            len,
        }
    }

    /// Element `idx`.
    #[inline(always)]
    pub(crate) fn get(&self, idx: usize) -> f32 {
        assert!(idx < self.len, "read outside a row");
        let idx = self.start + idx;
        match self.cells {
            Cells::F32(span) => span.get(idx),
            Cells::F16(span) => f16_to_f32(span.get(idx)),
            Cells::Apart(tensor, index) => match tensor.dtype() {
                DType::F16 => f16_to_f32(tensor.element::<u16>(idx, index).get(0)),
                DType::Bf16 => bf16_to_f32(tensor.element::<u16>(idx, index).get(0)),
                _ => tensor.element::<f32>(idx, index).get(0),
            },
        }
    }

    #[inline(always)]
    pub(super) fn set(&self, idx: usize, value: f32) {
        assert!(idx < self.len, "write outside a row");
        let idx = self.start + idx;
        match self.cells {
            Cells::F32(span) => span.set(idx, value),
            Cells::F16(span) => span.set(idx, f32_to_f16(value)),
            Cells::Apart(tensor, index) => match tensor.dtype() {
                DType::F16 => tensor.element::<u16>(idx, index).set(0, f32_to_f16(value)),
                DType::Bf16 => tensor.element::<u16>(idx, index).set(0, f32_to_bf16(value)),
                _ => tensor.element::<f32>(idx, index).set(0, value),
            },
        }
    }

    /// 32 elements from `start`; lanes past the row's end are `fill`.
    #[inline(always)]
    pub(crate) fn load<I: Isa>(&self, start: usize, fill: f32) -> I::F32 {
        if start + LANES <= self.len {
            match self.cells {
                Cells::F32(span) => return hvx::load::<I>(span, self.start + start),
                Cells::F16(span) => {
                    let part = span.part(self.start + start, LANES);
                    // SAFETY: `part` has checked that 32 elements lie in the span.
                    return unsafe { I::load_f16(part.as_ptr()) };
                }
                Cells::Apart(..) => {}
            }
        }
        I::from_array(self.gather(start, fill))
    }

    /// The same one by one: a row's tail, elements apart. Not inlined: every kernel has several places that come here.
    #[inline(never)]
    fn gather(&self, start: usize, fill: f32) -> [f32; LANES] {
        let mut lanes = [fill; LANES];
        let count = LANES.min(self.len.saturating_sub(start));
        for (lane, slot) in lanes.iter_mut().enumerate().take(count) {
            *slot = self.get(start + lane);
        }
        lanes
    }

    /// 32 elements from `start` of this row repeated without end.
    #[inline(always)]
    pub(super) fn load_repeated<I: Isa>(&self, start: usize) -> I::F32 {
        let first = if start < self.len { start } else { start % self.len };
        if first + LANES <= self.len {
            return self.load::<I>(first, 0.0);
        }
        if self.len == 1 {
            return I::splat(self.get(0));
        }
        I::from_array(self.gather_repeated(first))
    }

    #[inline(never)]
    fn gather_repeated(&self, first: usize) -> [f32; LANES] {
        let mut lanes = [0.0; LANES];
        let mut idx = first;
        for slot in &mut lanes {
            *slot = self.get(idx);
            idx += 1;
            if idx == self.len {
                idx = 0;
            }
        }
        lanes
    }

    /// Stores 32 lanes from `start`, without those past the row's end.
    #[inline(always)]
    pub(crate) fn store<I: Isa>(&self, start: usize, x: I::F32) {
        if start + LANES <= self.len {
            match self.cells {
                Cells::F32(span) => return hvx::store::<I>(span, self.start + start, x),
                Cells::F16(span) => {
                    let part = span.part(self.start + start, LANES);
                    // SAFETY: `part` has checked that 32 elements lie in the span.
                    return unsafe { I::store_f16(part.as_ptr(), x) };
                }
                Cells::Apart(..) => {}
            }
        }
        self.scatter(start, &I::to_array(x));
    }

    #[inline(never)]
    fn scatter(&self, start: usize, lanes: &[f32; LANES]) {
        let count = LANES.min(self.len.saturating_sub(start));
        for (lane, &value) in lanes.iter().enumerate().take(count) {
            self.set(start + lane, value);
        }
    }

    /// Starts of the vectors that cover this row.
    #[inline(always)]
    pub(crate) fn starts(&self) -> core::iter::StepBy<core::ops::Range<usize>> {
        (0..self.len).step_by(LANES)
    }
}

/// Vectors of 32 elements of all rows, dealt evenly to parts: work without sums, so rows may be cut anywhere.
pub(super) struct Pieces {
    units: core::ops::Range<usize>,
    vectors: usize,
    len: usize,
    unit: usize,
}

/// Whole vectors of one row, but for the row's tail.
pub(super) struct Piece {
    /// Which row, in storage order.
    pub(super) row: usize,
    /// First element.
    pub(super) start: usize,
    /// One past the last element.
    pub(super) end: usize,
}

impl Pieces {
    /// The pieces of `rows` rows of `len` elements that belong to `part`.
    #[inline(always)]
    pub(super) fn new(part: Part, rows: usize, len: usize) -> Self {
        Self::of_units(part, rows, len, LANES)
    }

    /// The same in units of another length.
    #[inline(always)]
    pub(super) fn of_units(part: Part, rows: usize, len: usize, unit: usize) -> Self {
        let vectors = len.div_ceil(unit);
        Self {
            units: part.range(rows * vectors),
            vectors,
            len,
            unit,
        }
    }
}

impl Iterator for Pieces {
    type Item = Piece;

    #[inline(always)]
    fn next(&mut self) -> Option<Piece> {
        if self.units.is_empty() {
            return None;
        }
        let row = self.units.start / self.vectors;
        let first = self.units.start % self.vectors;
        let count = self.units.len().min(self.vectors - first);
        self.units.start += count;
        Some(Piece {
            row,
            start: first * self.unit,
            end: ((first + count) * self.unit).min(self.len),
        })
    }
}

impl Piece {
    /// Starts of this piece's vectors.
    #[inline(always)]
    pub(super) fn starts(&self) -> core::iter::StepBy<core::ops::Range<usize>> {
        (self.start..self.end).step_by(LANES)
    }
}
