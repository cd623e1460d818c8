//! The HVX instructions that the device member and its tile loops use: one method each, named as LLVM names them.
//!
//! Two implementers: `Intrinsics` on Hexagon, where a method is its instruction, and `Model`
//! anywhere, bit by bit in plain Rust. Code that is generic over [`Hvx`] is the device's code and runs on a PC.
//!
//! A vector in qfloat format is a type of its own, [`Hvx::Qf32`], which no method loads or stores and no integer
//! instruction takes: a qfloat that leaves its registers would lose precision on some processors and means nothing to
//! scalar code. It must not live across a call either, so everything here and above is `#[inline(always)]`.
//!
//! Pairs are tuples (low, high). "Words", "halves" and "bytes" are 32, 16 and 8 bits wide.

/// The instruction set.
pub trait Hvx: Copy + Send + Sync + 'static {
    /// A vector register: 128 bytes of integers, or of IEEE floats.
    type V: Copy;
    /// A vector predicate over words.
    type Q: Copy;
    /// A vector register with 32 lanes in qf32 format.
    type Qf32: Copy;

    // Memory.

    /// `Vd = vmem(Rt)`.
    ///
    /// # Safety
    /// 128 bytes at `ptr` are readable and lie on a line of 128.
    unsafe fn vmem<T>(ptr: *const T) -> Self::V;
    /// `Vd = vmemu(Rt)`: from any address.
    ///
    /// # Safety
    /// 128 bytes at `ptr` are readable.
    unsafe fn vmemu<T>(ptr: *const T) -> Self::V;
    /// The first `BYTES` bytes from any address, at most 128; the others are junk. On Hexagon the aligned lines that
    /// hold them are loaded, so that no other page is touched.
    ///
    /// # Safety
    /// `BYTES` bytes at `ptr` are readable.
    unsafe fn vmemu_part<T, const BYTES: usize>(ptr: *const T) -> Self::V;
    /// `vmemu(Rt) = Vs`: to any address.
    ///
    /// # Safety
    /// 128 bytes at `ptr` are writable.
    unsafe fn vmemu_store<T>(ptr: *mut T, x: Self::V);
    /// The first `BYTES` bytes, an even number and at most 128: stores under predicates, which touch no other byte and no
    /// line without one of them.
    ///
    /// # Safety
    /// `BYTES` bytes at `ptr` are writable, and `ptr` is even.
    unsafe fn vmemu_store_part<T, const BYTES: usize>(ptr: *mut T, x: Self::V);

    // Between scalar registers and vectors.

    /// `Vd = vsplat(Rt)`: all words.
    fn lvsplatw(x: i32) -> Self::V;
    /// `Rd = vextract(Vu, Rs)`: word `idx`, below 32.
    fn vextract(x: Self::V, idx: i32) -> i32;
    /// Lanes from an array, through memory.
    fn from_words(words: [i32; 32]) -> Self::V;
    /// Lanes as an array, through memory.
    fn to_words(x: Self::V) -> [i32; 32];

    // Bits.

    /// `Vd = vand(Vu, Vv)`.
    fn vand(a: Self::V, b: Self::V) -> Self::V;
    /// `Vd = vor(Vu, Vv)`.
    fn vor(a: Self::V, b: Self::V) -> Self::V;
    /// `Vd = vxor(Vu, Vv)`.
    fn vxor(a: Self::V, b: Self::V) -> Self::V;

    // Predicates.

    /// `Qd = vcmp.gt(Vu.w, Vv.w)`, signed.
    fn vgtw(a: Self::V, b: Self::V) -> Self::Q;
    /// `Qd = vcmp.eq(Vu.w, Vv.w)`.
    fn veqw(a: Self::V, b: Self::V) -> Self::Q;
    /// `Qd = and(Qs, Qt)`.
    fn pred_and(a: Self::Q, b: Self::Q) -> Self::Q;
    /// `Qd = or(Qs, Qt)`.
    fn pred_or(a: Self::Q, b: Self::Q) -> Self::Q;
    /// `Qd = not(Qs)`.
    fn pred_not(a: Self::Q) -> Self::Q;
    /// `Vd = vmux(Qt, Vu, Vv)`: `a` where the predicate holds.
    fn vmux(q: Self::Q, a: Self::V, b: Self::V) -> Self::V;
    /// `Qd = vand(Vu, Rt)`: a mask of -1 and 0 as a predicate.
    fn vandvrt(mask: Self::V) -> Self::Q;
    /// `Vd = vand(Qu, Rt)`: a predicate as a mask of -1 and 0.
    fn vandqrt(q: Self::Q) -> Self::V;

    // Words.

    /// `Vd.w = vadd(Vu.w, Vv.w)`, wrapping.
    fn vaddw(a: Self::V, b: Self::V) -> Self::V;
    /// `Vd.w = vsub(Vu.w, Vv.w)`, wrapping.
    fn vsubw(a: Self::V, b: Self::V) -> Self::V;
    /// `Vd.w = vmax(Vu.w, Vv.w)`, signed.
    fn vmaxw(a: Self::V, b: Self::V) -> Self::V;
    /// `Vd.w = vmin(Vu.w, Vv.w)`, signed.
    fn vminw(a: Self::V, b: Self::V) -> Self::V;
    /// `Vd.w = vasl(Vu.w, Rt)`, 0 to 31.
    fn vaslw(a: Self::V, by: i32) -> Self::V;
    /// `Vd.w = vasr(Vu.w, Rt)`, 0 to 31.
    fn vasrw(a: Self::V, by: i32) -> Self::V;
    /// `Vd.uw = vlsr(Vu.uw, Rt)`, 0 to 31.
    fn vlsrw(a: Self::V, by: i32) -> Self::V;
    /// `Vd.w = vasl(Vu.w, Vv.w)`: the low six bits of the second, signed; a negative count shifts right.
    fn vaslwv(a: Self::V, by: Self::V) -> Self::V;
    /// `Vd.w = vlsr(Vu.w, Vv.w)`: likewise; a negative count shifts left.
    fn vlsrwv(a: Self::V, by: Self::V) -> Self::V;
    /// `Vd.w = vmpyie(Vu.w, Vv.uh)`: the low word of the product with the low half of each word of `b`, unsigned.
    fn vmpyiewuh(a: Self::V, b: Self::V) -> Self::V;
    /// `Vd.uw = vcl0(Vu.uw)`: leading zeros, 32 for 0.
    fn vcl0w(a: Self::V) -> Self::V;

    // Bytes.

    /// `Vd.ub = vlsr(Vu.ub, Rt)`, 0 to 7.
    fn vlsrb(a: Self::V, by: i32) -> Self::V;
    /// `Vd.w = vrmpy(Vu.ub, Rt.b)`: each word is the sum of four unsigned bytes by the four signed bytes of `four`.
    fn vrmpybus(a: Self::V, four: i32) -> Self::V;
    /// `Vx.w += vrmpy(Vu.ub, Rt.b)`: each word gains the sum of four unsigned bytes by the four signed bytes of `four`.
    fn vrmpybus_acc(sum: Self::V, a: Self::V, four: i32) -> Self::V;

    // Moves.

    /// `Vd = vror(Vu, Rt)`: byte i becomes byte `i + by`, modulo 128.
    fn vror(a: Self::V, by: i32) -> Self::V;
    /// `Vdd = vshuff(Vu, Vv, Rt)`: for each power of two in `by`, from the smallest, the odd groups of `low` change places
    /// with the even groups of `high`.
    fn vshuffvdd(high: Self::V, low: Self::V, by: i32) -> (Self::V, Self::V);
    /// `Vd.h = vshuff(Vu.h)`: halves 0, 32, 1, 33, ...
    fn vshuffh(a: Self::V) -> Self::V;
    /// `Vd.h = vpacke(Vu.w, Vv.w)`: the low halves of the words of `low`, then those of `high`.
    fn vpackeh(high: Self::V, low: Self::V) -> Self::V;
    /// `Vd.b = vpacke(Vu.h, Vv.h)`: the low bytes of the halves of `low`, then those of `high`.
    fn vpackeb(high: Self::V, low: Self::V) -> Self::V;
    /// `Vdd.uw = vunpack(Vu.uh)`.
    fn vunpackuh(a: Self::V) -> (Self::V, Self::V);
    /// `Vdd.w = vunpack(Vu.h)`.
    fn vunpackh(a: Self::V) -> (Self::V, Self::V);
    /// `Vdd.h = vunpack(Vu.b)`.
    fn vunpackb(a: Self::V) -> (Self::V, Self::V);

    // qfloat, v68 and later.

    /// A qf32 of next to nothing in each lane, 2^-150: what a sum starts with. All bits are 0.
    fn qf32_zero() -> Self::Qf32;
    /// `Vd.qf32 = vadd(Vu.sf, Vv.sf)`.
    fn vadd_sf(a: Self::V, b: Self::V) -> Self::Qf32;
    /// `Vd.qf32 = vsub(Vu.sf, Vv.sf)`.
    fn vsub_sf(a: Self::V, b: Self::V) -> Self::Qf32;
    /// `Vd.qf32 = vadd(Vu.qf32, Vv.qf32)`.
    fn vadd_qf32(a: Self::Qf32, b: Self::Qf32) -> Self::Qf32;
    /// `Vd.qf32 = vsub(Vu.qf32, Vv.qf32)`.
    fn vsub_qf32(a: Self::Qf32, b: Self::Qf32) -> Self::Qf32;
    /// `Vd.qf32 = vadd(Vu.qf32, Vv.sf)`.
    fn vadd_qf32_mix(a: Self::Qf32, b: Self::V) -> Self::Qf32;
    /// `Vd.qf32 = vsub(Vu.qf32, Vv.sf)`.
    fn vsub_qf32_mix(a: Self::Qf32, b: Self::V) -> Self::Qf32;
    /// `Vd.qf32 = vmpy(Vu.sf, Vv.sf)`.
    fn vmpy_qf32_sf(a: Self::V, b: Self::V) -> Self::Qf32;
    /// `Vd.qf32 = vmpy(Vu.qf32, Vv.qf32)`.
    fn vmpy_qf32(a: Self::Qf32, b: Self::Qf32) -> Self::Qf32;
    /// `Vdd.qf32 = vmpy(Vu.hf, Vv.hf)`: the products of even halves, then those of odd ones.
    fn vmpy_qf32_hf(a: Self::V, b: Self::V) -> (Self::Qf32, Self::Qf32);
    /// `Vd.sf = Vu.qf32`.
    fn vconv_sf_qf32(a: Self::Qf32) -> Self::V;

    // IEEE floats, v79 and later.

    /// `Vd.sf = vadd(Vu.sf, Vv.sf)`.
    fn vadd_sf_sf(a: Self::V, b: Self::V) -> Self::V;
    /// `Vd.sf = vsub(Vu.sf, Vv.sf)`.
    fn vsub_sf_sf(a: Self::V, b: Self::V) -> Self::V;
    /// `Vd.sf = vmpy(Vu.sf, Vv.sf)`.
    fn vmpy_sf_sf(a: Self::V, b: Self::V) -> Self::V;
    /// `Vdd.sf = vmpy(Vu.hf, Vv.hf)`: the products of even halves, then those of odd ones.
    fn vmpy_sf_hf(a: Self::V, b: Self::V) -> (Self::V, Self::V);
    /// `Vd.sf = Vu.w`, to nearest even; v73 and later.
    fn vconv_sf_w(a: Self::V) -> Self::V;
}
