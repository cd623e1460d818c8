//! A thread for calls that may never come back: they wait for a DSP, and the driver gives them no deadline.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use hexloom::transport::TransportError;

type Work = Box<dyn FnOnce() + Send>;

/// Runs calls one after another. One that does not come back keeps its thread, and no other is begun.
pub(crate) struct Worker {
    calls: Mutex<Sender<Work>>,
    timeout: Duration,
    is_stuck: AtomicBool,
}

impl Worker {
    pub(crate) fn new(timeout: Duration) -> Result<Self, TransportError> {
        let (calls, queue) = channel::<Work>();
        let body = move || queue.into_iter().for_each(|call| call());
        let thread = thread::Builder::new().name("hexloom-fastrpc".to_owned()).spawn(body);
        thread.map_err(|error| TransportError::Call {
            call: "a thread for calls",
            reason: error.to_string(),
            code: error.raw_os_error().unwrap_or(0),
        })?;
        Ok(Self {
            calls: Mutex::new(calls),
            timeout,
            is_stuck: AtomicBool::new(false),
        })
    }

    /// Runs a call and gives what it gives, at the latest when the time is over.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        name: &'static str,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, TransportError> {
        if self.is_stuck.load(Ordering::Acquire) {
            return Err(TransportError::Dead(
                "an earlier call to the DSP never came back".into(),
            ));
        }
        let (done, wait) = sync_channel(1);
        let work = Box::new(move || {
            // Whoever waited may have given up.
            let _ = done.send(call());
        });
        let sent = self.calls.lock().unwrap_or_else(PoisonError::into_inner).send(work);
        let result = sent.ok().and_then(|()| wait.recv_timeout(self.timeout).ok());
        result.ok_or_else(|| {
            self.is_stuck.store(true, Ordering::Release);
            log::error!("{name} has not come back within {:?}", self.timeout);
            TransportError::Timeout(self.timeout)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_give_what_they_give_in_order() {
        let worker = Worker::new(Duration::from_secs(20)).expect("a thread");
        let first = worker.run("first", || thread::current().id());
        assert_eq!(first, worker.run("second", || thread::current().id()));
        assert_ne!(first, Ok(thread::current().id()));
    }

    #[test]
    fn a_call_that_does_not_come_back_ends_in_an_error() {
        let timeout = Duration::from_millis(5);
        let worker = Worker::new(timeout).expect("a thread");
        let (hold, held) = channel::<()>();
        let stuck = worker.run("stuck", move || held.recv().is_ok());
        assert_eq!(stuck, Err(TransportError::Timeout(timeout)));
        assert!(matches!(worker.run("next", || 1), Err(TransportError::Dead(_))));
        drop(hold);
    }
}
