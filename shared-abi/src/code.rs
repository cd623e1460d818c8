//! Opcodes, data types and statuses: wire newtypes and the Rust enums they convert to.
//!
//! The wire carries a `repr(transparent)` number that can hold anything; `TryFrom` turns it into an enum or gives the
//! unknown number back. Numbers are written out and never reused.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Declares a wire newtype, its enum, conversions, names and the list of all members.
macro_rules! codes {
    ($(#[$wdoc:meta])* $wire:ident, $(#[$edoc:meta])* $name:ident { $($(#[$doc:meta])* $member:ident = $number:literal, $text:literal;)* }) => {
        $(#[$wdoc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(transparent)]
        pub struct $wire(pub u32);

        $(#[$edoc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum $name { $($(#[$doc])* $member = $number,)* }

        impl $name {
            /// Every member, in numeric order.
            pub const ALL: &'static [Self] = &[$(Self::$member,)*];

            /// The name that documents, logs and ggml use.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$member => $text,)* }
            }

            /// The number on the wire.
            pub const fn number(self) -> u32 {
                match self { $(Self::$member => $number,)* }
            }
        }

        impl From<$name> for $wire {
            fn from(code: $name) -> Self {
                Self(code.number())
            }
        }

        impl TryFrom<$wire> for $name {
            type Error = u32;
            fn try_from(wire: $wire) -> Result<Self, u32> {
                match wire.0 { $($number => Ok(Self::$member),)* other => Err(other) }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

codes! {
    /// A data type's number as it stands in a [`crate::TensorDesc`].
    DTypeCode,
    /// Data types, with ggml's numbers.
    DType {
        /// 32-bit IEEE float.
        F32 = 0, "F32";
        /// 16-bit IEEE float.
        F16 = 1, "F16";
        /// Blocks of 32 four-bit codes with one f16 scale; value = scale * (code - 8).
        Q4_0 = 2, "Q4_0";
        /// Blocks of 32 four-bit codes with f16 scale and minimum; value = scale * code + minimum.
        Q4_1 = 3, "Q4_1";
        /// Blocks of 32 five-bit codes with one f16 scale; value = scale * (code - 16).
        Q5_0 = 6, "Q5_0";
        /// Blocks of 32 five-bit codes with f16 scale and minimum.
        Q5_1 = 7, "Q5_1";
        /// Blocks of 32 signed bytes with one f16 scale.
        Q8_0 = 8, "Q8_0";
        /// Blocks of 256 two-bit codes with scales and minima of 16 elements.
        Q2K = 10, "Q2_K";
        /// Blocks of 256 three-bit codes with scales of 16 elements.
        Q3K = 11, "Q3_K";
        /// Blocks of 256 four-bit codes with scales and minima of 32 elements.
        Q4K = 12, "Q4_K";
        /// Blocks of 256 five-bit codes with scales and minima of 32 elements.
        Q5K = 13, "Q5_K";
        /// Blocks of 256 six-bit codes with scales of 16 elements.
        Q6K = 14, "Q6_K";
        /// Blocks of 32 four-bit codes that name values of a table, with one f16 scale.
        Iq4Nl = 20, "IQ4_NL";
        /// Blocks of 256 such codes with scales of 32 elements.
        Iq4Xs = 23, "IQ4_XS";
        /// Signed bytes (group and fence operands).
        I8 = 24, "I8";
        /// 32-bit signed integers.
        I32 = 26, "I32";
        /// 64-bit signed integers.
        I64 = 27, "I64";
        /// The upper half of a 32-bit IEEE float.
        Bf16 = 30, "BF16";
        /// Blocks of 32 four-bit floats with one power of two.
        Mxfp4 = 39, "MXFP4";
    }
}

codes! {
    /// An opcode's number as it stands in an [`crate::OpDesc`].
    OpCode,
    /// Operations. Operands and parameters of each are listed in `docs/abi.md` and checked by [`crate::support`].
    Opcode {
        /// dst `[n,m]` = weight `[k,n]` times activation `[k,m]`, dimensions 2 and 3 broadcast.
        MulMat = 1, "MUL_MAT";
        /// `MUL_MAT` plus an addend (src 2): one row or the full shape.
        MulMatAdd = 2, "MUL_MAT_ADD";
        /// Up to four `MUL_MAT` over one activation: srcs w0..wn-1, x; dsts d0..dn-1.
        MulMatNx = 3, "MUL_MAT_NX";
        /// Sum, src 1 broadcast.
        Add = 8, "ADD";
        /// Difference, src 1 broadcast.
        Sub = 9, "SUB";
        /// Product, src 1 broadcast.
        Mul = 10, "MUL";
        /// Quotient, src 1 broadcast.
        Div = 11, "DIV";
        /// x / sqrt(mean(x^2) + eps) over dimension 0.
        RmsNorm = 16, "RMS_NORM";
        /// `RMS_NORM` times src 1 (one row or the full shape).
        RmsNormMul = 17, "RMS_NORM_MUL";
        /// (x - mean) / sqrt(variance + eps) over dimension 0.
        Norm = 18, "NORM";
        /// x * sigmoid(x).
        Silu = 24, "SILU";
        /// GELU by the tanh formula.
        Gelu = 25, "GELU";
        /// GELU by the error function.
        GeluErf = 26, "GELU_ERF";
        /// x * sigmoid(1.702 x).
        GeluQuick = 27, "GELU_QUICK";
        /// silu(x) * gate; one operand with both halves or two operands.
        Swiglu = 32, "SWIGLU";
        /// gelu(x) * gate by the tanh formula.
        Geglu = 33, "GEGLU";
        /// gelu(x) * gate by the error function.
        GegluErf = 34, "GEGLU_ERF";
        /// x * sigmoid(1.702 x) * gate.
        GegluQuick = 35, "GEGLU_QUICK";
        /// max(x, 0) * gate.
        Reglu = 36, "REGLU";
        /// x * s + b.
        Scale = 40, "SCALE";
        /// min(max(x, lo), hi).
        Clamp = 41, "CLAMP";
        /// Rotary position embedding, normal or neox pairs, YaRN, frequency factors.
        Rope = 48, "ROPE";
        /// softmax(x * scale + slope * mask) over dimension 0, with sinks.
        SoftMax = 49, "SOFT_MAX";
        /// Attention without materialised scores.
        FlashAttnExt = 50, "FLASH_ATTN_EXT";
        /// Rows of src 0 chosen by the indices of src 1.
        GetRows = 56, "GET_ROWS";
        /// Rows of src 0 stored into dst at the indices of src 1.
        SetRows = 57, "SET_ROWS";
        /// Copy with conversion and any strides; also ggml's CONT.
        Cpy = 58, "CPY";
        /// Index of the first maximum over dimension 0.
        Argmax = 59, "ARGMAX";
        /// Signal or wait for a fence slot ([`crate::FenceRef`]).
        Fence = 64, "FENCE";
        /// `CPY`, then signal a fence slot.
        CpyFence = 65, "CPY_FENCE";
        /// First op of a batch that the members of a group run in step ([`crate::fence::GroupParams`]).
        MdevGroup = 66, "MDEV_GROUP";
        /// Sum of the ranks' tensors, in rank order, to every rank ([`crate::fence::AllreduceParams`]).
        Allreduce = 67, "ALLREDUCE";
        /// `ALLREDUCE` plus an addend: the full shape or one row.
        AllreduceAdd = 68, "ALLREDUCE_ADD";
        /// |x|.
        Abs = 128, "ABS";
        /// -1, 0 or 1 with the sign of x.
        Sgn = 129, "SGN";
        /// -x.
        Neg = 130, "NEG";
        /// 1 above 0, otherwise 0.
        Step = 131, "STEP";
        /// Hyperbolic tangent.
        Tanh = 132, "TANH";
        /// x above 0, e^x - 1 below.
        Elu = 133, "ELU";
        /// max(x, 0).
        Relu = 134, "RELU";
        /// 1 / (1 + e^-x).
        Sigmoid = 135, "SIGMOID";
        /// x * min(max(x + 3, 0), 6) / 6.
        HardSwish = 136, "HARDSWISH";
        /// min(max(x + 3, 0), 6) / 6.
        HardSigmoid = 137, "HARDSIGMOID";
        /// e^x.
        Exp = 138, "EXP";
        /// e^x - 1, without cancellation.
        Expm1 = 139, "EXPM1";
        /// ln(1 + e^x).
        Softplus = 140, "SOFTPLUS";
        /// Largest integer not above x.
        Floor = 141, "FLOOR";
        /// Smallest integer not below x.
        Ceil = 142, "CEIL";
        /// Nearest integer, halves away from 0.
        Round = 143, "ROUND";
        /// Nearest integer towards 0.
        Trunc = 144, "TRUNC";
        /// p x^2 + b x above 0, n (e^min(x, eps) - 1 - x) + b x elsewhere.
        Xielu = 145, "XIELU";
        /// x^2.
        Sqr = 146, "SQR";
        /// Square root.
        Sqrt = 147, "SQRT";
        /// Natural logarithm.
        Log = 148, "LOG";
        /// Sine.
        Sin = 149, "SIN";
        /// Cosine.
        Cos = 150, "COS";
        /// x above 0, s x elsewhere.
        LeakyRelu = 151, "LEAKY_RELU";
        /// s, whatever x is.
        Fill = 152, "FILL";
        /// Rows of the parts of an image that a window meets, ready to be multiplied.
        Im2col = 160, "IM2COL";
        /// Convolution of an image with many windows.
        Conv = 161, "CONV";
        /// Maximum or mean of what a window meets.
        Pool = 162, "POOL";
        /// dst `[m,n]` = sum over rows of a `[m,k]` times b `[n,k]`, dimensions 2 and 3 broadcast.
        OutProd = 163, "OUT_PROD";
        /// dst `[n,u,t]` = weight matrix `ids[u,t]` of `[k,n,e]` times activation `[k,u or 1,t]`.
        MulMatId = 164, "MUL_MAT_ID";
        /// Sum of all elements.
        Sum = 165, "SUM";
        /// Sum over dimension 0.
        SumRows = 166, "SUM_ROWS";
        /// Mean over dimension 0.
        Mean = 167, "MEAN";
        /// x / max(sqrt(sum of x^2), eps) over dimension 0.
        L2Norm = 168, "L2_NORM";
        /// Sums of the elements of a row up to each.
        Cumsum = 169, "CUMSUM";
        /// Indices of a row's elements in their order, as many as the result has; equal ones in the order they lie in.
        Argsort = 170, "ARGSORT";
        /// A state that decays, takes in `v k^T` and is read by `r`, token by token ([`crate::recurrence`]).
        LinearAttn = 171, "LINEAR_ATTN";
        /// How many elements of two integer tensors are the same.
        CountEqual = 172, "COUNT_EQUAL";
    }
}

codes! {
    /// A status as it stands in a reply, a profile record or a fence slot.
    StatusCode,
    /// How a request, an op or a start message ended.
    Status {
        /// Done. Zero is not a status: an unwritten reply is noticed.
        Ok = 1, "ok";
        /// A fault inside the DSP half that is not the sender's.
        Internal = 2, "internal error";
        /// The op, type, shape or layout has no kernel.
        Unsupported = 3, "unsupported operation";
        /// A descriptor contradicts itself or its buffer.
        Invalid = 4, "invalid descriptor";
        /// The op needs more scratch memory than the session has.
        ScratchTooSmall = 5, "scratch memory too small";
        /// The message does not begin with the magic number.
        BadMagic = 6, "bad magic";
        /// The version is not the one that this side speaks.
        BadVersion = 7, "unknown version";
        /// A flag that this version does not define is set, or a reserved field is not zero.
        BadFlags = 8, "unknown flag or reserved field set";
        /// The opcode is not defined.
        BadOpcode = 9, "unknown opcode";
        /// The data type is not defined.
        BadDType = 10, "unknown data type";
        /// A count is over its limit.
        TooMany = 11, "count over the limit";
        /// The message or the block is shorter than its counts say.
        Truncated = 12, "message or block too short";
        /// The block does not lie in the session's pinned buffer.
        BadBlock = 13, "block outside the pinned buffer";
        /// A buffer could not be mapped.
        MapFailed = 14, "buffer could not be mapped";
        /// The batch alone needs more than the window holds.
        WindowFull = 15, "mappings exceed the window";
        /// A deadline passed inside the DSP.
        Timeout = 16, "deadline passed";
        /// A peer reported a failure through a fence.
        PeerFailed = 17, "peer failed";
        /// An index read from a tensor is outside the tensor it points into.
        IndexOutOfRange = 18, "index out of range";
        /// An earlier panic or deadline has ended this session; open a new one.
        Poisoned = 19, "session poisoned";
        /// `start` on a session that is already started.
        AlreadyStarted = 20, "session already started";
        /// A call that needs a started session came before `start`.
        NotStarted = 21, "session not started";
        /// A buffer is to be mapped outside the 32-bit window, which this DSP, or its system, does not do.
        NoExtended = 22, "no mappings outside the 32-bit window on this DSP";
    }
}

impl Opcode {
    /// Whether it computes each element of its result from the same element of one operand.
    pub const fn is_function(self) -> bool {
        matches!(self.number(), 24..=27 | 40..=41 | 128..=159)
    }
}

impl DType {
    /// Elements of one block: 1 for plain types, 32 or 256 for quantised ones.
    pub const fn block_elems(self) -> u64 {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 | Self::I8 | Self::I32 | Self::I64 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 | Self::Iq4Nl | Self::Mxfp4 => 32,
            Self::Q2K | Self::Q3K | Self::Q4K | Self::Q5K | Self::Q6K | Self::Iq4Xs => 256,
        }
    }

    /// Bytes of one block in ggml's row layout.
    pub const fn block_bytes(self) -> u64 {
        match self {
            Self::I8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::I64 => 8,
            Self::Mxfp4 => 17,
            Self::Q4_0 | Self::Iq4Nl => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q2K => 84,
            Self::Q3K => 110,
            Self::Iq4Xs => 136,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
        }
    }

    /// The boundary that rows in ggml's layout lie on.
    pub const fn align_bytes(self) -> u64 {
        match self {
            Self::Mxfp4 => 1,
            _ if self.is_quantized() => 2,
            _ => self.block_bytes(),
        }
    }

    /// Whether the DSP multiplies by the type's weights as tiles.
    pub const fn is_tileable(self) -> bool {
        matches!(self, Self::Q4_0 | Self::Q4_1 | Self::Q8_0)
    }

    /// Whether values are stored in blocks with a scale.
    pub const fn is_quantized(self) -> bool {
        self.block_elems() > 1
    }

    /// Bytes of a dense row of `elems` elements, or `None` when it is not whole blocks or overflows.
    pub const fn row_bytes(self, elems: u64) -> Option<u64> {
        match (
            elems.checked_rem(self.block_elems()),
            elems.checked_div(self.block_elems()),
        ) {
            (Some(0), Some(blocks)) => blocks.checked_mul(self.block_bytes()),
            _ => None,
        }
    }
}
