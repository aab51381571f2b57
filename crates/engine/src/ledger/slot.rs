//! One account, and what can be said of what is in hand.

use super::account::Account;
use super::purse::Purse;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tollgate_limit::{Decision, Outcome, Retry, Time};

/// One account. Padded, so that no two of them are in the same line of a cache.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Slot {
    pub(super) tag: AtomicU64,
    /// What was spent and nobody was told yet; of tokens taken in advance, those that are left.
    pub(super) tokens: Purse,
    /// From how many on somebody is called: spent ones, or as few left.
    pub(super) threshold: AtomicI64,
    /// Tokens wanted since somebody last looked.
    pub(super) wanted: AtomicU64,
    /// What was spent while nobody could be told.
    pub(super) owed: Purse,
    /// Whether some of it was taken out, and may be put back.
    pub(super) is_paying: AtomicBool,
    /// Until when the tokens in hand can be spent.
    pub(super) until: AtomicU64,
    /// Until when it is known that there are no more.
    pub(super) refused_until: AtomicU64,
    pub(super) left: AtomicU64,
    pub(super) full_at: AtomicU64,
    pub(super) account: Mutex<Option<Arc<Account>>>,
}

impl Slot {
    /// Whether what is in hand can still be spent.
    pub(super) fn is_lent(&self, now: Time) -> bool {
        Time::from_nanos(self.until.load(Ordering::Relaxed)) > now
    }

    pub(super) fn clear(&self) {
        *self.account.lock().unwrap_or_else(PoisonError::into_inner) = None;
        for number in [&self.wanted, &self.until, &self.refused_until, &self.left, &self.full_at] {
            number.store(0, Ordering::Relaxed);
        }
        self.threshold.store(0, Ordering::Relaxed);
        self.is_paying.store(false, Ordering::Relaxed);
    }

    /// What a client is told who has, or could have, so many of the tokens in hand: what others have spent meanwhile is not in it.
    pub(super) fn describe(&self, tokens: i64, granted: u64, now: Time) -> Decision {
        let remaining = tokens.max(0).unsigned_abs().saturating_add(self.left.load(Ordering::Relaxed));
        Decision {
            outcome: Outcome::Allowed,
            granted,
            limit: 0,
            remaining,
            debt: 0,
            reset_after: self.reset_after(now),
        }
    }

    pub(super) fn refuse(&self, until: Time, now: Time) -> Decision {
        Decision {
            outcome: Outcome::Refused(Retry::After(until.since(now))),
            granted: 0,
            limit: 0,
            remaining: 0,
            debt: 0,
            reset_after: self.reset_after(now),
        }
    }

    fn reset_after(&self, now: Time) -> Duration {
        Time::from_nanos(self.full_at.load(Ordering::Relaxed)).since(now)
    }
}

/// Tokens that were taken elsewhere in advance, to be spent here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loan {
    /// How many.
    pub tokens: u64,
    /// Until when they can be spent.
    pub until: Time,
    /// What is left where they come from.
    pub left: u64,
    /// When that will be full again.
    pub full_at: Time,
}

/// What is known about a cost without asking anybody.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Hand {
    /// There are tokens for it in hand.
    Enough(Decision),
    /// There are none to be had before a while.
    Refused(Decision),
    /// Nothing: somebody has to be asked.
    Empty,
}

impl Hand {
    /// The same for somebody who found that there were too few after all.
    pub(super) fn without_hand(self) -> Hand {
        match self {
            Hand::Enough(_) => Hand::Empty,
            other => other,
        }
    }
}
