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

    /// The limit, if it never was replaced.
    #[inline(always)]
    pub(crate) fn unchanged(&self) -> Option<&Limit> {
        if self.later.get().is_none() { Some(&self.first) } else { None }
    }

    /// The limit in force.
    pub(crate) fn get(&self) -> Limit {
        self.later.get().map_or(self.first, |later| **later.load())
    }

    /// Puts `to` in place and takes over what was kept under the limit before, one change at a time.
    pub(crate) fn change(&self, to: Limit, take_over: impl FnOnce(&Limit, &Limit)) {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let from = self.get();
        self.later.get_or_init(|| ArcSwap::from_pointee(from)).store(Arc::new(to));
        take_over(&from, &to);
    }
}
