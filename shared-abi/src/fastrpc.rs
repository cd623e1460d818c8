//! The FastRPC interface of the device library: its methods, and the word that says which arguments a call has.
//!
//! A call crosses as a word ("scalars") and that many arguments: input buffers, output buffers, input handles, output
//! handles, in this order. FastRPC itself makes [`RpcMethod::Open`] and [`RpcMethod::Close`] when a handle is opened and
//! closed. Everything else is [`RpcMethod::Call`]: one [`crate::control::ControlRequest`] in, one
//! [`crate::control::ControlReply`] out, so that start, stop and their like are checked in the one place where the
//! emulator's are. Batches do not come this way: they have the packet queue.

/// The function that the loader calls in the library.
pub const ENTRY: &str = "hexloom_skel_handle_invoke";
/// Version of the methods below, as the library's address has it.
pub const MODULE_VERSION: &str = "1.0";
/// What the DSP's half of the system adds to its error codes.
pub const DSP_CODE_OFFSET: u32 = 0x8000_0400;

/// Which arguments a call has, and which method it is, in one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Scalars(pub u32);

/// Numbers of arguments of each kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ArgCounts {
    /// Buffers that the caller fills.
    pub n_inputs: u8,
    /// Buffers that the library fills.
    pub n_outputs: u8,
    /// Handles from the caller, at most 15.
    pub n_handles_in: u8,
    /// Handles from the library, at most 15.
    pub n_handles_out: u8,
}

/// A method.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RpcMethod {
    /// In: the length of an address with its final zero, four bytes; that address. Out: a handle.
    Open,
    /// In: the handle.
    Close,
    /// In: a control request. Out: its reply.
    Call,
}

/// Why a call never reached its method, or what the method refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RpcRefusal {
    /// Wrong arguments, or a handle that is not open.
    BadArguments,
    /// There is no such method.
    UnknownMethod,
    /// Open already, or a session still runs.
    Busy,
}

impl RpcMethod {
    /// All methods, by number.
    pub const ALL: [Self; 3] = [Self::Open, Self::Close, Self::Call];

    /// Its number.
    pub const fn number(self) -> u8 {
        match self {
            Self::Open => 0,
            Self::Close => 1,
            Self::Call => 2,
        }
    }

    /// Its arguments.
    pub const fn args(self) -> ArgCounts {
        let [n_inputs, n_outputs, n_handles_in, n_handles_out] = match self {
            Self::Open => [2, 0, 0, 1],
            Self::Close => [0, 0, 1, 0],
            Self::Call => [1, 1, 0, 0],
        };
        ArgCounts {
            n_inputs,
            n_outputs,
            n_handles_in,
            n_handles_out,
        }
    }

    /// The word of a call.
    pub const fn scalars(self) -> Scalars {
        Scalars::new(self.number(), self.args())
    }

    /// The method that a word is for, if its arguments are those of that method. The three bits of call attributes are the
    /// system's own and are not looked at.
    pub fn of(scalars: Scalars) -> Result<Self, RpcRefusal> {
        let method = Self::ALL.into_iter().find(|method| method.number() == scalars.method());
        let method = method.ok_or(RpcRefusal::UnknownMethod)?;
        match scalars.args() == method.args() {
            true => Ok(method),
            false => Err(RpcRefusal::BadArguments),
        }
    }
}

impl Scalars {
    /// The word for a method's number (0 to 31) and its arguments; larger numbers lose their upper bits.
    pub const fn new(method: u8, args: ArgCounts) -> Self {
        let word = (method as u32 & 0x1f) << 24
            | (args.n_inputs as u32) << 16
            | (args.n_outputs as u32) << 8
            | (args.n_handles_in as u32 & 0xf) << 4
            | (args.n_handles_out as u32 & 0xf);
        Self(word)
    }

    /// The method's number.
    pub const fn method(self) -> u8 {
        self.0.to_be_bytes()[0] & 0x1f
    }

    /// The arguments.
    pub const fn args(self) -> ArgCounts {
        let [_, n_inputs, n_outputs, handles] = self.0.to_be_bytes();
        ArgCounts {
            n_inputs,
            n_outputs,
            n_handles_in: handles >> 4,
            n_handles_out: handles & 0xf,
        }
    }
}

impl ArgCounts {
    /// All arguments together: the length of the list that comes with the word.
    pub const fn total(self) -> usize {
        let all = [self.n_inputs, self.n_outputs, self.n_handles_in, self.n_handles_out];
        let [a, b, c, d] = all;
        (a as usize)
            .saturating_add(b as usize)
            .saturating_add(c as usize)
            .saturating_add(d as usize)
    }
}

impl RpcRefusal {
    /// The system's code, as the DSP's half gives it.
    pub const fn code(self) -> u32 {
        let code = match self {
            Self::BadArguments => 0x0e,
            Self::UnknownMethod => 0x14,
            Self::Busy => 0x20,
        };
        DSP_CODE_OFFSET | code
    }
}

const _: () = assert!(DSP_CODE_OFFSET & 0x3ff == 0);
