//! Reader for the text form of graphs that tests and benchmarks plan, with ggml's rules for in-place ops.
//!
//! A line a tensor in evaluation order:
//! `T name op type ne0 ne1 ne2 ne3 flags view_of view_offset src,src,...`, `-` for none. Types f32, f16, i32, i64, i8;
//! flags `W` weight, `I` input, `O` output, `.` none; op `NONE` for leaves.

use std::collections::HashMap;

use super::graph::{Flags, Graph, InPlace, TensorId, TensorSpec};

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {cause}")]
pub struct TextError {
    /// Line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub cause: TextCause,
}

/// Kinds of mistakes in a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TextCause {
    /// Not `T` followed by eleven words.
    #[error("expected `T` and 11 words, found {0} words")]
    Words(usize),
    /// A word that should be a number.
    #[error("`{0}` is not a number that fits")]
    Number(String),
    /// A type this reader does not know.
    #[error("unknown type `{0}`; known are f32, f16, i32, i64, i8")]
    Type(String),
    /// A flag this reader does not know.
    #[error("unknown flag `{0}`; known are W, I, O and `.`")]
    Flag(String),
    /// A tensor named before its line.
    #[error("tensor `{0}` is not defined above")]
    Tensor(String),
    /// A name given twice.
    #[error("tensor `{0}` is defined twice")]
    Twice(String),
    /// The graph refused it.
    #[error(transparent)]
    Graph(#[from] super::error::PlanError),
}

/// Which in-place permissions to give the nodes of a graph read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InPlaceRules {
    /// ggml's list of ops, equal types and extents.
    #[default]
    Ggml,
    /// The same, and GLU with gate and up apart over either of them.
    WithGlu,
}

/// Ops whose result may take any operand of equal layout in ggml.
const GGML_IN_PLACE: [&str; 21] = [
    "FILL",
    "SCALE",
    "DIAG_MASK_ZERO",
    "DIAG_MASK_INF",
    "ADD",
    "ADD_ID",
    "ADD1",
    "SUB",
    "MUL",
    "DIV",
    "SQR",
    "SQRT",
    "LOG",
    "UNARY",
    "ROPE",
    "ROPE_BACK",
    "SILU_BACK",
    "RMS_NORM",
    "RMS_NORM_BACK",
    "SOFT_MAX",
    "SOFT_MAX_BACK",
];

#[derive(Clone, Copy, PartialEq, Eq)]
struct Layout {
    element_bytes: u64,
    /// Tells i32 from f32.
    float: bool,
    extents: [u64; 4],
}

/// Reads a whole graph. All tensors are of buffer kind 0.
///
/// # Errors
/// The first line that is wrong, and how.
pub fn read_graph(text: &str, rules: InPlaceRules) -> Result<Graph, TextError> {
    let mut reader = Reader {
        graph: Graph::new(),
        by_name: HashMap::new(),
        layouts: Vec::new(),
        rules,
    };
    for (line, content) in (1..).zip(text.lines()) {
        if !content.trim().is_empty() {
            reader.line(content).map_err(|cause| TextError { line, cause })?;
        }
    }
    Ok(reader.graph)
}

struct Reader<'a> {
    graph: Graph,
    by_name: HashMap<&'a str, TensorId>,
    layouts: Vec<Layout>,
    rules: InPlaceRules,
}

impl<'a> Reader<'a> {
    fn line(&mut self, line: &'a str) -> Result<(), TextCause> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let &["T", name, op, ty, ne0, ne1, ne2, ne3, flags, view_of, offset, sources] = &words[..] else {
            return Err(TextCause::Words(words.len()));
        };
        let layout = layout(ty, [ne0, ne1, ne2, ne3])?;
        let bytes = layout
            .extents
            .iter()
            .try_fold(layout.element_bytes, |b, &e| b.checked_mul(e));
        let bytes = bytes.ok_or_else(|| TextCause::Number(format!("{ne0} {ne1} {ne2} {ne3}")))?;
        let view = match view_of {
            "-" => None,
            of => Some((self.tensor(of)?, number(offset)?)),
        };
        let operands = match sources {
            "-" => Vec::new(),
            list => list.split(',').map(|s| self.tensor(s)).collect::<Result<_, _>>()?,
        };
        let spec = TensorSpec {
            name,
            bytes,
            view,
            flags: read_flags(flags)?,
            kind: 0,
        };
        let id = self.graph.add_tensor(spec)?;
        if self.by_name.insert(name, id).is_some() {
            return Err(TextCause::Twice(name.to_owned()));
        }
        self.layouts.push(layout);
        if op != "NONE" {
            let mask = self.in_place(op, layout, &operands);
            self.graph.add_node(id, &operands, mask)?;
        }
        Ok(())
    }

    fn tensor(&self, name: &str) -> Result<TensorId, TextCause> {
        self.by_name
            .get(name)
            .copied()
            .ok_or_else(|| TextCause::Tensor(name.to_owned()))
    }

    fn in_place(&self, op: &str, layout: Layout, operands: &[TensorId]) -> InPlace {
        let split_glu = self.rules == InPlaceRules::WithGlu && op == "GLU" && operands.len() == 2;
        if !split_glu && !GGML_IN_PLACE.contains(&op) {
            return InPlace::NONE;
        }
        let same = |o: &TensorId| self.layouts[o.0 as usize] == layout;
        let bits = operands.iter().take(super::graph::MAX_OPERANDS).enumerate();
        InPlace(bits.fold(0, |mask, (i, o)| mask | u16::from(same(o)) << i))
    }
}

fn layout(ty: &str, extents: [&str; 4]) -> Result<Layout, TextCause> {
    let (element_bytes, float) = match ty {
        "f32" => (4, true),
        "f16" => (2, true),
        "i32" => (4, false),
        "i64" => (8, false),
        "i8" => (1, false),
        other => return Err(TextCause::Type(other.to_owned())),
    };
    let [a, b, c, d] = extents;
    Ok(Layout {
        element_bytes,
        float,
        extents: [number(a)?, number(b)?, number(c)?, number(d)?],
    })
}

fn number(word: &str) -> Result<u64, TextCause> {
    word.parse().map_err(|_| TextCause::Number(word.to_owned()))
}

fn read_flags(word: &str) -> Result<Flags, TextCause> {
    word.chars().try_fold(Flags::NONE, |flags, c| match c {
        '.' => Ok(flags),
        'W' => Ok(flags | Flags::EXTERNAL),
        'I' => Ok(flags | Flags::INPUT),
        'O' => Ok(flags | Flags::OUTPUT),
        _ => Err(TextCause::Flag(word.to_owned())),
    })
}
