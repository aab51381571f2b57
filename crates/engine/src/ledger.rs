//! What this host has to tell those whom it counts together with, and what it holds that is theirs.
//!
//! Every bucket that is counted together and in use has an account here. Decisions only add to it or draw from it, with
//! one or two atomic operations; whoever talks to the others looks which accounts were touched, tells what was spent,
//! and closes those that are not used any more.
//!
//! Invariant: what was spent is either in an account's `tokens` or `owed`, or has been taken out by [`Ledger::take_untold`],
//! [`Ledger::take_owed`] or [`Ledger::take_to_pay`] by whoever tells it. Nothing is in both, so nothing is told twice.

mod account;
mod marks;
mod purse;
mod slot;
mod telling;

pub(crate) use account::Entry;
pub use account::{Account, AccountId};
pub(crate) use slot::Hand;
pub use slot::Loan;

use account::{CLOSING, FREE};
use marks::{Marks, WORD};
use slot::Slot;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use tollgate_limit::{Decision, Time};

/// Accounts that a bucket can be in. If all of them are taken by others, it is in none.
const WAYS: usize = 8;

/// How often an account is opened anew that was closed in the same moment, before the tokens count as lost.
const TRIES: usize = 4;

/// The accounts of a host.
pub struct Ledger {
    accounts: Box<[Slot]>,
    touched: Marks,
    urgent: Marks,
    bell: OnceLock<Box<dyn Fn() + Send + Sync>>,
    is_cut_off: AtomicBool,
    is_unsettled: AtomicBool,
    hosts: AtomicU64,
    unrecorded: AtomicU64,
}

impl Ledger {
    pub(crate) fn new(capacity: usize) -> Ledger {
        let count = capacity.next_multiple_of(WORD).clamp(WORD, 1 << 24);
        Ledger {
            accounts: (0..count).map(|_| Slot::default()).collect(),
            touched: Marks::new(count),
            urgent: Marks::new(count),
            bell: OnceLock::new(),
            is_cut_off: AtomicBool::new(true),
            is_unsettled: AtomicBool::new(false),
            hosts: AtomicU64::new(1),
            unrecorded: AtomicU64::new(0),
        }
    }

    /// Calls this when an account should be looked at soon. It runs in the midst of decisions.
    pub fn on_urgent(&self, bell: impl Fn() + Send + Sync + 'static) {
        let _ = self.bell.set(Box::new(bell));
    }

    /// Says whether the others can be reached. Until somebody says so, they cannot.
    pub fn set_cut_off(&self, is_cut_off: bool) {
        self.is_cut_off.store(is_cut_off, Ordering::Relaxed);
    }

    /// Whether the others cannot be reached, so that rules do what they say for failures.
    pub fn is_cut_off(&self) -> bool {
        self.is_cut_off.load(Ordering::Relaxed)
    }

    /// Says whether what was spent while the others could not be reached has been charged since. Unless somebody says so, it has.
    pub fn set_settled(&self, is_settled: bool) {
        self.is_unsettled.store(!is_settled, Ordering::Relaxed);
    }

    /// Whether a bucket has still to pay for what was spent of it while the others could not be reached.
    pub(crate) fn is_to_pay(&self, entry: Entry) -> bool {
        self.is_unsettled.load(Ordering::Relaxed) && self.debtor(entry).is_some_and(|id| self.is_owing(id))
    }

    /// Whether something is owed of a bucket, or is being paid and may be owed again.
    pub(crate) fn owes(&self, entry: Entry) -> bool {
        self.debtor(entry).is_some_and(|id| self.is_owing(id) || self.is_paying(id))
    }

    /// The account of a bucket, if there is anybody who pays.
    fn debtor(&self, entry: Entry) -> Option<AccountId> {
        self.bell.get().and_then(|_| self.find(entry))
    }

    /// Says how many hosts there are, this one included.
    pub fn set_hosts(&self, hosts: u64) {
        self.hosts.store(hosts.max(1), Ordering::Relaxed);
    }

    /// How many hosts there are as far as is known, this one included.
    pub fn hosts(&self) -> u64 {
        self.hosts.load(Ordering::Relaxed)
    }

    /// Tokens that were spent and could not be written down, since there were too many accounts.
    pub fn unrecorded(&self) -> u64 {
        self.unrecorded.load(Ordering::Relaxed)
    }

    /// How many accounts are open.
    pub fn accounts(&self) -> usize {
        self.accounts.iter().filter(|slot| slot.tag.load(Ordering::Relaxed) != FREE).count()
    }

    /// How many accounts there are room for.
    pub fn capacity(&self) -> usize {
        self.accounts.len()
    }

    /// The account of a bucket, if it has one.
    #[inline]
    pub(crate) fn find(&self, Entry(tag): Entry) -> Option<AccountId> {
        let start = self.first_of(tag);
        let way = self.ways(start)?.iter().position(|slot| slot.tag.load(Ordering::Acquire) == tag)?;
        self.id(u32::try_from(start + way).ok()?).filter(|id| id.tag == tag)
    }

    /// The same, opened if there is none. `None` if there is no room.
    pub(crate) fn open(&self, entry: Entry, account: impl FnOnce() -> Option<Account>) -> Option<AccountId> {
        if let Some(known) = self.find(entry) {
            return Some(known);
        }
        let (Entry(tag), account) = (entry, account()?);
        let start = self.first_of(tag);
        let ways = self.ways(start)?;
        let way = ways.iter().position(|slot| {
            let taken = slot.tag.compare_exchange(FREE, tag, Ordering::AcqRel, Ordering::Acquire);
            // Somebody else may open the same one in this moment.
            taken.map_or_else(|other| other == tag, |_| true)
        })?;
        let slot = ways.get(way)?;
        let mut known = slot.account.lock().unwrap_or_else(PoisonError::into_inner);
        // It may have been closed in between, and be somebody else's.
        if slot.tag.load(Ordering::Acquire) == tag {
            known.get_or_insert_with(|| Arc::new(account));
        }
        drop(known);
        self.id(u32::try_from(start + way).ok()?).filter(|id| id.tag == tag)
    }

    /// Whose account it is now. Only where the tag is nobody's eras come and go, so the two belong together if it is
    /// the same before and after.
    fn id(&self, index: u32) -> Option<AccountId> {
        let slot = self.accounts.get(index as usize)?;
        let tag = slot.tag.load(Ordering::Acquire);
        let era = slot.tokens.era();
        let is_whose = tag != FREE && tag != CLOSING && slot.tag.load(Ordering::Acquire) == tag;
        is_whose.then_some(AccountId { index, era, tag })
    }

    fn first_of(&self, tag: u64) -> usize {
        let sets = (self.accounts.len() / WAYS) as u128;
        ((u128::from(tag) * sets) >> 64) as usize * WAYS
    }

    fn ways(&self, start: usize) -> Option<&[Slot]> {
        self.accounts.get(start..start + WAYS)
    }

    /// Writes down what was spent, or given back if it is below zero. `false` if the account was closed.
    pub(crate) fn spend(&self, id: AccountId, tokens: i64) -> bool {
        let Some(slot) = self.slot(id) else { return false };
        let Some(before) = slot.tokens.add(id.era, tokens) else { return false };
        if before == 0 {
            self.touched.set(id.index);
        }
        let threshold = slot.threshold.load(Ordering::Relaxed);
        if before < threshold.max(1) && before.saturating_add(tokens) >= threshold {
            self.call(id.index);
        }
        true
    }

    /// The same for a bucket whose account may have been closed.
    pub(crate) fn spend_of(&self, entry: Entry, tokens: i64, account: impl Fn() -> Option<Account>) {
        let spent = (0..TRIES).any(|_| self.open(entry, &account).is_some_and(|id| self.spend(id, tokens)));
        if !spent {
            self.unrecorded.fetch_add(tokens.max(0).unsigned_abs(), Ordering::Relaxed);
        }
    }

    /// Writes down that more was spent in the end.
    pub(crate) fn charge(&self, account: &Account, tokens: u64) {
        self.spend_of(account.entry(), i64::try_from(tokens).unwrap_or(i64::MAX), || Some(account.clone()));
    }

    /// Writes down that less was spent in the end.
    pub(crate) fn give_back(&self, account: &Account, tokens: u64) {
        let tokens = i64::try_from(tokens).map_or(i64::MIN + 1, |tokens| -tokens);
        self.spend_of(account.entry(), tokens, || Some(account.clone()));
    }

    /// Writes down what was spent while nobody could be told, to be owed.
    pub(crate) fn owe(&self, entry: Entry, tokens: u64, account: impl Fn() -> Option<Account>) {
        let owed = (0..TRIES).any(|_| self.open(entry, &account).is_some_and(|id| self.add_owed(id, tokens)));
        if !owed {
            self.unrecorded.fetch_add(tokens, Ordering::Relaxed);
        }
    }

    /// `false` if the account was closed.
    fn add_owed(&self, id: AccountId, tokens: u64) -> bool {
        let owed = i64::try_from(tokens).unwrap_or(i64::MAX);
        let is_added = self.slot(id).is_some_and(|slot| slot.owed.add(id.era, owed).is_some());
        if is_added {
            self.touched.set(id.index);
        }
        is_added
    }

    /// What can be said about a cost without asking anybody.
    pub(crate) fn look(&self, id: AccountId, cost: u64, now: Time) -> Hand {
        let Some(slot) = self.slot(id) else { return Hand::Empty };
        let tokens = slot.tokens.tokens(id.era).unwrap_or(0);
        if i64::try_from(cost).is_ok_and(|cost| tokens >= cost) && slot.is_lent(now) {
            return Hand::Enough(slot.describe(tokens, 0, now));
        }
        let refused_until = Time::from_nanos(slot.refused_until.load(Ordering::Relaxed));
        if refused_until > now { Hand::Refused(slot.refuse(refused_until, now)) } else { Hand::Empty }
    }

    /// Says that somebody was refused by what this host knows, which may be out of date.
    pub(crate) fn doubt(&self, entry: Entry, account: impl FnOnce() -> Option<Account>) {
        if let Some((id, slot)) = self.open(entry, account).and_then(|id| Some((id, self.slot(id)?))) {
            self.count_wanted(slot, id, 1);
        }
    }

    /// Takes tokens that are in hand, all or none.
    pub(crate) fn draw(&self, id: AccountId, cost: u64, now: Time) -> Hand {
        let drawn = self.slot(id).and_then(|slot| self.draw_from(slot, id, cost, now));
        drawn.map_or_else(|| self.look(id, cost, now).without_hand(), Hand::Enough)
    }

    fn draw_from(&self, slot: &Slot, id: AccountId, cost: u64, now: Time) -> Option<Decision> {
        if !slot.is_lent(now) {
            return None;
        }
        let wanted = i64::try_from(cost).ok()?;
        let before = slot.tokens.change(id.era, |tokens| (tokens >= wanted).then(|| tokens - wanted))?;
        self.count_wanted(slot, id, cost);
        let threshold = slot.threshold.load(Ordering::Relaxed);
        if before > threshold && before - wanted <= threshold {
            self.call(id.index);
        }
        Some(slot.describe(before - wanted, cost, now))
    }

    /// Says that tokens are wanted that are not in hand.
    pub(crate) fn want(&self, id: AccountId, cost: u64) {
        if let Some(slot) = self.slot(id) {
            self.count_wanted(slot, id, cost);
            self.call(id.index);
        }
    }

    fn count_wanted(&self, slot: &Slot, id: AccountId, cost: u64) {
        if slot.wanted.fetch_add(cost, Ordering::Relaxed) == 0 {
            self.touched.set(id.index);
        }
    }

    /// Puts tokens back that were drawn and not used.
    pub(crate) fn put_back(&self, entry: Entry, tokens: u64) {
        let Some(id) = self.find(entry) else { return };
        if let Some(slot) = self.slot(id) {
            // Whoever closed the account in between has lost them: less, never more.
            let _ = slot.tokens.add(id.era, i64::try_from(tokens).unwrap_or(i64::MAX));
        }
    }

    /// Forgets what was spent of a bucket and nobody was told, what is in hand, and that there was no more.
    #[cfg(feature = "redis")]
    pub(crate) fn forget(&self, entry: Entry) {
        let Some((id, slot)) = self.find(entry).and_then(|id| Some((id, self.slot(id)?))) else { return };
        let _ = slot.tokens.empty(id.era);
        let _ = slot.owed.empty(id.era);
        slot.refused_until.store(0, Ordering::Relaxed);
    }

    fn call(&self, index: u32) {
        if self.urgent.set(index)
            && let Some(bell) = self.bell.get()
        {
            bell();
        }
    }

    /// The account with this number, if it still is the one that it was.
    fn slot(&self, id: AccountId) -> Option<&Slot> {
        let slot = self.accounts.get(id.index as usize)?;
        (slot.tag.load(Ordering::Acquire) == id.tag).then_some(slot)
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger")
            .field("capacity", &self.capacity())
            .field("is_cut_off", &self.is_cut_off())
            .field("hosts", &self.hosts())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
