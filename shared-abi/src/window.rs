//! A window that moves over an image of one to three dimensions: what IM2COL, CONV and POOL share.
//!
//! Parameters: 0 to 2 strides, 3 to 5 padding, 6 to 8 dilation, 9 to 11 the window's size, each along width, height and
//! depth; 12 channels, 13 dimensions, 14 the kind of POOL (0 maximum, 1 mean). Along what an op does not have, stride,
//! dilation and size are 1 and padding is 0.
//!
//! | dimensions | image | window weights | rows of IM2COL | result of CONV |
//! | --- | --- | --- | --- | --- |
//! | 1 | `[w, channels, n]` | - | `[channels * kw, ow, n]` | - |
//! | 2 | `[w, h, channels, n]` | `[kw, kh, channels, out]` | `[channels * kh * kw, ow, oh, n]` | `[ow, oh, out, n]` |
//! | 3 | `[w, h, d, n * channels]` | `[kw, kh, kd, out * channels]` | `[channels * kd * kh * kw, ow, oh, n * od]` | `[ow, oh, od, n * out]` |
//!
//! POOL leaves all but its one or two dimensions as they are.

use crate::code::{DType, Opcode};
use crate::op::Op;
use crate::support::{Check, Part, Reason, ensure, floats, of_type};

/// Most elements of a window in one channel. What a result costs grows with them, and not with the image.
const MAX_WINDOW: u32 = 1 << 20;

/// A window's numbers, each along width, height and depth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// Steps between results.
    pub stride: [u32; 3],
    /// Elements that the image seems to have in front of its first.
    pub padding: [u32; 3],
    /// Steps between elements of the window.
    pub dilation: [u32; 3],
    /// Elements of the window.
    pub size: [u32; 3],
    /// Channels of an image.
    pub channels: u32,
    /// Dimensions of an image.
    pub dims: u32,
}

impl Window {
    /// The window that an op's parameters describe, whether it makes sense or not.
    pub fn of(op: &Op) -> Self {
        let three = |first: usize| [first, first.saturating_add(1), first.saturating_add(2)].map(|idx| op.param(idx));
        Self {
            stride: three(0),
            padding: three(3),
            dilation: three(6),
            size: three(9),
            channels: op.param(12),
            dims: op.param(13),
        }
    }

    /// Elements of the window in one channel; saturates.
    pub fn elems(&self) -> u32 {
        let [w, h, d] = self.size;
        w.saturating_mul(h).saturating_mul(d)
    }

    fn check(&self) -> Check {
        let sizes = self.stride.iter().chain(&self.size).chain(&self.dilation);
        // Positions then fit 64 bits with room to spare, signs included.
        let small = |&n: &u32| n > 0 && n < 1 << 20;
        ensure(sizes.into_iter().all(small), Part::Param(0), Reason::Value)?;
        ensure(self.elems() <= MAX_WINDOW, Part::Param(9), Reason::Value)?;
        ensure(self.padding.iter().all(|&n| n < 1 << 20), Part::Param(3), Reason::Value)?;
        ensure((1..=3).contains(&self.dims), Part::Param(13), Reason::Value)?;
        ensure(self.channels > 0, Part::Param(12), Reason::Value)
    }
}

/// Images in a tensor whose last dimension may hold them times channels.
fn images(window: &Window, ne: [u32; 4]) -> Option<u32> {
    let [_, _, n2, n3] = ne;
    match window.dims {
        1 => Some(n2),
        2 => Some(n3),
        _ => (n3.checked_rem(window.channels) == Some(0)).then(|| n3.checked_div(window.channels))?,
    }
}

pub(crate) fn check(op: &Op) -> Check {
    let window = Window::of(op);
    window.check()?;
    match op.opcode {
        Opcode::Im2col => im2col(op, &window),
        Opcode::Conv => conv(op, &window),
        _ => pool(op, &window),
    }
}

/// Channels of an image tensor, as far as its dimensions tell.
fn channels_fit(window: &Window, ne: [u32; 4]) -> bool {
    let [_, n1, n2, _] = ne;
    match window.dims {
        1 => n1 == window.channels,
        2 => n2 == window.channels,
        _ => true,
    }
}

fn im2col(op: &Op, window: &Window) -> Check {
    let image = floats(op, Part::Src(0))?;
    let out = floats(op, Part::Dst(0))?;
    ensure(channels_fit(window, image.ne), Part::Src(0), Reason::Shape)?;
    let n = images(window, image.ne);
    let row = window.elems().checked_mul(window.channels);
    let [o0, _, o2, o3] = out.ne;
    let fits = match (window.dims, n) {
        (_, None) => false,
        (1, Some(n)) => o2 == n && o3 == 1,
        (2, Some(n)) => o3 == n,
        (_, Some(n)) => n != 0 && o3.checked_rem(n) == Some(0),
    };
    ensure(fits && row == Some(o0), Part::Dst(0), Reason::Shape)
}

fn conv(op: &Op, window: &Window) -> Check {
    let weights = floats(op, Part::Src(0))?;
    let image = floats(op, Part::Src(1))?;
    let out = of_type(op, Part::Dst(0), &[DType::F32])?;
    ensure(window.dims > 1, Part::Param(13), Reason::Value)?;
    ensure(channels_fit(window, image.ne), Part::Src(1), Reason::Shape)?;
    let [kw, kh, kd] = window.size;
    let [_, _, o2, o3] = out.ne;
    let n = images(window, image.ne);
    let (weights_fit, out_fits) = match (window.dims, n) {
        (_, None | Some(0)) => (false, false),
        (2, Some(n)) => (weights.ne == [kw, kh, window.channels, o2], o3 == n),
        (_, Some(n)) => {
            let kernels = o3.checked_div(n).and_then(|out| out.checked_mul(window.channels));
            (
                kernels.is_some_and(|kernels| weights.ne == [kw, kh, kd, kernels]),
                o3.checked_rem(n) == Some(0),
            )
        }
    };
    ensure(weights_fit, Part::Src(0), Reason::Shape)?;
    ensure(out_fits, Part::Dst(0), Reason::Shape)
}

fn pool(op: &Op, window: &Window) -> Check {
    let image = floats(op, Part::Src(0))?;
    let out = floats(op, Part::Dst(0))?;
    ensure(op.param(14) <= 1, Part::Param(14), Reason::Value)?;
    ensure(window.dims < 3, Part::Param(13), Reason::Value)?;
    let [_, i1, i2, i3] = image.ne;
    let [_, o1, o2, o3] = out.ne;
    let same = o2 == i2 && o3 == i3 && (window.dims == 2 || o1 == i1);
    ensure(same, Part::Dst(0), Reason::Shape)
}
