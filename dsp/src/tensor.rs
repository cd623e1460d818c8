//! Checked operands: tensors over resolved addresses, and the spans of elements that kernels load from and store to.
//!
//! A [`Tensor`] is made once per op from a descriptor that [`hexloom_abi::BatchView`] has checked against its buffer, and
//! from a mapping that covers the buffer. From then on index arithmetic with indices below `ne` stays inside. A
//! [`Span`] is a run of elements; it checks its own bounds, so kernels that use it need no unsafe code.

use core::marker::PhantomData;

use hexloom_abi::DType;
use hexloom_abi::op::Shape;

/// A shaped view over resolved memory.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    base: *mut u8,
    shape: Shape,
    memory: PhantomData<&'a [u8]>,
}

// SAFETY: a tensor is an address with a shape; which thread may write which rows is settled by the kernel that splits it.
unsafe impl Send for Tensor<'_> {}
// SAFETY: as for `Send`; all access goes through raw pointers without references to shared bytes.
unsafe impl Sync for Tensor<'_> {}

/// A run of `len` elements of plain data in shared or scratch memory.
///
/// Two spans may cover the same bytes (in-place ops), so elements are read and written by value and never borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a, T> {
    ptr: *mut T,
    len: usize,
    memory: PhantomData<&'a [T]>,
}

// SAFETY: see `Tensor`.
unsafe impl<T: Plain> Send for Span<'_, T> {}
// SAFETY: see `Tensor`.
unsafe impl<T: Plain> Sync for Span<'_, T> {}

/// Element types that any bytes are a value of.
pub trait Plain: Copy + 'static {}
impl Plain for u8 {}
impl Plain for i8 {}
impl Plain for u16 {}
impl Plain for u32 {}
impl Plain for i32 {}
impl Plain for i64 {}
impl Plain for f32 {}

impl<'a> Tensor<'a> {
    /// A tensor at `base`.
    ///
    /// # Safety
    /// - `shape.extent_bytes()` bytes from `base` are readable, and writable if the tensor is a destination, for `'a`;
    /// - `base` is aligned to the shape's element type (2 for quantised types).
    pub unsafe fn new(base: *mut u8, shape: Shape) -> Self {
        Self {
            base,
            shape,
            memory: PhantomData,
        }
    }

    /// Type, dimensions and strides.
    #[inline(always)]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Element type.
    #[inline(always)]
    pub fn dtype(&self) -> DType {
        self.shape.dtype
    }

    /// Elements per dimension, innermost first.
    #[inline(always)]
    pub fn ne(&self) -> [usize; 4] {
        self.shape.ne.map(|n| n as usize)
    }

    /// Byte strides per dimension.
    #[inline(always)]
    pub fn nb(&self) -> [usize; 4] {
        self.shape.nb.map(|n| n as usize)
    }

    /// Rows: dimensions 1 to 3 together.
    #[inline(always)]
    pub fn rows(&self) -> usize {
        let [_, n1, n2, n3] = self.ne();
        n1 * n2 * n3
    }

    /// Indices in dimensions 1 to 3 of row `row` in storage order.
    #[inline(always)]
    pub fn row_index(&self, row: usize) -> [usize; 3] {
        let [_, n1, n2, _] = self.ne();
        [row % n1, row / n1 % n2, row / (n1 * n2)]
    }

    /// The bytes of row `index` (dimensions 1 to 3) as elements of `T`, `nb[0]` being `T`'s size.
    ///
    /// # Panics
    /// When an index is outside its dimension or rows are not dense in `T`: a kernel's mistake, never input's.
    #[inline(always)]
    pub fn row<T: Plain>(&self, index: [usize; 3]) -> Span<'a, T> {
        assert!(
            self.nb()[0] == size_of::<T>(),
            "row of a tensor with another element size"
        );
        Span {
            ptr: self.row_ptr(index).cast(),
            len: self.ne()[0],
            memory: PhantomData,
        }
    }

    /// The raw bytes of row `index`: whole blocks for quantised types.
    #[inline(always)]
    pub fn row_bytes(&self, index: [usize; 3]) -> Span<'a, u8> {
        let blocks = self.ne()[0] / self.dtype().block_elems() as usize;
        let last = (blocks.max(1) - 1) * self.nb()[0];
        Span {
            ptr: self.row_ptr(index),
            len: last + self.dtype().block_bytes() as usize,
            memory: PhantomData,
        }
    }

    /// The bytes of one group of 32 rows of a tiled weight: group `group` of matrix `[i2, i3]`.
    ///
    /// # Panics
    /// When the tensor is not tiled or an index is out of range.
    #[inline(always)]
    pub fn tile_group(&self, group: usize, [i2, i3]: [usize; 2]) -> Span<'a, u8> {
        let [_, n1, n2, n3] = self.ne();
        let [_, group_bytes, b2, b3] = self.nb();
        assert!(self.shape.tiled && group < n1.div_ceil(32) && i2 < n2 && i3 < n3);
        Span {
            // SAFETY: the group lies inside the tiled tensor's extent, which `new` was promised to be readable.
            ptr: unsafe { self.base.add(group * group_bytes + i2 * b2 + i3 * b3) },
            len: group_bytes,
            memory: PhantomData,
        }
    }

    /// Address of element 0 of row `index`.
    #[inline(always)]
    fn row_ptr(&self, [i1, i2, i3]: [usize; 3]) -> *mut u8 {
        let [_, n1, n2, n3] = self.ne();
        let [_, b1, b2, b3] = self.nb();
        assert!(
            i1 < n1 && i2 < n2 && i3 < n3 && !self.shape.tiled,
            "row index outside the tensor"
        );
        // SAFETY: indices below `ne` stay inside the extent that `new` was promised to be readable.
        unsafe { self.base.add(i1 * b1 + i2 * b2 + i3 * b3) }
    }

    /// Address of element `[i0, i1, i2, i3]` of a plain type; for element-wise access with any stride.
    #[inline(always)]
    pub fn element<T: Plain>(&self, i0: usize, index: [usize; 3]) -> Span<'a, T> {
        assert!(i0 < self.ne()[0] && self.dtype().block_bytes() as usize == size_of::<T>());
        Span {
            // SAFETY: as in `row_ptr`, and `i0` is below `ne[0]`.
            ptr: unsafe { self.row_ptr(index).add(i0 * self.nb()[0]) }.cast(),
            len: 1,
            memory: PhantomData,
        }
    }
}

impl<'a, T: Plain> Span<'a, T> {
    /// A span at `ptr`.
    ///
    /// # Safety
    /// `len` elements from `ptr` are readable and writable for `'a`, and `ptr` is aligned to `T`.
    pub unsafe fn new(ptr: *mut T, len: usize) -> Self {
        Self {
            ptr,
            len,
            memory: PhantomData,
        }
    }

    /// Elements.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no element.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Element `idx`.
    #[inline(always)]
    pub fn get(&self, idx: usize) -> T {
        assert!(idx < self.len, "read outside a span");
        // SAFETY: `idx` is inside the span, which `new` was promised to be readable.
        unsafe { self.ptr.wrapping_add(idx).read() }
    }

    /// Stores element `idx`.
    #[inline(always)]
    pub fn set(&self, idx: usize, value: T) {
        assert!(idx < self.len, "write outside a span");
        // SAFETY: `idx` is inside the span, which `new` was promised to be writable.
        unsafe { self.ptr.wrapping_add(idx).write(value) }
    }

    /// Copies all elements of `from`, which has as many; the two may overlap.
    #[inline(always)]
    pub fn copy_from(&self, from: Self) {
        assert!(self.len == from.len, "copy between spans of different lengths");
        // SAFETY: both spans have `len` elements, the source readable and this one writable, as `new` was promised.
        unsafe { core::ptr::copy(from.ptr, self.ptr, self.len) };
    }

    /// The `len` elements from `start`.
    #[inline(always)]
    pub fn part(&self, start: usize, len: usize) -> Self {
        assert!(start <= self.len && len <= self.len - start, "part outside a span");
        Self {
            // SAFETY: `start` is at most the span's length.
            ptr: unsafe { self.ptr.add(start) },
            len,
            memory: PhantomData,
        }
    }

    /// The same bytes as elements of another type.
    ///
    /// # Panics
    /// When the address is not aligned to `U`.
    #[inline(always)]
    pub fn cast<U: Plain>(&self) -> Span<'a, U> {
        assert!(
            self.ptr.cast::<U>().is_aligned(),
            "span cast to a type of larger alignment"
        );
        Span {
            ptr: self.ptr.cast(),
            len: self.len * size_of::<T>() / size_of::<U>(),
            memory: PhantomData,
        }
    }

    /// Address of the first element, for vector loads and stores that have checked their own bounds.
    #[inline(always)]
    pub fn as_ptr(&self) -> *mut T {
        self.ptr
    }
}
