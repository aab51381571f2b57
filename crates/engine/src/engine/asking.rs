//! Limits that are kept elsewhere: what to ask is returned, and the answer brought back.

use super::Engine;
use super::deciding::{Plan, Taking, local};
use super::queue::patience;
use super::rules::Rules;
use super::verdict::{Checked, Verdict};
use arc_swap::Guard;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tollgate_limit::{Decision, Limit, Time};
use tollgate_rules::Request;

/// How far a decision has come.
#[derive(Debug)]
pub enum Step {
    /// It is made.
    Done(Verdict),
    /// Somebody else has to be asked first.
    Ask(Pending),
}

/// A decision that waits for an answer. What is limited here has been taken already; whoever drops this has paid
/// for nothing, so bring an answer, if only that there is none.
#[must_use = "bring the answer with `Engine::finish`, if only `Answer::Failed`"]
pub struct Pending {
    pub(super) verdict: Verdict,
    pub(super) questions: Vec<Question>,
    pub(super) taking: Taking,
}

/// A limit that is kept elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The limit, the same on every host.
    pub limit_id: u64,
    /// The client's key, [encoded](tollgate_rules::identity::Key::encode).
    pub client: Arc<[u8]>,
    /// How much is allowed.
    pub limit: Limit,
    /// What the request costs.
    pub cost: u64,
    /// How long the request may be held, where its rule says so. Otherwise that is for the limit to say.
    pub max_wait: Option<Duration>,
    /// Whether the answer is only reported: a refusal need not keep the others from being taken.
    pub is_shadow: bool,
    /// Whether a refusal keeps the others from being taken only if all limits of this kind refuse.
    pub is_quota_mode: bool,
    pub(super) check: usize,
}

/// What came of asking.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// What each limit said, in the order of the questions; all or nothing was taken.
    Decided(Vec<Decision>),
    /// One limit is known to refuse, so that nobody was asked about the others and nothing was taken.
    Refused {
        /// Which of the questions.
        question: usize,
        /// What the limit says.
        decision: Decision,
    },
    /// Nobody could be reached in time.
    Failed,
}

impl Pending {
    /// What to ask, all at once.
    pub fn questions(&self) -> &[Question] {
        &self.questions
    }
}

impl Engine {
    /// Decides as far as possible here. Where a limit is kept elsewhere, says what to ask; the reply, or the failure
    /// to get one, is brought back to [`finish`](Self::finish).
    pub fn begin(&self, request: &Request<'_>, now: Time) -> Step {
        self.begin_all(std::slice::from_ref(request), now)
    }

    /// The same for several requests that go ahead together or not at all. Two questions may then be about one state.
    pub fn begin_all(&self, parts: &[Request<'_>], now: Time) -> Step {
        self.begin_by(self.rules.load(), parts, Taking::Pay, now)
    }

    /// The same by these rules.
    pub(super) fn begin_by(&self, rules: Guard<Arc<Rules>>, parts: &[Request<'_>], taking: Taking, now: Time) -> Step {
        let mut verdict = Verdict::open(rules);
        let plan = &mut verdict.plan;
        plan.find(&self.books.table, parts);
        plan.can_ask = plan.is_shared;
        if plan.is_shared {
            plan.open_accounts(&self.books, parts, now);
        }
        // What has to wait for an answer may be given back later, as far as time has not done so already.
        let taken_here = if plan.is_open() { Taking::Book } else { taking };
        plan.take(&self.books, taken_here, now);
        if !plan.is_open() || plan.is_refused() {
            self.seal(&mut verdict, parts);
            return Step::Done(verdict);
        }
        let mut questions = questions(plan, parts);
        if has_paying_quota(&verdict.plan.checks) {
            questions
                .iter_mut()
                .filter(|question| question.is_quota_mode)
                .for_each(|question| question.is_shadow = true);
        }
        verdict.plan.hold_rules();
        Step::Ask(Pending { verdict, questions, taking })
    }

    /// Decides about requests that go ahead together or not at all, unless somebody else has to be asked for that: then
    /// nothing has happened, and [`begin_all`](Self::begin_all) says what to ask. For those who cannot wait where they are.
    pub fn check_here(&self, parts: &[Request<'_>], now: Time) -> Option<Verdict> {
        let mut verdict = Verdict::open(self.rules.load());
        let plan = &mut verdict.plan;
        plan.find(&self.books.table, parts);
        plan.can_ask = plan.is_shared;
        if plan.is_shared && plan.has_to_ask(&self.books, now) {
            return None;
        }
        plan.take(&self.books, Taking::Pay, now);
        if plan.is_shared && plan.is_open() {
            self.undo(plan, now);
            return None;
        }
        self.seal(&mut verdict, parts);
        Some(verdict)
    }

    /// What was in hand when it was looked at was gone when it was to be taken.
    #[cold]
    fn undo(&self, plan: &mut Plan, now: Time) {
        plan.give_back_all(&self.books, now);
        self.return_to_heirs(plan);
    }

    /// Finishes a decision with what came of asking. Answers that are missing count as failed.
    pub fn finish(&self, pending: Pending, request: &Request<'_>, answer: &Answer, now: Time) -> Verdict {
        self.finish_all(pending, std::slice::from_ref(request), answer, now)
    }

    /// The same for what was [begun](Self::begin_all) for several requests.
    pub fn finish_all(&self, pending: Pending, parts: &[Request<'_>], answer: &Answer, now: Time) -> Verdict {
        let Pending { mut verdict, questions, taking } = pending;
        let plan = &mut verdict.plan;
        plan.keep_in_mind(&questions, answer, &self.books, now);
        plan.hear(&questions, answer, |plan, check| plan.take_unasked(check, &self.books, taking, now));
        if plan.is_refused() {
            plan.give_back_all(&self.books, now);
        }
        self.seal(&mut verdict, parts);
        verdict
    }
}

impl Plan {
    /// Takes in what came of asking. What nobody has answered is decided without.
    pub(super) fn hear(
        &mut self,
        questions: &[Question],
        answer: &Answer,
        mut decide_without: impl FnMut(&mut Plan, usize),
    ) {
        for (index, question) in questions.iter().enumerate() {
            let Some(check) = self.checks.get_mut(question.check) else { continue };
            match answer.to(index) {
                Told::Decided(decision) => answered(check, decision),
                Told::Nothing => {}
                Told::Failed => {
                    (check.is_open, check.is_degraded) = (false, true);
                    decide_without(self, question.check);
                }
            }
        }
    }
}

/// Whether a limit that is kept here lets the request pass in quota mode, so that those kept elsewhere cannot refuse it.
fn has_paying_quota(checks: &[Checked]) -> bool {
    checks.iter().any(|check| check.is_quota_mode && !check.is_shadow && !check.is_open && check.decision.is_allowed())
}

/// What an answer says about one question.
enum Told {
    Decided(Decision),
    /// There was no need to ask.
    Nothing,
    Failed,
}

impl Answer {
    fn to(&self, index: usize) -> Told {
        match self {
            Answer::Decided(decisions) => {
                decisions.get(index).map_or(Told::Failed, |decision| Told::Decided(*decision))
            }
            Answer::Refused { question, decision } if *question == index => Told::Decided(*decision),
            Answer::Refused { .. } => Told::Nothing,
            Answer::Failed => Told::Failed,
        }
    }
}

fn answered(check: &mut Checked, decision: Decision) {
    check.is_open = false;
    check.decision = decision;
    // Taken elsewhere, and not to be given back here.
    check.decision.granted = 0;
}

pub(super) fn questions(plan: &Plan, parts: &[Request<'_>]) -> Vec<Question> {
    let open = || plan.checks.iter().enumerate().filter(|(_, check)| check.is_open);
    let mut questions: Vec<Question> = Vec::with_capacity(open().count());
    for (index, check) in open() {
        // The limits of one rule are about one client.
        let before = questions.last().filter(|last| is_same_rule(plan, last.check, check));
        let client = before.map(|last| Arc::clone(&last.client));
        let Some(client) = client.or_else(|| plan.client(check, parts).map(Arc::from)) else { continue };
        let Some((limit, amount)) = local(&plan.rules, check) else { continue };
        let Checked { cost, is_shadow, is_quota_mode, .. } = *check;
        let (limit_id, limit, max_wait) = (limit.id, *amount, patience(&plan.rules, check));
        questions.push(Question { limit_id, client, limit, cost, max_wait, is_shadow, is_quota_mode, check: index });
    }
    questions
}

fn is_same_rule(plan: &Plan, other: usize, check: &Checked) -> bool {
    let whose = |check: &Checked| (check.part, check.namespace, check.rule);
    plan.checks.get(other).is_some_and(|other| whose(other) == whose(check))
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("questions", &self.questions).finish_non_exhaustive()
    }
}
