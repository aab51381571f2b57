//! Executors as small as can be, each with another idea of when to poll.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// Polls once, for a task that nobody wakes.
pub(crate) fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Counts how often a task is woken.
#[derive(Default)]
pub(crate) struct Wakes(AtomicUsize);

impl Wakes {
    pub(crate) fn poll<F: Future>(self: &Arc<Self>, future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(&Waker::from(Arc::clone(self))))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Parks the thread between two polls.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Many tasks on one thread, of which those are polled that were woken.
pub(crate) struct Tasks<'a, T> {
    tasks: Vec<Task<'a, T>>,
}

struct Task<'a, T> {
    future: Pin<Box<dyn Future<Output = T> + 'a>>,
    woken: Arc<Woken>,
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl<T> Default for Tasks<'_, T> {
    fn default() -> Self {
        Tasks { tasks: Vec::new() }
    }
}

impl<'a, T> Tasks<'a, T> {
    pub(crate) fn spawn(&mut self, future: impl Future<Output = T> + 'a) {
        self.tasks.push(Task { future: Box::pin(future), woken: Arc::new(Woken(AtomicBool::new(true))) });
    }

    /// Polls whoever was woken, and returns what they finished with.
    pub(crate) fn run(&mut self) -> Vec<T> {
        let mut finished = Vec::new();
        self.tasks.retain_mut(|task| match task.poll() {
            Poll::Ready(output) => {
                finished.push(output);
                false
            }
            Poll::Pending => true,
        });
        finished
    }
}

impl<T> Task<'_, T> {
    fn poll(&mut self) -> Poll<T> {
        if !self.woken.0.swap(false, Ordering::SeqCst) {
            return Poll::Pending;
        }
        self.future.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&self.woken))))
    }
}

/// Polls now, and from then on whenever it is woken, on the waking thread, before `wake` returns.
pub(crate) fn poll_in_wake(future: impl Future<Output = ()> + Send + 'static) {
    Arc::new(InWake(Mutex::new(Some(Box::pin(future))))).wake();
}

struct InWake(Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>);

impl Wake for InWake {
    fn wake(self: Arc<Self>) {
        // Whoever is woken in the middle of a poll finds nothing to poll here.
        let Some(mut future) = self.0.lock().unwrap().take() else { return };
        if future.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&self)))).is_pending() {
            *self.0.lock().unwrap() = Some(future);
        }
    }
}
