//! FLASH_ATTN_EXT: every head size, F16 and Q8_0 caches, grouped heads, masks, slopes, soft cap, sinks.

use hexloom::DType;
use hexloom::abi::Opcode;

use crate::{Case, Fill, Layout, Operand};

/// One attention: sizes and what it is given.
#[derive(Clone, Copy)]
struct Attention {
    dk: u32,
    dv: u32,
    tokens: u32,
    kv: u32,
    heads: u32,
    kv_heads: u32,
    seqs: u32,
    cache: DType,
    mask: bool,
    max_bias: f32,
    softcap: f32,
    sinks: bool,
    layout: Layout,
}

const PLAIN: Attention = Attention {
    dk: 64,
    dv: 64,
    tokens: 3,
    kv: 70,
    heads: 4,
    kv_heads: 2,
    seqs: 1,
    cache: DType::F16,
    mask: true,
    max_bias: 0.0,
    softcap: 0.0,
    sinks: false,
    layout: Layout::Dense,
};

impl Attention {
    fn case(self) -> Case {
        let Self {
            tokens,
            kv,
            heads,
            seqs,
            ..
        } = self;
        let cache = |size| Operand::new(self.cache, [size, kv, self.kv_heads, seqs]).layout(self.layout);
        let mask = Operand::f16([kv, tokens, 1, 1]).fill(Fill::Causal);
        let sinks = Operand::f32([heads, 1, 1, 1]).fill(Fill::Uniform(2.0));
        Case::new(Opcode::FlashAttnExt)
            .named(format_args!(
                "{}/{} tokens {tokens} kv {kv} heads {heads}/{} seqs {seqs} {} mask {} bias {} cap {} sinks {} {:?}",
                self.dk,
                self.dv,
                self.kv_heads,
                self.cache,
                self.mask,
                self.max_bias,
                self.softcap,
                self.sinks,
                self.layout
            ))
            .src(Operand::f32([self.dk, tokens, heads, seqs]))
            .src(cache(self.dk))
            .src(cache(self.dv))
            .src_opt(self.mask.then_some(mask))
            .src_opt(self.sinks.then_some(sinks))
            .dst(Operand::f32([self.dv, heads, tokens, seqs]).fill(Fill::Junk))
            .param_f32(0, 1.0 / (self.dk as f32).sqrt())
            .param_f32(1, self.max_bias)
            .param_f32(2, self.softcap)
    }
}

pub(super) fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    for (dk, dv) in [(64, 64), (80, 80), (96, 96), (128, 128), (256, 256), (128, 64)] {
        for cache in [DType::F16, DType::Q8_0] {
            // Q8_0 rows are whole blocks of 32.
            if cache == DType::Q8_0 && dk % 32 != 0 {
                continue;
            }
            for tokens in [1, 9] {
                list.push(Attention {
                    dk,
                    dv,
                    cache,
                    tokens,
                    ..PLAIN
                });
            }
        }
    }
    for cache in [DType::F16, DType::Q8_0] {
        let base = Attention { cache, ..PLAIN };
        list.extend([
            Attention { mask: false, ..base },
            Attention {
                max_bias: 8.0,
                heads: 6,
                kv_heads: 3,
                ..base
            },
            Attention { softcap: 5.0, ..base },
            Attention { sinks: true, ..base },
            Attention {
                sinks: true,
                softcap: 3.0,
                max_bias: 4.0,
                tokens: 1,
                kv: 600,
                ..base
            },
            Attention {
                heads: 9,
                kv_heads: 3,
                tokens: 1,
                kv: 1100,
                ..base
            },
            Attention {
                heads: 5,
                kv_heads: 1,
                tokens: 4,
                kv: 513,
                ..base
            },
            Attention {
                heads: 4,
                kv_heads: 4,
                seqs: 2,
                ..base
            },
            Attention {
                tokens: 33,
                kv: 33,
                ..base
            },
            Attention {
                kv: 1,
                tokens: 1,
                ..base
            },
            // As a cache lies: positions outside, heads inside a position.
            Attention {
                layout: Layout::Permuted([0, 2, 1, 3]),
                ..base
            },
            Attention {
                layout: Layout::Padded(1, 5),
                ..base
            },
        ]);
    }
    // The matrix unit takes over from 5 tokens on, works on 32 query rows and 32 positions at a time, 64 to a block.
    for tokens in [4, 5, 32, 33] {
        for kv in [1, 31, 32, 33, 63, 64, 65, 129] {
            let heads = if tokens == 5 { 6 } else { 2 };
            list.push(Attention {
                dk: 40,
                dv: 40,
                tokens,
                kv: kv.max(tokens),
                heads,
                kv_heads: 2,
                ..PLAIN
            });
        }
    }
    list.extend([
        // Partial results of all rows do not fit 256 KiB of scratch memory, so they are made in groups.
        Attention {
            dk: 8,
            dv: 8,
            tokens: 4,
            kv: 2048,
            heads: 64,
            kv_heads: 1,
            ..PLAIN
        },
        // Those of one group do not fit it.
        Attention {
            dk: 8,
            dv: 512,
            tokens: 1,
            kv: 2048,
            ..PLAIN
        },
    ]);
    let mut cases: Vec<Case> = list.into_iter().map(Attention::case).collect();
    let mut half = PLAIN.case().named("F16 queries");
    half.srcs[0] = half.srcs[0].take().map(|q| Operand { dtype: DType::F16, ..q });
    cases.push(half);
    cases
}
