//! IM2COL, CONV, POOL: a window over an image, 32 results of one row at a time.
//!
//! Where the window steps by one, its 32 positions lie side by side and are loaded as a vector; elsewhere, and at the
//! image's borders, they are gathered. Sums run over channels, then depth, height and width, for each result alone.

use hexloom_abi::window::Window;
use hexloom_abi::{Opcode, Status};

use super::rows::{Pieces, Row};
use super::{Context, OpArgs};
use crate::hvx::{Isa, Kernel, LANES, Part};
use crate::tensor::Tensor;

pub(super) fn window<I: Isa>(cx: &Context<'_>, args: &OpArgs<'_>) -> Result<(), Status> {
    let elems = args.op.dst(0).map_or(0, |out| out.elems());
    let moves = Moves::new(&Window::of(&args.op));
    let out = args.dst(0)?;
    match args.op.opcode {
        Opcode::Im2col => {
            let image = args.src(0)?;
            cx.run_sized::<I, _>(&Im2col { image, out, moves }, elems)
        }
        Opcode::Conv => {
            let (weights, image) = (args.src(0)?, args.src(1)?);
            let kernel = Conv {
                weights,
                image,
                out,
                moves,
            };
            cx.run_sized::<I, _>(&kernel, elems.saturating_mul(weights.ne()[2] as u64))
        }
        _ => {
            let image = args.src(0)?;
            let mean = args.op.param(14) == 1;
            let kernel = Pool {
                image,
                out,
                moves,
                mean,
            };
            cx.run_sized::<I, _>(&kernel, elems)
        }
    }
}

/// A window's numbers as signed positions.
#[derive(Clone, Copy)]
pub(super) struct Moves {
    stride: [i64; 3],
    padding: [i64; 3],
    dilation: [i64; 3],
    pub(super) size: [usize; 3],
    pub(super) channels: usize,
    pub(super) dims: u32,
}

impl Moves {
    pub(super) fn new(window: &Window) -> Self {
        Self {
            stride: window.stride.map(i64::from),
            padding: window.padding.map(i64::from),
            dilation: window.dilation.map(i64::from),
            size: window.size.map(|n| n as usize),
            channels: window.channels as usize,
            dims: window.dims,
        }
    }

    /// Where along `axis` element `at` of the window meets the image for result `out`.
    #[inline(always)]
    pub(super) fn position(&self, axis: usize, out: usize, at: usize) -> i64 {
        out as i64 * self.stride[axis] + at as i64 * self.dilation[axis] - self.padding[axis]
    }

    /// The image's row for channel, depth and height of image `n`; `None` outside.
    #[inline(always)]
    pub(super) fn row<'a>(&self, image: &Tensor<'a>, n: usize, channel: usize, [h, d]: [i64; 2]) -> Option<Row<'a>> {
        let [_, n1, n2, _] = image.ne();
        let inside = |at: i64, len: usize| usize::try_from(at).ok().filter(|&at| at < len);
        let index = match self.dims {
            1 => [channel, n, 0],
            2 => [inside(h, n1)?, channel, n],
            _ => [inside(h, n1)?, inside(d, n2)?, n * self.channels + channel],
        };
        Some(Row::new(image, index))
    }

    /// What 32 results from `out` meet in an image row with column `at` of the window.
    #[inline(always)]
    fn load<I: Isa>(&self, row: &Row<'_>, len: usize, out: usize, at: usize, outside: f32) -> I::F32 {
        let first = self.position(0, out, at);
        if self.stride[0] == 1
            && let Ok(start) = usize::try_from(first)
            && start + LANES <= len
        {
            return row.load::<I>(start, outside);
        }
        let mut lanes = [outside; LANES];
        for (lane, slot) in lanes.iter_mut().enumerate() {
            let place = first + lane as i64 * self.stride[0];
            if let Ok(place) = usize::try_from(place)
                && place < len
            {
                *slot = row.get(place);
            }
        }
        I::from_array(lanes)
    }
}

struct Im2col<'a> {
    image: Tensor<'a>,
    out: Tensor<'a>,
    moves: Moves,
}

impl Kernel for Im2col<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        let [width, ..] = self.image.ne();
        let [kw, kh, kd] = self.moves.size;
        let depth = match self.moves.dims {
            3 => self.out.ne()[3] / (self.image.ne()[3] / self.moves.channels).max(1),
            _ => 1,
        };
        for piece in Pieces::new(part, self.out.rows(), self.out.ne()[0]) {
            let index @ [ow, i2, i3] = self.out.row_index(piece.row);
            let out = Row::new(&self.out, index);
            let (oh, od, n) = match self.moves.dims {
                1 => (0, 0, i2),
                2 => (i2, 0, i3),
                _ => (i2, i3 % depth, i3 / depth),
            };
            for at in piece.start..piece.end {
                let (column, rest) = (at % kw, at / kw);
                let (line, rest) = (rest % kh, rest / kh);
                let (layer, channel) = (rest % kd, rest / kd);
                let place = self.moves.position(0, ow, column);
                let up = [self.moves.position(1, oh, line), self.moves.position(2, od, layer)];
                let row = self.moves.row(&self.image, n, channel, up);
                let value = match (row, usize::try_from(place)) {
                    (Some(row), Ok(place)) if place < width => row.get(place),
                    _ => 0.0,
                };
                out.set(at, value);
            }
        }
    }
}

struct Conv<'a> {
    weights: Tensor<'a>,
    image: Tensor<'a>,
    out: Tensor<'a>,
    moves: Moves,
}

impl Kernel for Conv<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        let [width, _, _, i3] = self.image.ne();
        let [_, _, _, o3] = self.out.ne();
        let per_image = match self.moves.dims {
            3 => o3 / (i3 / self.moves.channels).max(1),
            _ => 1,
        };
        for piece in Pieces::new(part, self.out.rows(), self.out.ne()[0]) {
            let index @ [oh, i2, i3] = self.out.row_index(piece.row);
            let out = Row::new(&self.out, index);
            let (od, filter, n) = match self.moves.dims {
                3 => (i2, i3 % per_image, i3 / per_image),
                _ => (0, i2, i3),
            };
            for start in piece.starts() {
                out.store::<I>(start, self.sum::<I>(width, start, [oh, od], filter, n));
            }
        }
    }
}

impl Conv<'_> {
    /// 32 results of one filter.
    #[inline(always)]
    fn sum<I: Isa>(&self, width: usize, start: usize, [oh, od]: [usize; 2], filter: usize, n: usize) -> I::F32 {
        let [kw, kh, kd] = self.moves.size;
        let mut sum = I::splat(0.0);
        for channel in 0..self.moves.channels {
            for layer in 0..kd {
                for line in 0..kh {
                    let up = [self.moves.position(1, oh, line), self.moves.position(2, od, layer)];
                    let Some(row) = self.moves.row(&self.image, n, channel, up) else {
                        continue;
                    };
                    let weights = self.weights(filter, channel, layer, line);
                    for column in 0..kw {
                        let x = self.moves.load::<I>(&row, width, start, column, 0.0);
                        sum = I::add(sum, I::mul(I::splat(weights.get(column)), x));
                    }
                }
            }
        }
        sum
    }

    #[inline(always)]
    fn weights(&self, filter: usize, channel: usize, layer: usize, line: usize) -> Row<'_> {
        let index = match self.moves.dims {
            3 => [line, layer, filter * self.moves.channels + channel],
            _ => [line, channel, filter],
        };
        Row::new(&self.weights, index)
    }
}

struct Pool<'a> {
    image: Tensor<'a>,
    out: Tensor<'a>,
    moves: Moves,
    mean: bool,
}

impl Kernel for Pool<'_> {
    #[inline(always)]
    fn run<I: Isa>(&self, part: Part) {
        let [width, height, ..] = self.image.ne();
        let [kw, kh, _] = self.moves.size;
        for piece in Pieces::new(part, self.out.rows(), self.out.ne()[0]) {
            let index @ [i1, i2, i3] = self.out.row_index(piece.row);
            let out = Row::new(&self.out, index);
            for start in piece.starts() {
                let first = if self.mean { 0.0 } else { -f32::MAX };
                let mut sum = I::splat(first);
                for line in 0..kh {
                    let row = match self.moves.dims {
                        1 => Some(i1),
                        _ => usize::try_from(self.moves.position(1, i1, line))
                            .ok()
                            .filter(|&h| h < height),
                    };
                    let Some(row) = row else { continue };
                    let row = Row::new(&self.image, [row, i2, i3]);
                    for column in 0..kw {
                        let x = self.moves.load::<I>(&row, width, start, column, first);
                        sum = if self.mean { I::add(sum, x) } else { I::max(x, sum) };
                    }
                }
                if self.mean {
                    sum = I::div(sum, I::splat((kw * kh) as f32));
                }
                out.store::<I>(start, sum);
            }
        }
    }
}
