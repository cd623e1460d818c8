//! What of a device is on its way: graphs in the order of their launch, and copies out that wait for those before them.
//!
//! Order is kept by waiting: a copy in, a copy between tensors, a change of layout and the end of a buffer all come after
//! everything that was launched before them, and graphs follow each other in the DSP's queue. A failure is told by the call
//! that waits if it can fail, otherwise by the next graph; what is read in between is no number.

use std::collections::VecDeque;
use std::sync::Arc;

use hexloom::prepared::Launched;

use super::{Entry, Graphs, Known};
use crate::buffer::{Memory, NO_RESULT};
use crate::device::DeviceState;
use crate::error::BackendError;

/// How many steps had begun at some moment.
pub(crate) type Mark = u64;

/// Steps that were begun and not waited for, oldest first.
#[derive(Default)]
pub(super) struct Flight {
    steps: VecDeque<Step>,
    n_begun: Mark,
    failed: bool,
}

#[expect(
    clippy::large_enum_variant,
    reason = "nearly every step is a graph, and a box would be an allocation for each run"
)]
pub(super) enum Step {
    Graph(Known, Launched),
    Read(Read),
}

/// Bytes that are copied out when everything before has ended.
pub(crate) struct Read {
    memory: Arc<Memory>,
    offset: u64,
    to: *mut u8,
    len: usize,
}

// SAFETY: ggml promises the address to one copy until the stream is synchronised, from whichever thread that is.
unsafe impl Send for Read {}

impl Read {
    /// # Safety
    /// `to` has `len` bytes that nobody else uses until the copy has been made.
    pub(crate) unsafe fn new(memory: Arc<Memory>, offset: u64, to: *mut u8, len: usize) -> Self {
        Self {
            memory,
            offset,
            to,
            len,
        }
    }

    fn make(self, failed: bool) -> Result<(), BackendError> {
        // SAFETY: the promise of `new`.
        let to = unsafe { std::slice::from_raw_parts_mut(self.to, self.len) };
        to.fill(NO_RESULT);
        match failed {
            true => Ok(()),
            false => self.memory.read_settled(self.offset, to),
        }
    }
}

impl Flight {
    /// The failure of an earlier graph, told once.
    pub(super) fn check(&mut self) -> Result<(), BackendError> {
        match std::mem::take(&mut self.failed) {
            true => Err(BackendError::Earlier),
            false => Ok(()),
        }
    }

    /// Whether a graph is on its way.
    pub(super) fn has(&self, is: impl Fn(&Known) -> bool) -> bool {
        let mut steps = self.steps.iter();
        steps.any(|step| matches!(step, Step::Graph(known, _) if is(known)))
    }

    pub(super) fn push(&mut self, step: Step) {
        self.steps.push_back(step);
        self.n_begun += 1;
    }

    fn n_done(&self) -> Mark {
        self.n_begun - self.steps.len() as Mark
    }
}

impl Graphs {
    /// Copies out, now or after what is on its way.
    pub(crate) fn read_later(&mut self, read: Read) -> Result<(), BackendError> {
        match self.flight.steps.is_empty() {
            true => read.make(self.flight.failed),
            false => {
                self.flight.push(Step::Read(read));
                Ok(())
            }
        }
    }

    /// What has begun so far.
    pub(crate) fn mark(&self) -> Mark {
        self.flight.n_begun
    }

    /// Waits for everything that is on its way; gives the first failure.
    pub(crate) fn finish(&mut self, device: &DeviceState) -> Result<(), BackendError> {
        self.finish_to(device, self.mark())
    }

    /// Waits for what had begun at `mark`, for callers that cannot fail: a failure is logged, and the next graph's.
    pub(crate) fn settle_to(&mut self, device: &DeviceState, mark: Mark) {
        if let Err(error) = self.finish_to(device, mark) {
            log::error!("waiting for {}: {error}", device.name.to_string_lossy());
            self.flight.failed = true;
        }
    }

    /// Keeps a failed graph in mind that its caller cannot tell: the next graph does.
    pub(crate) fn note(&mut self, error: &BackendError) {
        self.flight.failed |= matches!(error, BackendError::Run(_));
    }

    /// Whether what lies in memory is what a failed graph has left.
    pub(crate) fn has_failed(&self) -> bool {
        self.flight.failed
    }

    fn finish_to(&mut self, device: &DeviceState, mark: Mark) -> Result<(), BackendError> {
        let mut result = Ok(());
        while self.flight.n_done() < mark
            && let Some(step) = self.flight.steps.pop_front()
        {
            let step = match step {
                Step::Graph(known, launched) => self.finish_graph(device, known, launched),
                Step::Read(read) => read.make(result.is_err() || self.flight.failed),
            };
            result = result.and(step);
        }
        result
    }

    fn finish_graph(&mut self, device: &DeviceState, known: Known, launched: Launched) -> Result<(), BackendError> {
        let (prepared, result) = launched.wait();
        match result {
            Ok(()) => {
                self.keep(Entry { known, prepared });
                Ok(())
            }
            Err(error) => {
                device.reopen_after(&error)?;
                Err(error.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hexloom::abi::Opcode;
    use hexloom::abi::limits::MAX_PARAMS;
    use hexloom::abi::op::Shape;
    use hexloom::{DType, Graph};

    use super::super::Built;
    use super::*;
    use crate::device::Kind;
    use crate::event::EventState;

    /// Starts a graph that fills a tensor.
    fn launch(device: &'static DeviceState, number: u64) {
        let mut graphs = device.graphs();
        let entry = graphs.known_or(device, "fill", vec![number], |session| {
            let mut graph = Graph::new();
            let buffer = session.alloc("filled", 4096)?;
            let shape = Shape::dense(DType::F32, [32, 1, 1, 1]).unwrap();
            let [x, filled] = [0; 2].map(|_| graph.tensor_at("filled", shape, &buffer, 0, false).unwrap());
            graph.node("fill", Opcode::Fill, [0; MAX_PARAMS], vec![Some(x)], vec![filled])?;
            graph.output(filled);
            Ok(Built::of(graph))
        });
        graphs.launch(device, entry.unwrap()).unwrap();
    }

    #[test]
    fn an_event_waits_for_what_had_begun_and_for_no_more() {
        let device = DeviceState::new(0, Kind::Sim, false);
        // A graph's first launch waits for those before it, for its weights' layout.
        (1..=2).for_each(|number| launch(device, number));
        assert!(device.settle());
        let event = EventState::default();
        launch(device, 1);
        event.record(device);
        launch(device, 2);
        assert_eq!(device.graphs().flight.steps.len(), 2);
        event.wait();
        assert_eq!(device.graphs().flight.steps.len(), 1);
        event.wait();
        assert_eq!(device.graphs().flight.steps.len(), 1);
        assert!(device.settle());
        assert_eq!(device.graphs().flight.steps.len(), 0);
    }
}
