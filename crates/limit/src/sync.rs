//! Atomics and locks, which the model checker replaces by its own.

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

use std::sync::PoisonError;

/// Changes a word, as often as it takes for nobody to come in between. A word left as it was is not written.
#[inline(always)]
pub(crate) fn update<R>(word: &AtomicU64, step: impl Fn(&mut u64) -> R) -> R {
    let mut before = word.load(Ordering::Acquire);
    loop {
        let mut after = before;
        let result = step(&mut after);
        if after == before {
            return result;
        }
        match word.compare_exchange_weak(before, after, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return result,
            Err(changed) => before = changed,
        }
    }
}

/// Locks, also after a panic elsewhere: no state here is left half-written by one.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for another thread to take the few steps that are left to it.
#[cfg(not(loom))]
pub(crate) fn pause(attempts: u32) {
    match attempts {
        0..64 => std::hint::spin_loop(),
        // It must have been interrupted.
        _ => std::thread::yield_now(),
    }
}

/// The same for the model checker, which would also try to let two that wait take turns for ever while the third one, for
/// whom they wait, never runs. No scheduler does that.
#[cfg(loom)]
pub(crate) fn pause(attempts: u32) {
    if attempts > 1 {
        loom::skip_branch();
    }
    loom::thread::yield_now();
}
