//! Rules as they are meant: what a checked file says, with every default filled in.

use crate::dialect::Dialect;
use crate::identity::{Grouping, PathForm, Trust};
use crate::pattern::Pattern;
use std::fmt;
use std::time::Duration;
use tollgate_limit::{Limit, Quota};

/// The rules of all namespaces, checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleSet {
    /// In the order of the files.
    pub namespaces: Vec<Namespace>,
}

/// One team's rules; Envoy calls it a domain.
#[derive(Clone, Debug, PartialEq)]
pub struct Namespace {
    /// What requests ask for.
    pub name: Box<str>,
    /// What becomes of requests that no rule matches.
    pub no_match: NoMatch,
    /// Which headers tell clients about limits, unless a rule says otherwise.
    pub headers: Dialect,
    /// How a client is told from another.
    pub identity: Identity,
    /// In the order of the file.
    pub rules: Vec<Rule>,
}

/// What becomes of requests that no rule matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NoMatch {
    /// They pass.
    #[default]
    Allow,
    /// They are refused with 503: the rules are expected to know every request.
    Refuse,
}

/// How the clients of a namespace are told apart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Identity {
    /// Whose word on the client's address counts.
    pub trust: Trust,
    /// Which addresses are one client.
    pub grouping: Grouping,
    /// How paths are written.
    pub path: PathForm,
    /// The header that bears the API key: `x-api-key` unless told otherwise. Of `authorization` it is the bearer
    /// token.
    pub api_key: Option<Box<str>>,
    /// The header in which an authenticating proxy names the user, if there is one.
    pub login: Option<Box<str>>,
}

/// One rule: which requests, who shares a bucket, how much, and what happens beyond that.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Unique within its namespace; what metrics and answers call it.
    pub name: Box<str>,
    /// What it is there for, in its author's words.
    pub description: Option<Box<str>>,
    /// Which requests it applies to.
    pub selector: Selector,
    /// The attributes whose values tell buckets apart; none for one bucket for all. With descriptors, those of
    /// the entries that are not shared.
    pub key: Vec<Box<str>>,
    /// How much, for everybody of whom nothing else is said.
    pub limits: Limits,
    /// How much for whom an attribute says it.
    pub tiers: Option<Tiers>,
    /// How much for single clients.
    pub overrides: Vec<Override>,
    /// What a request costs.
    pub cost: Cost,
    /// Higher ones are looked at first; equal ones in the order of the file.
    pub priority: i32,
    /// Whether rules after this one are looked at when it matches.
    pub then: Then,
    /// What happens to requests over the limit.
    pub over: Over,
    /// What to do when the shared state cannot be reached.
    pub on_failure: OnFailure,
    /// Who counts together.
    pub shared: Shared,
    /// How far hosts that count together may be out.
    pub error_budget: ErrorBudget,
    /// Which headers tell clients about it; the namespace's unless set.
    pub headers: Option<Dialect>,
    /// Rules that do not apply to requests to which this one does.
    pub replaces: Vec<Box<str>>,
    /// It refuses only when all of this kind that match do.
    pub quota_mode: bool,
    /// Whatever else its author wants to be passed on to those who ask.
    pub metadata: Option<serde_json::Value>,
}

/// Which requests a rule applies to.
#[derive(Clone, Debug, PartialEq)]
pub enum Selector {
    /// Those whose attributes satisfy all of these conditions.
    Match(Vec<(Box<str>, Condition)>),
    /// Those whose attributes are exactly these entries, in this order, as Envoy's descriptors are.
    Descriptor(Vec<Entry>),
}

/// What is asked of one attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// It looks like one of these.
    AnyOf(Vec<Pattern>),
    /// It is absent, or looks like none of these.
    NoneOf(Vec<Pattern>),
    /// It is there, whatever it is.
    Present,
    /// It is not there.
    Absent,
}

/// One step of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The attribute's name.
    pub key: Box<str>,
    /// Its value, where each `*` stands for any characters; `None` for any value.
    pub value: Option<Box<str>>,
    /// Whether all values that match share a bucket.
    pub shared: bool,
}

/// How much is allowed.
#[derive(Clone, Debug, PartialEq)]
pub enum Limits {
    /// Everything; and whoever asks is told so.
    Unlimited,
    /// All of these at once. None at all: requests pass, and nothing is said of a limit.
    Each(Vec<LimitRule>),
}

/// One limit of a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitRule {
    /// What headers call it.
    pub name: Option<Box<str>>,
    /// How much, by which algorithm.
    pub amount: Amount,
}

/// How much, by which algorithm.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "hardly any limit is a ban, and a box would be one more place to look")]
pub enum Amount {
    /// Nothing passes.
    Banned {
        /// The unit that the ban was written with, for those who are told.
        period: Duration,
    },
    /// So much.
    Limit {
        /// What was written, in one spelling.
        text: Box<str>,
        /// How many per period; for calendar windows the nominal period.
        quota: Quota,
        /// The same as an algorithm.
        limit: Limit,
    },
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Amount::Banned { period } => f.write_str(&crate::limits::ban_text(*period)),
            Amount::Limit { text, .. } => f.write_str(text),
        }
    }
}

/// Limits by the value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub struct Tiers {
    /// Such as `plan`.
    pub attribute: Box<str>,
    /// Such as `free` and `gold`.
    pub tiers: Vec<(Box<str>, Limits)>,
}

/// Limits of a single client.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// The values of the rule's key, in its order.
    pub client: Vec<Box<str>>,
    /// What applies to it instead.
    pub limits: Limits,
}

/// What a request costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// What the request itself says, or else 1.
    Asked,
    /// Always so much.
    Fixed(u64),
    /// What an attribute says.
    Attribute {
        /// Such as `bytes`.
        name: Box<str>,
        /// What a request costs that does not say.
        default: u64,
        /// The most that a request can cost; also the cost of one whose attribute is no number.
        most: u64,
    },
}

/// Whether matching goes on after a rule that applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Then {
    /// The rules after it are looked at, too.
    #[default]
    Continue,
    /// They are not.
    Stop,
}

/// What happens to requests over the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// They are turned away with this status: 429 or 503.
    Reject(u16),
    /// They wait until it is their turn.
    Queue {
        /// No longer than this.
        wait: Duration,
        /// No more than so many at once.
        depth: Option<u64>,
    },
    /// The connection is closed without an answer.
    Drop,
    /// Nothing; it is only reported.
    Shadow,
}

impl Over {
    /// What happens unless a rule says otherwise.
    pub const DEFAULT: Over = Over::Reject(429);
}

/// What to do when the shared state cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// Let requests through.
    Allow,
    /// Count on this host alone.
    #[default]
    Local,
    /// Refuse with 503.
    Refuse,
}

/// Who counts together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shared {
    /// This host alone.
    #[default]
    Local,
    /// All hosts; each decides and tells the others.
    Cluster,
    /// All hosts; each decides and adds up in Redis or Valkey.
    Store,
    /// All hosts; Redis or Valkey decides.
    StoreExact,
    /// All hosts; each takes tokens from Redis or Valkey in advance.
    StoreLease,
}

impl Shared {
    /// Whether hosts count together in Redis or Valkey.
    pub fn is_by_store(self) -> bool {
        matches!(self, Shared::Store | Shared::StoreExact | Shared::StoreLease)
    }
}

/// What hosts may hide from each other of what they let through, all of them together, as a share of the limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErrorBudget(f64);

impl ErrorBudget {
    /// From 0 to 100.
    pub fn from_percent(percent: f64) -> Option<ErrorBudget> {
        (0.0..=100.0).contains(&percent).then_some(ErrorBudget(percent))
    }

    /// From 0 to 100.
    pub fn percent(self) -> f64 {
        self.0
    }
}

impl Default for ErrorBudget {
    fn default() -> ErrorBudget {
        ErrorBudget(5.0)
    }
}

impl fmt::Display for ErrorBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

/// The names that rules know these values by.
pub(crate) mod names {
    use super::{NoMatch, OnFailure, Shared, Then};

    pub(crate) const NO_MATCH: [(&str, NoMatch); 2] = [("allow", NoMatch::Allow), ("refuse", NoMatch::Refuse)];
    pub(crate) const THEN: [(&str, Then); 2] = [("continue", Then::Continue), ("stop", Then::Stop)];
    pub(crate) const ON_FAILURE: [(&str, OnFailure); 3] =
        [("allow", OnFailure::Allow), ("local", OnFailure::Local), ("refuse", OnFailure::Refuse)];
    pub(crate) const SHARED: [(&str, Shared); 5] = [
        ("local", Shared::Local),
        ("cluster", Shared::Cluster),
        ("store", Shared::Store),
        ("store-exact", Shared::StoreExact),
        ("store-lease", Shared::StoreLease),
    ];

    /// The name of a value.
    pub(crate) fn name_of<T: PartialEq>(names: &[(&'static str, T)], value: &T) -> &'static str {
        names.iter().find(|(_, known)| known == value).map_or("", |(name, _)| name)
    }
}
