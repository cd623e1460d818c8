//! Random histories of a session: models that come and go, caches that grow and shrink, tokens in between.
//!
//! A history is a list of tensors and events, known before anything is planned, so that every way of planning replays
//! the same one. Live bytes never pass the share of the window that was asked for.

use super::space::scramble;

/// Tensors of one allocation, by name and bytes, in order of use.
pub type Tensors = Vec<(String, u64)>;

/// What happens in a session. Groups are numbered by allocation and never used again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A model's weights, cache and computed tensors come.
    Load {
        /// Number of the model.
        model: usize,
        /// Its weights.
        weights: Tensors,
        /// Its KV cache.
        cache: Tensors,
        /// Buffers of its graphs.
        compute: Tensors,
    },
    /// The cache of a model is made anew with other sizes.
    Resize {
        /// Number of the model.
        model: usize,
        /// The new cache.
        cache: Tensors,
        /// Whether the old one is live until the new one is filled.
        copies: bool,
    },
    /// A model goes.
    Unload {
        /// Number of the model.
        model: usize,
    },
    /// All models evaluate so many tokens each, in turn.
    Tokens(u32),
}

/// What histories are made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HistoryOptions {
    /// Bytes of the window.
    pub window_bytes: u64,
    /// Most live bytes, in thousandths of the window.
    pub live_permille: u64,
    /// Events that change what is live.
    pub changes: usize,
    /// Models that are live together at most.
    pub models_max: usize,
}

impl HistoryOptions {
    /// Thirty changes with up to three models and at most 98 % of a window live.
    pub const fn new(window_bytes: u64) -> Self {
        Self {
            window_bytes,
            live_permille: 980,
            changes: 30,
            models_max: 3,
        }
    }

    /// The history with number `seed`.
    pub fn history(&self, seed: u64) -> Vec<Event> {
        let mut maker = Maker {
            options: *self,
            random: Random(scramble(seed)),
            live: Vec::new(),
            next_model: 0,
        };
        let mut events = Vec::new();
        while events.len() < 2 * self.changes {
            events.push(maker.change());
            events.push(Event::Tokens(1 + maker.random.below(3) as u32));
        }
        events
    }
}

/// A live model while a history is made.
struct Live {
    model: usize,
    layers: u64,
    cache_bytes_per_token: u64,
    fixed_bytes: u64,
    cache_bytes: u64,
}

struct Maker {
    options: HistoryOptions,
    random: Random,
    live: Vec<Live>,
    next_model: usize,
}

impl Maker {
    fn change(&mut self) -> Event {
        let full = self.live.len() == self.options.models_max;
        match (self.live.len(), self.random.below(10)) {
            (0, _) => self.load(),
            (_, 0..=3) if !full => self.load(),
            (_, 4..=6) => self.resize(),
            (_, _) if full || self.random.below(2) == 0 => self.unload(),
            _ => self.resize(),
        }
    }

    fn room(&self) -> u64 {
        let live: u64 = self.live.iter().map(|live| live.fixed_bytes + live.cache_bytes).sum();
        let most = u128::from(self.options.window_bytes) * u128::from(self.options.live_permille) / 1000;
        (most as u64).saturating_sub(live)
    }

    fn load(&mut self) -> Event {
        let room = self.room();
        // Smaller and smaller until it fits with some cache; what is always fits in the end, or another model goes.
        for shrink in 0..8 {
            let target = (room / 100 * (20 + self.random.below(78))) >> shrink;
            let shape = Shape::random(&mut self.random, target);
            let (weights, compute) = (shape.weights(), shape.compute(&mut self.random));
            let fixed_bytes = sum(&weights) + sum(&compute);
            let per_token = shape.cache_bytes_per_token();
            let least = per_token * shape.layers * 2 * 256;
            if fixed_bytes + least > room {
                continue;
            }
            let model = self.next_model;
            self.next_model += 1;
            self.live.push(Live {
                model,
                layers: shape.layers,
                cache_bytes_per_token: per_token,
                fixed_bytes,
                cache_bytes: 0,
            });
            let cache = self.cache(self.live.len() - 1, room - fixed_bytes);
            return Event::Load {
                model,
                weights,
                cache,
                compute,
            };
        }
        if self.live.is_empty() {
            Event::Tokens(1)
        } else {
            self.unload()
        }
    }

    fn resize(&mut self) -> Event {
        let at = self.random.below(self.live.len() as u64) as usize;
        let old = self.live[at].cache_bytes;
        let copies = self.random.below(2) == 0;
        let room = if copies { self.room() } else { self.room() + old };
        let layer_bytes = self.live[at].cache_bytes_per_token * 256 * 2 * self.live[at].layers;
        if room < layer_bytes {
            return self.unload();
        }
        let model = self.live[at].model;
        let cache = self.cache(at, room);
        Event::Resize { model, cache, copies }
    }

    fn unload(&mut self) -> Event {
        let at = self.random.below(self.live.len() as u64) as usize;
        let model = self.live.remove(at).model;
        Event::Unload { model }
    }

    /// A cache for a random context that takes at most `room` bytes; every third one takes all of it.
    fn cache(&mut self, at: usize, room: u64) -> Tensors {
        let live = &mut self.live[at];
        let step = live.cache_bytes_per_token * 256;
        let most = (room / (step * 2 * live.layers)).max(1);
        let steps = match self.random.below(3) {
            0 => most,
            _ => 1 + self.random.below(most.min(64)),
        };
        live.cache_bytes = steps * step * 2 * live.layers;
        let names = (0..live.layers).flat_map(|layer| [format!("cache_k_l{layer}"), format!("cache_v_l{layer}")]);
        names.map(|name| (name, steps * step)).collect()
    }
}

/// A model of the Llama family.
struct Shape {
    layers: u64,
    embd: u64,
    kv: u64,
    ff: u64,
    vocab: u64,
    /// Sixteenths of a bit a weight.
    bits: u64,
    tied: bool,
}

impl Shape {
    /// About `target` bytes of weights.
    fn random(random: &mut Random, target: u64) -> Self {
        let bits = [72, 80, 136, 256][random.below(4) as usize];
        let vocab = [32_000, 49_152, 51_864, 128_256, 151_936][random.below(5) as usize];
        let tied = random.below(2) == 0;
        let share = [4, 2, 8, 1][random.below(4) as usize];
        let ff_quarters = 8 + random.below(9);
        let layers = 6 + random.below(31);
        // Largest width, in steps of 64, that stays below the target.
        let mut shape = Self {
            layers,
            embd: 0,
            kv: 0,
            ff: 0,
            vocab,
            bits,
            tied,
        };
        for embd in (256..=5120).step_by(64) {
            let wider = Self {
                embd,
                kv: (embd / share).next_multiple_of(32),
                ff: (embd * ff_quarters / 4).next_multiple_of(32),
                ..shape
            };
            if shape.embd > 0 && wider.weight_bytes() > target {
                break;
            }
            shape = wider;
        }
        shape
    }

    fn matrix(&self, rows: u64, columns: u64) -> u64 {
        rows * columns * self.bits / 128
    }

    fn weight_bytes(&self) -> u64 {
        sum(&self.weights())
    }

    fn cache_bytes_per_token(&self) -> u64 {
        self.kv * 2
    }

    fn weights(&self) -> Tensors {
        let Self {
            embd, kv, ff, vocab, ..
        } = *self;
        let mut all = vec![("token_embd.weight".to_owned(), self.matrix(vocab, embd))];
        for layer in 0..self.layers {
            let mut add = |part: &str, bytes| all.push((format!("blk.{layer}.{part}.weight"), bytes));
            add("attn_norm", embd * 4);
            add("attn_q", self.matrix(embd, embd));
            add("attn_k", self.matrix(kv, embd));
            add("attn_v", self.matrix(kv, embd));
            add("attn_output", self.matrix(embd, embd));
            add("ffn_norm", embd * 4);
            add("ffn_gate", self.matrix(ff, embd));
            add("ffn_up", self.matrix(ff, embd));
            add("ffn_down", self.matrix(embd, ff));
        }
        all.push(("output_norm.weight".to_owned(), embd * 4));
        if !self.tied {
            all.push(("output.weight".to_owned(), self.matrix(vocab, embd)));
        }
        all
    }

    /// Buffers of a decode step and of a prompt piece.
    fn compute(&self, random: &mut Random) -> Tensors {
        let row = 4 * (6 * self.embd + 3 * self.ff + self.vocab / 8);
        vec![
            ("decode".to_owned(), row + 4 * self.vocab),
            ("prompt".to_owned(), row * (32 << random.below(4))),
        ]
    }
}

fn sum(tensors: &Tensors) -> u64 {
    tensors.iter().map(|(_, bytes)| bytes.next_multiple_of(128)).sum()
}

/// The same numbers on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        scramble(self.0) % n.max(1)
    }
}
