//! What the window looks like with a model in it; and for a model that does not fit, which weights stream through.

use std::fmt::Write as _;

use hexloom::plan::buffers::{BufferLimits, BufferPlan, PAGE_BYTES, PlannedBuffer, TensorNeed};
use hexloom::plan::residency::{Stream, stream};
use hexloom::plan::window::svg::{self, Row};
use hexloom::plan::window::{Making, Need, Table, Window};
use hexloom_models::llama::LlamaConfig;

use crate::memory::Footprint;
use crate::output::{grouped, mib};

/// What the largest buffer is taken for: far beyond any window, and sums of such sizes stay below 2^64.
const LARGEST: u64 = 1 << 48;
/// Rows that a picture has at most.
const ROWS_MAX: usize = 120;

/// A model in a window.
#[derive(serde::Serialize)]
pub(super) struct WindowReport {
    /// Architecture number.
    arch: u32,
    bytes: u64,
    /// Buffers with guard and page rounding; `start` is where a first-fit window has them, if all fit at once.
    buffers: Vec<BufferReport>,
    /// The largest hole after everything is mapped, or after the first token's last batch.
    largest_hole_bytes: u64,
    /// For a model larger than the window.
    stream: Option<StreamReport>,
    /// Why it cannot stream either.
    stream_error: Option<String>,
    #[serde(skip)]
    rows: Vec<Row>,
}

#[derive(Clone, serde::Serialize)]
struct BufferReport {
    name: String,
    bytes: u64,
    start: Option<u64>,
}

/// Weights that take turns.
#[derive(serde::Serialize)]
struct StreamReport {
    /// Bytes of the window that they take turns in.
    budget_bytes: u64,
    weight_buffers: Vec<u64>,
    maps_per_token: f64,
    bytes_per_token: f64,
    /// No schedule of these buffers has fewer maps.
    lower_bound: f64,
    proven: bool,
    /// Tokens after which the schedule repeats.
    period_tokens: usize,
    batches_per_token: usize,
    /// Buffers that are dropped and mapped again; all others stay.
    evict: Vec<String>,
}

impl WindowReport {
    pub(super) fn new(footprint: &Footprint, config: &LlamaConfig) -> Self {
        let fixed = fixed(footprint, config);
        let weights = footprint.weights.iter().flat_map(|weights| &weights.layout.buffers);
        let mut all = fixed.clone();
        all.extend(
            weights
                .enumerate()
                .map(|(idx, buffer)| named(format!("weights {idx}"), buffer.mapped_bytes())),
        );
        let mut report = Self {
            arch: footprint.limits.arch,
            bytes: footprint.window_bytes,
            buffers: all,
            largest_hole_bytes: 0,
            stream: None,
            stream_error: None,
            rows: Vec::new(),
        };
        if !report.place() {
            report.place_stream(footprint, &fixed);
        }
        report
    }

    /// Maps everything, largest first behind the pinned buffer; false when it does not fit.
    fn place(&mut self) -> bool {
        let needs = needs(&self.buffers);
        let mut table = Table::new(Window::new(self.bytes), Making::Stretch);
        if !(table.resolve(&needs[..1]) && table.resolve(&needs)) {
            return false;
        }
        for (id, start, _) in table.mappings() {
            self.buffers[id as usize].start = Some(start);
        }
        self.largest_hole_bytes = table.window().largest_hole();
        self.rows = vec![Row::of(
            &table,
            "all mapped".to_owned(),
            |id| self.buffers[id as usize].name.clone(),
            None,
        )];
        true
    }

    fn place_stream(&mut self, footprint: &Footprint, fixed: &[BufferReport]) {
        let fixed_bytes: u64 = fixed.iter().map(|buffer| buffer.bytes).sum();
        let budget_bytes = self.bytes.saturating_sub(fixed_bytes);
        let Some(weights) = &footprint.weights else { return };
        let tensors: Vec<TensorNeed<'_>> = weights
            .names
            .iter()
            .zip(&weights.tensor_bytes)
            .map(|(name, &bytes)| TensorNeed::new(name, bytes))
            .collect();
        let limits = BufferLimits::new(self.arch, budget_bytes);
        let stream = match stream(&tensors, &weights.uses, &limits) {
            Ok(stream) => stream,
            Err(error) => {
                self.stream_error = Some(match budget_bytes {
                    0 => format!(
                        "cache, computed tensors and queue alone take {} bytes of the window's {}; a smaller --ctx may help",
                        grouped(fixed_bytes),
                        grouped(self.bytes)
                    ),
                    _ => error.to_string(),
                });
                return;
            }
        };
        let streamed = stream.cycle.buffer_bytes.iter().enumerate();
        self.buffers = fixed.to_vec();
        self.buffers
            .extend(streamed.map(|(idx, &bytes)| named(format!("weights {idx}"), bytes)));
        self.play(&stream, fixed.len());
        let steps = || stream.schedule.tokens.iter().flatten();
        let evicted = |idx: &usize| steps().any(|step| step.drop.contains(idx));
        self.stream = Some(StreamReport {
            budget_bytes,
            weight_buffers: stream.cycle.buffer_bytes.clone(),
            maps_per_token: stream.placed_maps_per_token,
            bytes_per_token: stream.schedule.bytes_per_token(),
            lower_bound: stream.schedule.lower_bound,
            proven: stream.schedule.proven,
            period_tokens: stream.schedule.tokens.len(),
            batches_per_token: stream.cycle.batches.len(),
            evict: (0..stream.cycle.buffer_bytes.len())
                .filter(evicted)
                .map(|idx| format!("weights {idx}"))
                .collect(),
        });
    }

    /// Runs the schedule once in the window, a row for each batch.
    fn play(&mut self, stream: &Stream, n_fixed: usize) {
        let needs = needs(&self.buffers);
        let of = |buffers: &[usize]| buffers.iter().map(|&idx| needs[n_fixed + idx]).collect::<Vec<Need>>();
        let name = |id: u32| self.buffers[id as usize].name.clone();
        let mut table = Table::new(Window::new(self.bytes), Making::Stretch);
        table.resolve(&needs[..1]);
        table.resolve(&needs[..n_fixed]);
        table.resolve(&of(&stream.schedule.first));
        let mut rows = vec![Row::of(&table, "before".to_owned(), name, None)];
        let steps = stream.schedule.tokens.iter().enumerate();
        let steps =
            steps.flat_map(|(token, steps)| steps.iter().enumerate().map(move |(batch, step)| (token, batch, step)));
        for (token, batch, step) in steps.take(ROWS_MAX) {
            let drop: Vec<u32> = step.drop.iter().map(|&idx| (n_fixed + idx) as u32).collect();
            table.forget(&drop);
            table.resolve(&[&needs[..n_fixed], &of(&stream.cycle.batches[batch])].concat());
            let label = format!("token {token}, batch {batch}");
            rows.push(Row::of(&table, label, name, rows.last()));
        }
        self.largest_hole_bytes = table.window().largest_hole();
        self.rows = rows;
    }

    /// The picture for `--svg`.
    pub(super) fn picture(&self) -> String {
        let title = match &self.stream {
            None if self.rows.is_empty() => format!("does not fit a window of {} bytes", grouped(self.bytes)),
            None => format!(
                "{} buffers in a window of {} bytes, largest hole {} bytes",
                self.buffers.len(),
                grouped(self.bytes),
                grouped(self.largest_hole_bytes)
            ),
            Some(stream) => format!(
                "weights stream through {} bytes of a window of {}: {:.2} maps a token",
                grouped(stream.budget_bytes),
                grouped(self.bytes),
                stream.maps_per_token
            ),
        };
        svg::draw(&title, &self.rows, self.bytes)
    }

    pub(super) fn write(&self, text: &mut String) {
        if let Some(error) = &self.stream_error {
            let _ = writeln!(text, "cannot run in this window: {error}");
            return;
        }
        let Some(stream) = &self.stream else {
            let _ = writeln!(
                text,
                "largest hole with everything mapped: {} bytes ({})",
                grouped(self.largest_hole_bytes),
                mib(self.largest_hole_bytes)
            );
            return;
        };
        let _ = writeln!(
            text,
            "runs with weights that take turns in {}: {} buffers, {:.2} maps and {} per token, {} of {} buffers evicted",
            mib(stream.budget_bytes),
            stream.weight_buffers.len(),
            stream.maps_per_token,
            mib(stream.bytes_per_token as u64),
            stream.evict.len(),
            stream.weight_buffers.len(),
        );
        let _ = match stream.proven {
            true => writeln!(text, "no schedule of these buffers has fewer maps"),
            false => writeln!(
                text,
                "no schedule of these buffers has fewer than {:.2} maps per token",
                stream.lower_bound
            ),
        };
        let _ = writeln!(text, "evict: {}", stream.evict.join(", "));
    }
}

/// What stays mapped: the queue first, then cache and computed tensors.
fn fixed(footprint: &Footprint, config: &LlamaConfig) -> Vec<BufferReport> {
    let mut all = vec![named("queue and fences".to_owned(), footprint.pinned_bytes)];
    let layers = u64::from(config.n_layers).max(1);
    let names: Vec<String> = (0..layers)
        .flat_map(|layer| [format!("cache_k_l{layer}"), format!("cache_v_l{layer}")])
        .collect();
    let part = footprint.cache_bytes / (2 * layers);
    let needs: Vec<TensorNeed<'_>> = names.iter().map(|name| TensorNeed::new(name, part)).collect();
    match BufferPlan::new(&needs, &footprint.limits) {
        Ok(plan) => {
            let buffers = plan.buffers.iter().map(PlannedBuffer::mapped_bytes).enumerate();
            all.extend(buffers.map(|(idx, bytes)| named(format!("KV cache {idx}"), bytes)));
        }
        // Too large for the window in any case.
        Err(_) => all.push(named("KV cache".to_owned(), footprint.cache_bytes)),
    }
    all.push(named("compute".to_owned(), footprint.compute_bytes));
    all
}

fn named(name: String, bytes: u64) -> BufferReport {
    BufferReport {
        name,
        bytes: bytes.min(LARGEST).next_multiple_of(PAGE_BYTES),
        start: None,
    }
}

fn needs(buffers: &[BufferReport]) -> Vec<Need> {
    let numbered = (0u32..).zip(buffers);
    numbered
        .map(|(id, buffer)| Need {
            id,
            bytes: buffer.bytes,
        })
        .collect()
}
