use crate::connection::NoAnswer;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a store has been asked so far, and how that went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Questions that it answered.
    pub answered: u64,
    /// Questions that were known to be refused, and not asked.
    pub remembered: u64,
    /// Questions that it did not answer within the budget, or a millisecond less, or for as long as anybody waited.
    pub late: u64,
    /// Questions that it hung up on.
    pub lost: u64,
    /// Questions that no request waited for, and that got no answer: what hosts tell and owe, which is said again, and what they
    /// give back, which is not.
    pub unheard: u64,
    /// Questions that it answered by an error, or by something else that is no answer.
    pub failed: u64,
    /// Questions that were not asked since there was no connection that works.
    pub unreachable: u64,
    /// Questions that were not asked since too many waited already.
    pub crowded: u64,
    /// Questions about limits that cannot be kept in a store.
    pub impossible: u64,
    /// Scripts that were sent again since the store had forgotten them.
    pub reloaded: u64,
    /// Connections that were tried.
    pub connects: u64,
}

/// The same, counting.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) answered: Counter,
    pub(crate) remembered: Counter,
    pub(crate) late: Counter,
    pub(crate) lost: Counter,
    pub(crate) unheard: Counter,
    pub(crate) failed: Counter,
    pub(crate) unreachable: Counter,
    pub(crate) crowded: Counter,
    pub(crate) impossible: Counter,
    pub(crate) reloaded: Counter,
    pub(crate) connects: Counter,
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Stats {
    /// A question got no answer, be it that no request waited for it.
    pub(crate) fn unanswered(&self, why: NoAnswer, is_patient: bool) {
        let counter = match why {
            _ if is_patient => &self.unheard,
            NoAnswer::Late => &self.late,
            NoAnswer::Never => &self.lost,
            NoAnswer::Full => &self.crowded,
        };
        counter.add();
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            answered: self.answered.read(),
            remembered: self.remembered.read(),
            late: self.late.read(),
            lost: self.lost.read(),
            unheard: self.unheard.read(),
            failed: self.failed.read(),
            unreachable: self.unreachable.read(),
            crowded: self.crowded.read(),
            impossible: self.impossible.read(),
            reloaded: self.reloaded.read(),
            connects: self.connects.read(),
        }
    }
}
