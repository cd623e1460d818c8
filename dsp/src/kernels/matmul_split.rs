//! How a matrix product is cut into units for threads: groups of 32 output rows, and shares of the activation rows.
//!
//! A unit's results depend on nothing outside it, so any split gives the same bits. Units of one group are neighbours,
//! so a thread that gets several reads the group's weights from cache.

use core::ops::Range;

use crate::tensor::Tensor;

/// Activation rows that share one pass over a weight tile.
pub(super) const ROW_BLOCK: usize = 4;

/// Which activation rows meet which weight matrix: runs of rows, each with one matrix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Runs {
    /// Consecutive activation rows that meet the same weight matrix, at least 1.
    pub(crate) rows_per_matrix: usize,
    /// Weight matrices in dimension 2.
    matrices: usize,
    /// Times that all of them repeat before dimension 3 moves on.
    repeats: usize,
}

/// The cut of one product with the activation rows of one piece.
#[derive(Clone)]
pub(super) struct Split {
    rows: Range<usize>,
    runs: Runs,
    groups: usize,
    /// Parts into which the rows of one matrix are cut.
    shares: usize,
}

/// One unit of work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Unit {
    /// Group of 32 weight rows.
    pub(crate) group: usize,
    /// Weight matrix, dimensions 2 and 3.
    pub(crate) matrix: [usize; 2],
    /// Activation rows, numbered through all dimensions.
    pub(crate) rows: Range<usize>,
}

impl Runs {
    /// Those of the product of `weight` and `x`.
    pub(crate) fn new(weight: &Tensor<'_>, x: &Tensor<'_>) -> Self {
        let [_, m, x2, x3] = x.ne();
        let [_, _, w2, w3] = weight.ne();
        let rows_per_matrix = if w2 > 1 { m * (x2 / w2) } else { m * x2 * (x3 / w3) };
        Self {
            rows_per_matrix: rows_per_matrix.max(1),
            matrices: w2,
            repeats: if w2 > 1 { x3 / w3 } else { 1 },
        }
    }

    /// The weight matrix that run `run` meets, dimensions 2 and 3.
    #[inline(always)]
    pub(crate) fn matrix(&self, run: usize) -> [usize; 2] {
        [run % self.matrices, run / self.matrices / self.repeats]
    }
}

impl Split {
    /// Cuts the product of `weight` and rows `rows` of `x`.
    pub(super) fn new(weight: &Tensor<'_>, x: &Tensor<'_>, rows: Range<usize>, n_threads: usize) -> Self {
        let runs = Runs::new(weight, x);
        let mut split = Self {
            rows,
            runs,
            groups: weight.ne()[1].div_ceil(32),
            shares: 1,
        };
        let most = split.rows.len().min(runs.rows_per_matrix).div_ceil(ROW_BLOCK);
        while !split.is_balanced(n_threads) && split.shares * 2 <= most {
            split.shares *= 2;
        }
        split
    }

    /// Units in all.
    #[inline(always)]
    pub(super) fn units(&self) -> usize {
        self.n_runs() * self.groups * self.shares
    }

    /// Unit `idx`; shares vary fastest, then groups.
    #[inline(always)]
    pub(super) fn unit(&self, idx: usize) -> Unit {
        let share = idx % self.shares;
        let group = idx / self.shares % self.groups;
        let run = self.rows.start / self.runs.rows_per_matrix + idx / (self.shares * self.groups);
        let start = (run * self.runs.rows_per_matrix).max(self.rows.start);
        let end = ((run + 1) * self.runs.rows_per_matrix).min(self.rows.end);
        let length = (end - start).div_ceil(self.shares).next_multiple_of(ROW_BLOCK);
        let from = (start + share * length).min(end);
        Unit {
            group,
            matrix: self.runs.matrix(run),
            rows: from..(from + length).min(end),
        }
    }

    /// The first unit behind `idx` that reads another group, or the same one again later.
    #[inline(always)]
    pub(super) fn next_group(&self, idx: usize) -> usize {
        (idx / self.shares + 1) * self.shares
    }

    /// Weight matrices that the rows meet.
    #[inline(always)]
    fn n_runs(&self) -> usize {
        if self.rows.is_empty() {
            return 0;
        }
        (self.rows.end - 1) / self.runs.rows_per_matrix - self.rows.start / self.runs.rows_per_matrix + 1
    }

    /// Whether the busiest thread has at most an eighth more than its share.
    fn is_balanced(&self, n_threads: usize) -> bool {
        let units = self.units();
        units.div_ceil(n_threads) * n_threads * 8 <= units * 9
    }
}
