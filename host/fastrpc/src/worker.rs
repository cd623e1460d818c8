//! A thread for calls that may never come back: they wait for a DSP, and the driver gives them no deadline.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use hexloom::transport::TransportError;

type Work = Box<dyn FnOnce() + Send>;
type Rescue = Arc<dyn Fn() + Send + Sync>;

/// Longest wait for a call to come back once its process has been killed.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// Runs calls one after another, in the order in which they were given.
///
/// One that does not come back in time is helped by `rescue`, which kills the process that it waits for, so that it ends
/// with an error and what follows, the giving back above all, goes on. One that does not come back even then keeps the
/// thread: what is given after it is refused, and done only should it come back after all.
pub(crate) struct Worker {
    calls: Mutex<Sender<Work>>,
    timeout: Duration,
    rescue: Rescue,
    is_stuck: AtomicBool,
}

impl Worker {
    pub(crate) fn new(timeout: Duration, rescue: impl Fn() + Send + Sync + 'static) -> Result<Self, TransportError> {
        let (calls, queue) = channel::<Work>();
        spawn(move || queue.into_iter().for_each(|call| call()))?;
        Ok(Self {
            calls: Mutex::new(calls),
            timeout,
            rescue: Arc::new(rescue),
            is_stuck: AtomicBool::new(false),
        })
    }

    /// Runs a call and gives what it gives; an error when the time was over before it came back.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        name: &'static str,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, TransportError> {
        let (done, wait) = sync_channel(1);
        self.give(move || {
            // Whoever waited may have given up; then what came of it is dropped here, where dropping may wait, too.
            let _ = done.send(call());
        });
        if self.is_stuck.load(Ordering::Acquire) {
            return Err(TransportError::Dead(
                "an earlier call to the DSP never came back".into(),
            ));
        }
        if let Ok(result) = wait.recv_timeout(self.timeout) {
            return Ok(result);
        }
        log::error!(
            "{name} has not come back within {:?}; its process is killed",
            self.timeout
        );
        let rescue = Arc::clone(&self.rescue);
        if let Err(error) = spawn(move || rescue()) {
            log::error!("{error}");
        }
        match wait.recv_timeout(self.timeout.min(LAST_WAIT)) {
            Ok(late) => self.give(move || drop(late)),
            Err(_) => {
                self.is_stuck.store(true, Ordering::Release);
                log::error!("{name} does not come back; what its session holds is lost until this program ends");
            }
        }
        Err(TransportError::Timeout(self.timeout))
    }

    fn give(&self, work: impl FnOnce() + Send + 'static) {
        // The thread takes work for as long as this is there.
        let _ = self
            .calls
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .send(Box::new(work));
    }
}

fn spawn(body: impl FnOnce() + Send + 'static) -> Result<(), TransportError> {
    let thread = thread::Builder::new().name("hexloom-fastrpc".to_owned()).spawn(body);
    thread.map(drop).map_err(|error| TransportError::Call {
        call: "a thread for calls",
        reason: error.to_string(),
        code: error.raw_os_error().unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    #[test]
    fn calls_give_what_they_give_in_order() {
        let worker = Worker::new(Duration::from_secs(20), || panic!("nothing is late")).expect("a thread");
        let first = worker.run("first", || thread::current().id());
        assert_eq!(first, worker.run("second", || thread::current().id()));
        assert_ne!(first, Ok(thread::current().id()));
    }

    #[test]
    fn a_call_that_is_rescued_keeps_nothing_from_what_follows() {
        let (free, held) = channel();
        let worker = Worker::new(SHORT, move || free.send(()).expect("the call waits")).expect("a thread");
        let stuck = worker.run("stuck", move || held.recv().is_ok());
        assert_eq!(stuck, Err(TransportError::Timeout(SHORT)));
        assert_eq!(worker.run("next", || 1), Ok(1));
    }

    #[test]
    fn what_comes_back_late_is_dropped_where_calls_run() {
        struct Tells(Sender<thread::ThreadId>);
        impl Drop for Tells {
            fn drop(&mut self) {
                self.0.send(thread::current().id()).expect("the test waits");
            }
        }
        let (free, held) = channel::<()>();
        let worker = Worker::new(SHORT, move || free.send(()).expect("the call waits")).expect("a thread");
        let (told, tells) = channel();
        let late = worker.run("late", move || (held.recv().is_ok(), Tells(told)).1);
        assert!(matches!(late, Err(TransportError::Timeout(_))));
        assert_eq!(
            worker.run("which", || thread::current().id()),
            Ok(tells.recv().expect("it was dropped"))
        );
    }

    #[test]
    fn a_call_that_never_comes_back_ends_in_an_error() {
        let worker = Worker::new(SHORT, || {}).expect("a thread");
        let (hold, held) = channel::<()>();
        let stuck = worker.run("stuck", move || held.recv().is_ok());
        assert_eq!(stuck, Err(TransportError::Timeout(SHORT)));
        let (tell, told) = channel();
        let next = worker.run("next", move || tell.send(1));
        assert!(matches!(next, Err(TransportError::Dead(_))));
        drop(hold);
        assert_eq!(told.recv(), Ok(1), "it is done once the first is back");
    }
}
