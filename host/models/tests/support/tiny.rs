//! A Llama or Gemma of one layer that really runs, a few hundred kilobytes: end-to-end tests, and files wrong in one
//! place.

#![allow(dead_code, reason = "each test file uses a part of it")]

use hexloom_models::gguf::{TensorType, Writer};

pub(crate) const N_CTX_TRAIN: u32 = 256;
const N_EMBD: u64 = 128;
const N_KV: u64 = 64;
const N_FF: u64 = 96;
const CONTROL: [&str; 2] = ["<s>", "</s>"];

/// The model in parts that a test can change.
pub(crate) struct Tiny {
    pub(crate) architecture: String,
    /// What the keys of its sizes begin with.
    family: &'static str,
    /// Positions that its layer sees, if not all.
    window: Option<u32>,
    n_kv_heads: u32,
    /// More keys of its family.
    pub(crate) keys: Vec<(&'static str, Key)>,
    pub(crate) tensors: Vec<Tensor>,
}

/// The value of a key.
pub(crate) enum Key {
    U32(u32),
    F32(f32),
    Str(&'static str),
}

/// A tensor as the file will describe it.
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) ty: TensorType,
    pub(crate) ne: Vec<u64>,
    pub(crate) bytes: Vec<u8>,
    /// Another type code than that of `ty`.
    pub(crate) code: Option<u32>,
    /// Another offset than where the bytes are.
    pub(crate) offset: Option<u64>,
}

impl Tiny {
    pub(crate) fn new() -> Self {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let n_vocab = tokens().len() as u64;
        let mut tensors: Vec<Tensor> = ["token_embd.weight", "output.weight"]
            .iter()
            .map(|name| float(name, &[N_EMBD, n_vocab], &mut |_| random.unit()))
            .collect();
        // Rows of zeros: a control token is never the most probable one, so that texts do not end by themselves.
        tensors[1].bytes[..CONTROL.len() * N_EMBD as usize * 4].fill(0);
        for norm in ["blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"] {
            tensors.push(float(norm, &[N_EMBD], &mut |_| 1.0));
        }
        let matrices = [
            ("attn_q", N_EMBD, N_EMBD),
            ("attn_k", N_EMBD, N_KV),
            ("attn_v", N_EMBD, N_KV),
            ("attn_output", N_EMBD, N_EMBD),
            ("ffn_gate", N_EMBD, N_FF),
            ("ffn_up", N_EMBD, N_FF),
            ("ffn_down", N_FF, N_EMBD),
        ];
        for (part, n_in, n_out) in matrices {
            tensors.push(q4_0(&format!("blk.0.{part}.weight"), &[n_in, n_out], &mut random));
        }
        Self {
            architecture: "llama".to_owned(),
            family: "llama",
            window: None,
            n_kv_heads: 1,
            keys: Vec::new(),
            tensors,
        }
    }

    /// The same with what Gemma 3 has beside it; its only layer looks back over `window` positions.
    pub(crate) fn gemma(window: u32) -> Self {
        let mut tiny = Self::new();
        tiny.architecture = "gemma3".to_owned();
        (tiny.family, tiny.window) = ("gemma3", Some(window));
        for (norm, width) in [
            ("attn_q_norm", N_KV),
            ("attn_k_norm", N_KV),
            ("post_attention_norm", N_EMBD),
            ("post_ffw_norm", N_EMBD),
        ] {
            let name = format!("blk.0.{norm}.weight");
            tiny.tensors
                .push(float(&name, &[width], &mut |idx| 0.5 + idx as f32 / 128.0));
        }
        tiny
    }

    /// The same with two key and value heads, so that two sessions can share each layer.
    pub(crate) fn two_heads() -> Self {
        let mut tiny = Self::new();
        let mut random = Random(0x2545_f491_4f6c_dd1d);
        tiny.n_kv_heads = 2;
        for part in ["attn_k", "attn_v"] {
            let name = format!("blk.0.{part}.weight");
            *tiny.tensor(&name) = q4_0(&name, &[N_EMBD, 2 * N_KV], &mut random);
        }
        tiny
    }

    /// Gives the matrix `part` of the layer a bias.
    pub(crate) fn add_bias(&mut self, part: &str, value: &mut dyn FnMut(u64) -> f32) {
        let n = self.tensor(&format!("blk.0.{part}.weight")).ne[1];
        self.tensors.push(float(&format!("blk.0.{part}.bias"), &[n], value));
    }

    pub(crate) fn tensor(&mut self, name: &str) -> &mut Tensor {
        self.tensors.iter_mut().find(|tensor| tensor.name == name).unwrap()
    }

    /// The file. It ends with the last tensor's last byte.
    pub(crate) fn file(&self) -> Vec<u8> {
        let key = |name: &str| format!("{}.{name}", self.family);
        let mut file = Writer::new()
            .str("general.architecture", &self.architecture)
            .u32(&key("block_count"), 1)
            .u32(&key("context_length"), N_CTX_TRAIN)
            .u32(&key("embedding_length"), N_EMBD as u32)
            .u32(&key("feed_forward_length"), N_FF as u32)
            .u32(&key("attention.head_count"), 2)
            .u32(&key("attention.head_count_kv"), self.n_kv_heads)
            .f32(&key("attention.layer_norm_rms_epsilon"), 1e-5)
            .str("tokenizer.ggml.model", "gpt2")
            .str("tokenizer.ggml.pre", "gpt-2")
            .strs("tokenizer.ggml.tokens", &tokens())
            .i32s("tokenizer.ggml.token_type", &token_types())
            .strs("tokenizer.ggml.merges", &["a b", "ab c"])
            .u32("tokenizer.ggml.bos_token_id", 0)
            .u32("tokenizer.ggml.eos_token_id", 1)
            .bool("tokenizer.ggml.add_bos_token", true)
            .str(
                "tokenizer.chat_template",
                "{% for message in messages %}[{{ message.role }}] {{ message.content }}{% endfor %}",
            );
        if let Some(window) = self.window {
            file = file.u32(&key("attention.sliding_window"), window);
        }
        for (name, value) in &self.keys {
            file = match value {
                Key::U32(value) => file.u32(&key(name), *value),
                Key::F32(value) => file.f32(&key(name), *value),
                Key::Str(value) => file.str(&key(name), value),
            };
        }
        for tensor in &self.tensors {
            file = match (tensor.code, tensor.offset) {
                (None, None) => file.tensor(&tensor.name, tensor.ty, &tensor.ne, &tensor.bytes),
                // Described otherwise than it is: no bytes of its own, and no tensor after it.
                (code, offset) => {
                    let code = code.unwrap_or(tensor.ty.code());
                    file.raw_tensor(&tensor.name, code, &tensor.ne, offset.unwrap_or(0))
                }
            };
        }
        file.finish()
    }
}

fn tokens() -> Vec<String> {
    let mut tokens: Vec<String> = CONTROL.map(str::to_owned).to_vec();
    tokens.extend((0..=255).map(|byte| letter(byte).to_string()));
    tokens.extend(["ab", "abc"].map(str::to_owned));
    tokens
}

fn token_types() -> Vec<i32> {
    (0..tokens().len())
        .map(|idx| if idx < CONTROL.len() { 3 } else { 1 })
        .collect()
}

/// GPT-2's printable letter for a byte: itself where it is printable, otherwise the next free one from U+0100 on.
fn letter(byte: u8) -> char {
    let printable = |byte: u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    if printable(byte) {
        return char::from(byte);
    }
    let rank = (0..byte).filter(|&other| !printable(other)).count() as u32;
    char::from_u32(0x100 + rank).unwrap()
}

fn float(name: &str, ne: &[u64], value: &mut dyn FnMut(u64) -> f32) -> Tensor {
    let n: u64 = ne.iter().product();
    let bytes = (0..n).flat_map(|idx| value(idx).to_le_bytes()).collect();
    tensor(name, TensorType::F32, ne, bytes)
}

fn q4_0(name: &str, ne: &[u64], random: &mut Random) -> Tensor {
    let n_blocks = ne.iter().product::<u64>() / TensorType::Q4_0.block_elems();
    // A scale of about 0.02, then 16 bytes of two numbers each.
    let block = |_| {
        [0x1e, 0x25]
            .into_iter()
            .chain((0..16).map(|_| random.next() as u8))
            .collect::<Vec<u8>>()
    };
    tensor(name, TensorType::Q4_0, ne, (0..n_blocks).flat_map(block).collect())
}

fn tensor(name: &str, ty: TensorType, ne: &[u64], bytes: Vec<u8>) -> Tensor {
    Tensor {
        name: name.to_owned(),
        ty,
        ne: ne.to_vec(),
        bytes,
        code: None,
        offset: None,
    }
}

/// Xorshift: the same model everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 24
    }

    /// From -1 to 1.
    fn unit(&mut self) -> f32 {
        (self.next() % 2001) as f32 / 1000.0 - 1.0
    }
}
