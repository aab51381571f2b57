//! Limits that hosts share: what this one may decide about them by itself, and what it writes down for the others.

use super::Engine;
use super::asking::{Answer, Question};
use super::books::Books;
use super::deciding::{Bucket, Plan, bucket, local, rule};
use super::rules::Rules;
use super::verdict::Checked;
use crate::ledger::{Account, AccountId, Entry, Hand, Ledger};
use std::time::Duration;
use tollgate_limit::{Limit, Op, Outcome, Retry, Time};
use tollgate_rules::model::{OnFailure, Shared};
use tollgate_rules::{CompiledLimit, Request};

/// How a check is decided on this host.
pub(super) enum Way {
    /// By the limit's own bucket.
    Here,
    /// By this bucket and limit, which stand in while the others cannot be reached.
    Instead(Bucket, Limit),
    /// It is, or somebody has to be asked.
    Settled,
}

/// What is done with a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// It is only looked at.
    Look,
    /// What there is, is taken.
    Take,
}

impl Way {
    /// That of a check whose answer is not open.
    #[inline(always)]
    pub(super) fn of(
        check: &mut Checked,
        rules: &Rules,
        (limit, amount): (&CompiledLimit, &Limit),
        books: &Books,
        (doing, can_ask, now): (Doing, bool, Time),
    ) -> Way {
        match check.shared {
            Shared::Local | Shared::Cluster => Way::Here,
            Shared::Store if !books.ledger.is_cut_off() => Way::Here,
            Shared::StoreLease if !check.is_degraded => {
                let hand = in_hand(check, bucket(limit, check), books, (doing, now));
                lent(check, hand, rules, (limit, amount), books, (can_ask, now))
            }
            Shared::Store | Shared::StoreExact | Shared::StoreLease => {
                unasked(check, rules, (limit, amount), books, now)
            }
        }
    }
}

fn entry(limit: &CompiledLimit, check: &Checked) -> Entry {
    Entry::new(bucket(limit, check), check.shared)
}

fn in_hand(check: &Checked, bucket: Bucket, books: &Books, (doing, now): (Doing, Time)) -> Hand {
    let Some(account) = books.ledger.find(Entry::new(bucket, check.shared)) else { return Hand::Empty };
    match doing {
        Doing::Look => books.ledger.look(account, check.cost, now),
        Doing::Take => books.ledger.draw(account, check.cost, now),
    }
}

/// Decides by tokens that were taken in advance.
fn lent(
    check: &mut Checked,
    hand: Hand,
    rules: &Rules,
    (limit, amount): (&CompiledLimit, &Limit),
    books: &Books,
    (can_ask, now): (bool, Time),
) -> Way {
    match hand {
        Hand::Enough(decision) | Hand::Refused(decision) => {
            check.decision = decision;
            check.decision.limit = amount.most();
        }
        // What was seen before it was gone is not to be given back.
        Hand::Empty if can_ask => (check.is_open, check.decision.granted) = (true, 0),
        Hand::Empty => return unasked(check, rules, (limit, amount), books, now),
    }
    Way::Settled
}

/// What is answered for a limit that is kept elsewhere and was not asked.
#[cold]
fn unasked(
    check: &mut Checked,
    rules: &Rules,
    (limit, amount): (&CompiledLimit, &Limit),
    books: &Books,
    now: Time,
) -> Way {
    check.is_degraded = true;
    check.decision.limit = amount.most();
    match rule(rules, check).map_or(OnFailure::Local, |rule| rule.on_failure) {
        OnFailure::Local => {
            let own = bucket(limit, check);
            let (stand_in, share) = instead(own, amount, books.ledger.hosts());
            hold_share((own, amount), (stand_in, &share), books, now);
            return Way::Instead(stand_in, share);
        }
        OnFailure::Allow => (check.decision.outcome, check.decision.remaining) = (Outcome::Allowed, amount.most()),
        OnFailure::Refuse => check.decision.outcome = Outcome::Refused(Retry::After(Duration::from_secs(1))),
    }
    Way::Settled
}

/// Where this host counts its share while it hears nothing of so many others. A share of another size is another bucket.
pub(crate) fn instead((limit_id, client): Bucket, amount: &Limit, hosts: u64) -> (Bucket, Limit) {
    const APART: u64 = 0x7c15_9e37_79b9_7f4a;
    ((limit_id ^ hosts.wrapping_mul(APART), client), amount.share(hosts))
}

/// Sees to it that of a share at least its part of what all have spent before is missing. Both come back equally fast, so that
/// this changes nothing once the share has begun; only what was spent of a window comes back at its end, and not before that
/// here, either.
fn hold_share((own, amount): (Bucket, &Limit), (stand_in, share): (Bucket, &Limit), books: &Books, now: Time) {
    let missing = missing(own, amount, books, now) as f64 / books.ledger.hosts() as f64;
    if missing > 0.0 {
        let _ = books.table.hold_to(&stand_in, share, missing, now);
    }
}

/// Keeps in mind how much is missing of a limit that is kept elsewhere, for when that cannot be asked. Not while something is
/// owed: what has been spent since then without asking would count as known there.
fn keep_in_mind((bucket, shared): (Bucket, Shared), limit: &Limit, missing: u64, books: &Books, now: Time) {
    if limit.adds_up() && !books.ledger.owes(Entry::new(bucket, shared)) {
        let _ = books.table.bring_into_line(&bucket, limit, missing as f64, now);
    }
}

/// How many tokens a bucket of this host lacks to full.
fn missing(bucket: Bucket, limit: &Limit, books: &Books, now: Time) -> u64 {
    books.table.decide(&bucket, limit, Op::Peek(0), now).missing()
}

/// Counts that more was spent, here and for the others.
fn charge(account: &Account, books: &Books, tokens: u64, now: Time) {
    let _ = books.table.decide(&account.bucket(), &account.limit, Op::Charge(tokens), now);
    books.ledger.charge(account, tokens);
}

/// For whoever talks to the others.
impl Engine {
    /// What this host has to tell those whom it counts together with, and what it holds that is theirs.
    pub fn ledger(&self) -> &Ledger {
        &self.books.ledger
    }

    /// From now on so many tokens are missing of a bucket, and what this host has spent and not told.
    pub fn bring_into_line(&self, id: AccountId, account: &Account, missing: f64, now: Time) {
        let untold = self.books.ledger.tokens(id) as f64;
        let missing = (missing + untold).max(0.0);
        let _ = self.books.table.bring_into_line(&account.bucket(), &account.limit, missing, now);
    }

    /// How much of what was spent while nobody could be told still counts: what has not come back meanwhile, and no more
    /// than the whole limit. As many hosts were known of then as any of these numbers says.
    pub fn still_owed(&self, account: &Account, owed: u64, hosts: &[u64], now: Time) -> u64 {
        let most = account.limit.most();
        if !account.counts_here {
            return owed.min(most);
        }
        // A part of what was spent before is missing of a share, too, and known already: but for parts of a token, or what is
        // paid bit by bit would be less than was spent.
        let known = missing(account.bucket(), &account.limit, &self.books, now).saturating_sub(1);
        let of_share = |hosts: &u64| {
            let (stand_in, share) = instead(account.bucket(), &account.limit, *hosts);
            missing(stand_in, &share, &self.books, now).saturating_sub(known / (*hosts).max(1))
        };
        owed.min(hosts.iter().map(of_share).fold(0, u64::saturating_add)).min(most)
    }
}

/// For whoever talks to the others about what hosts decide by themselves.
#[cfg(feature = "redis")]
impl Engine {
    /// Keeps in mind how much is missing of a limit, as others say.
    pub(crate) fn keep_in_mind(&self, account: &Account, missing: u64, now: Time) {
        keep_in_mind((account.bucket(), account.shared), &account.limit, missing, &self.books, now);
    }

    /// Counts what was spent while nobody could be told, here and for the others.
    pub(crate) fn charge(&self, account: &Account, tokens: u64, now: Time) {
        charge(account, &self.books, tokens, now);
    }
}

/// Where tokens were written down that may turn out to be more or less.
#[derive(Clone, Debug)]
pub(super) struct Written {
    account: Box<Account>,
    /// Whether they are owed, since nobody could be told.
    is_owed: bool,
}

impl Written {
    pub(super) fn more(&self, books: &Books, tokens: u64, now: Time) {
        let (account, ledger) = (&*self.account, &books.ledger);
        if self.is_owed && (account.shared != Shared::Store || ledger.is_cut_off()) {
            let (stand_in, share) = instead(account.bucket(), &account.limit, ledger.hosts());
            hold_share((account.bucket(), &account.limit), (stand_in, &share), books, now);
            let _ = books.table.decide(&stand_in, &share, Op::Charge(tokens), now);
            ledger.owe(account.entry(), tokens, || Some(account.clone()));
        } else {
            charge(account, books, tokens, now);
        }
    }

    /// Of what is owed no more is charged than is missing of the share when that happens. What was charged already stays so: less
    /// passes, never more.
    pub(super) fn less(&self, ledger: &Ledger, tokens: u64) {
        if !self.is_owed {
            ledger.give_back(&self.account, tokens);
        }
    }
}

impl Checked {
    /// Whether it was paid for by tokens that were taken in advance.
    pub(super) fn is_drawn(&self) -> bool {
        self.shared == Shared::StoreLease && !self.is_degraded
    }

    /// Whether what it takes here is told to the others: later, if they cannot be reached.
    fn is_told(&self) -> bool {
        match self.shared {
            Shared::Local | Shared::Cluster => false,
            Shared::Store => true,
            Shared::StoreExact | Shared::StoreLease => self.is_degraded,
        }
    }
}

impl Plan {
    /// Sees to it that whoever takes tokens in advance knows whom for, and says which limits have to be asked.
    #[cold]
    pub(super) fn open_accounts(&mut self, books: &Books, parts: &[Request<'_>], now: Time) {
        for index in 0..self.checks.len() {
            let Some(check) = self.checks.get(index) else { continue };
            // Whoever owes something pays first: until then others are not asked, who know nothing of it.
            let is_kept_there = matches!(check.shared, Shared::StoreExact | Shared::StoreLease);
            let limit = local(&self.rules, check).filter(|_| is_kept_there);
            let is_to_pay = limit.is_some_and(|(limit, _)| books.ledger.is_to_pay(entry(limit, check)));
            let is_open = match check.shared {
                _ if is_to_pay => false,
                Shared::StoreExact => self.can_ask && limit.is_some(),
                Shared::StoreLease => self.open_account(check, books, parts, now),
                Shared::Local | Shared::Cluster | Shared::Store => false,
            };
            if let Some(check) = self.checks.get_mut(index) {
                (check.is_open, check.is_degraded) = (is_open, is_to_pay);
            }
        }
    }

    /// Whether somebody has to be asked before anything can be taken.
    #[cold]
    pub(super) fn has_to_ask(&self, books: &Books, now: Time) -> bool {
        self.checks.iter().any(|check| match (check.shared, local(&self.rules, check)) {
            (Shared::StoreExact, limit) => limit.is_some(),
            (Shared::StoreLease, Some((limit, _))) => {
                in_hand(check, bucket(limit, check), books, (Doing::Look, now)) == Hand::Empty
            }
            _ => false,
        })
    }

    /// Whether nothing is in hand, so that somebody has to be asked.
    fn open_account(&self, check: &Checked, books: &Books, parts: &[Request<'_>], now: Time) -> bool {
        let Some((limit, _)) = local(&self.rules, check) else { return false };
        let account = books.ledger.open(entry(limit, check), || self.account(check, parts));
        let Some(account) = account else { return self.can_ask };
        if books.ledger.look(account, check.cost, now) != Hand::Empty {
            return false;
        }
        books.ledger.want(account, check.cost);
        self.can_ask
    }

    /// Writes down what was spent of limits that hosts share, for whoever tells the others.
    #[cold]
    pub(super) fn record(&mut self, books: &Books, parts: &[Request<'_>]) {
        for index in 0..self.checks.len() {
            let Some(check) = self.checks.get(index) else { continue };
            let Some((limit, _)) = local(&self.rules, check) else { continue };
            if !check.is_told() || !check.decision.is_allowed() {
                continue;
            }
            // What others can be told by now is told, whatever it was taken from.
            let is_owed = check.is_degraded && (check.shared != Shared::Store || books.ledger.is_cut_off());
            let entry = entry(limit, check);
            let account = || self.account(check, parts);
            if is_owed {
                books.ledger.owe(entry, check.cost, account);
            } else {
                books.ledger.spend_of(entry, i64::try_from(check.cost).unwrap_or(i64::MAX), account);
            }
            // Whoever uses more of it in the end, or less, says so there, too, however much later.
            if self.reservations.iter().any(|booked| booked.check == index) {
                let written = self.account(check, parts).map(|account| Written { account: Box::new(account), is_owed });
                let booked = self.reservations.iter_mut().filter(|booked| booked.check == index);
                booked.for_each(|booked| booked.written.clone_from(&written));
            }
        }
    }

    /// Keeps in mind what others say is missing of limits that they keep.
    pub(super) fn keep_in_mind(&self, questions: &[Question], answer: &Answer, books: &Books, now: Time) {
        let Answer::Decided(decisions) = answer else { return };
        for (question, decision) in questions.iter().zip(decisions) {
            let Some(check) = self.checks.get(question.check) else { continue };
            if let Some((limit, amount)) = local(&self.rules, check) {
                keep_in_mind((bucket(limit, check), check.shared), amount, decision.missing(), books, now);
            }
        }
    }

    /// Writes down by which limits somebody was refused that this host alone does not know all about.
    #[cold]
    pub(super) fn doubt(&self, books: &Books, parts: &[Request<'_>]) {
        let is_told = |check: &&Checked| check.shared == Shared::Store && !check.is_degraded;
        for check in self.checks.iter().filter(is_told).filter(|check| !check.decision.is_allowed()) {
            if let Some((limit, _)) = local(&self.rules, check) {
                books.ledger.doubt(entry(limit, check), || self.account(check, parts));
            }
        }
    }

    fn account(&self, check: &Checked, parts: &[Request<'_>]) -> Option<Account> {
        let ((limit, amount), client) = (local(&self.rules, check)?, self.client(check, parts)?);
        let rule = rule(&self.rules, check)?;
        Some(Account {
            limit_id: limit.id,
            client: client.into(),
            limit: *amount,
            shared: rule.shared,
            error_budget: rule.error_budget,
            counts_here: rule.on_failure == OnFailure::Local,
            fingerprint: check.client,
        })
    }
}
