//! A case: one op on described operands, and what must come of it.

use hexloom::DType;
use hexloom::abi::inplace::can_inplace;
use hexloom::abi::limits::MAX_PARAMS;
use hexloom::abi::{Opcode, Status};

use crate::operand::Operand;

/// One op with everything that it needs.
#[derive(Clone, Debug)]
pub struct Case {
    /// Name in reports.
    pub name: String,
    /// The op.
    pub opcode: Opcode,
    /// Parameters, floats as bits.
    pub params: [u32; MAX_PARAMS],
    /// Operands read.
    pub srcs: Vec<Option<Operand>>,
    /// Operands written.
    pub dsts: Vec<Operand>,
    /// What must come of it.
    pub expect: Expect,
    /// A limit of the normalised mean square error in place of [`tolerance`].
    pub limit: Option<f64>,
    /// Why the case is known to fail. It must then still fail.
    pub gap: Option<&'static str>,
}

/// What must come of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expect {
    /// Equal to the reference.
    Result,
    /// Supported, but ended by the DSP with this status because of a value that it reads.
    Status(Status),
    /// Refused by the support rules on every runner.
    Unsupported,
}

/// Which operands share memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overlap {
    /// The source that the first destination overwrites.
    pub in_place: Option<usize>,
    /// Source 1 is source 0 again.
    pub twice: bool,
}

/// The one table of tolerances: the normalised mean square error that the widest operand allows.
///
/// f32 1e-7, f16 1e-6; matmul and attention over a quantised operand 5e-4, other ops that only read or write quantised
/// rows 1e-6. Integers are compared exactly.
pub fn tolerance(case: &Case) -> f64 {
    if let Some(limit) = case.limit {
        return limit;
    }
    let mut operands = case.srcs.iter().flatten().chain(&case.dsts);
    let multiplies = matches!(
        case.opcode,
        Opcode::MulMat | Opcode::MulMatAdd | Opcode::MulMatNx | Opcode::FlashAttnExt
    );
    if multiplies && operands.clone().any(|operand| operand.dtype.is_quantized()) {
        5e-4
    } else if operands.any(|operand| operand.dtype == DType::F16 || operand.dtype.is_quantized()) {
        1e-6
    } else {
        1e-7
    }
}

impl Case {
    /// Whether it reads weights in tiles.
    pub fn has_tiled_weights(&self) -> bool {
        self.srcs.iter().flatten().any(|src| src.is_tiled())
    }

    /// A case without operands, with all parameters zero.
    pub fn new(opcode: Opcode) -> Self {
        Self {
            name: opcode.name().to_owned(),
            opcode,
            params: [0; MAX_PARAMS],
            srcs: Vec::new(),
            dsts: Vec::new(),
            expect: Expect::Result,
            limit: None,
            gap: None,
        }
    }

    /// Adds to the name.
    pub fn named(mut self, what: impl std::fmt::Display) -> Self {
        self.name = format!("{} {what}", self.name);
        self
    }

    /// Adds a source.
    pub fn src(mut self, operand: Operand) -> Self {
        self.srcs.push(Some(operand));
        self
    }

    /// Adds a source that may be absent.
    pub fn src_opt(mut self, operand: Option<Operand>) -> Self {
        self.srcs.push(operand);
        self
    }

    /// Adds a destination.
    pub fn dst(mut self, operand: Operand) -> Self {
        self.dsts.push(operand);
        self
    }

    /// Sets a parameter.
    pub fn param(mut self, idx: usize, value: u32) -> Self {
        self.params[idx] = value;
        self
    }

    /// Sets a parameter to a float.
    pub fn param_f32(self, idx: usize, value: f32) -> Self {
        self.param(idx, value.to_bits())
    }

    /// Sets what must come of it.
    pub fn expect(mut self, expect: Expect) -> Self {
        self.expect = expect;
        self
    }

    /// Marks the case as known to fail, and why.
    pub fn gap(mut self, reason: &'static str) -> Self {
        self.gap = Some(reason);
        self
    }

    /// Roughly what a run costs: products for ops that multiply matrices, elements for the others.
    pub fn work(&self) -> u64 {
        let elems = |operand: &Operand| operand.ne.iter().map(|&n| u64::from(n)).product::<u64>();
        let srcs = self.srcs.iter().flatten();
        let moved: u64 = srcs.clone().chain(&self.dsts).map(elems).sum();
        let written: u64 = self.dsts.iter().map(elems).sum();
        let dims = |idx: usize, dim: usize| self.srcs.get(idx).and_then(Option::as_ref).map_or(1, |src| src.ne[dim]);
        let depth = match self.opcode {
            Opcode::MulMat | Opcode::MulMatAdd | Opcode::MulMatNx => dims(0, 0),
            // Products with keys, then with values.
            Opcode::FlashAttnExt => dims(1, 1).saturating_mul(2),
            _ => 0,
        };
        moved + written * u64::from(depth)
    }

    /// Every way in which operands of this case may share memory, the plain one first.
    pub fn overlaps(&self) -> Vec<Overlap> {
        let same = |a: &Operand, b: &Operand| a.dtype == b.dtype && a.ne == b.ne;
        let src = |idx: usize| self.srcs.get(idx).and_then(Option::as_ref);
        let pair = src(0).zip(src(1));
        let mut overlaps = Vec::new();
        for twice in [false, true] {
            if twice && !pair.is_some_and(|(a, b)| same(a, b) && a.layout == b.layout) {
                continue;
            }
            let plain = Overlap { in_place: None, twice };
            overlaps.push(plain);
            for idx in 0..self.srcs.len() {
                let fits = src(idx).zip(self.dsts.first()).is_some_and(|(a, b)| same(a, b));
                // An operand that is named twice is overwritten in both places.
                let allowed = can_inplace(self.opcode, idx) && (!twice || idx == 0 && can_inplace(self.opcode, 1));
                if fits && allowed && self.dsts.len() == 1 {
                    overlaps.push(Overlap {
                        in_place: Some(idx),
                        ..plain
                    });
                }
            }
        }
        overlaps
    }
}
