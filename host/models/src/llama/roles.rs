//! What each tensor of a model must be for its role, and how a split cuts it.

use super::LlamaConfig;
use super::split::{Share, Split};
use crate::gguf::TensorType;

/// What a tensor must be for its role: name, shape, whether it may be quantised.
pub(super) struct Role {
    pub(super) name: String,
    /// Shape in the file.
    pub(super) ne: Vec<u32>,
    pub(super) matrix: bool,
    pub(super) optional: bool,
    /// Which session's, and which piece of it.
    pub(super) piece: Piece,
}

/// A piece of a tensor that one rank of one session uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) session: usize,
    pub(super) rank: usize,
    pub(super) cut: Cut,
}

/// Which rows and columns of a matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    Whole,
    /// Results first to last: a row of the file gives a result.
    Rows(std::ops::Range<u32>),
    /// Summands first to last.
    Columns(std::ops::Range<u32>),
}

impl Cut {
    /// Whether no block of a row is cut apart.
    pub(super) fn is_between_blocks(&self, ty: TensorType) -> bool {
        match self {
            Self::Whole | Self::Rows(_) => true,
            Self::Columns(columns) => [columns.start, columns.end]
                .iter()
                .all(|&column| u64::from(column).is_multiple_of(ty.block_elems())),
        }
    }
}

/// Every tensor piece of the model, in the order in which a token uses them.
pub(super) fn roles(config: &LlamaConfig, split: &Split) -> Vec<Role> {
    let LlamaConfig {
        n_embd,
        n_vocab,
        n_layers,
        ..
    } = *config;
    let whole = |name: &str, ne: &[u32], session: usize, optional: bool| Role {
        name: name.to_owned(),
        ne: ne.to_vec(),
        matrix: ne.len() > 1,
        optional,
        piece: Piece {
            session,
            rank: 0,
            cut: Cut::Whole,
        },
    };
    let parts = split.parts(n_layers);
    let last = match split.n_ranks() {
        1 => parts.len() - 1,
        _ => 0,
    };
    let mut roles = vec![whole("token_embd.weight", &[n_embd, n_vocab], 0, false)];
    for layer in 0..n_layers {
        for (part, width) in norms(config) {
            let session = split.session_of(n_layers, layer, 0);
            roles.push(whole(&format!("blk.{layer}.{part}.weight"), &[width], session, false));
        }
        for rank in 0..split.n_ranks() {
            let session = split.session_of(n_layers, layer, rank);
            let share = split.share(config, rank);
            for (part, ne, cut) in matrices(config, &share, split.n_ranks()) {
                let bias_cut = bias_cut(&cut, rank).filter(|_| config.family.biases);
                roles.push(Role {
                    piece: Piece { session, rank, cut },
                    ..whole(&format!("blk.{layer}.{part}.weight"), &ne, session, false)
                });
                roles.extend(bias_cut.map(|cut| Role {
                    piece: Piece { session, rank, cut },
                    ..whole(&format!("blk.{layer}.{part}.bias"), &ne[1..], session, true)
                }));
            }
        }
    }
    roles.push(whole("output_norm.weight", &[n_embd], last, false));
    roles.push(whole("output.weight", &[n_embd, n_vocab], last, true));
    roles.push(whole("rope_freqs.weight", &[config.rope.n_dims / 2], 0, true));
    roles
}

/// The cut of a bias: where ranks compute results of their own, those; what is added to a sum over the ranks is whole and
/// counts as the first rank's.
fn bias_cut(matrix: &Cut, rank: usize) -> Option<Cut> {
    match matrix {
        Cut::Whole => Some(Cut::Whole),
        Cut::Rows(rows) => Some(Cut::Columns(rows.clone())),
        Cut::Columns(_) => (rank == 0).then_some(Cut::Whole),
    }
}

/// Tensors that no text depends on: tables that old converters wrote, and a picture encoder in the same file.
pub(super) fn is_idle(name: &str) -> bool {
    name.ends_with(".attn_rot_embd")
        || name.ends_with(".attn_rot_embd.weight")
        || name.starts_with("v.")
        || name.starts_with("mm.")
}

/// A layer's norms with their width.
fn norms(config: &LlamaConfig) -> impl Iterator<Item = (&'static str, u32)> {
    let family = config.family;
    let of = |part, width, there: bool| there.then_some((part, width));
    let all = [
        of("attn_norm", config.n_embd, true),
        of("attn_q_norm", config.head_size, family.head_norms),
        of("attn_k_norm", config.head_size, family.head_norms),
        of("post_attention_norm", config.n_embd, family.post_norms),
        of("ffn_norm", config.n_embd, true),
        of("post_ffw_norm", config.n_embd, family.post_norms),
    ];
    all.into_iter().flatten()
}

/// A layer's matrices with their shape in the file and the cut of one rank.
fn matrices(config: &LlamaConfig, share: &Share, n_ranks: usize) -> [(&'static str, [u32; 2], Cut); 7] {
    let LlamaConfig {
        n_embd,
        n_ff,
        n_heads,
        head_size,
        n_kv_heads,
        ..
    } = *config;
    let (n_q, n_kv) = (head_size * n_heads, config.n_embd_kv());
    let heads = |size: u32| share.kv_heads.start * size..share.kv_heads.end * size;
    let (kv, q) = (heads(head_size), heads(head_size * (n_heads / n_kv_heads)));
    let rows = |range: &std::ops::Range<u32>| {
        if n_ranks == 1 {
            Cut::Whole
        } else {
            Cut::Rows(range.clone())
        }
    };
    let columns = |range: &std::ops::Range<u32>| {
        if n_ranks == 1 {
            Cut::Whole
        } else {
            Cut::Columns(range.clone())
        }
    };
    [
        ("attn_q", [n_embd, n_q], rows(&q)),
        ("attn_k", [n_embd, n_kv], rows(&kv)),
        ("attn_v", [n_embd, n_kv], rows(&kv)),
        ("attn_output", [n_q, n_embd], columns(&q)),
        ("ffn_gate", [n_embd, n_ff], rows(&share.ff)),
        ("ffn_up", [n_embd, n_ff], rows(&share.ff)),
        ("ffn_down", [n_ff, n_embd], columns(&share.ff)),
    ]
}
