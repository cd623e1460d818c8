//! A tensor, which is also a graph's node: the op that makes it, its operands, and where its bytes are.

use std::ffi::{c_char, c_void};
use std::mem::offset_of;

use super::Buffer;

/// The host reads it after the graph.
pub const FLAG_OUTPUT: i32 = 2;
/// The node is to be computed.
pub const FLAG_COMPUTE: i32 = 16;

/// `ggml_tensor`. A copy with other dimensions is a view that only hexloom knows.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Tensor {
    /// Data type.
    pub dtype: u32,
    /// The buffer that its bytes are in, null before allocation.
    pub buffer: *mut Buffer,
    /// Elements per dimension, innermost first.
    pub ne: [i64; 4],
    /// Byte strides.
    pub nb: [usize; 4],
    /// What computes it.
    pub op: u32,
    /// Parameters of the op, floats as bits.
    pub op_params: [i32; 16],
    /// `FLAG_*`.
    pub flags: i32,
    /// Operands, null when absent.
    pub src: [*mut Tensor; 10],
    /// The tensor it is a view of, null if it owns its bytes.
    pub view_src: *mut Tensor,
    /// Byte offset in that.
    pub view_offs: usize,
    /// Address of its first byte.
    pub data: *mut c_void,
    /// Name, zero-terminated.
    pub name: [c_char; 64],
    /// For back ends.
    pub extra: *mut c_void,
    /// Keeps the size a multiple of 16.
    pub padding: [u8; 8],
}

const _: () = {
    assert!(size_of::<Tensor>() == 336);
    assert!(offset_of!(Tensor, buffer) == 8);
    assert!(offset_of!(Tensor, ne) == 16);
    assert!(offset_of!(Tensor, nb) == 48);
    assert!(offset_of!(Tensor, op) == 80);
    assert!(offset_of!(Tensor, op_params) == 84);
    assert!(offset_of!(Tensor, flags) == 148);
    assert!(offset_of!(Tensor, src) == 152);
    assert!(offset_of!(Tensor, view_src) == 232);
    assert!(offset_of!(Tensor, view_offs) == 240);
    assert!(offset_of!(Tensor, data) == 248);
    assert!(offset_of!(Tensor, name) == 256);
    assert!(offset_of!(Tensor, extra) == 320);
};

/// Declares ggml's op numbers that hexloom knows.
macro_rules! ops {
    ($($member:ident = $number:literal, $name:literal;)*) => {
        /// Ops by ggml's numbers; those that are not listed have no meaning to hexloom.
        #[expect(missing_docs, reason = "ggml's own names say it")]
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u32)]
        pub enum Op { $($member = $number,)* }

        impl Op {
            /// Every op listed.
            pub const ALL: &'static [Self] = &[$(Self::$member,)*];

            /// The op of a number.
            pub const fn of(number: u32) -> Option<Self> {
                match number { $($number => Some(Self::$member),)* _ => None }
            }

            /// ggml's name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$member => $name,)* }
            }
        }
    };
}

ops! {
    None = 0, "NONE";
    Dup = 1, "DUP";
    Add = 2, "ADD";
    AddId = 3, "ADD_ID";
    Add1 = 4, "ADD1";
    Acc = 5, "ACC";
    Sub = 6, "SUB";
    Mul = 7, "MUL";
    Div = 8, "DIV";
    Sqr = 9, "SQR";
    Sqrt = 10, "SQRT";
    Log = 11, "LOG";
    Sin = 12, "SIN";
    Cos = 13, "COS";
    Sum = 14, "SUM";
    SumRows = 15, "SUM_ROWS";
    Cumsum = 16, "CUMSUM";
    Mean = 17, "MEAN";
    Argmax = 18, "ARGMAX";
    CountEqual = 19, "COUNT_EQUAL";
    Repeat = 20, "REPEAT";
    Concat = 22, "CONCAT";
    Norm = 24, "NORM";
    RmsNorm = 25, "RMS_NORM";
    GroupNorm = 27, "GROUP_NORM";
    L2Norm = 28, "L2_NORM";
    MulMat = 29, "MUL_MAT";
    MulMatId = 30, "MUL_MAT_ID";
    OutProd = 31, "OUT_PROD";
    Scale = 32, "SCALE";
    Set = 33, "SET";
    Cpy = 34, "CPY";
    Cont = 35, "CONT";
    Reshape = 36, "RESHAPE";
    View = 37, "VIEW";
    Permute = 38, "PERMUTE";
    Transpose = 39, "TRANSPOSE";
    GetRows = 40, "GET_ROWS";
    SetRows = 42, "SET_ROWS";
    Diag = 43, "DIAG";
    SoftMax = 46, "SOFT_MAX";
    Rope = 48, "ROPE";
    RopeBack = 49, "ROPE_BACK";
    Clamp = 50, "CLAMP";
    Im2col = 52, "IM2COL";
    Im2col3d = 54, "IM2COL_3D";
    Conv2d = 56, "CONV_2D";
    Conv3d = 57, "CONV_3D";
    Pool1d = 60, "POOL_1D";
    Pool2d = 61, "POOL_2D";
    Upscale = 63, "UPSCALE";
    Pad = 64, "PAD";
    Roll = 66, "ROLL";
    Arange = 67, "ARANGE";
    TimestepEmbedding = 68, "TIMESTEP_EMBEDDING";
    Argsort = 69, "ARGSORT";
    TopK = 70, "TOP_K";
    LeakyRelu = 71, "LEAKY_RELU";
    Tri = 72, "TRI";
    Fill = 73, "FILL";
    FlashAttnExt = 74, "FLASH_ATTN_EXT";
    SsmConv = 76, "SSM_CONV";
    SsmScan = 77, "SSM_SCAN";
    RwkvWkv6 = 82, "RWKV_WKV6";
    GatedLinearAttn = 83, "GATED_LINEAR_ATTN";
    RwkvWkv7 = 84, "RWKV_WKV7";
    SolveTri = 85, "SOLVE_TRI";
    GatedDeltaNet = 86, "GATED_DELTA_NET";
    Unary = 91, "UNARY";
    Glu = 100, "GLU";
}

impl Tensor {
    /// The op; `None` if hexloom does not know it.
    pub fn op(&self) -> Option<Op> {
        Op::of(self.op)
    }

    /// Whether the node computes nothing: a leaf or another look at bytes that are there.
    pub fn is_view_only(&self) -> bool {
        matches!(
            self.op(),
            Some(Op::None | Op::Reshape | Op::View | Op::Permute | Op::Transpose)
        )
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.ne.contains(&0)
    }

    /// Operand `idx`, if present.
    pub fn src(&self, idx: usize) -> Option<&Tensor> {
        // SAFETY: ggml keeps a node's operands alive as long as the node, and changes none while a back end looks.
        unsafe { self.src.get(idx)?.as_ref() }
    }

    /// The tensor that owns the bytes.
    pub fn owner(&self) -> &Tensor {
        // SAFETY: as in `src`.
        unsafe { self.view_src.as_ref() }.unwrap_or(self)
    }

    /// The name, as far as it is text.
    pub fn name(&self) -> String {
        let bytes: Vec<u8> = self.name.iter().map(|&c| c as u8).take_while(|&c| c != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// A dense F32 tensor at an address that nobody reads.
#[cfg(test)]
pub(crate) fn test_tensor(ne: [i64; 4], op: Op) -> Tensor {
    let row = 4 * ne[0] as usize;
    let matrix = row * ne[1] as usize;
    Tensor {
        dtype: 0,
        buffer: std::ptr::null_mut(),
        ne,
        nb: [4, row, matrix, matrix * ne[2] as usize],
        op: op as u32,
        op_params: [0; 16],
        flags: 0,
        src: [std::ptr::null_mut(); 10],
        view_src: std::ptr::null_mut(),
        view_offs: 0,
        data: std::ptr::without_provenance_mut(0x1000),
        name: [0; 64],
        extra: std::ptr::null_mut(),
        padding: [0; 8],
    }
}
