//! What can be wrong with a model, as one type.
//!
//! Each message is one sentence that names the file or argument and the numbers, because the program prints it as it
//! is: whoever reads it should know what to fix without the source at hand.

use std::io;
use std::path::PathBuf;

use crate::gguf::TensorType;

/// Why a model cannot be read, or a request to it cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The window is too small even for weights that take turns.
    #[error(transparent)]
    Residency(#[from] hexloom::plan::residency::ResidencyError),

    /// A model cannot be spread over so many sessions.
    #[error("{what}; use fewer sessions")]
    Split {
        /// What there is too little of.
        what: String,
    },

    /// The operating system would not open or map the file.
    #[error("cannot open the model {}: {source}", path.display())]
    Open {
        /// The model file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },

    /// The file does not start with the four letters `GGUF`.
    #[error(
        "{} is not a GGUF file: it starts with the bytes {found:02x?}, a GGUF file starts with [47, 47, 55, 46]",
        path.display()
    )]
    NotGguf {
        /// The file.
        path: PathBuf,
        /// Its first bytes, four at most.
        found: Vec<u8>,
    },

    /// A GGUF version this reader does not know.
    #[error("{} is GGUF version {version}, versions 2 and 3 are supported{}", path.display(), big_endian(*version))]
    Version {
        /// The model file.
        path: PathBuf,
        /// The version as read, little-endian.
        version: u32,
    },

    /// The file ends before something its header promises.
    #[error(
        "{} is cut short: {what} needs bytes {start} to {end}, the file has {file_bytes}; fetch it again",
        path.display()
    )]
    CutShort {
        /// The model file.
        path: PathBuf,
        /// What was being read.
        what: String,
        /// Offset of the first byte needed.
        start: u64,
        /// Offset after the last byte needed, saturated.
        end: u64,
        /// Length of the file.
        file_bytes: u64,
    },

    /// A count that the rest of the file could not hold.
    #[error(
        "{} is cut short or damaged: it claims {count} {what}, but the {left_bytes} bytes that follow hold at most {most}",
        path.display()
    )]
    Count {
        /// The model file.
        path: PathBuf,
        /// What is counted.
        what: String,
        /// The count in the file.
        count: u64,
        /// Bytes from the count to the end of the file.
        left_bytes: u64,
        /// How many of the smallest possible entries fit into them.
        most: u64,
    },

    /// A string of the file that is not UTF-8.
    #[error("{}: {what} at byte {offset} is not UTF-8", path.display())]
    NotUtf8 {
        /// The model file.
        path: PathBuf,
        /// Which string.
        what: String,
        /// Where it starts in the file.
        offset: u64,
    },

    /// A metadata value type that GGUF does not define, or an array of arrays.
    #[error(
        "{}: {key} has value type {code}; supported are 0 to 12, and arrays of all but arrays",
        path.display()
    )]
    ValueType {
        /// The model file.
        path: PathBuf,
        /// The metadata key.
        key: String,
        /// The type code in the file.
        code: u32,
    },

    /// A key or tensor name that the file gives twice.
    #[error("{}: the {what} {name:?} appears twice", path.display())]
    Duplicate {
        /// The model file.
        path: PathBuf,
        /// "metadata key" or "tensor".
        what: &'static str,
        /// The name.
        name: String,
    },

    /// A metadata key that is needed and absent.
    #[error("{}: the metadata key {key} is missing", path.display())]
    MissingKey {
        /// The model file.
        path: PathBuf,
        /// The key.
        key: String,
    },

    /// A metadata value of another type than its key calls for, or too large for it.
    #[error("{}: {key} is {found}, needed is {expected}", path.display())]
    KeyType {
        /// The model file.
        path: PathBuf,
        /// The key.
        key: String,
        /// The value or its type.
        found: String,
        /// What the reader asked for.
        expected: &'static str,
    },

    /// A metadata value of the right type that makes no sense.
    #[error("{}: {key} is {value}, allowed is {allowed}", path.display())]
    BadValue {
        /// The model file.
        path: PathBuf,
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// Which values are allowed.
        allowed: String,
    },

    /// A model architecture for which there is no graph.
    #[error("{}: the architecture {found:?} is not supported; supported: {}", path.display(), supported.join(", "))]
    Architecture {
        /// The model file.
        path: PathBuf,
        /// Value of `general.architecture`.
        found: String,
        /// The architectures that are supported.
        supported: Vec<&'static str>,
    },

    /// A tensor that the architecture needs and the file does not have.
    #[error("{}: the tensor {tensor} is missing ({n_tensors} tensors are there)", path.display())]
    MissingTensor {
        /// The model file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// How many tensors the file has.
        n_tensors: usize,
    },

    /// A tensor that nothing would be computed with.
    #[error(
        "{}: the graph of this architecture has no place for the tensor {tensor}, and without it the text would be another; \
         convert the model without it or use another one",
        path.display()
    )]
    UnusedTensor {
        /// The model file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
    },

    /// A number of dimensions or an extent that no tensor can have.
    #[error("{}: the tensor {tensor} has the extents {ne:?}: {reason}", path.display())]
    Extents {
        /// The model file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its extents, innermost first, as far as they were read.
        ne: Vec<u64>,
        /// What is wrong with them.
        reason: &'static str,
    },

    /// An element type that hexloom has no kernels for.
    #[error(
        "{}: the tensor {tensor} is quantised as {found}, which is not supported; supported: {}",
        path.display(),
        TensorType::supported()
    )]
    Quantisation {
        /// The model file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// ggml's name of the type, or its number where ggml has no name for it.
        found: String,
    },

    /// A tensor whose data does not lie inside the file.
    #[error(
        "{}: the tensor {tensor} reaches outside the file: it needs bytes {start} to {end}, the file has {file_bytes}",
        path.display()
    )]
    TensorOutside {
        /// The model file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Offset of its first byte in the file, saturated.
        start: u64,
        /// Offset after its last byte, saturated.
        end: u64,
        /// Length of the file.
        file_bytes: u64,
    },

    /// A tensor offset that is no multiple of the file's alignment.
    #[error(
        "{}: the tensor {tensor} starts at offset {offset}, no multiple of the alignment {alignment}",
        path.display()
    )]
    TensorMisaligned {
        /// The model file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its offset in the data section.
        offset: u64,
        /// The file's alignment.
        alignment: u64,
    },

    /// A tensor of another shape than its role needs.
    #[error("{}: the tensor {tensor} has the shape {found:?}, its role needs {expected:?}", path.display())]
    WrongShape {
        /// The model file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its extents, innermost first.
        found: [u64; 4],
        /// The extents its role needs.
        expected: [u64; 4],
    },

    /// A tensor of a supported type that its role cannot use.
    #[error("{}: the tensor {tensor} has the type {found}, its role needs {expected}", path.display())]
    WrongType {
        /// The model file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its type.
        found: TensorType,
        /// The types its role can use, as text.
        expected: String,
    },

    /// A kind of tokenizer that is not implemented.
    #[error("{}: {key} is {found:?}, which is not supported; supported: {}", path.display(), supported.join(", "))]
    Tokenizer {
        /// The model file.
        path: PathBuf,
        /// `tokenizer.ggml.model` or `tokenizer.ggml.pre`.
        key: &'static str,
        /// Its value.
        found: String,
        /// The values that are supported.
        supported: Vec<&'static str>,
    },

    /// Text with a byte for which the vocabulary has no token.
    #[error("the vocabulary has no token for the byte {byte:#04x}, which the text has at byte {offset}; remove it")]
    NoTokenForByte {
        /// The byte.
        byte: u8,
        /// Its offset in the text.
        offset: usize,
    },

    /// Text with a run of white space that is too long to be split.
    #[error("the text has {run} white space characters in a row at byte {offset}, the limit is {limit}; shorten it")]
    WhiteSpaceRun {
        /// Offset of the run in the text.
        offset: usize,
        /// Its length in characters.
        run: usize,
        /// The longest run allowed.
        limit: usize,
    },

    /// The tokenizer library refused the text or the vocabulary.
    #[error("the tokenizer failed: {detail}")]
    Tokenize {
        /// What the library said.
        detail: String,
    },

    /// A token number that is not in the vocabulary.
    #[error(
        "the token {token} is out of range: the vocabulary has {vocabulary} tokens, 0 to {}",
        vocabulary.saturating_sub(1)
    )]
    TokenRange {
        /// The token.
        token: u32,
        /// Number of tokens of the vocabulary.
        vocabulary: usize,
    },

    /// A sampling option outside its range.
    #[error("the sampling option {name} is {value}, allowed is {allowed}")]
    SamplerOption {
        /// The option.
        name: &'static str,
        /// Its value.
        value: f32,
        /// The range.
        allowed: &'static str,
    },

    /// A logit that cannot be part of a distribution.
    #[error("the logit of token {token} is {value}: the model's output is damaged")]
    BadLogit {
        /// The first such token.
        token: usize,
        /// NaN or positive infinity.
        value: f32,
    },

    /// Logits from which nothing can be chosen.
    #[error("none of the {n_logits} logits is a finite number: there is no token to choose")]
    NoLogit {
        /// How many logits were given.
        n_logits: usize,
    },

    /// A chat was asked of a model that carries no template.
    #[error(
        "{} carries no chat template (tokenizer.chat_template); give the prompt as plain text",
        path.display()
    )]
    NoChatTemplate {
        /// The model file.
        path: PathBuf,
    },

    /// A chat template that does not parse, or that refused the messages.
    #[error("the model's chat template failed: {detail}")]
    ChatTemplate {
        /// What the template engine, or the template itself, said.
        detail: String,
    },

    /// The conversation does not fit the context.
    #[error(
        "{n_new} tokens after {n_past} do not fit the context of {n_ctx} tokens; use a larger context or a shorter prompt"
    )]
    ContextFull {
        /// Tokens in the context already.
        n_past: u32,
        /// Tokens to be added.
        n_new: usize,
        /// Tokens that fit.
        n_ctx: u32,
    },

    /// The graph could not be built.
    #[error(transparent)]
    Graph(#[from] hexloom::GraphError),

    /// Shared memory could not be had or made visible.
    #[error(transparent)]
    Map(#[from] hexloom::MapError),

    /// The graph could not be prepared.
    #[error(transparent)]
    Submit(#[from] hexloom::SubmitError),

    /// The graph could not be run.
    #[error(transparent)]
    Run(#[from] hexloom::RunError),
}

fn big_endian(version: u32) -> &'static str {
    if matches!(version.swap_bytes(), 1..=3) {
        " (a big-endian file; little-endian is needed)"
    } else {
        ""
    }
}
