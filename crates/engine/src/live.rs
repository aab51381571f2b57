use arc_swap::ArcSwap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tollgate_limit::Limit;

/// A limit that can be replaced while it is used. One that never was costs a branch to read.
#[derive(Debug)]
pub(crate) struct LiveLimit {
    first: Limit,
    later: OnceLock<ArcSwap<Limit>>,
    changing: Mutex<()>,
}

impl LiveLimit {
    pub(crate) fn new(limit: Limit) -> LiveLimit {
        LiveLimit { first: limit, later: OnceLock::new(), changing: Mutex::new(()) }
    }

    #[inline]
    pub(crate) fn with<R>(&self, run: impl FnOnce(&Limit) -> R) -> R {
        match self.later.get() {
            None => run(&self.first),
            Some(later) => run(&later.load()),
        }
    }

    /// Puts `to` in place and takes over what was kept under the limit before, one change at a time.
    pub(crate) fn change(&self, to: Limit, take_over: impl FnOnce(&Limit, &Limit)) {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let from = self.with(|limit| *limit);
        self.later.get_or_init(|| ArcSwap::from_pointee(from)).store(Arc::new(to));
        take_over(&from, &to);
    }
}
