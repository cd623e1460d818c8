//! The vector layer on Hexagon: integers in HVX registers, floats lane by lane, results equal `Plain` bit for bit.
//!
//! This is the member of the emulator image: QEMU has no HVX floating point, so 32 floats are a line of memory and a float
//! operation is a loop over it. The loops are functions of their own ([`lanes`]), called and not inlined, because a kernel
//! with 32 scalar instructions in place of each vector instruction grows out of any cache. What only moves or looks at
//! bits, the dot products above all, runs in HVX. Floats are copied by scalar code as well: QEMU commits a vector store
//! byte by byte, which takes it longer than sixteen scalar stores.
//!
//! The whole image is compiled for one processor with HVX on, so [`Isa::invoke`] has nothing to find out.

use core::arch::hexagon::v128::*;

use super::plain::Plain;
use super::tiles::{Codes, Row, Tiles};
use super::{Isa, Kernel, LANES, Part};

/// Lanes in HVX registers and in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hexagon;

/// 32 floats on a vector's boundary.
#[derive(Clone, Copy)]
#[repr(C, align(128))]
pub(crate) struct Line([f32; LANES]);

/// 32 halves, aligned for a copy by words.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Halves([u16; LANES]);

/// One HVX intrinsic; operands are evaluated outside the unsafe block.
macro_rules! op {
    ($name:ident ()) => {
        // SAFETY: only memory is unsafe about these intrinsics, and this one touches none.
        unsafe { $name() }
    };
    ($name:ident ($a:expr)) => {{
        let a = $a;
        // SAFETY: as above.
        unsafe { $name(a) }
    }};
    ($name:ident ($a:expr, $b:expr)) => {{
        let (a, b) = ($a, $b);
        // SAFETY: as above.
        unsafe { $name(a, b) }
    }};
    ($name:ident ($a:expr, $b:expr, $c:expr)) => {{
        let (a, b, c) = ($a, $b, $c);
        // SAFETY: as above.
        unsafe { $name(a, b, c) }
    }};
}

/// A statement for each lane, written out: QEMU pays for a loop's jumps more than for its body.
macro_rules! every_lane {
    ($lane:ident => $body:expr) => {
        every_lane!(@ $lane $body; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31)
    };
    (@ $lane:ident $body:expr; $($idx:literal)*) => {$({
        let $lane: usize = $idx;
        $body;
    })*};
}

#[inline(always)]
fn words(x: Line) -> HvxVector {
    // SAFETY: both are 128 bytes, and any bytes are a value of either.
    unsafe { core::mem::transmute::<Line, HvxVector>(x) }
}

#[inline(always)]
fn line(x: HvxVector) -> Line {
    // SAFETY: as for `words`.
    unsafe { core::mem::transmute::<HvxVector, Line>(x) }
}

/// Mask of lanes with a > b: the sign of the saturated difference, because the intrinsics that give predicates are declared
/// with vectors in Rust 1.96, which LLVM cannot select.
#[inline(always)]
fn greater(a: HvxVector, b: HvxVector) -> HvxVector {
    op!(q6_vw_vasr_vwr(op!(q6_vw_vsub_vwvw_sat(b, a)), 31))
}

/// `a` where the mask is set, `b` elsewhere.
#[inline(always)]
fn mux(mask: HvxVector, a: HvxVector, b: HvxVector) -> HvxVector {
    op!(q6_v_vxor_vv(b, op!(q6_v_vand_vv(mask, op!(q6_v_vxor_vv(a, b))))))
}

/// 128 bytes from any address.
///
/// # Safety
/// 128 bytes at `ptr` are readable.
#[inline(always)]
unsafe fn load<T>(ptr: *const T) -> HvxVector {
    // SAFETY: the caller promises 128 readable bytes; the read asks for no alignment.
    unsafe { ptr.cast::<HvxVector>().read_unaligned() }
}

/// Four activations as a scalar register.
///
/// # Safety
/// 4 bytes at `act` are readable, on a 4-byte boundary.
#[inline(always)]
unsafe fn word(act: *const i8) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { act.cast::<i32>().read() }
}

/// Operations on floats, lane by lane.
mod lanes {
    use super::{Halves, HvxVector, Isa, LANES, Line, Plain, line, mux, words};
    use crate::hvx::plain::{f16_to_f32, f32_to_f16, round_even, sqrt};

    macro_rules! binary {
        ($($name:ident: |$a:ident, $b:ident| $value:expr;)*) => {$(
            #[inline(never)]
            pub(super) fn $name(a: &Line, b: &Line) -> Line {
                let mut result = Line([0.0; LANES]);
                every_lane!(lane => {
                    let ($a, $b) = (a.0[lane], b.0[lane]);
                    result.0[lane] = $value;
                });
                result
            }
        )*};
    }

    binary! {
        add: |a, b| a + b;
        sub: |a, b| a - b;
        mul: |a, b| a * b;
        div: |a, b| a / b;
        gt: |a, b| f32::from_bits(if a > b { u32::MAX } else { 0 });
        eq: |a, b| f32::from_bits(if a == b { u32::MAX } else { 0 });
    }

    /// By a mask: LLVM makes `sfmax` of a comparison with 0, which drops a NaN.
    #[inline(never)]
    pub(super) fn max(a: &Line, b: &Line) -> Line {
        line(mux(words(gt(a, b)), words(*a), words(*b)))
    }

    #[inline(never)]
    pub(super) fn min(a: &Line, b: &Line) -> Line {
        line(mux(words(gt(b, a)), words(*a), words(*b)))
    }

    #[inline(never)]
    pub(super) fn splat(x: f32) -> Line {
        Line([x; LANES])
    }

    /// Zeros and normal numbers by integers alone; a line with anything else goes the long way.
    #[inline(never)]
    pub(super) fn from_half(halves: &Halves) -> Line {
        let mut special = false;
        let mut lanes = [0.0; LANES];
        every_lane!(lane => {
            let half = halves.0[lane];
            let magnitude = u32::from(half & 0x7fff);
            special |= (magnitude.wrapping_sub(1) < 0x3ff) | (magnitude >= 0x7c00);
            let bits = if magnitude == 0 { 0 } else { (magnitude << 13) + (112 << 23) };
            lanes[lane] = f32::from_bits(u32::from(half & 0x8000) << 16 | bits);
        });
        if special {
            Line(halves.0.map(f16_to_f32))
        } else {
            Line(lanes)
        }
    }

    #[inline(never)]
    pub(super) fn root(x: &Line) -> Line {
        Line(x.0.map(sqrt))
    }

    #[inline(never)]
    pub(super) fn to_int(x: &Line) -> HvxVector {
        words(Line(x.0.map(|lane| f32::from_bits(round_even(lane) as u32))))
    }

    #[inline(never)]
    pub(super) fn to_float(x: HvxVector) -> Line {
        let mut x = line(x);
        every_lane!(lane => x.0[lane] = x.0[lane].to_bits() as i32 as f32);
        x
    }

    #[inline(never)]
    pub(super) fn to_half(x: &Line) -> [u16; LANES] {
        x.0.map(f32_to_f16)
    }

    #[inline(never)]
    pub(super) fn sum(x: &Line) -> f32 {
        Plain::sum(x.0)
    }

    #[inline(never)]
    pub(super) fn max_lane(x: &Line) -> f32 {
        Plain::max_lane(x.0)
    }
}

impl Isa for Hexagon {
    const NAME: &'static str = "hvx";
    type F32 = Line;
    type I32 = HvxVector;

    #[inline(never)]
    fn invoke<K: Kernel>(kernel: &K, part: Part) {
        kernel.run::<Self>(part);
    }

    #[inline(always)]
    fn splat(x: f32) -> Self::F32 {
        lanes::splat(x)
    }
    #[inline(always)]
    fn splat_i(x: i32) -> Self::I32 {
        op!(q6_v_vsplat_r(x))
    }
    #[inline(always)]
    fn from_array(lanes: [f32; LANES]) -> Self::F32 {
        Line(lanes)
    }
    #[inline(always)]
    fn to_array(x: Self::F32) -> [f32; LANES] {
        x.0
    }

    #[inline(always)]
    unsafe fn load_f32(ptr: *const f32) -> Self::F32 {
        let mut x = Line([0.0; LANES]);
        // SAFETY: the caller promises 128 readable bytes, and a line has as many; bytes ask for no alignment.
        unsafe { core::ptr::copy_nonoverlapping(ptr.cast::<u8>(), (&raw mut x).cast(), size_of::<Line>()) };
        x
    }
    #[inline(always)]
    unsafe fn load_f16(ptr: *const u16) -> Self::F32 {
        let mut halves = Halves([0; LANES]);
        // SAFETY: the caller promises 64 readable bytes, and there is room for as many; bytes ask for no alignment.
        unsafe { core::ptr::copy_nonoverlapping(ptr.cast::<u8>(), (&raw mut halves).cast(), size_of::<Halves>()) };
        lanes::from_half(&halves)
    }
    #[inline(always)]
    unsafe fn load_i32(ptr: *const i32) -> Self::I32 {
        // SAFETY: the caller promises 128 readable bytes.
        unsafe { load(ptr) }
    }
    #[inline(always)]
    unsafe fn load_i8(ptr: *const i8) -> Self::I32 {
        // SAFETY: the caller promises 32 readable bytes.
        let lanes = unsafe { Plain::load_i8(ptr) };
        words(Line(lanes.map(|lane| f32::from_bits(lane as u32))))
    }
    #[inline(always)]
    unsafe fn store_f32(ptr: *mut f32, x: Self::F32) {
        // SAFETY: the caller promises 128 writable bytes, and a line has as many; bytes ask for no alignment.
        unsafe { core::ptr::copy_nonoverlapping((&raw const x).cast::<u8>(), ptr.cast(), size_of::<Line>()) };
    }
    #[inline(always)]
    unsafe fn store_f16(ptr: *mut u16, x: Self::F32) {
        // SAFETY: the caller promises 64 writable bytes; the write asks for no alignment.
        unsafe { ptr.cast::<[u16; LANES]>().write_unaligned(lanes::to_half(&x)) }
    }
    #[inline(always)]
    unsafe fn store_i8(ptr: *mut i8, x: Self::I32) {
        let halves = op!(q6_vh_vpacke_vwvw(x, x));
        let bytes = line(op!(q6_vb_vpacke_vhvh(halves, halves)));
        // SAFETY: the first 32 bytes of a vector hold the lanes' low bytes.
        let low = unsafe { (&raw const bytes).cast::<[u8; LANES]>().read() };
        // SAFETY: the caller promises 32 writable bytes; the write asks for no alignment.
        unsafe { ptr.cast::<[u8; LANES]>().write_unaligned(low) }
    }

    #[inline(always)]
    fn add(a: Self::F32, b: Self::F32) -> Self::F32 {
        lanes::add(&a, &b)
    }
    #[inline(always)]
    fn sub(a: Self::F32, b: Self::F32) -> Self::F32 {
        lanes::sub(&a, &b)
    }
    #[inline(always)]
    fn mul(a: Self::F32, b: Self::F32) -> Self::F32 {
        lanes::mul(&a, &b)
    }
    #[inline(always)]
    fn div(a: Self::F32, b: Self::F32) -> Self::F32 {
        lanes::div(&a, &b)
    }
    #[inline(always)]
    fn sqrt(x: Self::F32) -> Self::F32 {
        lanes::root(&x)
    }
    #[inline(always)]
    fn max(a: Self::F32, b: Self::F32) -> Self::F32 {
        lanes::max(&a, &b)
    }
    #[inline(always)]
    fn min(a: Self::F32, b: Self::F32) -> Self::F32 {
        lanes::min(&a, &b)
    }
    #[inline(always)]
    fn gt(a: Self::F32, b: Self::F32) -> Self::I32 {
        words(lanes::gt(&a, &b))
    }
    #[inline(always)]
    fn eq(a: Self::F32, b: Self::F32) -> Self::I32 {
        words(lanes::eq(&a, &b))
    }
    #[inline(always)]
    fn select(mask: Self::I32, a: Self::F32, b: Self::F32) -> Self::F32 {
        line(mux(mask, words(a), words(b)))
    }
    #[inline(always)]
    fn bits(x: Self::F32) -> Self::I32 {
        words(x)
    }
    #[inline(always)]
    fn from_bits(x: Self::I32) -> Self::F32 {
        line(x)
    }
    #[inline(always)]
    fn to_int(x: Self::F32) -> Self::I32 {
        lanes::to_int(&x)
    }
    #[inline(always)]
    fn to_float(x: Self::I32) -> Self::F32 {
        lanes::to_float(x)
    }

    #[inline(always)]
    fn add_i(a: Self::I32, b: Self::I32) -> Self::I32 {
        op!(q6_vw_vadd_vwvw(a, b))
    }
    #[inline(always)]
    fn sub_i(a: Self::I32, b: Self::I32) -> Self::I32 {
        op!(q6_vw_vsub_vwvw(a, b))
    }
    #[inline(always)]
    fn and(a: Self::I32, b: Self::I32) -> Self::I32 {
        op!(q6_v_vand_vv(a, b))
    }
    #[inline(always)]
    fn or(a: Self::I32, b: Self::I32) -> Self::I32 {
        op!(q6_v_vor_vv(a, b))
    }
    #[inline(always)]
    fn xor(a: Self::I32, b: Self::I32) -> Self::I32 {
        op!(q6_v_vxor_vv(a, b))
    }
    #[inline(always)]
    fn shl<const N: i32>(a: Self::I32) -> Self::I32 {
        op!(q6_vw_vasl_vwr(a, N))
    }
    #[inline(always)]
    fn sar<const N: i32>(a: Self::I32) -> Self::I32 {
        op!(q6_vw_vasr_vwr(a, N))
    }
    #[inline(always)]
    fn gt_i(a: Self::I32, b: Self::I32) -> Self::I32 {
        greater(a, b)
    }

    #[inline(always)]
    fn sum(x: Self::F32) -> f32 {
        lanes::sum(&x)
    }
    #[inline(always)]
    fn max_lane(x: Self::F32) -> f32 {
        lanes::max_lane(&x)
    }

    #[inline(always)]
    unsafe fn dot_tile_u4<const N: usize>(codes: *const u8, act: [*const i8; N], start: [i32; N]) -> [Self::I32; N] {
        let nibble = Self::splat_i(0x0f0f_0f0f);
        let mut sums = start.map(Self::splat_i);
        for vector in 0..4 {
            // SAFETY: at most 3 * 128 + 128 = 512 bytes, which the caller promises.
            let pair = unsafe { codes.wrapping_add(vector * 128).cast::<HvxVector>().read() };
            let low = op!(q6_v_vand_vv(pair, nibble));
            let high = op!(q6_vub_vlsr_vubr(pair, 4));
            for (sum, act) in sums.iter_mut().zip(act) {
                // SAFETY: bytes 8v to 8v + 3 of 32, on a boundary of 4.
                let four = unsafe { word(act.wrapping_add(8 * vector)) };
                *sum = op!(q6_vw_vrmpyacc_vwvubrb(*sum, low, four));
                // SAFETY: bytes 8v + 4 to 8v + 7 of 32, on a boundary of 4.
                let four = unsafe { word(act.wrapping_add(8 * vector + 4)) };
                *sum = op!(q6_vw_vrmpyacc_vwvubrb(*sum, high, four));
            }
        }
        sums
    }

    #[inline(always)]
    unsafe fn dot_tile_u8<const N: usize>(codes: *const u8, act: [*const i8; N], start: [i32; N]) -> [Self::I32; N] {
        let mut sums = start.map(Self::splat_i);
        for vector in 0..8 {
            // SAFETY: at most 7 * 128 + 128 = 1024 bytes, which the caller promises.
            let code = unsafe { codes.wrapping_add(vector * 128).cast::<HvxVector>().read() };
            for (sum, act) in sums.iter_mut().zip(act) {
                // SAFETY: bytes 4v to 4v + 3 of 32, on a boundary of 4.
                let four = unsafe { word(act.wrapping_add(4 * vector)) };
                *sum = op!(q6_vw_vrmpyacc_vwvubrb(*sum, code, four));
            }
        }
        sums
    }

    #[inline(always)]
    fn dot_rows<C: Codes, const N: usize>(tiles: &Tiles<'_>, rows: &[Row<'_>; N]) -> [Self::F32; N] {
        rows::dot_rows::<C, N>(tiles, rows)
    }
}

#[path = "hexagon_rows.rs"]
mod rows;
