//! Rules with `shared: store-lease`: takes tokens from the store ahead of need, to be spent here without asking.
//!
//! How many depends on how many were wanted lately, and on how many are left: of those this host never takes more than its
//! share, so that the last ones go to whoever asks for them. What is not needed after all is given back.

use super::Among;
use crate::engine::Engine;
use crate::ledger::{Account, AccountId, Loan};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tollgate_limit::{Decision, Recovery, Time};
use tollgate_store::{Ask, Fingerprint, Says, Store, Told};

/// Tokens are taken for about so long ahead.
const AHEAD: Duration = Duration::from_millis(100);

/// After so long tokens that were not spent cannot be any more. A host that is gone keeps them from nobody for longer.
const LASTS: Duration = Duration::from_secs(1);

/// Tokens that nobody has wanted for so long are given back.
const UNWANTED: Duration = Duration::from_millis(300);

/// Tokens that lapse within this are given back, as far as they can: so many were not wanted after all.
const SOON: Duration = Duration::from_millis(500);

/// A bucket that nobody has used for so long is none of this host's business any more.
const IDLE: Duration = Duration::from_secs(3);

/// A host takes no more than such a part of what one host of all is due.
const SHARE: u64 = 4;

/// Where all tokens are taken as they come, each host asks again when there are about so many for it.
const WORTH_ASKING: f64 = 4.0;

/// Nobody waits for longer than this before it is asked again.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What was wanted longer ago than this hardly counts for what will be.
const MEMORY: Duration = Duration::from_millis(200);

/// Whom tokens are taken for.
#[derive(Debug, Default)]
pub(super) struct Lender {
    known: HashMap<AccountId, Borrower>,
    /// Those that were used since it was last looked at them.
    used: HashSet<AccountId>,
}

#[derive(Debug)]
struct Borrower {
    account: Arc<Account>,
    key: Fingerprint,
    /// Tokens wanted per second.
    rate: f64,
    seen_at: Time,
    used_at: Time,
    /// What was left in the store when it was last asked.
    left: u64,
    refused_until: Time,
    /// When it was last asked for tokens, by the store's clock.
    asked_at: Time,
    of_window: OfWindow,
}

/// What was lent of the last window that anything was lent of.
#[derive(Debug, Default)]
struct OfWindow {
    start: Time,
    /// When it was first asked for, by the store's clock.
    asked_at: Time,
    tokens: u64,
}

/// Tokens to be taken, or to be given back.
#[derive(Clone, Debug)]
pub(super) enum Wish {
    Borrow {
        id: AccountId,
        ask: Ask,
    },
    /// If they were taken of a window, when that was asked for, by the store's clock.
    Return {
        ask: Ask,
        taken_at: Option<Time>,
    },
}

/// What came of wanting tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Lent {
    Tokens(u64, Decision),
    Refused(Decision),
    Failed,
}

impl Lender {
    /// An account was used.
    pub(super) fn used(&mut self, id: AccountId, account: &Arc<Account>, now: Time) {
        let borrower = self.known.entry(id).or_insert_with(|| Borrower {
            account: Arc::clone(account),
            key: Fingerprint::new(account.limit_id, &account.client),
            rate: 0.0,
            seen_at: now,
            used_at: now,
            left: account.limit.most(),
            refused_until: Time::ZERO,
            asked_at: Time::ZERO,
            of_window: OfWindow::default(),
        });
        borrower.used_at = now;
        self.used.insert(id);
    }

    /// What is to be taken and given back now.
    pub(super) fn wishes(&mut self, engine: &Engine, among: Among, (now, store_now): (Time, Time)) -> Vec<Wish> {
        let hosts = engine.ledger().hosts();
        let wish = |(id, borrower): (&AccountId, &mut Borrower)| borrower.wish(*id, engine, hosts, (now, store_now));
        let used = std::mem::take(&mut self.used);
        match among {
            Among::All => self.known.iter_mut().filter_map(wish).collect(),
            Among::Used => used.iter().filter_map(|id| wish((id, self.known.get_mut(id)?))).collect(),
        }
    }

    /// All that is in hand and can be given back. No more is taken ahead until somebody wants it from now on.
    pub(super) fn returns(&mut self, engine: &Engine, can_be: impl Fn(&Fingerprint) -> bool, now: Time) -> Vec<Wish> {
        let ledger = engine.ledger();
        let reached = self.known.iter_mut().filter(|(_, borrower)| can_be(&borrower.key));
        let give_back = |(id, borrower): (&AccountId, &mut Borrower)| {
            ledger.take_wanted(*id);
            (borrower.rate, borrower.seen_at) = (0.0, now);
            let unused = ledger.take_back(*id, now);
            (unused > 0).then(|| borrower.give_back(unused, now))
        };
        reached.filter_map(give_back).collect()
    }

    /// Whether something is in hand that could be given back.
    pub(super) fn has_tokens(&self, engine: &Engine, now: Time) -> bool {
        let ledger = engine.ledger();
        self.known.keys().any(|id| ledger.tokens(*id) > 0 && ledger.lapses_at(*id) > now)
    }

    /// What was wanted has come, or not.
    pub(super) fn answered(&mut self, engine: &Engine, (id, asked): (AccountId, &Ask), lent: Lent, now: Time) {
        let Some(borrower) = self.known.get_mut(&id) else { return };
        if let Lent::Tokens(_, decision) | Lent::Refused(decision) = &lent {
            engine.keep_in_mind(&borrower.account, decision.missing(), now);
        }
        match lent {
            Lent::Tokens(tokens, decision) => {
                borrower.left = decision.remaining;
                borrower.count_of_window(tokens);
                let full_at = now + decision.reset_after;
                let loan = Loan { tokens, until: now + LASTS, left: decision.remaining, full_at };
                engine.ledger().lend(id, loan, now);
            }
            Lent::Refused(decision) => {
                borrower.left = 0;
                let pause = borrower.pause(&decision, asked.cost, engine.ledger().hosts(), now);
                // Somebody may give back or forget what was spent.
                borrower.refused_until = now + pause.min(LONGEST_PAUSE);
                engine.ledger().refuse(id, borrower.refused_until, now + decision.reset_after);
            }
            Lent::Failed => {}
        }
    }

    /// Forgets those that nobody has used for a while.
    pub(super) fn close_idle(&mut self, engine: &Engine, now: Time) {
        let ledger = engine.ledger();
        self.known.retain(|id, known| !(now.since(known.used_at) >= IDLE && ledger.close(*id)));
        self.used.retain(|id| self.known.contains_key(id));
    }
}

impl Borrower {
    fn wish(&mut self, id: AccountId, engine: &Engine, hosts: u64, (now, store_now): (Time, Time)) -> Option<Wish> {
        let ledger = engine.ledger();
        self.observe(ledger.take_wanted(id), now);
        let mut in_hand = ledger.tokens(id).max(0).unsigned_abs();
        let is_unwanted = now.since(self.used_at) >= UNWANTED || ledger.lapses_at(id) <= now + SOON;
        if in_hand > 0 && is_unwanted {
            let unused = ledger.take_back(id, now);
            if unused > 0 {
                return Some(self.give_back(unused, now));
            }
            in_hand = 0;
        }
        let chunk = self.chunk(hosts);
        ledger.call_when_left(id, chunk / 2);
        // Whoever owes something pays first.
        let is_wanted = chunk > 1 && in_hand <= chunk / 2 && now >= self.refused_until && !ledger.is_owing(id);
        is_wanted.then(|| {
            self.asked_at = store_now;
            Wish::Borrow { id, ask: self.ask(chunk - in_hand) }
        })
    }

    fn count_of_window(&mut self, tokens: u64) {
        let Some(Recovery::Window { start, .. }) = self.account.limit.recovery(self.asked_at) else { return };
        if self.of_window.start != start {
            self.of_window = OfWindow { start, asked_at: self.asked_at, tokens: 0 };
        }
        self.of_window.tokens = self.of_window.tokens.saturating_add(tokens);
    }

    /// What was taken of a window that has ended must not be given back to the next one. What was taken first is spent first, so that
    /// what is left is of the last window as far as so much was lent of it; the rest lapses.
    fn give_back(&self, unused: u64, now: Time) -> Wish {
        let OfWindow { tokens, asked_at, .. } = self.of_window;
        match self.account.limit.recovery(now) {
            Some(Recovery::Window { .. }) => {
                Wish::Return { ask: self.ask(unused.min(tokens)), taken_at: Some(asked_at) }
            }
            _ => Wish::Return { ask: self.ask(unused), taken_at: None },
        }
    }

    /// Tokens that were wanted since it was last looked.
    fn observe(&mut self, wanted: u64, now: Time) {
        let passed = now.since(self.seen_at).as_secs_f64();
        if wanted > 0 {
            self.used_at = now;
        }
        if passed <= 0.0 {
            return;
        }
        // What was seen in a long time says more than what was seen in a short one.
        let weight = 1.0 - (-passed / MEMORY.as_secs_f64()).exp();
        self.rate += (wanted as f64 / passed - self.rate) * weight;
        self.seen_at = now;
    }

    /// How many tokens to have in hand: none where they are wanted one at a time.
    fn chunk(&self, hosts: u64) -> u64 {
        let wanted = (self.rate * AHEAD.as_secs_f64()) as u64;
        let share = self.account.limit.most() / (SHARE * hosts);
        wanted.min(share).min((self.left / (2 * hosts)).max(2))
    }

    /// How long not to ask. Hosts that wait for the same tokens wait until there are some for each of them, but never until
    /// some that could be had are lost for good.
    fn pause(&self, decision: &Decision, asked: u64, hosts: u64, now: Time) -> Duration {
        let wait = decision.retry_after().unwrap_or(AHEAD);
        let Some(Recovery::Steady(rate)) = self.account.limit.recovery(now) else { return wait };
        let seconds = |tokens: f64| Duration::from_secs_f64((tokens / rate).clamp(0.0, 3_600.0));
        let for_one = wait.saturating_sub(seconds(asked.saturating_sub(1) as f64));
        let until_full = seconds(self.account.limit.most() as f64 / 4.0);
        for_one.max(seconds(WORTH_ASKING * hosts as f64).min(AHEAD).min(until_full))
    }

    fn ask(&self, cost: u64) -> Ask {
        Ask { key: self.key, limit: self.account.limit, cost, max_wait: None, says: Says::Refuse }
    }
}

/// Takes tokens: as many as are wanted, or else as many as there are.
pub(super) async fn borrow(store: &Store, ask: &Ask, now: Time) -> Lent {
    match take(store, ask, now).await {
        Lent::Refused(decision) if decision.remaining > 0 && decision.remaining < ask.cost => {
            take(store, &Ask { cost: decision.remaining, ..ask.clone() }, now).await
        }
        other => other,
    }
}

async fn take(store: &Store, ask: &Ask, now: Time) -> Lent {
    match store.ask_patiently(vec![ask.clone()], now).await {
        Told::Decided(decisions) => match decisions.first() {
            Some(decision) if decision.is_allowed() => Lent::Tokens(ask.cost, *decision),
            Some(decision) => Lent::Refused(*decision),
            None => Lent::Failed,
        },
        Told::Refused { decision, .. } => Lent::Refused(decision),
        Told::Failed => Lent::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::account;
    use super::*;
    use crate::ledger::Ledger;
    use tollgate_limit::Limit;
    use tollgate_rules::model::Shared;

    fn borrower(limit: &str) -> Borrower {
        let limit = Limit::token_bucket(limit.parse().unwrap());
        let account = Arc::new(Account { limit, shared: Shared::StoreLease, ..account() });
        let id = Ledger::new(64).open(account.entry(), || Some((*account).clone())).unwrap();
        let mut lender = Lender::default();
        lender.used(id, &account, Time::ZERO);
        lender.known.into_values().next().unwrap()
    }

    #[test]
    fn n2_a_chunk_is_what_will_be_wanted_soon_and_never_more_than_a_share() {
        let mut borrower = borrower("1000 per second burst 4000");
        let mut now = Time::ZERO;
        let mut want = |borrower: &mut Borrower, each_millisecond: u64| {
            for _ in 0..1_000 {
                now = now + Duration::from_millis(1);
                borrower.observe(each_millisecond, now);
            }
            borrower.chunk(10)
        };
        // For 100 ms ahead: it grows with the rate, up to a quarter of what one of ten hosts is due.
        assert_eq!([0, 1, 1_000].map(|each| want(&mut borrower, each)), [0, 99, 100]);
        // And is less again when hardly anybody asks, or hardly anything is left.
        borrower.left = 400;
        assert_eq!(want(&mut borrower, 1_000), 20);
        borrower.left = 0;
        assert_eq!(want(&mut borrower, 1_000), 2);
        assert_eq!([0; 3].map(|each| want(&mut borrower, each)).last(), Some(&0));
    }
}
