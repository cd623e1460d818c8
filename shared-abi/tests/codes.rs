//! The number of every opcode, data type and status, written out a second time: a new one fails until it is listed.

use hexloom_abi::{DType, DTypeCode, OpCode, Opcode, Status, StatusCode};

fn opcode(code: Opcode) -> u32 {
    match code {
        Opcode::MulMat => 1,
        Opcode::MulMatAdd => 2,
        Opcode::MulMatNx => 3,
        Opcode::Add => 8,
        Opcode::Sub => 9,
        Opcode::Mul => 10,
        Opcode::Div => 11,
        Opcode::RmsNorm => 16,
        Opcode::RmsNormMul => 17,
        Opcode::Norm => 18,
        Opcode::Silu => 24,
        Opcode::Gelu => 25,
        Opcode::GeluErf => 26,
        Opcode::GeluQuick => 27,
        Opcode::Swiglu => 32,
        Opcode::Geglu => 33,
        Opcode::GegluErf => 34,
        Opcode::GegluQuick => 35,
        Opcode::Reglu => 36,
        Opcode::Scale => 40,
        Opcode::Clamp => 41,
        Opcode::Rope => 48,
        Opcode::SoftMax => 49,
        Opcode::FlashAttnExt => 50,
        Opcode::GetRows => 56,
        Opcode::SetRows => 57,
        Opcode::Cpy => 58,
        Opcode::Argmax => 59,
        Opcode::Fence => 64,
        Opcode::CpyFence => 65,
        Opcode::MdevGroup => 66,
        Opcode::Allreduce => 67,
        Opcode::AllreduceAdd => 68,
        Opcode::Abs => 128,
        Opcode::Sgn => 129,
        Opcode::Neg => 130,
        Opcode::Step => 131,
        Opcode::Tanh => 132,
        Opcode::Elu => 133,
        Opcode::Relu => 134,
        Opcode::Sigmoid => 135,
        Opcode::HardSwish => 136,
        Opcode::HardSigmoid => 137,
        Opcode::Exp => 138,
        Opcode::Expm1 => 139,
        Opcode::Softplus => 140,
        Opcode::Floor => 141,
        Opcode::Ceil => 142,
        Opcode::Round => 143,
        Opcode::Trunc => 144,
        Opcode::Xielu => 145,
        Opcode::Sqr => 146,
        Opcode::Sqrt => 147,
        Opcode::Log => 148,
        Opcode::Sin => 149,
        Opcode::Cos => 150,
        Opcode::LeakyRelu => 151,
        Opcode::Fill => 152,
        Opcode::Im2col => 160,
        Opcode::Conv => 161,
        Opcode::Pool => 162,
        Opcode::OutProd => 163,
        Opcode::MulMatId => 164,
        Opcode::Sum => 165,
        Opcode::SumRows => 166,
        Opcode::Mean => 167,
        Opcode::L2Norm => 168,
        Opcode::Cumsum => 169,
        Opcode::Argsort => 170,
        Opcode::LinearAttn => 171,
        Opcode::CountEqual => 172,
    }
}

/// Number, elements of a block, bytes of a block.
fn dtype(code: DType) -> [u64; 3] {
    match code {
        DType::F32 => [0, 1, 4],
        DType::F16 => [1, 1, 2],
        DType::Q4_0 => [2, 32, 18],
        DType::Q4_1 => [3, 32, 20],
        DType::Q5_0 => [6, 32, 22],
        DType::Q5_1 => [7, 32, 24],
        DType::Q8_0 => [8, 32, 34],
        DType::Q2K => [10, 256, 84],
        DType::Q3K => [11, 256, 110],
        DType::Q4K => [12, 256, 144],
        DType::Q5K => [13, 256, 176],
        DType::Q6K => [14, 256, 210],
        DType::Iq4Nl => [20, 32, 18],
        DType::Iq4Xs => [23, 256, 136],
        DType::I8 => [24, 1, 1],
        DType::I32 => [26, 1, 4],
        DType::I64 => [27, 1, 8],
        DType::Bf16 => [30, 1, 2],
        DType::Mxfp4 => [39, 32, 17],
    }
}

fn status(code: Status) -> u32 {
    match code {
        Status::Ok => 1,
        Status::Internal => 2,
        Status::Unsupported => 3,
        Status::Invalid => 4,
        Status::ScratchTooSmall => 5,
        Status::BadMagic => 6,
        Status::BadVersion => 7,
        Status::BadFlags => 8,
        Status::BadOpcode => 9,
        Status::BadDType => 10,
        Status::TooMany => 11,
        Status::Truncated => 12,
        Status::BadBlock => 13,
        Status::MapFailed => 14,
        Status::WindowFull => 15,
        Status::Timeout => 16,
        Status::PeerFailed => 17,
        Status::IndexOutOfRange => 18,
        Status::Poisoned => 19,
        Status::AlreadyStarted => 20,
        Status::NotStarted => 21,
        Status::NoExtended => 22,
    }
}

#[test]
fn opcodes() {
    for &code in Opcode::ALL {
        assert_eq!(code.number(), opcode(code), "{code}");
        assert_eq!(Opcode::try_from(OpCode(opcode(code))), Ok(code));
    }
    assert_eq!(Opcode::ALL.len(), 71);
    unknown(Opcode::ALL.iter().map(|code| code.number()), |n| {
        Opcode::try_from(OpCode(n)).err()
    });
}

#[test]
fn dtypes() {
    for &code in DType::ALL {
        let [number, elems, bytes] = dtype(code);
        assert_eq!(u64::from(code.number()), number, "{code}");
        assert_eq!([code.block_elems(), code.block_bytes()], [elems, bytes], "{code}");
        assert_eq!(DType::try_from(DTypeCode(code.number())), Ok(code));
    }
    assert_eq!(DType::ALL.len(), 19);
    unknown(DType::ALL.iter().map(|code| code.number()), |n| {
        DType::try_from(DTypeCode(n)).err()
    });
}

#[test]
fn statuses() {
    for &code in Status::ALL {
        assert_eq!(code.number(), status(code), "{code}");
        assert_eq!(Status::try_from(StatusCode(status(code))), Ok(code));
    }
    assert_eq!(Status::ALL.len(), 22);
    unknown(Status::ALL.iter().map(|code| code.number()), |n| {
        Status::try_from(StatusCode(n)).err()
    });
}

/// Numbers that are no code come back as they are.
fn unknown(known: impl Iterator<Item = u32>, refused: impl Fn(u32) -> Option<u32>) {
    let known: Vec<u32> = known.collect();
    for number in (0..300).chain([u32::MAX, 1 << 31]) {
        let wanted = if known.contains(&number) { None } else { Some(number) };
        assert_eq!(refused(number), wanted, "{number}");
    }
}
