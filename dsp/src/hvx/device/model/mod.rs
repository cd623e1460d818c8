//! The instructions in plain Rust, bit by bit: what runs device code on a PC.
//!
//! Integer instructions follow the HVX reference manual. qf32 is in `qfloat`, with sources and assumptions. The IEEE
//! instructions round to nearest even and keep subnormals (assumed: flushing them is a mode that v81 adds and that is off);
//! a NaN result is 0x7fffffff.
//!
//! Instructions of more than a few operations a lane are calls: a kernel is thousands of instructions, and 32 lanes of plain
//! code for each would take minutes to compile.

mod qfloat;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod watch;

use super::Hvx;
#[cfg(test)]
pub(super) use watch::within;

/// A PC in place of a vector unit.
#[derive(Clone, Copy, Debug)]
pub struct Model;

/// A vector register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(128))]
pub struct Register([i32; 32]);

/// A vector predicate: words of -1 and 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Predicate(Register);

/// A vector register with lanes in qf32 format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Qf32(Register);

/// Every vector load and store comes by here, so that a test can say where they may be.
#[inline]
fn touch<T>(_ptr: *const T, _bytes: usize) {
    #[cfg(test)]
    watch::check(_ptr.addr(), _bytes);
}

/// What a vector load leaves in bytes that were not asked for.
const JUNK: i32 = 0x5a5a_5a5a;

impl Register {
    fn map(self, f: impl Fn(i32) -> i32) -> Self {
        Self(self.0.map(f))
    }

    fn zip(self, other: Self, f: impl Fn(i32, i32) -> i32) -> Self {
        let mut result = self;
        for (x, y) in result.0.iter_mut().zip(other.0) {
            *x = f(*x, y);
        }
        result
    }

    fn bytes(self) -> [u8; 128] {
        // SAFETY: both are 128 bytes, and any bytes are a value of either.
        unsafe { core::mem::transmute::<[i32; 32], [u8; 128]>(self.0) }
    }

    fn from_bytes(bytes: [u8; 128]) -> Self {
        // SAFETY: as for `bytes`.
        Self(unsafe { core::mem::transmute::<[u8; 128], [i32; 32]>(bytes) })
    }

    fn halves(self) -> [u16; 64] {
        let bytes = self.bytes();
        core::array::from_fn(|idx| u16::from_le_bytes([bytes[2 * idx], bytes[2 * idx + 1]]))
    }
}

/// The amount of a shift by vector: the low six bits, signed.
fn amount(x: i32) -> i32 {
    x << 26 >> 26
}

fn shift(x: i32, left: i32) -> i32 {
    match left {
        32.. => 0,
        0..32 => x << left,
        -31..0 => (x as u32 >> -left) as i32,
        _ => 0,
    }
}

/// The product of four unsigned bytes with four signed ones, added up.
fn dot4(a: i32, b: i32) -> i32 {
    let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
    (0..4).map(|idx| i32::from(a[idx]) * i32::from(b[idx] as i8)).sum()
}

fn float(a: i32, b: i32, f: impl Fn(f32, f32) -> f32) -> i32 {
    let value = f(f32::from_bits(a as u32), f32::from_bits(b as u32));
    if value.is_nan() {
        i32::MAX
    } else {
        value.to_bits() as i32
    }
}

fn qf(a: Register, b: Register, f: impl Fn(u32, u32) -> u32) -> Qf32 {
    Qf32(a.zip(b, |x, y| f(x as u32, y as u32) as i32))
}

/// Methods of one and two vectors, lane by lane.
macro_rules! lanes {
    ($($name:ident($a:ident) $value:expr;)*) => {$(
        #[inline]
        fn $name($a: Register) -> Register {
            $a.map(|$a| $value)
        }
    )*};
    ($($name:ident($a:ident, $b:ident) $value:expr;)*) => {$(
        #[inline]
        fn $name($a: Register, $b: Register) -> Register {
            $a.zip($b, |$a, $b| $value)
        }
    )*};
    ($($name:ident($a:ident; $by:ident) $value:expr;)*) => {$(
        #[inline]
        fn $name($a: Register, $by: i32) -> Register {
            $a.map(|$a| $value)
        }
    )*};
}

impl Hvx for Model {
    type V = Register;
    type Q = Predicate;
    type Qf32 = Qf32;

    #[inline(never)]
    unsafe fn vmem<T>(ptr: *const T) -> Register {
        assert!(ptr.cast::<Register>().is_aligned(), "vmem of an address off its line");
        touch(ptr, 128);
        // SAFETY: the caller promises 128 readable bytes, and the assertion their alignment.
        unsafe { ptr.cast::<Register>().read() }
    }
    #[inline(never)]
    unsafe fn vmemu<T>(ptr: *const T) -> Register {
        touch(ptr, 128);
        // SAFETY: the caller promises 128 readable bytes; the read asks for no alignment.
        Register(unsafe { ptr.cast::<[i32; 32]>().read_unaligned() })
    }
    #[inline(never)]
    unsafe fn vmemu_part<T, const BYTES: usize>(ptr: *const T) -> Register {
        const { assert!(BYTES <= 128) }
        touch(ptr, BYTES);
        let mut register = Register([JUNK; 32]);
        // SAFETY: the caller promises `BYTES` readable bytes, no more than a register has; bytes ask for no alignment.
        unsafe { core::ptr::copy_nonoverlapping(ptr.cast::<u8>(), (&raw mut register).cast(), BYTES) };
        register
    }
    #[inline(never)]
    unsafe fn vmemu_store<T>(ptr: *mut T, x: Register) {
        touch(ptr, 128);
        // SAFETY: the caller promises 128 writable bytes; the write asks for no alignment.
        unsafe { ptr.cast::<[i32; 32]>().write_unaligned(x.0) }
    }
    #[inline(never)]
    unsafe fn vmemu_store_part<T, const BYTES: usize>(ptr: *mut T, x: Register) {
        const { assert!(BYTES <= 128 && BYTES.is_multiple_of(2)) }
        assert!(
            ptr.addr().is_multiple_of(2),
            "a store of part of a vector to an odd address"
        );
        touch(ptr, BYTES);
        // SAFETY: the caller promises `BYTES` writable bytes, and a register has no fewer; bytes ask for no alignment.
        unsafe { core::ptr::copy_nonoverlapping((&raw const x).cast::<u8>(), ptr.cast(), BYTES) }
    }

    #[inline]
    fn lvsplatw(x: i32) -> Register {
        Register([x; 32])
    }
    #[inline]
    fn vextract(x: Register, idx: i32) -> i32 {
        x.0[idx as usize & 31]
    }
    #[inline]
    fn from_words(words: [i32; 32]) -> Register {
        Register(words)
    }
    #[inline]
    fn to_words(x: Register) -> [i32; 32] {
        x.0
    }

    lanes! {
        vcl0w(a) a.leading_zeros() as i32;
        vconv_sf_w(a) (a as f32).to_bits() as i32;
    }
    lanes! {
        vand(a, b) a & b;
        vor(a, b) a | b;
        vxor(a, b) a ^ b;
        vaddw(a, b) a.wrapping_add(b);
        vsubw(a, b) a.wrapping_sub(b);
        vmaxw(a, b) a.max(b);
        vminw(a, b) a.min(b);
        vmpyiewuh(a, b) a.wrapping_mul(b & 0xffff);
        vaslwv(a, b) match amount(b) {
            left @ 0.. => shift(a, left),
            right => a >> (-right).min(31),
        };
        vlsrwv(a, b) shift(a, -amount(b));
        vadd_sf_sf(a, b) float(a, b, |a, b| a + b);
        vsub_sf_sf(a, b) float(a, b, |a, b| a - b);
        vmpy_sf_sf(a, b) float(a, b, |a, b| a * b);
    }
    lanes! {
        vaslw(a; by) a << (by & 31);
        vasrw(a; by) a >> (by & 31);
        vlsrw(a; by) (a as u32 >> (by & 31)) as i32;
        vlsrb(a; by) i32::from_le_bytes(a.to_le_bytes().map(|byte| byte >> (by & 7)));
    }

    #[inline]
    fn vgtw(a: Register, b: Register) -> Predicate {
        Predicate(a.zip(b, |a, b| -i32::from(a > b)))
    }
    #[inline]
    fn veqw(a: Register, b: Register) -> Predicate {
        Predicate(a.zip(b, |a, b| -i32::from(a == b)))
    }
    #[inline]
    fn pred_and(a: Predicate, b: Predicate) -> Predicate {
        Predicate(a.0.zip(b.0, |a, b| a & b))
    }
    #[inline]
    fn pred_or(a: Predicate, b: Predicate) -> Predicate {
        Predicate(a.0.zip(b.0, |a, b| a | b))
    }
    #[inline]
    fn pred_not(a: Predicate) -> Predicate {
        Predicate(a.0.map(|a| !a))
    }
    #[inline]
    fn vmux(q: Predicate, a: Register, b: Register) -> Register {
        let mut result = b;
        for ((result, a), q) in result.0.iter_mut().zip(a.0).zip(q.0.0) {
            *result = if q != 0 { a } else { *result };
        }
        result
    }
    #[inline]
    fn vandvrt(mask: Register) -> Predicate {
        debug_assert!(mask.0.iter().all(|&word| word == 0 || word == -1), "not a mask");
        Predicate(mask)
    }
    #[inline]
    fn vandqrt(q: Predicate) -> Register {
        q.0
    }

    #[inline(never)]
    fn vrmpybus(a: Register, four: i32) -> Register {
        Self::vrmpybus_acc(Register([0; 32]), a, four)
    }
    #[inline(never)]
    fn vrmpybus_acc(sum: Register, a: Register, four: i32) -> Register {
        sum.zip(a, |sum, a| sum.wrapping_add(dot4(a, four)))
    }

    #[inline(never)]
    fn vror(a: Register, by: i32) -> Register {
        let bytes = a.bytes();
        Register::from_bytes(core::array::from_fn(|idx| bytes[(idx + (by & 127) as usize) % 128]))
    }
    #[inline(never)]
    fn vshuffvdd(high: Register, low: Register, by: i32) -> (Register, Register) {
        let (mut high, mut low) = (high.bytes(), low.bytes());
        for group in [1, 2, 4, 8, 16, 32, 64].into_iter().filter(|group| by & group != 0) {
            let group = group as usize;
            for idx in (0..128).filter(|idx| idx & group == 0) {
                core::mem::swap(&mut high[idx], &mut low[idx + group]);
            }
        }
        (Register::from_bytes(low), Register::from_bytes(high))
    }
    #[inline(never)]
    fn vshuffh(a: Register) -> Register {
        let half = |idx: usize| a.0[idx / 2] >> (16 * (idx % 2)) & 0xffff;
        Register(core::array::from_fn(|lane| half(lane) | half(lane + 32) << 16))
    }
    #[inline(never)]
    fn vpackeh(high: Register, low: Register) -> Register {
        let words = |idx: usize| if idx < 32 { low.0[idx] } else { high.0[idx - 32] };
        let half = |idx: usize| words(idx) & 0xffff;
        Register(core::array::from_fn(|idx| half(2 * idx) | half(2 * idx + 1) << 16))
    }
    #[inline(never)]
    fn vpackeb(high: Register, low: Register) -> Register {
        let (high, low) = (high.bytes(), low.bytes());
        Register::from_bytes(core::array::from_fn(|idx| {
            if idx < 64 { low[2 * idx] } else { high[2 * idx - 128] }
        }))
    }
    #[inline(never)]
    fn vunpackuh(a: Register) -> (Register, Register) {
        let halves = a.halves();
        let part = |start: usize| Register(core::array::from_fn(|idx| i32::from(halves[start + idx])));
        (part(0), part(32))
    }
    #[inline(never)]
    fn vunpackh(a: Register) -> (Register, Register) {
        let halves = a.halves();
        let part = |start: usize| Register(core::array::from_fn(|idx| i32::from(halves[start + idx] as i16)));
        (part(0), part(32))
    }
    #[inline(never)]
    fn vunpackb(a: Register) -> (Register, Register) {
        let bytes = a.bytes();
        let half = |idx: usize| i32::from(bytes[idx] as i8) & 0xffff;
        let part = |start: usize| {
            Register(core::array::from_fn(|idx| {
                half(start + 2 * idx) | half(start + 2 * idx + 1) << 16
            }))
        };
        (part(0), part(64))
    }

    #[inline]
    fn qf32_zero() -> Qf32 {
        Qf32(Register([0; 32]))
    }
    #[inline(never)]
    fn vadd_sf(a: Register, b: Register) -> Qf32 {
        qf(a, b, qfloat::add_sf)
    }
    #[inline(never)]
    fn vsub_sf(a: Register, b: Register) -> Qf32 {
        qf(a, b, qfloat::sub_sf)
    }
    #[inline(never)]
    fn vadd_qf32(a: Qf32, b: Qf32) -> Qf32 {
        qf(a.0, b.0, qfloat::add)
    }
    #[inline(never)]
    fn vsub_qf32(a: Qf32, b: Qf32) -> Qf32 {
        qf(a.0, b.0, qfloat::sub)
    }
    #[inline(never)]
    fn vadd_qf32_mix(a: Qf32, b: Register) -> Qf32 {
        qf(a.0, b, qfloat::add_mix)
    }
    #[inline(never)]
    fn vsub_qf32_mix(a: Qf32, b: Register) -> Qf32 {
        qf(a.0, b, qfloat::sub_mix)
    }
    #[inline(never)]
    fn vmpy_qf32_sf(a: Register, b: Register) -> Qf32 {
        qf(a, b, qfloat::mul_sf)
    }
    #[inline(never)]
    fn vmpy_qf32(a: Qf32, b: Qf32) -> Qf32 {
        qf(a.0, b.0, qfloat::mul)
    }
    #[inline(never)]
    fn vmpy_qf32_hf(a: Register, b: Register) -> (Qf32, Qf32) {
        (
            qf(a, b, |x, y| qfloat::mul_hf(x as u16, y as u16)),
            qf(a, b, |x, y| qfloat::mul_hf((x >> 16) as u16, (y >> 16) as u16)),
        )
    }
    #[inline(never)]
    fn vconv_sf_qf32(a: Qf32) -> Register {
        a.0.map(|x| qfloat::to_sf(x as u32) as i32)
    }

    #[inline(never)]
    fn vmpy_sf_hf(a: Register, b: Register) -> (Register, Register) {
        use crate::hvx::plain::f16_to_f32;
        let product = |x: i32, y: i32| float(0, 0, |_, _| f16_to_f32(x as u16) * f16_to_f32(y as u16));
        (a.zip(b, product), a.zip(b, |x, y| product(x >> 16, y >> 16)))
    }
}
