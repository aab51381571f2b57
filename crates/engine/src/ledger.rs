//! What this host has to tell those whom it counts together with, and what it holds that is theirs.
//!
//! Every bucket that is counted together and in use has an account here. Decisions only add to it or draw from it, with
//! one or two atomic operations; whoever talks to the others looks which accounts were touched, tells what was spent,
//! and closes those that are not used any more.
//!
//! Invariant: what was spent is either in an account's `tokens` or `owed`, or has been taken out by [`Ledger::take_untold`] or
//! [`Ledger::take_owed`] by whoever tells it. Nothing is in both, so nothing is told twice.

mod purse;

use purse::{Era, Purse};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tollgate_limit::{Decision, Limit, Outcome, Retry, Time};
use tollgate_rules::model::{ErrorBudget, Shared};

/// Accounts that a bucket can be in. If all of them are taken by others, it is in none.
const WAYS: usize = 8;

/// The tag of an account that nobody has, and of one that is being closed.
const FREE: u64 = 0;
const CLOSING: u64 = u64::MAX;

/// How often an account is opened anew that was closed in the same moment, before the tokens count as lost.
const TRIES: usize = 4;

/// Marks are kept so many together.
const WORD: usize = u64::BITS as usize;

/// The accounts of a host.
pub struct Ledger {
    accounts: Box<[Slot]>,
    touched: Marks,
    urgent: Marks,
    bell: OnceLock<Box<dyn Fn() + Send + Sync>>,
    is_cut_off: AtomicBool,
    hosts: AtomicU64,
    unrecorded: AtomicU64,
}

/// Which bucket an account is of.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// The limit, the same on every host.
    pub limit_id: u64,
    /// The client's key, [encoded](tollgate_rules::identity::Key::encode).
    pub client: Box<[u8]>,
    /// How much is allowed.
    pub limit: Limit,
    /// How hosts count together.
    pub shared: Shared,
    /// What all of them may hide.
    pub error_budget: ErrorBudget,
    /// Whether this host counts its share while the others cannot be reached.
    pub(crate) counts_here: bool,
    /// The client's fingerprint on this host.
    pub(crate) fingerprint: u64,
}

impl Account {
    /// Where this host counts it.
    pub fn bucket(&self) -> (u64, u64) {
        (self.limit_id, self.fingerprint)
    }

    /// What it is found by.
    pub(crate) fn entry(&self) -> Entry {
        Entry::new(self.bucket(), self.shared)
    }
}

/// What an account is found by: a bucket, and how it is shared. When a rule says otherwise from now on, what is in the account
/// of before is still told, or given back, as it was meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry(u64);

impl Entry {
    #[inline]
    pub(crate) fn new((limit_id, fingerprint): (u64, u64), shared: Shared) -> Entry {
        let mode: u64 = match shared {
            Shared::Local | Shared::Cluster | Shared::Store => 0,
            Shared::StoreExact => 0x9e37_79b9,
            Shared::StoreLease => 0x7f4a_7c15,
        };
        // Evenly distributed, since nobody outside knows the fingerprint.
        let mixed = (fingerprint ^ limit_id.rotate_left(32) ^ mode).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Entry((mixed ^ mixed >> 32 ^ limit_id).clamp(FREE + 1, CLOSING - 1))
    }
}

/// An account's number, and whose it was when that was found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AccountId {
    index: u32,
    era: Era,
    tag: u64,
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
    fn without_hand(self) -> Hand {
        match self {
            Hand::Enough(_) => Hand::Empty,
            other => other,
        }
    }
}

/// One account. Padded, so that no two of them are in the same line of a cache.
#[derive(Default)]
#[repr(align(128))]
struct Slot {
    tag: AtomicU64,
    /// What was spent and nobody was told yet; of tokens taken in advance, those that are left.
    tokens: Purse,
    /// From how many on somebody is called: spent ones, or as few left.
    threshold: AtomicI64,
    /// Tokens wanted since somebody last looked.
    wanted: AtomicU64,
    /// What was spent while nobody could be told.
    owed: Purse,
    /// Until when the tokens in hand can be spent.
    until: AtomicU64,
    /// Until when it is known that there are no more.
    refused_until: AtomicU64,
    left: AtomicU64,
    full_at: AtomicU64,
    account: Mutex<Option<Arc<Account>>>,
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
        ways.get(way)?.account.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| Arc::new(account));
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

/// For whoever talks to the others. There is to be only one of those, who alone closes accounts.
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

impl Slot {
    /// Whether what is in hand can still be spent.
    fn is_lent(&self, now: Time) -> bool {
        Time::from_nanos(self.until.load(Ordering::Relaxed)) > now
    }

    fn clear(&self) {
        *self.account.lock().unwrap_or_else(PoisonError::into_inner) = None;
        for number in [&self.wanted, &self.until, &self.refused_until, &self.left, &self.full_at] {
            number.store(0, Ordering::Relaxed);
        }
        self.threshold.store(0, Ordering::Relaxed);
    }

    /// What a client is told who has, or could have, so many of the tokens in hand: what others have spent meanwhile is not in it.
    fn describe(&self, tokens: i64, granted: u64, now: Time) -> Decision {
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

    fn refuse(&self, until: Time, now: Time) -> Decision {
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

/// A bit for every account.
struct Marks(Box<[AtomicU64]>);

impl Marks {
    fn new(count: usize) -> Marks {
        Marks((0..count / WORD).map(|_| AtomicU64::new(0)).collect())
    }

    /// Says whether it was not set before.
    fn set(&self, index: u32) -> bool {
        let Some(word) = self.0.get(index as usize / WORD) else { return false };
        let bit = 1 << (index as usize % WORD);
        word.fetch_or(bit, Ordering::AcqRel) & bit == 0
    }

    /// Those that were set, which then are no longer.
    fn take(&self) -> impl Iterator<Item = u32> {
        self.0.iter().zip(0_u32..).flat_map(|(word, number)| {
            // To look is cheaper than to write.
            let bits = if word.load(Ordering::Relaxed) == 0 { 0 } else { word.swap(0, Ordering::AcqRel) };
            let length = if bits == 0 { 0 } else { u64::BITS };
            (0..length).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| number * u64::BITS + bit)
        })
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
