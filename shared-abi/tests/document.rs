//! The tables of `docs/abi.md` are written from the code; this test compares them.
//!
//! `HEXLOOM_BLESS=1 cargo test -p hexloom-abi` writes them anew. Offsets are read from the layout assertions, which the
//! compiler checks; meanings are the fields' own documentation; types of operands are found by asking the support rules.

use std::fmt::Write as _;
use std::path::Path;

use hexloom_abi::inplace::can_inplace;
use hexloom_abi::op::{Op, Shape};
use hexloom_abi::tile::TileLayout;
use hexloom_abi::{DType, FenceRef, Opcode, Status, support};

#[test]
fn generated_parts_are_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/abi.md");
    let mut file = std::fs::read_to_string(&path).unwrap();
    let bless = std::env::var_os("HEXLOOM_BLESS").is_some();
    let mut parts: Vec<(String, String)> = structs().into_iter().map(|s| (s.name.clone(), s.table())).collect();
    parts.push(("opcodes".to_owned(), opcodes()));
    parts.push(("dtypes".to_owned(), dtypes()));
    parts.push(("statuses".to_owned(), statuses()));
    for (name, text) in &parts {
        let open = format!("<!-- generated: {name} -->\n");
        let (before, rest) = file
            .split_once(&open)
            .unwrap_or_else(|| panic!("docs/abi.md has no part {name}"));
        let (old, after) = rest.split_once("<!-- /generated -->").unwrap();
        assert!(
            bless || old == text,
            "docs/abi.md, part {name}: write it anew with HEXLOOM_BLESS=1"
        );
        file = format!("{before}{open}{text}<!-- /generated -->{after}");
    }
    assert_eq!(
        file.matches("<!-- generated: ").count(),
        parts.len(),
        "a part that nothing writes"
    );
    if bless {
        std::fs::write(&path, file).unwrap();
    }
}

/// A wire structure as its source describes it.
struct Struct {
    name: String,
    bytes: usize,
    fields: Vec<Field>,
}

struct Field {
    name: String,
    offset: usize,
    kind: String,
    meaning: String,
}

impl Struct {
    fn table(&self) -> String {
        let mut text = String::from("| offset | bytes | field | type | meaning |\n| ---: | ---: | --- | --- | --- |\n");
        let ends = self.fields.iter().skip(1).map(|field| field.offset).chain([self.bytes]);
        for (field, end) in self.fields.iter().zip(ends) {
            let Field {
                name,
                offset,
                kind,
                meaning,
            } = field;
            let _ = writeln!(
                text,
                "| {offset} | {} | `{name}` | `{kind}` | {meaning} |",
                end - offset
            );
        }
        text
    }
}

fn structs() -> Vec<Struct> {
    let sources = [
        include_str!("../src/message.rs"),
        include_str!("../src/descriptor.rs"),
        include_str!("../src/profile.rs"),
        include_str!("../src/fence.rs"),
    ];
    let all: Vec<Struct> = sources.iter().flat_map(|source| structs_of(source)).collect();
    assert_eq!(all.len(), 13, "a structure was added: give it a part in docs/abi.md");
    all
}

/// Every structure with a layout assertion: `assert_layout!(Name, bytes, align, { field: offset, … });`.
fn structs_of(source: &str) -> Vec<Struct> {
    let asserts = source.split("assert_layout!(").skip(1);
    asserts
        .map(|text| {
            let (head, rest) = text.split_once('{').unwrap();
            let head: Vec<&str> = head.split(',').map(str::trim).collect();
            let offsets = rest
                .split('}')
                .next()
                .unwrap()
                .split(',')
                .filter_map(|pair| pair.split_once(':'));
            let (_, body) = source.split_once(&format!("pub struct {} {{", head[0])).unwrap();
            let body = body.split("\n}").next().unwrap();
            let fields = offsets.map(|(name, offset)| field(body, name.trim(), offset.trim().parse().unwrap()));
            Struct {
                name: head[0].to_owned(),
                bytes: head[1].parse().unwrap(),
                fields: fields.collect(),
            }
        })
        .collect()
}

fn field(body: &str, name: &str, offset: usize) -> Field {
    let mut meaning = Vec::new();
    for line in body.lines().map(str::trim) {
        if let Some(doc) = line.strip_prefix("///") {
            meaning.push(doc.trim());
        } else if let Some(kind) = line.strip_prefix("pub ").and_then(|line| line.strip_prefix(name)) {
            if let Some(kind) = kind.strip_prefix(": ") {
                // Links into the code's documentation lead nowhere from here.
                let meaning = meaning
                    .join(" ")
                    .replace("[`", "`")
                    .replace("`]", "`")
                    .replace("crate::", "");
                let kind = kind.trim_end_matches(',').to_owned();
                return Field {
                    name: name.to_owned(),
                    offset,
                    kind,
                    meaning,
                };
            }
            meaning.clear();
        } else {
            meaning.clear();
        }
    }
    panic!("no field {name} in the source");
}

/// What an op reads, writes and is told.
struct Signature {
    srcs: &'static [&'static str],
    dsts: &'static [&'static str],
    params: &'static str,
}

const X: &[&str] = &["x"];
const OUT: &[&str] = &["result"];
const WINDOW: &str = "0 to 2: strides, 3 to 5: padding, 6 to 8: dilation, 9 to 11: window, 12: channels, 13: dimensions, \
                      14: kind of POOL";
const RANKS: &[&str] = &["x of rank 0 to n-1", "slot of rank 0 to n-1"];
const RESULTS: &[&str] = &["result, of one rank or of all"];

fn signature(op: Opcode) -> Signature {
    let of = |srcs, dsts, params| Signature { srcs, dsts, params };
    match op {
        Opcode::MulMat => of(&["weight", "activation"], OUT, ""),
        Opcode::MulMatAdd => of(&["weight", "activation", "addend"], OUT, ""),
        Opcode::MulMatNx => of(
            &["weight 0 to n-1", "activation, last"],
            &["result 0 to n-1"],
            "n = operands - 1, at most 4",
        ),
        Opcode::Add | Opcode::Sub | Opcode::Mul | Opcode::Div => of(&["a", "b, repeated"], OUT, ""),
        Opcode::RmsNorm | Opcode::Norm => of(X, OUT, "0: eps f32"),
        Opcode::RmsNormMul => of(&["x", "factor, repeated"], OUT, "0: eps f32"),
        Opcode::Swiglu | Opcode::Geglu | Opcode::GegluErf | Opcode::GegluQuick | Opcode::Reglu => of(
            &["x, or both halves", "gate, or absent"],
            OUT,
            "0: 1 when the second half is x",
        ),
        Opcode::Scale => of(X, OUT, "0: s f32, 1: b f32"),
        Opcode::Clamp => of(X, OUT, "0: low f32, 1: high f32"),
        Opcode::Rope => of(
            &["x", "positions", "frequency factors, or absent"],
            OUT,
            "1: dims, 2: mode (0 normal, 2 neox), 3: 1 to turn backwards, 4: original context, 15: first element; f32: 5 base, 6 scale, 7 extension, 8 attention, \
             9 fast corner, 10 slow corner",
        ),
        Opcode::SoftMax => of(
            &["x", "mask, or absent", "sinks, or absent"],
            OUT,
            "f32: 0 scale, 1 largest bias",
        ),
        Opcode::FlashAttnExt => of(
            &["queries", "keys", "values", "mask, or absent", "sinks, or absent"],
            OUT,
            "f32: 0 scale, 1 largest bias, 2 soft cap",
        ),
        Opcode::GetRows => of(&["table", "indices"], OUT, ""),
        Opcode::SetRows => of(&["rows", "indices"], &["table"], ""),
        Opcode::Cpy => of(&["from"], &["to"], ""),
        Opcode::Argmax => of(X, &["indices"], ""),
        Opcode::Fence => of(&["slot, for a wait"], &["slot, for a signal"], "0 to 3: `FenceRef`"),
        Opcode::CpyFence => of(&["from"], &["to", "slot"], "0 to 3: `FenceRef`"),
        Opcode::MdevGroup => of(&["slots of the members"], &[], "0 to 3: `GroupParams`"),
        Opcode::Allreduce => of(RANKS, RESULTS, "0 to 4: `AllreduceParams`"),
        Opcode::AllreduceAdd => of(
            &["x of rank 0 to n-1", "slot of rank 0 to n-1", "addend"],
            RESULTS,
            "0 to 4: `AllreduceParams`",
        ),
        Opcode::LeakyRelu | Opcode::Fill => of(X, OUT, "0: s f32"),
        Opcode::LinearAttn => of(
            &[
                "queries",
                "decays",
                "keys",
                "values",
                "states",
                "beta, a or u, or absent",
                "b, or absent",
            ],
            &["result", "states after the last tokens"],
            "0: rule, 1: scale f32, 2: 1 where heads share operands in groups; `recurrence`",
        ),
        Opcode::CountEqual => of(&["a", "b"], &["number"], ""),
        Opcode::Argsort => of(X, &["indices"], "0: 1 from the largest down"),
        Opcode::Xielu => of(X, OUT, "f32: 0 n, 1 p, 2 b, 3 eps"),
        Opcode::Im2col => of(&["image"], &["rows"], WINDOW),
        Opcode::Conv => of(&["windows", "image"], OUT, WINDOW),
        Opcode::Pool => of(&["image"], OUT, WINDOW),
        Opcode::OutProd => of(&["a", "b"], OUT, ""),
        Opcode::MulMatId => of(&["weights", "activation", "matrices"], OUT, ""),
        Opcode::L2Norm => of(X, OUT, "0: eps f32"),
        _ => of(X, OUT, ""),
    }
}

/// A smallest op that the support rules take; `None` while the op has no kernel.
fn sample(opcode: Opcode) -> Option<Op> {
    use DType::{F16, F32, I32};
    let dense = |dtype, ne| Shape::dense(dtype, ne);
    let row = || dense(F32, [32, 1, 1, 1]);
    let slot = || dense(I32, [32, 1, 1, 1]);
    let (srcs, dst): (Vec<Option<Shape>>, _) = match opcode {
        Opcode::MulMat | Opcode::MulMatNx => (vec![row(), row()], dense(F32, [1, 1, 1, 1])),
        Opcode::MulMatAdd => (vec![row(), row(), dense(F32, [1, 1, 1, 1])], dense(F32, [1, 1, 1, 1])),
        Opcode::Add | Opcode::Sub | Opcode::Mul | Opcode::Div | Opcode::RmsNormMul => (vec![row(), row()], row()),
        Opcode::Swiglu | Opcode::Geglu | Opcode::GegluErf | Opcode::GegluQuick | Opcode::Reglu => {
            (vec![row(), row()], row())
        }
        Opcode::Conv => (
            vec![dense(F32, [1, 1, 1, 1]), dense(F32, [1, 1, 1, 1])],
            dense(F32, [1, 1, 1, 1]),
        ),
        Opcode::Im2col | Opcode::Pool => (vec![dense(F32, [1, 1, 1, 1])], dense(F32, [1, 1, 1, 1])),
        Opcode::MulMatId => (vec![row(), row(), dense(I32, [1, 1, 1, 1])], dense(F32, [1, 1, 1, 1])),
        Opcode::Sum | Opcode::SumRows | Opcode::Mean => (vec![row()], dense(F32, [1, 1, 1, 1])),
        Opcode::OutProd => (vec![row(), row()], dense(F32, [32, 32, 1, 1])),
        Opcode::Rope => (vec![row(), dense(I32, [1, 1, 1, 1]), row()], row()),
        Opcode::SoftMax => (vec![row(), row(), dense(F32, [1, 1, 1, 1])], row()),
        Opcode::FlashAttnExt => {
            let cache = || dense(F16, [32, 32, 1, 1]);
            (
                vec![
                    row(),
                    cache(),
                    cache(),
                    dense(F16, [32, 1, 1, 1]),
                    dense(F32, [1, 1, 1, 1]),
                ],
                row(),
            )
        }
        Opcode::GetRows | Opcode::SetRows => (vec![row(), dense(I32, [1, 1, 1, 1])], row()),
        Opcode::Argmax | Opcode::Argsort => (vec![row()], dense(I32, [1, 1, 1, 1])),
        Opcode::CountEqual => (vec![dense(I32, [1, 1, 1, 1]); 2], dense(DType::I64, [1, 1, 1, 1])),
        Opcode::LinearAttn => (vec![row(); 7], dense(F32, [1, 1, 1, 1])),
        Opcode::Fence => (vec![slot()], None),
        Opcode::MdevGroup => (vec![slot()], None),
        Opcode::Allreduce => (vec![row(), slot()], row()),
        Opcode::AllreduceAdd => (vec![row(), slot(), row()], row()),
        _ => (vec![row()], row()),
    };
    let mut op = Op {
        opcode,
        params: [0; 16],
        srcs: [None; 10],
        dsts: [None; 4],
    };
    op.srcs[..srcs.len()].copy_from_slice(&srcs);
    op.dsts[0] = dst;
    match opcode {
        Opcode::Rope => {
            op.params[1] = 32;
            op.params[5] = 1e4f32.to_bits();
        }
        Opcode::Fence => op.params = FenceRef::wait(1, 1).params(),
        Opcode::CpyFence => {
            op.params = FenceRef::signal(1).params();
            op.dsts[1] = slot();
        }
        Opcode::MdevGroup => (op.params[1], op.params[3]) = (1, 1),
        Opcode::Allreduce | Opcode::AllreduceAdd => {
            (op.params[1], op.params[3], op.params[4]) = (1, 1, 1);
        }
        _ => {}
    }
    if opcode == Opcode::LinearAttn {
        op.params[0] = hexloom_abi::recurrence::LOW_RANK;
        op.srcs[3] = dense(F32, [1, 1, 1, 1]);
        op.dsts[1] = row();
    }
    if matches!(opcode, Opcode::Im2col | Opcode::Conv | Opcode::Pool) {
        op.params = [1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 2, 0, 0];
    }
    support::check(&op).is_ok().then_some(op)
}

/// Types that an operand may have, alone or together with a change of one other.
fn types(sample: &Op, idx: usize, is_dst: bool) -> Vec<DType> {
    let allowed = |dtype: &DType| {
        layouts(*dtype, *place(&mut sample.clone(), idx, is_dst))
            .into_iter()
            .any(|shape| {
                let mut op = *sample;
                *place(&mut op, idx, is_dst) = Some(shape);
                let others = (0..sample.n_srcs()).map(|other| (other, false)).chain([(0, true)]);
                let mut pairs =
                    others
                        .filter(|&(other, dst)| (other, dst) != (idx, is_dst))
                        .flat_map(|(other, dst)| {
                            let old = *place(&mut op.clone(), other, dst);
                            let all = DType::ALL.iter().flat_map(move |&dtype| layouts(dtype, old));
                            all.map(move |shape| (other, dst, shape))
                        });
                support::check(&op).is_ok()
                    || pairs.any(|(other, dst, shape)| {
                        let mut op = op;
                        *place(&mut op, other, dst) = Some(shape);
                        support::check(&op).is_ok()
                    })
            })
    };
    DType::ALL.iter().copied().filter(allowed).collect()
}

fn place(op: &mut Op, idx: usize, is_dst: bool) -> &mut Option<Shape> {
    if is_dst { &mut op.dsts[idx] } else { &mut op.srcs[idx] }
}

/// The same dimensions in another type: rows, and tiles where there are some.
fn layouts(dtype: DType, of: Option<Shape>) -> Vec<Shape> {
    let Some(Shape { ne, .. }) = of else { return Vec::new() };
    let tiled = TileLayout::new(dtype, ne[0]).and_then(|tile| tile.strides(dtype, ne));
    let tiled = tiled.map(|nb| Shape {
        dtype,
        tiled: true,
        ne,
        nb,
    });
    Shape::dense(dtype, ne).into_iter().chain(tiled).collect()
}

fn opcodes() -> String {
    let mut text = String::from(
        "| code | op | reads (types) | writes (types) | in place over | parameters |\n| ---: | --- | --- | --- | --- | --- |\n",
    );
    for &op in Opcode::ALL {
        let Signature { srcs, dsts, params } = signature(op);
        let sample = sample(op);
        let operands = |names: &[&str], is_dst: bool| {
            let name = |(idx, name): (usize, &&str)| match &sample {
                Some(sample) if place(&mut sample.clone(), idx, is_dst).is_some() => {
                    let types = types(sample, idx, is_dst);
                    assert!(!types.is_empty(), "{op} takes no type as {name}");
                    let types: Vec<&str> = types.iter().map(|dtype| dtype.name()).collect();
                    format!("{name} ({})", types.join(", "))
                }
                _ => (*name).to_owned(),
            };
            names.iter().enumerate().map(name).collect::<Vec<_>>().join("; ")
        };
        if let Some(sample) = &sample {
            assert_eq!(sample.n_srcs(), srcs.len(), "{op}");
        }
        let in_place: Vec<String> = (0..10)
            .filter(|&idx| can_inplace(op, idx))
            .map(|idx| idx.to_string())
            .collect();
        let kernel = if sample.is_some() { "" } else { " (no kernel yet)" };
        let (reads, writes) = (operands(srcs, false), operands(dsts, true));
        let _ = writeln!(
            text,
            "| {} | {op}{kernel} | {reads} | {writes} | {} | {params} |",
            op.number(),
            in_place.join(", ")
        );
    }
    text
}

fn dtypes() -> String {
    let mut text =
        String::from("| code | type | elements of a block | bytes of a block |\n| ---: | --- | ---: | ---: |\n");
    for &dtype in DType::ALL {
        let _ = writeln!(
            text,
            "| {} | {dtype} | {} | {} |",
            dtype.number(),
            dtype.block_elems(),
            dtype.block_bytes()
        );
    }
    text
}

/// What `detail` of a reply with this status is.
fn detail(status: Status) -> &'static str {
    match status {
        Status::Unsupported | Status::ScratchTooSmall => {
            "the part at fault: 0 the op; 0x100 + i source i; 0x200 + i destination i; 0x300 + i parameter i"
        }
        Status::Invalid => {
            "without an op: index of the buffer or tensor descriptor; with one, from the parser: operand (sources 0 to 9, \
             destinations from 10), from the overlap rule: 0x100 + source, 0x200 + destination"
        }
        Status::Timeout => "0; for a fence 0x100 + the source that was waited for, for a barrier 0x400 + the member",
        Status::PeerFailed => "status of the peer",
        Status::BadFlags | Status::BadDType => "index of the descriptor, 0 for the request and for an op",
        Status::BadOpcode => "the unknown number",
        Status::MapFailed | Status::WindowFull | Status::NoExtended => "index of the buffer descriptor",
        Status::Ok
        | Status::Internal
        | Status::BadMagic
        | Status::BadVersion
        | Status::TooMany
        | Status::Truncated
        | Status::BadBlock
        | Status::IndexOutOfRange
        | Status::Poisoned
        | Status::AlreadyStarted
        | Status::NotStarted => "0",
    }
}

fn statuses() -> String {
    let mut text = String::from("| code | status | `detail` |\n| ---: | --- | --- |\n");
    for &status in Status::ALL {
        let _ = writeln!(text, "| {} | {status} | {} |", status.number(), detail(status));
    }
    text
}
