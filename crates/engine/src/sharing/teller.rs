//! Rules with `shared: store`: tells the store what this host has spent, and this host what all have.
//!
//! Far from its limit a bucket is told of now and then. Near it, as soon as this host hides its share of what may be
//! hidden: half of what is left, and of the rule's error budget on top. So all hosts together never let through more than
//! the budget beyond the limit unnoticed, but for what they decide while they are being told.

use super::Among;
use crate::engine::Engine;
use crate::ledger::{Account, AccountId, Ledger};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tollgate_limit::{Recovery, Time};
use tollgate_store::{Batch, Fingerprint, Spent, Totals};

/// As many intervals go by before a bucket is told of that is far from its limit.
const FAR: u32 = 10;

/// A bucket that nobody has used for so long is none of this host's business any more.
const IDLE: Duration = Duration::from_secs(3);

/// After so long it is asked whether those are still to be refused whom this host refuses: others may have given back or
/// forgotten what was spent.
const LONGEST_DOUBT: Duration = Duration::from_secs(1);

/// A letter that was not answered for so long says nothing any more. The store remembers for twice as long that it has one.
const FORGOTTEN: Duration = Duration::from_secs(30 * 60);

/// Buckets that are told of in one piece.
const MOST_AT_ONCE: usize = 500;

/// Letters that are sent before something else is looked after, and as many that were sent before and not answered. Only in a cluster
/// there are more groups than one.
const MOST_LETTERS: usize = 256;

/// Nobody is locked out for longer than it takes for so long's worth of tokens to come back, or for all of them.
const LONGEST_DEBT: f64 = 60.0;

/// What is to be told, and what was told and not answered yet.
#[derive(Debug, Default)]
pub(super) struct Teller {
    known: HashMap<AccountId, Known>,
    /// Those that have become urgent since it was last looked at them.
    urgent: HashSet<AccountId>,
    unanswered: HashMap<u32, Letter>,
    last_number: u64,
    /// Whether something was due that there was no room for.
    has_more: bool,
}

/// A bucket that hosts count together.
#[derive(Debug)]
struct Known {
    account: Arc<Account>,
    key: Fingerprint,
    told_at: Time,
    used_at: Time,
    has_news: bool,
    is_urgent: bool,
    /// Whether somebody was refused since, by what may be out of date.
    is_doubted: bool,
    is_far: bool,
}

impl Known {
    fn is_due(&self, interval: Duration, now: Time) -> bool {
        let longest = if self.is_far { interval * FAR } else { interval };
        let passed = now.since(self.told_at);
        self.is_urgent || self.has_news && passed >= longest || self.is_doubted && passed >= LONGEST_DOUBT
    }
}

/// A batch that goes to one group, and whose it is about.
#[derive(Clone, Debug)]
pub(super) struct Letter {
    written_at: Time,
    sent_at: Time,
    pub(super) group: u32,
    pub(super) batch: Batch,
    ids: Vec<AccountId>,
}

impl Letter {
    /// As it is sent now. If the store has added it already, it is not added again; before the store forgets that, there is
    /// nothing in it any more.
    fn sent(&mut self, now: Time) -> Letter {
        self.sent_at = now;
        if now.since(self.written_at) >= FORGOTTEN {
            self.batch.spent.iter_mut().for_each(|spent| spent.tokens = 0);
        }
        self.clone()
    }
}

impl Teller {
    /// An account was used; somebody should hear of it soon if it is urgent.
    pub(super) fn used(&mut self, ledger: &Ledger, id: AccountId, account: &Arc<Account>, is_urgent: bool, now: Time) {
        let known = self.known.entry(id).or_insert_with(|| Known {
            account: Arc::clone(account),
            key: Fingerprint::new(account.limit_id, &account.client),
            told_at: now,
            used_at: now,
            has_news: false,
            is_urgent: false,
            is_doubted: false,
            is_far: false,
        });
        known.used_at = now;
        known.is_doubted |= ledger.take_wanted(id) > 0;
        known.has_news |= ledger.tokens(id) != 0 || !known.is_doubted;
        known.is_urgent |= is_urgent;
        if is_urgent {
            self.urgent.insert(id);
        }
    }

    /// What is to be sent now: what was not answered, again, and whatever is due in groups where all was answered.
    pub(super) fn letters(
        &mut self,
        engine: &Engine,
        among: Among,
        group: impl Fn(&Fingerprint) -> u32,
        (interval, now, store_now): (Duration, Time, Time),
    ) -> Vec<Letter> {
        let mut due: Vec<(u32, Vec<AccountId>)> = self.due(among, group, (interval, now)).into_iter().collect();
        due.iter_mut().for_each(|(_, ids)| self.sort(ids));
        due.sort_by_key(|(_, ids)| ids.first().map(|id| self.rank(id)));
        let are_many = due.iter().any(|(_, ids)| ids.len() > MOST_AT_ONCE);
        self.has_more = are_many || due.len().max(self.unanswered.len()) > MOST_LETTERS;
        due.truncate(MOST_LETTERS);
        let mut letters = self.unanswered(now);
        for (group, mut ids) in due {
            ids.truncate(MOST_AT_ONCE);
            let letter = self.write(engine, group, ids, (now, store_now));
            letters.push(letter.clone());
            self.unanswered.insert(group, letter);
        }
        letters
    }

    /// Letters that were not answered, those first that were sent longest ago. However many nobody can answer for, as where a
    /// cluster has lost some of its slots, others are told.
    fn unanswered(&mut self, now: Time) -> Vec<Letter> {
        let mut letters: Vec<&mut Letter> = self.unanswered.values_mut().collect();
        letters.sort_by_key(|letter| letter.sent_at);
        letters.into_iter().take(MOST_LETTERS).map(|letter| letter.sent(now)).collect()
    }

    /// Whatever is due in groups where all was answered.
    fn due(
        &mut self,
        among: Among,
        group: impl Fn(&Fingerprint) -> u32,
        (interval, now): (Duration, Time),
    ) -> HashMap<u32, Vec<AccountId>> {
        let urgent = std::mem::take(&mut self.urgent);
        let mut due: HashMap<u32, Vec<AccountId>> = HashMap::new();
        let look = |(id, known): (&AccountId, &Known)| {
            if known.is_due(interval, now) {
                let group = group(&known.key);
                if !self.unanswered.contains_key(&group) {
                    due.entry(group).or_default().push(*id);
                }
            }
        };
        match among {
            Among::All => self.known.iter().for_each(look),
            Among::Used => urgent.iter().filter_map(|id| self.known.get_key_value(id)).for_each(look),
        }
        due
    }

    /// Makes everything due that there is to tell.
    pub(super) fn hurry(&mut self) {
        self.known.values_mut().for_each(|known| known.is_urgent |= known.has_news);
    }

    /// Whether there is nothing to tell, and all that was told is answered.
    pub(super) fn is_all_told(&self) -> bool {
        self.unanswered.is_empty() && !self.known.values().any(|known| known.has_news)
    }

    /// Whether something was due that there was no room for.
    pub(super) fn has_more(&self) -> bool {
        self.has_more
    }

    /// Whether something should be told at once.
    pub(super) fn is_urgent(&self) -> bool {
        !self.urgent.is_empty()
    }

    /// Those that are urgent come first, and of the others those that were told of longest ago.
    fn rank(&self, id: &AccountId) -> Option<(bool, Time)> {
        self.known.get(id).map(|known| (!known.is_urgent, known.told_at))
    }

    /// Each bucket is there once, be it that it has two accounts for a moment.
    fn sort(&self, ids: &mut Vec<AccountId>) {
        ids.sort_by_key(|id| self.rank(id));
        let mut keys = HashSet::new();
        ids.retain(|id| self.known.get(id).is_some_and(|known| keys.insert(known.key)));
    }

    fn write(&mut self, engine: &Engine, group: u32, ids: Vec<AccountId>, (now, store_now): (Time, Time)) -> Letter {
        self.last_number += 1;
        let spent = ids.iter().filter_map(|id| {
            let known = self.known.get_mut(id)?;
            (known.has_news, known.is_urgent, known.is_doubted) = (false, false, false);
            let recovery = known.account.limit.recovery(store_now)?;
            let tokens = engine.ledger().take_untold(*id);
            Some(Spent { key: known.key, recovery, most: most(&known.account, recovery), tokens })
        });
        let spent = spent.collect();
        Letter { written_at: now, sent_at: now, group, batch: Batch { number: self.last_number, spent }, ids }
    }

    /// A letter was answered: from now on this host decides by what all hosts have spent.
    pub(super) fn answered(&mut self, engine: &Engine, letter: &Letter, totals: &Totals, now: Time) {
        self.unanswered.remove(&letter.group);
        for (id, missing) in letter.ids.iter().zip(&totals.missing) {
            let Some(known) = self.known.get_mut(id) else { continue };
            let account = &known.account;
            engine.bring_into_line(*id, account, *missing, now);
            let left = (account.limit.most() as f64 - missing).max(0.0);
            engine.ledger().call_when_spent(*id, may_hide(account, left, engine.ledger().hosts()));
            known.is_far = left > account.limit.most() as f64 / 2.0;
            known.told_at = now;
        }
    }

    /// Forgets those that nobody has used for a while.
    pub(super) fn close_idle(&mut self, engine: &Engine, now: Time) {
        self.known.retain(|id, known| {
            let is_idle = !known.has_news && now.since(known.used_at) >= IDLE;
            !(is_idle && engine.ledger().close(*id))
        });
        self.urgent.retain(|id| self.known.contains_key(id));
    }
}

/// How many tokens this host may spend before it tells.
fn may_hide(account: &Account, left: f64, hosts: u64) -> u64 {
    let budget = account.limit.most() as f64 * account.error_budget.percent() / 100.0;
    ((left / 2.0 + budget) / hosts as f64).ceil().max(1.0) as u64
}

/// The most that can be missing; what is more is forgiven.
fn most(account: &Account, recovery: Recovery) -> u64 {
    let most = account.limit.most();
    match recovery {
        Recovery::Steady(rate) => most.saturating_add(most.max((rate * LONGEST_DEBT) as u64)),
        Recovery::Window { .. } => most.saturating_mul(2),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::account;
    use super::*;

    #[test]
    fn near_the_limit_hosts_hide_the_error_budget_and_far_from_it_half_of_what_is_left() {
        assert_eq!(may_hide(&account(), 0.0, 5), 10);
        assert_eq!(may_hide(&account(), 1_000.0, 5), 110);
        assert_eq!(may_hide(&account(), 0.0, 1_000), 1);
    }

    #[test]
    fn a_letter_is_sent_until_it_is_answered_and_nothing_of_its_group_meanwhile() {
        let engine = Engine::builder().accounts(64).build(tollgate_rules::RuleSet::default(), Time::ZERO);
        let ledger: &Ledger = engine.ledger();
        let (mut teller, account, second) = (Teller::default(), Arc::new(account()), Duration::from_secs(1));
        let now = |seconds: u32| Time::ZERO + second * (seconds + 10);
        let id = ledger.open(account.entry(), || Some((*account).clone())).unwrap();
        let letters = |teller: &mut Teller, at| teller.letters(&engine, Among::All, |_| 0, (second, at, at));
        assert!(ledger.spend(id, 3));
        teller.used(ledger, id, &account, true, now(0));
        let first = letters(&mut teller, now(0));
        assert_eq!((first.len(), first[0].batch.number, first[0].batch.spent[0].tokens), (1, 1, 3));
        assert!(ledger.spend(id, 4));
        teller.used(ledger, id, &account, true, now(1));
        assert_eq!(letters(&mut teller, now(1))[0].batch, first[0].batch);
        // Before the store forgets whether it has it, there is nothing in it.
        let again = letters(&mut teller, now(1_801));
        assert_eq!((again[0].batch.number, again[0].batch.spent[0].tokens), (1, 0));
        let totals = Totals { time: now(1), missing: vec![600.0] };
        teller.answered(&engine, &first[0], &totals, now(1));
        let second = letters(&mut teller, now(1));
        assert_eq!((second[0].batch.number, second[0].batch.spent[0].tokens), (2, 4));
        teller.answered(&engine, &second[0], &totals, now(1));
        assert!(letters(&mut teller, now(60)).is_empty());
        teller.close_idle(&engine, now(60));
        assert!(ledger.account(id).is_none());
    }

    /// So many clients who have each spent a token at that time, some of them urgently.
    fn spend(engine: &Engine, teller: &mut Teller, clients: std::ops::Range<u64>, urgent: u64, now: Time) {
        let ledger: &Ledger = engine.ledger();
        for client in clients {
            let account =
                Arc::new(Account { client: Box::from(client.to_be_bytes()), fingerprint: client, ..account() });
            let id = ledger.open(account.entry(), || Some((*account).clone())).unwrap();
            assert!(ledger.spend(id, 1));
            teller.used(ledger, id, &account, client >= urgent, now);
        }
    }

    #[test]
    fn c4_letters_that_nobody_answers_keep_nobody_else_from_being_told() {
        let engine = Engine::builder().accounts(4_096).build(tollgate_rules::RuleSet::default(), Time::ZERO);
        let (mut teller, second) = (Teller::default(), Duration::from_secs(1));
        let now = |seconds: u32| Time::ZERO + second * (seconds + 10);
        // Each client is a group of its own.
        let groups = |key: &Fingerprint| u32::from(key.slot(""));
        let send = |teller: &mut Teller, seconds| {
            teller.letters(&engine, Among::All, groups, (second, now(seconds), now(seconds)))
        };
        spend(&engine, &mut teller, 0..600, 0, now(0));
        let unanswered: HashSet<u32> = (0..4).flat_map(|_| send(&mut teller, 0)).map(|letter| letter.group).collect();
        assert!(unanswered.len() > 2 * MOST_LETTERS);
        spend(&engine, &mut teller, 600..700, 0, now(1));
        let sent: HashSet<u32> = send(&mut teller, 1).iter().map(|letter| letter.group).collect();
        let news = sent.difference(&unanswered).count();
        assert!(news > 90 && sent.len() == news + MOST_LETTERS, "{news} of {}", sent.len());
        // Those are sent again in turn.
        let again: HashSet<u32> =
            (2..5).flat_map(|round| send(&mut teller, round)).map(|letter| letter.group).collect();
        assert!(again.is_superset(&unanswered));
    }

    #[test]
    fn groups_that_are_urgent_come_first_where_there_are_many() {
        let engine = Engine::builder().accounts(4_096).build(tollgate_rules::RuleSet::default(), Time::ZERO);
        let ledger: &Ledger = engine.ledger();
        let (mut teller, second) = (Teller::default(), Duration::from_secs(1));
        let now = |seconds: u32| Time::ZERO + second * (seconds + 10);
        spend(&engine, &mut teller, 0..1_000, 900, now(0));
        let mut told = 0;
        for turn in 0..5 {
            let letters = teller.letters(&engine, Among::All, |key| u32::from(key.slot("")), (second, now(2), now(2)));
            assert_eq!((letters.len() == MOST_LETTERS, teller.has_more()), (turn < 3, turn < 3));
            if turn == 0 {
                let urgent = letters.iter().flat_map(|letter| &letter.ids).filter_map(|id| ledger.account(*id));
                assert_eq!(urgent.filter(|account| account.fingerprint >= 900).count(), 100);
            }
            for letter in letters {
                told += letter.batch.spent.iter().map(|spent| spent.tokens).sum::<i64>();
                let missing = vec![0.0; letter.ids.len()];
                teller.answered(&engine, &letter, &Totals { time: now(2), missing }, now(2));
            }
        }
        assert_eq!(told, 1_000);
    }
}
