//! One op case and the check that every case goes through.
//!
//! The reference, one run per vector kernel set, models of device floats among them, 1 to 7 threads, the least, little and
//! much scratch filled with junk, each allowed operand in place: equal bits among kernels with IEEE floats and among those
//! with qfloat, and a small error against the reference. Models are slow: they see every thread count and every amount of
//! scratch, but not each with each. Ops that the matrix unit serves run with its model as well.

use hexloom_abi::op::{Op, Shape};
use hexloom_abi::{DType, Opcode, Status, inplace, scratch, support};
use hexloom_dsp::hmx::UnitKind;
use hexloom_dsp::kernels::{Context, OpArgs};
use hexloom_dsp::pool::Pool;
use hexloom_dsp::{KernelSet, Span};

use super::array::{Array, Spec};
use super::platform::{TestPlatform, with_pool};

/// Little and much, for ops that use scratch at all; beside exactly what the shared rule says is the least.
const SCRATCH_BYTES: [usize; 2] = [256 << 10, 8 << 20];
const N_THREADS: [u32; 4] = [1, 2, 3, 7];
/// Thread counts with the matrix unit.
const UNIT_THREADS: [u32; 2] = [1, 3];

/// Normalised mean square error that a destination of this type may have.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 1e-6,
        _ => 1e-7,
    }
}

/// The same where the matrix unit serves: elements of a quantised cache are rounded to f16.
fn unit_tolerance(case: &Case, dtype: DType) -> f64 {
    let quantized = case.srcs.iter().flatten().any(|src| src.shape.dtype.is_quantized());
    if quantized { 1e-6 } else { tolerance(dtype) }
}

/// An op on random operands.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) opcode: Opcode,
    pub(crate) params: [u32; 16],
    pub(crate) srcs: Vec<Option<Spec>>,
    pub(crate) dsts: Vec<Spec>,
    /// A tolerance instead of the type's own: looser for quantised weights, tighter where an op promises more.
    pub(crate) nmse: Option<f64>,
    /// What the op must end with.
    pub(crate) status: Status,
}

impl Case {
    pub(crate) fn new(opcode: Opcode) -> Self {
        Self {
            opcode,
            params: [0; 16],
            srcs: Vec::new(),
            dsts: Vec::new(),
            nmse: None,
            status: Status::Ok,
        }
    }

    pub(crate) fn src(mut self, spec: Spec) -> Self {
        self.srcs.push(Some(spec));
        self
    }

    /// Leaves the next operand out.
    pub(crate) fn no_src(mut self) -> Self {
        self.srcs.push(None);
        self
    }

    pub(crate) fn dst(mut self, spec: Spec) -> Self {
        self.dsts.push(spec);
        self
    }

    pub(crate) fn param(mut self, idx: usize, value: u32) -> Self {
        self.params[idx] = value;
        self
    }

    pub(crate) fn param_f32(self, idx: usize, value: f32) -> Self {
        self.param(idx, value.to_bits())
    }

    pub(crate) fn nmse(mut self, limit: f64) -> Self {
        self.nmse = Some(limit);
        self
    }

    /// The op is supported but must end with this status, because of a value it reads.
    pub(crate) fn fails_with(mut self, status: Status) -> Self {
        self.status = status;
        self
    }

    fn op(&self) -> Op {
        let mut op = Op {
            opcode: self.opcode,
            params: self.params,
            srcs: [None; 10],
            dsts: [None; 4],
        };
        for (to, from) in op.srcs.iter_mut().zip(&self.srcs) {
            *to = from.as_ref().map(|spec| spec.shape);
        }
        for (to, from) in op.dsts.iter_mut().zip(&self.dsts) {
            *to = Some(from.shape);
        }
        op
    }
}

/// Which source the first destination overwrites, and whether source 1 is source 0 again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Overlap {
    inplace: Option<usize>,
    twice: bool,
}

/// The vector kernel sets of this machine whose floats are IEEE, models included: they agree bit for bit.
pub(crate) fn ieee_sets() -> Vec<KernelSet> {
    let mut sets = vec![KernelSet::Plain];
    if KernelSet::best() != KernelSet::Plain {
        sets.push(KernelSet::best());
    }
    sets
}

/// The groups of sets that agree bit for bit, each with the thread counts to run it on: models are slow. Products with
/// tiled weights are qfloat on every device.
fn groups(op: &Op) -> [(Vec<KernelSet>, &'static [u32]); 3] {
    let models: &[u32] = &[1, 3];
    let ieee = match op.srcs.iter().flatten().any(|src| src.tiled) {
        true => (vec![KernelSet::Ieee], models),
        false => (vec![KernelSet::Plain, KernelSet::Ieee], &N_THREADS[2..3]),
    };
    [(ieee_sets(), &N_THREADS), ieee, (vec![KernelSet::Qfloat], models)]
}

/// Runs a case every way there is.
///
/// # Panics
/// When two ways differ, the error is too large, a guard byte was written or the status is another.
pub(crate) fn check(case: &Case) {
    let op = case.op();
    assert_eq!(support::check(&op), Ok(()), "not supported: {case:?}");
    let same = |a: Option<&Shape>, b: Option<&Shape>| match (a, b) {
        (Some(a), Some(b)) => a.ne == b.ne && a.dtype == b.dtype && a.tiled == b.tiled,
        _ => false,
    };
    let mut overlaps = Vec::new();
    for twice in [false, true] {
        if twice && !same(op.src(0), op.src(1)) {
            continue;
        }
        let plain = Overlap { inplace: None, twice };
        overlaps.push(plain);
        for operand in 0..op.n_srcs() {
            if inplace::can_inplace(op.opcode, operand) && same(op.src(operand), op.dst(0)) && !(twice && operand == 1)
            {
                let inplace = Some(operand);
                overlaps.push(Overlap { inplace, ..plain });
            }
        }
    }
    let mut scratch = Scratch::new();
    let mut wanted = Vec::new();
    with_pool(1, |pool| {
        for twice in [false, true] {
            let plain = Overlap { inplace: None, twice };
            if overlaps.contains(&plain) {
                wanted.push((
                    twice,
                    run(
                        case,
                        KernelSet::Reference,
                        None,
                        pool,
                        scratch.junk(SCRATCH_BYTES[1]),
                        plain,
                    ),
                ));
            }
        }
    });
    let groups = groups(&op);
    let ways = || {
        groups
            .iter()
            .flat_map(|group| wanted.iter().map(move |(twice, wanted)| (group, *twice, wanted)))
    };
    for ((sets, n_threads), twice, wanted) in ways() {
        let mut first: Option<Vec<Array>> = None;
        for (n_threads, scratch_sizes) in runs(&op, sets, n_threads) {
            with_pool(n_threads, |pool| {
                for &scratch_bytes in &scratch_sizes {
                    for &set in sets {
                        for &overlap in overlaps.iter().filter(|overlap| overlap.twice == twice) {
                            let way = format!(
                                "{} {set:?} on {n_threads} threads, {scratch_bytes} bytes of scratch, {overlap:?}",
                                case.opcode
                            );
                            let got = run(case, set, None, pool, scratch.junk(scratch_bytes), overlap);
                            for (got, wanted) in got.iter().zip(wanted) {
                                if overlap.inplace.is_none() {
                                    got.assert_guards(&way, case.status == Status::Ok);
                                }
                                let limit = case.nmse.unwrap_or(tolerance(got.shape.dtype));
                                let limit = limit.max(least_limit(set, got.shape.dtype));
                                compare(&way, case, &got.values(), &wanted.values(), limit);
                            }
                            let Some(first) = &first else {
                                first = Some(got);
                                continue;
                            };
                            for (got, first) in got.iter().zip(first) {
                                let equal = same_bits(got, first);
                                assert!(equal, "{way}: other bits than on one thread\n{case:#?}");
                            }
                        }
                    }
                }
            });
        }
        let first = first.expect("an op that needs no more scratch than tests give");
        if has_unit_kernel(op.opcode) {
            check_unit(case, &op, &mut scratch, (sets, twice), wanted, &first);
        }
    }
}

/// Whether the matrix unit serves an op in some shape.
fn has_unit_kernel(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::MulMat | Opcode::MulMatAdd | Opcode::MulMatNx | Opcode::FlashAttnExt
    )
}

/// Runs a case with the matrix unit's model: whether the unit or the vector kernels serve it depends on op and scratch
/// alone, either always gives the same bits.
fn check_unit(
    case: &Case,
    op: &Op,
    scratch: &mut Scratch,
    (sets, twice): (&[KernelSet], bool),
    wanted: &[Array],
    vector: &[Array],
) {
    let mut served: Vec<Option<Array>> = wanted.iter().map(|_| None).collect();
    for (idx, scratch_bytes) in scratch_sizes(op, UNIT_THREADS[1]).into_iter().enumerate() {
        let mut first: Option<Vec<Array>> = None;
        let n_threads = match sets.contains(&KernelSet::Qfloat) {
            true => &UNIT_THREADS[idx % 2..][..1],
            false => &UNIT_THREADS,
        };
        for &n_threads in n_threads {
            with_pool(n_threads, |pool| {
                for &set in sets {
                    let overlap = Overlap { inplace: None, twice };
                    let way = format!(
                        "{} {set:?} and the matrix unit on {n_threads} threads, {scratch_bytes} bytes of scratch",
                        case.opcode
                    );
                    let got = run(
                        case,
                        set,
                        Some(UnitKind::Model),
                        pool,
                        scratch.junk(scratch_bytes),
                        overlap,
                    );
                    for (got, wanted) in got.iter().zip(wanted) {
                        got.assert_guards(&way, case.status == Status::Ok);
                        let limit = case.nmse.unwrap_or(unit_tolerance(case, got.shape.dtype));
                        compare(&way, case, &got.values(), &wanted.values(), limit);
                    }
                    let Some(first) = &first else {
                        first = Some(got);
                        continue;
                    };
                    let equal = got.iter().zip(first).all(|(got, first)| same_bits(got, first));
                    assert!(equal, "{way}: other bits than on one thread\n{case:#?}");
                }
            });
        }
        for ((out, vector), served) in first.into_iter().flatten().zip(vector).zip(&mut served) {
            if same_bits(&out, vector) {
                continue;
            }
            let Some(served) = served else {
                *served = Some(out);
                continue;
            };
            assert!(
                same_bits(&out, served),
                "other bits with {scratch_bytes} bytes of scratch\n{case:#?}"
            );
        }
    }
}

/// Thread counts, each with the scratch sizes to run an op with: every one with every one, but for models.
fn runs(op: &Op, sets: &[KernelSet], n_threads: &[u32]) -> Vec<(u32, Vec<usize>)> {
    let every = n_threads
        .iter()
        .map(|&n_threads| (n_threads, scratch_sizes(op, n_threads)));
    let mut runs: Vec<_> = every.collect();
    let n = runs.len();
    if sets.contains(&KernelSet::Qfloat) && runs.iter().all(|(_, sizes)| sizes.len() >= n) {
        for (run, (_, sizes)) in runs.iter_mut().enumerate() {
            let mut size = 0..;
            sizes.retain(|_| size.next().is_some_and(|size: usize| size % n == run));
        }
    }
    runs
}

/// Scratch sizes to run an op with: none for an op that needs none.
fn scratch_sizes(op: &Op, n_threads: u32) -> Vec<usize> {
    let need = scratch::need(op, n_threads);
    let least = need.least as usize;
    let mut sizes = vec![least];
    if need.full > 0 {
        sizes.extend(SCRATCH_BYTES.into_iter().filter(|&bytes| bytes > least));
    }
    sizes
}

/// Destinations of one run on this machine's fastest kernels, with or without a matrix unit, for tests with expectations of their own.
pub(crate) fn outputs(case: &Case, unit: Option<UnitKind>) -> Vec<Array> {
    let plain = Overlap {
        inplace: None,
        twice: false,
    };
    let mut scratch = Scratch::new();
    let mut outputs = Vec::new();
    with_pool(2, |pool| {
        outputs = run(
            case,
            KernelSet::best(),
            unit,
            pool,
            scratch.junk(SCRATCH_BYTES[1]),
            plain,
        )
    });
    outputs
}

/// Whether all elements have the same bits; any NaN equals any other.
fn same_bits(a: &Array, b: &Array) -> bool {
    if a.element_bytes() == b.element_bytes() {
        return true;
    }
    let same = |(x, y): (&f64, &f64)| x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan());
    matches!(a.shape.dtype, DType::F32 | DType::F16) && a.values().iter().zip(&b.values()).all(same)
}

/// Memory for scratch, on a line, kept over the runs of a case: what a run leaves behind is the next one's junk.
struct Scratch {
    memory: Vec<u128>,
}

impl Scratch {
    /// Bytes at the start that are made junk before each run, beyond what any case of moderate size takes.
    const REFILLED: usize = 64 << 10;

    fn new() -> Self {
        Self {
            memory: vec![u128::MAX; SCRATCH_BYTES[1] / 16 + 8],
        }
    }

    fn junk(&mut self, bytes: usize) -> Span<'_, u8> {
        assert!(bytes <= SCRATCH_BYTES[1], "a case that needs {bytes} bytes of scratch");
        self.memory[..Self::REFILLED / 16].fill(u128::MAX);
        let line = self.memory.as_ptr().cast::<u8>().align_offset(128);
        // SAFETY: `line` is below 128, which `memory` has to spare.
        let base = unsafe { self.memory.as_mut_ptr().cast::<u8>().add(line) };
        // SAFETY: `bytes` from `base` lie in `memory`, which this borrow keeps, and bytes need no alignment.
        unsafe { Span::new(base, bytes) }
    }
}

/// One run on fresh operands; the destinations come back.
fn run(
    case: &Case,
    set: KernelSet,
    unit: Option<UnitKind>,
    pool: &Pool<TestPlatform>,
    scratch: Span<'_, u8>,
    overlap: Overlap,
) -> Vec<Array> {
    let op = case.op();
    let mut srcs: Vec<Option<Array>> = (1u64..)
        .zip(&case.srcs)
        .map(|(seed, spec)| Some(spec.as_ref()?.build(seed)))
        .collect();
    let mut dsts: Vec<Array> = case
        .dsts
        .iter()
        .map(|spec| Array::junk(spec.shape, spec.skew))
        .collect();
    if overlap.twice {
        srcs[1] = None;
    }
    let mut args = OpArgs {
        op,
        srcs: [None; 10],
        dsts: [None; 4],
    };
    if let Some(operand) = overlap.inplace {
        // The destination takes the source's place, strides and alignment.
        let source = srcs[operand].take().expect("an operand in place is there");
        let skew = case.srcs[operand].as_ref().map_or(0, |spec| spec.skew);
        dsts[0] = Array::junk(source.shape, skew);
        dsts[0].copy_from(&source);
    }
    for (to, from) in args.dsts.iter_mut().zip(&mut dsts) {
        *to = Some(from.tensor());
    }
    for (to, from) in args.srcs.iter_mut().zip(&mut srcs) {
        *to = from.as_mut().map(Array::tensor);
    }
    if let Some(operand) = overlap.inplace {
        args.srcs[operand] = args.dsts[0];
    }
    if overlap.twice {
        args.srcs[1] = args.srcs[0];
    }
    for idx in 0..10 {
        args.op.srcs[idx] = args.srcs[idx].map(|tensor| *tensor.shape());
    }
    args.op.dsts[0] = args.dsts[0].map(|tensor| *tensor.shape());

    let status = match set.run(&Context::new(pool, scratch).with_unit(unit), &args) {
        Ok(()) => Status::Ok,
        Err(status) => status,
    };
    assert_eq!(status, case.status, "{set:?}, {overlap:?}: {case:?}");
    dsts
}

/// With qfloat a quantised code may be the next one where a value lies half-way between two.
fn least_limit(set: KernelSet, dtype: DType) -> f64 {
    match set {
        KernelSet::Qfloat if dtype.is_quantized() => 1e-6,
        _ => 0.0,
    }
}

fn compare(way: &str, case: &Case, got: &[f64], wanted: &[f64], limit: f64) {
    if case.status != Status::Ok {
        return;
    }
    let (mut error, mut power) = (0.0, 0.0);
    for (idx, (&got, &wanted)) in got.iter().zip(wanted).enumerate() {
        if !got.is_finite() || !wanted.is_finite() {
            let equal = got == wanted || (got.is_nan() && wanted.is_nan());
            assert!(equal, "{way}: element {idx} is {got}, not {wanted}\n{case:#?}");
            continue;
        }
        error += (got - wanted) * (got - wanted);
        power += wanted * wanted;
    }
    assert!(
        error <= limit * power,
        "{way}: error {error:e} of {power:e}, limit {limit:e}\n{case:#?}"
    );
}
