//! What the ledger is to whoever talks to the others. There is to be only one of those, who alone closes accounts.

use super::account::{CLOSING, FREE};
use super::marks::Marks;
use super::{Account, AccountId, Ledger, Loan};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use tollgate_limit::Time;

impl Ledger {
    /// The accounts that somebody should look at soon.
    pub fn take_urgent(&self) -> Vec<AccountId> {
        self.taken(&self.urgent)
    }

    /// The accounts that were used since this was last asked.
    pub fn take_touched(&self) -> Vec<AccountId> {
        self.taken(&self.touched)
    }

    fn taken(&self, marks: &Marks) -> Vec<AccountId> {
        marks.take().filter_map(|index| self.id(index)).collect()
    }

    /// Which bucket it is of.
    pub fn account(&self, id: AccountId) -> Option<Arc<Account>> {
        self.slot(id)?.account.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What was spent and nobody knows, which the caller takes it upon itself to tell.
    pub fn take_untold(&self, id: AccountId) -> i64 {
        self.slot(id).map_or(0, |slot| slot.tokens.empty(id.era))
    }

    /// What was spent while nobody could be told, which the caller takes it upon itself to tell.
    pub fn take_owed(&self, id: AccountId) -> u64 {
        self.slot(id).map_or(0, |slot| slot.owed.empty(id.era).max(0).unsigned_abs())
    }

    /// The same for somebody who learns later whether it was heard, and then says so by [`paid`](Ledger::paid).
    pub fn take_to_pay(&self, id: AccountId) -> u64 {
        self.set_paying(id, true);
        self.take_owed(id)
    }

    /// Says what came of that, and how much of it is still owed.
    pub fn paid(&self, id: AccountId, unpaid: u64) {
        if unpaid > 0 {
            self.owe_again(id, unpaid);
        }
        self.set_paying(id, false);
    }

    fn set_paying(&self, id: AccountId, is_paying: bool) {
        if let Some(slot) = self.slot(id) {
            slot.is_paying.store(is_paying, Ordering::Release);
        }
    }

    /// Whether something is being paid, of which nobody knows yet whether it will be owed again.
    pub(super) fn is_paying(&self, id: AccountId) -> bool {
        self.slot(id).is_some_and(|slot| slot.is_paying.load(Ordering::Acquire))
    }

    /// Whether there is anything that was spent while nobody could be told.
    pub fn is_owing(&self, id: AccountId) -> bool {
        self.slot(id).is_some_and(|slot| slot.owed.tokens(id.era).is_some_and(|owed| owed > 0))
    }

    /// Says that what was taken to be told could not be.
    pub fn owe_again(&self, id: AccountId, tokens: u64) {
        if !self.add_owed(id, tokens) {
            self.unrecorded.fetch_add(tokens, Ordering::Relaxed);
        }
    }

    /// Says that an account that was used could not be looked at yet: somebody is about to open it.
    pub fn look_again(&self, id: AccountId) {
        self.touched.set(id.index);
    }

    /// What was spent since, or is left in hand.
    pub fn tokens(&self, id: AccountId) -> i64 {
        self.slot(id).and_then(|slot| slot.tokens.tokens(id.era)).unwrap_or(0)
    }

    /// Until when what is in hand can be spent.
    pub fn lapses_at(&self, id: AccountId) -> Time {
        self.slot(id).map_or(Time::ZERO, |slot| Time::from_nanos(slot.until.load(Ordering::Relaxed)))
    }

    /// Calls when so many tokens are in hand, or fewer.
    pub fn call_when_left(&self, id: AccountId, tokens: u64) {
        self.set_threshold(id, tokens);
    }

    /// Calls when so many tokens were spent and not told: at once, if they were already.
    pub fn call_when_spent(&self, id: AccountId, tokens: u64) {
        let threshold = self.set_threshold(id, tokens);
        // Whoever has spent them before did not know of it.
        if threshold.is_some_and(|threshold| self.tokens(id) >= threshold) {
            self.call(id.index);
        }
    }

    fn set_threshold(&self, id: AccountId, tokens: u64) -> Option<i64> {
        let tokens = i64::try_from(tokens).unwrap_or(i64::MAX);
        self.slot(id)?.threshold.swap(tokens, Ordering::SeqCst);
        Some(tokens)
    }

    /// Tokens that were wanted since this was last asked, in hand or not.
    pub fn take_wanted(&self, id: AccountId) -> u64 {
        self.slot(id).map_or(0, |slot| slot.wanted.swap(0, Ordering::Relaxed))
    }

    /// Puts tokens into the hand. What was there stays, unless its time has run out.
    pub fn lend(&self, id: AccountId, loan: Loan, now: Time) {
        let Some(slot) = self.slot(id) else { return };
        let tokens = i64::try_from(loan.tokens).unwrap_or(i64::MAX);
        let has_lapsed = !slot.is_lent(now);
        let _ =
            slot.tokens.change(id.era, |before| Some(if has_lapsed { tokens } else { before.saturating_add(tokens) }));
        slot.left.store(loan.left, Ordering::Relaxed);
        slot.full_at.store(loan.full_at.as_nanos(), Ordering::Relaxed);
        slot.refused_until.store(0, Ordering::Relaxed);
        slot.until.store(loan.until.as_nanos(), Ordering::Release);
    }

    /// Says that there are no tokens to be had until then, so that nobody need ask.
    pub fn refuse(&self, id: AccountId, until: Time, full_at: Time) {
        if let Some(slot) = self.slot(id) {
            slot.full_at.store(full_at.as_nanos(), Ordering::Relaxed);
            slot.refused_until.store(until.as_nanos(), Ordering::Relaxed);
        }
    }

    /// Takes everything out of the hand. Says how much of it could still have been spent.
    pub fn take_back(&self, id: AccountId, now: Time) -> u64 {
        let Some(slot) = self.slot(id) else { return 0 };
        let until = Time::from_nanos(slot.until.swap(0, Ordering::AcqRel));
        let tokens = slot.tokens.empty(id.era);
        if until > now { tokens.max(0).unsigned_abs() } else { 0 }
    }

    /// Closes an account in which nothing is. Says whether it did.
    pub fn close(&self, id: AccountId) -> bool {
        let Some(slot) = self.slot(id) else { return true };
        if slot.owed.tokens(id.era) != Some(0) {
            return false;
        }
        slot.tag.store(CLOSING, Ordering::Release);
        if !slot.owed.end(id.era) || !slot.tokens.end(id.era) {
            // Nobody knows of the era to come, so nothing can be in it.
            slot.owed.resume(id.era);
            slot.tag.store(id.tag, Ordering::Release);
            return false;
        }
        slot.clear();
        slot.tag.store(FREE, Ordering::Release);
        true
    }
}
