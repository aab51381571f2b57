use arc_swap::ArcSwap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use tollgate_limit::{Cell, Change, Limit, Time};

/// A limit and its state.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) limit: Limit,
    pub(crate) cell: Cell,
}

/// A gate that can be replaced while it is used. One that never was costs nothing more to pass.
#[derive(Debug)]
pub(crate) struct LiveGate {
    first: Gate,
    later: OnceLock<ArcSwap<Gate>>,
    changing: Mutex<()>,
}

impl LiveGate {
    pub(crate) fn new(limit: Limit, now: Time) -> LiveGate {
        let first = Gate { limit, cell: Cell::new(&limit, now) };
        LiveGate { first, later: OnceLock::new(), changing: Mutex::new(()) }
    }

    /// The gate that was there first. It refuses everything once it was replaced.
    #[inline(always)]
    pub(crate) fn first(&self) -> &Gate {
        &self.first
    }

    /// Asks at the gate in force. A refusal by one that was just replaced is none: the next one is asked.
    pub(crate) fn ask<R>(&self, ask: impl Fn(&Gate) -> R, is_refusal: impl Fn(&R) -> bool) -> R {
        loop {
            let later = self.later.get().map(ArcSwap::load_full);
            let gate = later.as_deref().unwrap_or(&self.first);
            let answer = ask(gate);
            if !is_refusal(&answer) || !gate.cell.has_moved() {
                return answer;
            }
            thread::yield_now();
        }
    }

    /// Asks at the gate in force, which is not replaced meanwhile.
    pub(crate) fn hold<R>(&self, ask: impl FnOnce(&Gate) -> R) -> R {
        let _no_change = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let later = self.later.get().map(ArcSwap::load_full);
        ask(later.as_deref().unwrap_or(&self.first))
    }

    /// Puts another limit in place and takes over what was kept under the one before.
    pub(crate) fn change(&self, to: Limit, change: Change, now: Time) {
        self.hold(|gate| {
            let cell = gate.cell.hand_over(&gate.limit, &to, change, now);
            let next = Arc::new(Gate { limit: to, cell });
            self.later.get_or_init(|| ArcSwap::new(Arc::clone(&next))).store(next);
        });
    }
}
