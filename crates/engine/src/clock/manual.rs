use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;
use tollgate_limit::Time;

/// The hands of a clock made by [`Clock::manual`](crate::Clock::manual).
#[derive(Clone, Default)]
pub struct ManualClock(Arc<Inner>);

#[derive(Default)]
struct Inner {
    nanos: AtomicU64,
    /// Tasks to wake when the hands are moved.
    waiting: Mutex<Vec<Waker>>,
    moved: Condvar,
}

impl ManualClock {
    /// What the clock shows.
    pub fn now(&self) -> Time {
        Time::from_nanos(self.0.nanos.load(Ordering::SeqCst))
    }

    /// Moves the hands forward, and wakes whoever waits for it.
    pub fn advance(&self, by: Duration) {
        self.set(self.now() + by);
    }

    /// Moves the hands to `time`, which may lie in the past.
    pub fn set(&self, time: Time) {
        let mut waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.nanos.store(time.as_nanos(), Ordering::SeqCst);
        self.0.moved.notify_all();
        let woken = std::mem::take(&mut *waiting);
        // Who is woken may look at the clock at once, on this very thread.
        drop(waiting);
        woken.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn wait_until(&self, time: Time) {
        let mut waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        while self.now() < time {
            waiting = self.0.moved.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether it is `time`; if not, the task is woken when the hands are next moved.
    #[cfg(feature = "async")]
    pub(crate) fn poll_until(&self, time: Time, waker: &Waker) -> bool {
        let mut waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if self.now() >= time {
            return true;
        }
        if !waiting.iter().any(|known| known.will_wake(waker)) {
            waiting.push(waker.clone());
        }
        false
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ManualClock({})", self.now())
    }
}
