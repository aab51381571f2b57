//! The one decision path: identify, match, decide, act.

mod asking;
mod books;
mod counting;
mod deciding;
#[cfg(feature = "redis")]
mod elsewhere;
mod event;
mod explain;
mod finding;
mod hold;
mod in_force;
mod queue;
mod rules;
mod together;
mod verdict;

pub use asking::{Answer, Pending, Question, Step};
#[cfg(feature = "redis")]
pub(crate) use elsewhere::Elsewhere;
pub use event::Event;
pub use explain::{Applied, Considered, Explanation};
pub use hold::{Booking, Hold};
pub use in_force::InForce;
pub use verdict::{Action, Checked, Reason, Verdict};

use crate::ledger::Ledger;
use crate::stats::RuleSnapshot;
use arc_swap::ArcSwap;
use books::Books;
use deciding::{Plan, Taking};
use event::Observer;
use rules::Rules;
use std::fmt;
use std::hash::RandomState;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tollgate_limit::{Capacity, Forgotten, Table, Time};
use tollgate_rules::model::NoMatch;
use tollgate_rules::{Request, RuleSet};

/// Clients that are counted at the same time, unless told otherwise.
const CLIENTS: usize = 100_000;

/// How often tokens are looked after whose limit is being replaced.
const MOST_HEIRS: usize = 8;

/// Decides about requests by rules. Whatever asks, a function call, a middleware or a daemon, asks this.
///
/// It has no clock, does no I/O and takes no lock: the time comes with the question. [`Tollgate`](crate::Tollgate)
/// adds a clock and reads rules from files.
///
/// ```
/// use tollgate::{Action, Engine, Request, RuleSet, Source, Time};
///
/// let rules = RuleSet::parse(&[Source::new("rules.yaml", "
/// namespace: payments
/// rules:
///   - name: login-attempts
///     match: { operation: login }
///     key: [ip]
///     limits: [2 per minute, 100 per day using sliding-window]
/// ")])?;
/// let engine = Engine::new(rules, Time::ZERO);
///
/// let attributes = [("operation", "login".into()), ("ip", "192.0.2.1".into())];
/// let login = Request::new("payments", &attributes);
/// assert!(engine.check(&login, Time::ZERO).is_allowed());
/// assert!(engine.check(&login, Time::ZERO).is_allowed());
///
/// let verdict = engine.check(&login, Time::ZERO);
/// assert_eq!(verdict.action(), Action::Refuse(429));
/// assert_eq!(verdict.rule(), Some("login-attempts"));
/// assert_eq!(verdict.retry_after().unwrap().as_secs(), 30);
/// # Ok::<(), tollgate::Mistakes>(())
/// ```
pub struct Engine {
    rules: ArcSwap<Rules>,
    books: Books,
    /// Held while rules are replaced: the ones before, until nobody decides by them any more. Whoever replaces rules
    /// frees them, for that can take longer than any decision may.
    replaced: Mutex<Vec<Arc<Rules>>>,
    observer: Option<Observer>,
}

/// Says how large an engine is and who watches it.
#[derive(Default)]
pub struct EngineBuilder {
    capacity: Option<Capacity>,
    accounts: usize,
    unknown_namespaces: NoMatch,
    observer: Option<Observer>,
}

impl EngineBuilder {
    /// How many buckets it keeps at the same time, of all rules together: each limit of each client has one, of 25.6
    /// bytes.
    #[must_use]
    pub fn capacity(self, capacity: Capacity) -> EngineBuilder {
        EngineBuilder { capacity: Some(capacity), ..self }
    }

    /// How many buckets of rules that are [shared](tollgate_rules::model::Shared) with other hosts can be in use at the
    /// same time, of 128 bytes each.
    #[must_use]
    pub fn accounts(self, accounts: usize) -> EngineBuilder {
        EngineBuilder { accounts, ..self }
    }

    /// What becomes of requests of namespaces that nobody has rules for. They pass, unless told otherwise, and the
    /// verdict says why.
    #[must_use]
    pub fn unknown_namespaces(self, unknown_namespaces: NoMatch) -> EngineBuilder {
        EngineBuilder { unknown_namespaces, ..self }
    }

    /// Calls this with everything that happens. It runs in the midst of decisions, so it had better be quick.
    #[must_use]
    pub fn observer(self, observer: impl Fn(&Event<'_>) + Send + Sync + 'static) -> EngineBuilder {
        EngineBuilder { observer: Some(Box::new(observer)), ..self }
    }

    /// An engine with these rules.
    pub fn build(self, rules: RuleSet, now: Time) -> Engine {
        Engine {
            rules: ArcSwap::from_pointee(Rules::new(rules, None, self.unknown_namespaces, now)),
            books: Books {
                table: Table::new(self.capacity.unwrap_or(Capacity::Keys(CLIENTS)), &RandomState::new()),
                ledger: Ledger::new(self.accounts),
            },
            replaced: Mutex::default(),
            observer: self.observer,
        }
    }
}

impl Engine {
    /// An engine with these rules, for 100,000 buckets at the same time.
    pub fn new(rules: RuleSet, now: Time) -> Engine {
        Engine::builder().build(rules, now)
    }

    /// An engine of another size, or one that is watched.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::default()
    }

    /// Decides about a request: it pays all limits that apply or none.
    ///
    /// Limits that are kept elsewhere cannot be asked here: what the rule says about failures applies. Use
    /// [`begin`](Self::begin) to ask them.
    #[inline]
    pub fn check(&self, request: &Request<'_>, now: Time) -> Verdict {
        self.check_all(std::slice::from_ref(request), now)
    }

    /// Decides about several requests that go ahead together or not at all, such as the descriptors of one call of
    /// Envoy's. The verdict says which part each limit was asked for.
    #[inline]
    pub fn check_all(&self, parts: &[Request<'_>], now: Time) -> Verdict {
        self.check_by(parts, || now)
    }

    /// The same by a clock, which is read only when it is known what to ask: reading it takes as long as a tenth of a
    /// cache miss, and what will be asked is being fetched meanwhile.
    #[inline]
    pub(crate) fn check_by(&self, parts: &[Request<'_>], clock: impl FnOnce() -> Time) -> Verdict {
        let mut verdict = Verdict::open(self.rules.load());
        verdict.plan.find(&self.books.table, parts);
        let now = clock();
        if verdict.plan.is_shared {
            verdict.plan.open_accounts(&self.books, parts, now);
        }
        verdict.plan.take(&self.books, Taking::Pay, now);
        self.seal(&mut verdict, parts);
        verdict
    }

    /// What [`check`](Self::check) would say. Takes nothing and counts nothing.
    pub fn peek(&self, request: &Request<'_>, now: Time) -> Verdict {
        let mut verdict = Verdict::open(self.rules.load());
        verdict.plan.find(&self.books.table, std::slice::from_ref(request));
        verdict.plan.look(&self.books, now);
        verdict.close();
        verdict
    }

    /// Takes an estimate, the request's cost, to be [settled](Self::settle) when the actual cost is known. Whoever
    /// has not settled by then has used what was estimated.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Engine, Request, RuleSet, Source, Time};
    ///
    /// let rules = "
    /// namespace: llm
    /// rules: [{ name: tokens, key: [user], limits: [1000 per hour] }]
    /// ";
    /// let engine = Engine::new(RuleSet::parse(&[Source::new("rules.yaml", rules)])?, Time::ZERO);
    /// let attributes = [("user", "alice".into())];
    /// let prompt = Request::new("llm", &attributes).with_cost(800);
    ///
    /// let now = Time::ZERO;
    /// let hold = engine.reserve(&prompt, Duration::from_secs(60), now).expect("800 of 1000 are there");
    /// engine.settle(hold, 300, now);
    /// assert_eq!(engine.peek(&prompt, now).remaining(), Some(700));
    /// # Ok::<(), tollgate::Mistakes>(())
    /// ```
    ///
    /// # Errors
    /// The refusal. Nothing was taken.
    #[expect(clippy::result_large_err, reason = "a refusal is a verdict like any other, which nobody boxes")]
    pub fn reserve(&self, request: &Request<'_>, expires_after: Duration, now: Time) -> Result<Hold, Verdict> {
        let parts = std::slice::from_ref(request);
        let mut verdict = Verdict::open(self.rules.load());
        self.decide(&mut verdict, parts, Taking::Book, now);
        Hold::of(verdict, request, (now, expires_after))
    }

    /// Replaces an estimate by what it really was: more is taken into debt, less is given back as far as it has
    /// not come back by itself.
    pub fn settle(&self, hold: Hold, actual: u64, now: Time) {
        hold.settle(&self.books, actual, now);
    }

    /// Gives back what was reserved for a request that did not happen.
    pub fn refund(&self, hold: Hold, now: Time) {
        self.settle(hold, 0, now);
    }

    /// Gives back what a verdict took for a request that was queued and whose client has left.
    pub fn cancel(&self, booking: impl Into<Booking>, now: Time) {
        booking.into().cancel(&self.books, now);
    }

    /// Tells the observer how a request went that was let through.
    pub fn answered(&self, namespace: &str, took: Duration, failed: bool) {
        self.tell(&Event::Answered { namespace, took, failed });
    }

    /// Forgets what the client of a request has spent, in every bucket that is its own, and says how many those
    /// were. Buckets stay as they are that all clients share, or all who lack what would tell them apart.
    pub fn reset(&self, request: &Request<'_>, now: Time) -> usize {
        let mut plan = Plan::new(self.rules.load());
        plan.find(&self.books.table, std::slice::from_ref(request));
        plan.reset(&self.books, now)
    }

    /// Every rule of the request's namespace, and why it applies or not. Takes nothing.
    pub fn explain(&self, request: &Request<'_>, now: Time) -> Explanation {
        Explanation::new(self.peek(request, now), request)
    }

    /// Replaces all rules at once. Requests that are being decided finish with the ones before. Buckets of limits
    /// that are the same stay; a limit that differs keeps what was spent, as far as clients are told apart as before.
    pub fn replace(&self, rules: RuleSet, now: Time) {
        let mut replaced = self.replaced.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.rules.load_full();
        let after = Arc::new(Rules::new(rules, Some(&before), before.unknown, now));
        let version = after.version;
        self.rules.store(after);
        self.tell(&Event::RulesReplaced { version });
        replaced.push(before);
        replaced.retain(|rules| Arc::strong_count(rules) > 1);
    }

    /// Which version of the rules is in force: 1 to begin with, and one more each time they are replaced.
    pub fn version(&self) -> u64 {
        self.rules.load().version
    }

    /// What each rule has done so far, by namespace and name.
    pub fn snapshot(&self) -> Vec<(String, String, RuleSnapshot)> {
        self.rules.load().snapshot()
    }

    /// What a full table had to forget.
    pub fn forgotten(&self) -> Forgotten {
        self.books.table.forgotten()
    }

    /// The buckets of all limits.
    pub fn table(&self) -> &Table {
        &self.books.table
    }

    /// The rules in force, for those who need to know what rules ask for before they can ask.
    pub fn in_force(&self) -> InForce<'_> {
        InForce { engine: self, rules: self.rules.load() }
    }

    /// Decides by the rules of an open verdict.
    #[inline]
    fn decide(&self, verdict: &mut Verdict, parts: &[Request<'_>], taking: Taking, now: Time) {
        verdict.plan.find(&self.books.table, parts);
        if verdict.plan.is_shared {
            verdict.plan.open_accounts(&self.books, parts, now);
        }
        verdict.plan.take(&self.books, taking, now);
        self.seal(verdict, parts);
    }

    /// Draws the conclusion, counts it and reports it.
    #[inline]
    fn seal(&self, verdict: &mut Verdict, parts: &[Request<'_>]) {
        if !verdict.plan.unreturned.is_empty() {
            self.return_to_heirs(&mut verdict.plan);
        }
        verdict.close();
        if verdict.plan.is_shared {
            self.note_down(verdict, parts);
        }
        verdict.plan.count(!verdict.is_allowed(), parts);
        self.tell(&Event::Decided { parts, verdict });
    }

    /// Notes down what others are to be told, and what was decided without them.
    #[cold]
    fn note_down(&self, verdict: &mut Verdict, parts: &[Request<'_>]) {
        if verdict.is_allowed() {
            verdict.plan.record(&self.books, parts);
        } else {
            verdict.plan.doubt(&self.books, parts);
        }
        verdict.plan.count_degraded();
    }

    /// A request that was refused in a race has paid nothing, not even if rules were replaced in that moment.
    #[cold]
    fn return_to_heirs(&self, plan: &mut Plan) {
        // Again while others are carrying the same tokens from one version's bucket to the next one's.
        for _ in 0..MOST_HEIRS {
            let rules = self.rules.load();
            if plan.unreturned.is_empty() {
                return;
            }
            plan.unreturned.iter_mut().for_each(|tokens| tokens.give_back(&rules, &self.books));
            plan.unreturned.retain(|tokens| !tokens.is_settled());
        }
    }

    #[inline]
    pub(crate) fn tell(&self, event: &Event<'_>) {
        if let Some(observer) = &self.observer {
            observer(event);
        }
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("version", &self.version())
            .field("table", &self.books.table)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for EngineBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineBuilder").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}
