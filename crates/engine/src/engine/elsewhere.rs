//! What of a client's is kept together with other hosts: to look at it, to settle what was taken of it, and to forget it.

use super::Engine;
use super::asking::{Answer, Pending, Step, questions};
use super::deciding::{Plan, Taking, bucket, local, rule};
use super::verdict::{Checked, Verdict};
use crate::ledger::Entry;
use tollgate_limit::{Limit, Time};
use tollgate_rules::Request;
use tollgate_rules::model::{Cost, Shared};

/// A limit of a client that is kept elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Elsewhere {
    /// The limit, the same on every host.
    pub(crate) limit_id: u64,
    /// The client's key, encoded.
    pub(crate) client: Vec<u8>,
    /// How much is allowed.
    pub(crate) limit: Limit,
    /// Where this host keeps what it knows of it.
    pub(crate) entry: Entry,
    /// What the request costs.
    pub(crate) cost: u64,
    /// Whether that is what the request said, so that it can be settled by what it really was.
    pub(crate) is_estimate: bool,
}

impl Elsewhere {
    /// How much of the cost was not used, where so much was estimated.
    pub(crate) fn unused(&self, estimate: u64, actual: u64) -> u64 {
        match (self.is_estimate, actual) {
            (true, actual) => estimate.saturating_sub(actual),
            (false, 0) => self.cost,
            (false, _) => 0,
        }
    }
}

impl Plan {
    /// What was taken elsewhere, be it in advance.
    pub(super) fn taken_elsewhere(&self, parts: &[Request<'_>]) -> Vec<Elsewhere> {
        let is_taken = |check: &&Checked| {
            let is_kept_there = matches!(check.shared, Shared::StoreExact | Shared::StoreLease);
            is_kept_there && !check.is_degraded && check.decision.is_allowed()
        };
        self.checks.iter().filter(is_taken).filter_map(|check| self.kept(check, parts)).collect()
    }

    /// Leaves open what only others can say.
    fn leave_open(&mut self) {
        let Plan { checks, rules, can_ask, .. } = self;
        for check in checks.iter_mut().filter(|check| check.shared == Shared::StoreExact) {
            check.is_open = *can_ask && local(rules, check).is_some();
        }
    }

    fn kept(&self, check: &Checked, parts: &[Request<'_>]) -> Option<Elsewhere> {
        let ((limit, amount), client) = (local(&self.rules, check)?, self.client(check, parts)?);
        Some(Elsewhere {
            limit_id: limit.id,
            client,
            limit: *amount,
            entry: Entry::new(bucket(limit, check), check.shared),
            cost: check.cost,
            is_estimate: rule(&self.rules, check)?.cost == Cost::Asked,
        })
    }
}

/// For whoever talks to the others.
impl Engine {
    /// What [`begin`](Engine::begin) is to a decision, for a reservation: what is taken here can be given back.
    pub(crate) fn begin_to_reserve(&self, request: &Request<'_>, now: Time) -> Step {
        self.begin_by(self.rules.load(), std::slice::from_ref(request), Taking::Book, now)
    }

    /// What [`begin`](Engine::begin) is to a decision, for somebody who only wants to know what it would be.
    pub(crate) fn begin_to_peek(&self, request: &Request<'_>, now: Time) -> Step {
        let parts = std::slice::from_ref(request);
        let mut verdict = Verdict::open(self.rules.load());
        let plan = &mut verdict.plan;
        plan.find(&self.books.table, parts);
        plan.can_ask = plan.is_shared;
        plan.leave_open();
        plan.look(&self.books, now);
        if !plan.is_open() {
            verdict.close();
            return Step::Done(verdict);
        }
        let questions = questions(plan, parts);
        plan.hold_rules();
        Step::Ask(Pending { verdict, questions, taking: Taking::Pay })
    }

    /// Says what a decision would be, with what came of asking.
    pub(crate) fn finish_to_peek(&self, pending: Pending, answer: &Answer, now: Time) -> Verdict {
        let Pending { mut verdict, questions, .. } = pending;
        let plan = &mut verdict.plan;
        plan.can_ask = false;
        plan.hear(&questions, answer, |plan, check| plan.look_at(check, &self.books, now));
        verdict.close();
        verdict
    }

    /// The limits of a request's client that are kept elsewhere, and are nobody else's.
    pub(crate) fn kept_elsewhere(&self, request: &Request<'_>) -> Vec<Elsewhere> {
        let parts = std::slice::from_ref(request);
        let mut plan = Plan::new(self.rules.load());
        plan.find(&self.books.table, parts);
        let is_kept = |check: &&Checked| {
            let is_kept_there = check.shared.is_by_store();
            is_kept_there && !plan.is_anybodys(check, &self.books.table)
        };
        plan.checks.iter().filter(is_kept).filter_map(|check| plan.kept(check, parts)).collect()
    }
}
