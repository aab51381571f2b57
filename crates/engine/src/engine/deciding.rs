//! How a request is decided: all limits that apply are looked at, then each is taken, and what was taken is given
//! back if a race makes one refuse after all.

use super::books::Books;
use super::queue::{patience, queued};
use super::rules::Rules;
use super::together::{Doing, Way, Written, instead};
use super::verdict::{Action, Checked, Reason, quotas_refuse, refusal};
use crate::ledger::Entry;
use arc_swap::Guard;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;
use tollgate_limit::{Decision, Limit, Op, Outcome, Reservation, Retry, Table, Time};
use tollgate_rules::identity::{Key, Part};
use tollgate_rules::model::{Amount, Cost, OnFailure, Over, Rule};
use tollgate_rules::{CompiledLimit, CompiledNamespace, Request};

/// Where a client's state is kept: the limit's id and the key's fingerprint.
pub(super) type Bucket = (u64, u64);

/// Tokens that were booked and can be given back.
#[derive(Debug)]
pub(super) struct Booked {
    pub(super) bucket: Bucket,
    pub(super) limit: Limit,
    pub(super) reservation: Reservation,
    /// Whether the cost is what the request said, so that it can be settled by what it really was.
    pub(super) is_estimate: bool,
    /// Where it was written down, if others are told.
    pub(super) written: Option<Written>,
    pub(super) check: usize,
}

impl Booked {
    pub(super) fn cancel(self, books: &Books, now: Time) {
        let returned = books.table.cancel(&self.bucket, &self.limit, self.reservation, now);
        self.written.inspect(|written| written.less(&books.ledger, returned));
    }

    /// More was used than was booked.
    pub(super) fn use_more(self, books: &Books, tokens: u64, now: Time) {
        match &self.written {
            Some(written) => written.more(books, tokens, now),
            None => {
                let _ = books.table.decide(&self.bucket, &self.limit, Op::Charge(tokens), now);
            }
        }
    }

    /// Not all was used that was booked.
    pub(super) fn use_less(self, books: &Books, unused: u64, now: Time) {
        let returned = books.table.give_back(&self.bucket, &self.limit, (self.reservation, unused), now);
        self.written.inspect(|written| written.less(&books.ledger, returned));
    }
}

/// How the tokens of a request are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taking {
    /// For good.
    Pay,
    /// So that they can be given back.
    Book,
}

/// What applies to a request, and what came of it so far.
pub(super) struct Plan {
    pub(super) rules: Guard<Arc<Rules>>,
    pub(super) checks: SmallVec<[Checked; 4]>,
    /// Rules that apply and limit nothing: namespace, rule and client.
    pub(super) free: SmallVec<[(u32, u32, u64); 1]>,
    /// A rule that applies and says that nothing is limited.
    pub(super) unlimited: Option<(u32, u32)>,
    /// What to do where no limit applies.
    pub(super) otherwise: (Action, Reason),
    pub(super) reservations: SmallVec<[Booked; 0]>,
    /// What there was no room for when it was given back.
    pub(super) unreturned: Vec<Unreturned>,
    /// Whether any of the limits is shared with other hosts.
    pub(super) is_shared: bool,
    /// Whether those who keep limits elsewhere can be asked.
    pub(super) can_ask: bool,
}

/// Tokens that a bucket did not take back: most likely they went on to another one, as its limit was replaced.
pub(super) struct Unreturned {
    bucket: Bucket,
    tokens: u64,
    now: Time,
}

impl Unreturned {
    /// Gives the tokens to the limit that has taken over what was in the bucket, if there is one, and keeps what that
    /// does not take, either.
    pub(super) fn give_back(&mut self, rules: &Rules, books: &Books) {
        let (id, client) = self.bucket;
        // Requests in flight may also have carried what was in it back to a predecessor. Where there is none, the tokens
        // have come back by themselves.
        let is_heir = |limit: &&CompiledLimit| {
            let mut predecessors = limit.predecessors.iter();
            limit.id == id && predecessors.len() > 0 || predecessors.any(|old| old.id == id)
        };
        let heir = rules.compiled.namespaces().iter().flat_map(CompiledNamespace::limits).find(is_heir);
        if let Some(limit) = heir
            && let Amount::Limit { limit: amount, .. } = &limit.amount
        {
            carry_over(limit, amount, client, &books.table, self.now);
            let taken = books.table.put_back(&(limit.id, client), amount, self.tokens, self.now).granted;
            self.tokens = self.tokens.saturating_sub(taken);
        }
    }

    pub(super) fn is_settled(&self) -> bool {
        self.tokens == 0
    }
}

impl Plan {
    /// Nothing applies yet.
    #[inline(always)]
    pub(super) fn new(rules: Guard<Arc<Rules>>) -> Plan {
        Plan {
            rules,
            checks: SmallVec::new(),
            free: SmallVec::new(),
            unlimited: None,
            otherwise: (Action::Allow, Reason::UnknownNamespace),
            reservations: SmallVec::new(),
            unreturned: Vec::new(),
            is_shared: false,
            can_ask: false,
        }
    }

    /// Keeps the rules from being freed without keeping others from loading them quickly.
    pub(super) fn hold_rules(&mut self) {
        self.rules = Guard::from_inner(Arc::clone(&self.rules));
    }

    /// Whether no limit needs to be looked at to know the answer.
    fn is_settled(&self) -> bool {
        self.checks.is_empty() || self.otherwise.0 != Action::Allow
    }

    /// Looks at every limit and takes nothing.
    pub(super) fn look(&mut self, books: &Books, now: Time) {
        for index in 0..self.checks.len() {
            self.look_at(index, books, now);
        }
    }

    /// Decides: all or nothing.
    #[inline]
    pub(super) fn take(&mut self, books: &Books, taking: Taking, now: Time) {
        if self.is_settled() {
            return;
        }
        // A single limit need not be looked at first, and there is no other one to give anything back to.
        if self.checks.len() == 1 {
            return self.take_one(0, books, taking, now);
        }
        self.look(books, now);
        if self.is_refused() {
            return self.count_refusals(books, now);
        }
        // Who waits for one limit may leave, and then gets back what the others took.
        let waits = self.checks.iter().any(|check| !check.decision.wait().is_zero());
        self.take_each(books, if waits { Taking::Book } else { taking }, now);
    }

    /// Takes what was found to be there. Gives it all back if something is there no longer.
    fn take_each(&mut self, books: &Books, taking: Taking, now: Time) {
        for index in 0..self.checks.len() {
            let is_there = self.checks.get(index).is_some_and(|check| check.decision.is_allowed());
            if is_there {
                self.take_one(index, books, taking, now);
            }
            if self.is_refused() {
                return self.give_back(index, books, now);
            }
        }
    }

    /// Gives back what the limits before this one have taken.
    fn give_back(&mut self, before: usize, books: &Books, now: Time) {
        let booked = std::mem::take(&mut self.reservations);
        let is_booked = |index| booked.iter().any(|booked| booked.check == index);
        for (index, check) in self.checks.iter_mut().enumerate().take(before) {
            let taken = std::mem::take(&mut check.decision.granted);
            if taken > 0
                && !is_booked(index)
                && let Some(unreturned) = put_back(check, &self.rules, taken, books, now)
            {
                self.unreturned.push(unreturned);
            }
        }
        booked.into_iter().for_each(|booked| booked.cancel(books, now));
    }

    /// Gives back everything that was taken here.
    pub(super) fn give_back_all(&mut self, books: &Books, now: Time) {
        self.give_back(self.checks.len(), books, now);
    }

    /// Takes a limit that is kept elsewhere as its rule says for when that cannot be reached.
    pub(super) fn take_unasked(&mut self, index: usize, books: &Books, taking: Taking, now: Time) {
        self.take_one(index, books, taking, now);
    }

    /// Whether an answer from elsewhere is still to come.
    pub(super) fn is_open(&self) -> bool {
        self.checks.iter().any(|check| check.is_open)
    }

    /// Tells limits that a request was refused which count that, too. A request that was only looked at is not
    /// known to have been refused.
    fn count_refusals(&mut self, books: &Books, now: Time) {
        for index in 0..self.checks.len() {
            let Some(check) = self.checks.get(index) else { continue };
            let counts = local(&self.rules, check).is_some_and(|(_, limit)| limit.counts_refusals());
            let refused = check.decision.outcome;
            if !counts || check.decision.is_allowed() {
                continue;
            }
            self.take_one(index, books, Taking::Pay, now);
            self.give_back(index + 1, books, now);
            // It may have room by now, but nothing was paid.
            if let Some(check) = self.checks.get_mut(index).filter(|check| check.decision.is_allowed()) {
                check.decision.outcome = refused;
            }
        }
    }

    pub(super) fn look_at(&mut self, index: usize, books: &Books, now: Time) {
        let Plan { rules, checks, can_ask, .. } = self;
        let Some(check) = checks.get_mut(index).filter(|check| !check.is_open) else { return };
        let mut stand_in = None;
        let counted = counted(check, rules, books, (Doing::Look, *can_ask, now), &mut stand_in);
        let Some((bucket, amount)) = counted else { return };
        check.decision = books.table.decide(&bucket, amount, Op::Peek(check.cost), now);
        if let Some(wait) = patience(rules, check) {
            check.decision.outcome = queued(check.decision.outcome, amount, check.cost, wait);
        }
    }

    #[inline]
    fn take_one(&mut self, index: usize, books: &Books, taking: Taking, now: Time) {
        let Plan { rules, checks, reservations, can_ask, .. } = self;
        let Some(check) = checks.get_mut(index).filter(|check| !check.is_open) else { return };
        let mut stand_in = None;
        let counted = counted(check, rules, books, (Doing::Take, *can_ask, now), &mut stand_in);
        let Some((bucket, amount)) = counted else { return };
        let wait = patience(rules, check).unwrap_or_else(|| amount.patience(check.cost, None));
        if taking == Taking::Pay && wait.is_zero() {
            check.decision = books.table.decide(&bucket, amount, Op::Take(check.cost), now);
            return;
        }
        match books.table.reserve(&bucket, amount, (check.cost, wait), now) {
            Ok(reservation) => {
                check.decision = reservation.decision();
                if taking == Taking::Book || !reservation.wait().is_zero() {
                    let is_estimate = rule(rules, check).is_some_and(|rule| rule.cost == Cost::Asked);
                    let limit = *amount;
                    reservations.push(Booked { bucket, limit, reservation, is_estimate, written: None, check: index });
                }
            }
            Err(refused) => check.decision = refused,
        }
    }

    /// Whether what was found out so far means a refusal.
    #[inline]
    pub(super) fn is_refused(&self) -> bool {
        let (mut has_quotas, mut has_room) = (false, false);
        for check in self.checks.iter().filter(|check| !check.is_shadow) {
            let is_allowed = check.decision.is_allowed();
            if check.is_quota_mode {
                has_quotas = true;
                has_room |= is_allowed;
            } else if !is_allowed {
                return true;
            }
        }
        has_quotas && !has_room
    }

    /// What to do, why, and which check says so.
    pub(super) fn conclude(&self) -> (Action, Reason, Option<usize>) {
        if self.is_settled() {
            return (self.otherwise.0, self.otherwise.1, None);
        }
        // Mostly there is one limit, and it has room.
        if let [check] = self.checks.as_slice()
            && check.decision.outcome == Outcome::Allowed
            && !check.is_shadow
        {
            return (Action::Allow, Reason::WithinLimits, Some(0));
        }
        if self.is_refused() {
            let decided = self.strictest();
            let check = decided.and_then(|index| self.checks.get(index));
            let rule = check.and_then(|check| rule(&self.rules, check));
            let over = rule.map_or(Over::DEFAULT, |rule| rule.over);
            let shuts = rule.is_some_and(|rule| rule.on_failure == OnFailure::Refuse);
            return match check {
                Some(check) if check.is_degraded && shuts => (Action::Refuse(503), Reason::Unavailable, decided),
                Some(check) if check.decision.limit == 0 => (refusal(over), Reason::Banned, decided),
                _ => (refusal(over), Reason::OverLimit, decided),
            };
        }
        let (mut wait, mut tightest) = (Duration::ZERO, None::<(usize, &Decision)>);
        for (index, check) in self.checks.iter().enumerate().filter(|(_, check)| !check.is_shadow) {
            wait = wait.max(check.decision.wait());
            if tightest.is_none_or(|(_, decision)| has_less_left(&check.decision, decision)) {
                tightest = Some((index, &check.decision));
            }
        }
        let action = if wait.is_zero() { Action::Allow } else { Action::Wait(wait) };
        (action, Reason::WithinLimits, tightest.map(|(index, _)| index))
    }

    /// Of the checks that the request is refused by, the one that refuses for longest.
    fn strictest(&self) -> Option<usize> {
        let refusing = self.checks.iter().enumerate().filter(|(_, check)| check.refuses());
        let wait = |check: &Checked| check.decision.retry_after().unwrap_or(Duration::MAX);
        // Those in quota mode let the request pass as soon as one of them does.
        let quotas = refusing.clone().filter(|(_, check)| check.is_quota_mode && quotas_refuse(&self.checks));
        let soonest = quotas.min_by_key(|(_, check)| wait(check));
        let plain = refusing.filter(|(_, check)| !check.is_quota_mode);
        // The first of several: rules are in order of priority.
        soonest.into_iter().chain(plain.rev()).max_by_key(|(_, check)| wait(check)).map(|(index, _)| index)
    }

    /// Forgets what was spent in every bucket that is the client's own, and says how many those are.
    pub(super) fn reset(&self, books: &Books, now: Time) -> usize {
        let mut buckets = 0;
        for check in self.checks.iter().filter(|check| !self.is_anybodys(check, &books.table)) {
            let Some((limit, amount)) = local(&self.rules, check) else { continue };
            // What was spent of a limit before this one would otherwise come back.
            carry_over(limit, amount, check.client, &books.table, now);
            let own = bucket(limit, check);
            let _ = books.table.decide(&own, amount, Op::Reset, now);
            if check.shared.is_by_store() {
                let (stand_in, share) = instead(own, amount, books.ledger.hosts());
                let _ = books.table.decide(&stand_in, &share, Op::Reset, now);
            }
            buckets += 1;
        }
        buckets
    }

    /// Whether a bucket is shared by all whom nothing tells apart.
    pub(super) fn is_anybodys(&self, check: &Checked, table: &Table) -> bool {
        let parts = rule(&self.rules, check).map_or(0, |rule| rule.key.len());
        let nobody = vec![Part::Absent; parts];
        table.fingerprint(&Key::new(&nobody)) == check.client
    }

    /// The encoded key of a check's client, for those who keep its state elsewhere.
    pub(super) fn client(&self, check: &Checked, parts: &[Request<'_>]) -> Option<Vec<u8>> {
        let (namespace, request) = self.rules.compiled.get(check.namespace).zip(parts.get(check.part))?;
        let attributes = namespace.attributes(request);
        let mut key = Vec::with_capacity(64);
        Key::new(&namespace.rule(check.rule)?.key(&attributes)).encode(&mut key);
        Some(key)
    }
}

/// Compares what is left in proportion, without a division.
pub(super) fn has_less_left(one: &Decision, other: &Decision) -> bool {
    let product = |left: u64, limit: u64| u128::from(left) * u128::from(limit.max(1));
    product(one.remaining, other.limit) < product(other.remaining, one.limit)
}

#[inline]
pub(super) fn bucket(limit: &CompiledLimit, check: &Checked) -> Bucket {
    (limit.id, check.client)
}

/// The limit of a check, unless it is a ban.
#[inline]
pub(super) fn local<'a>(rules: &'a Rules, check: &Checked) -> Option<(&'a CompiledLimit, &'a Limit)> {
    let limit = rules.compiled.get(check.namespace)?.limit(check.limit)?;
    match &limit.amount {
        Amount::Limit { limit: amount, .. } => Some((limit, amount)),
        Amount::Banned { .. } => None,
    }
}

pub(super) fn rule<'a>(rules: &'a Rules, check: &Checked) -> Option<&'a Rule> {
    Some(rules.compiled.get(check.namespace)?.rule(check.rule)?.rule())
}

/// Nothing passes, whatever it costs.
fn ban(check: &mut Checked) {
    check.decision.outcome = Outcome::Refused(Retry::Never);
}

/// The bucket and the limit that a check is counted by on this host, unless it is decided without.
#[inline(always)]
fn counted<'a>(
    check: &mut Checked,
    rules: &'a Rules,
    books: &Books,
    asked: (Doing, bool, Time),
    stand_in: &'a mut Option<Limit>,
) -> Option<(Bucket, &'a Limit)> {
    let Some((limit, amount)) = local(rules, check) else {
        ban(check);
        return None;
    };
    match Way::of(check, rules, (limit, amount), books, asked) {
        Way::Here => {
            carry_over(limit, amount, check.client, &books.table, asked.2);
            Some((bucket(limit, check), amount))
        }
        Way::Instead(bucket, share) => Some((bucket, stand_in.insert(share))),
        Way::Settled => None,
    }
}

/// Gives back what a check has taken, to where it was taken from. Says what there was no room for.
fn put_back(check: &mut Checked, rules: &Rules, taken: u64, books: &Books, now: Time) -> Option<Unreturned> {
    let (limit, amount) = local(rules, check)?;
    let own = bucket(limit, check);
    if check.is_drawn() {
        books.ledger.put_back(Entry::new(own, check.shared), taken);
        return None;
    }
    let outcome = check.decision.outcome;
    if check.is_degraded {
        let (bucket, share) = instead(own, amount, books.ledger.hosts());
        check.decision = books.table.put_back(&bucket, &share, taken, now);
        (check.decision.outcome, check.decision.granted) = (outcome, 0);
        return None;
    }
    check.decision = books.table.put_back(&own, amount, taken, now);
    let missing = taken - check.decision.granted.min(taken);
    (check.decision.outcome, check.decision.granted) = (outcome, 0);
    (missing > 0).then_some(Unreturned { bucket: own, tokens: missing, now })
}

/// Takes over what was spent of the limits that this one has replaced. Mostly there are none.
#[inline(always)]
fn carry_over(limit: &CompiledLimit, amount: &Limit, client: u64, table: &Table, now: Time) {
    if !limit.predecessors.is_empty() {
        carry_over_from(limit, amount, client, table, now);
    }
}

fn carry_over_from(limit: &CompiledLimit, amount: &Limit, client: u64, table: &Table, now: Time) {
    for predecessor in limit.predecessors.iter().filter(|predecessor| predecessor.until > now) {
        table.carry_over((&(predecessor.id, client), &predecessor.limit), (&(limit.id, client), amount), now);
    }
}
