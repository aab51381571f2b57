//! What a client is told about its limits, in the headers of whichever dialect the rule chose.
//!
//! All numbers are rounded so that a client that believes them keeps to its limit: times up, tokens down.

mod value;

#[cfg(test)]
mod tests;

use std::time::Duration;
use tollgate_limit::Time;
use tollgate_rules::Dialect;
use value::Value;

/// What a client is told about one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy<'a> {
    /// What the limit is called in the rules.
    pub name: &'a str,
    /// The tokens it hands out per window.
    pub quota: u64,
    /// How long it takes to hand them out; `None` for a limit that knows no time, like one on concurrency.
    pub window: Option<Duration>,
    /// What could be taken now.
    pub remaining: u64,
    /// How long until everything is available again.
    pub reset_after: Duration,
    /// Whether this limit is among those that refused the request.
    pub violated: bool,
}

/// What a client is told about a verdict.
///
/// # A reset that agrees with `Retry-After`
/// The drafts want `Retry-After` to lie no earlier than the end of the time they call `t` or reset. For a bucket
/// that is full again in a minute, and has the one token asked for in a second, both hold only if `t` is about the
/// request: so `t` is the time until everything is available again as long as requests pass, and for a limit that
/// refused one, the time until it could pass. The drafts allow for that: no client may assume that its whole
/// quota is back after `t`. Limits that did not refuse would promise too much with a short `t`, and contradict
/// `Retry-After` with their own. A refusal leaves their state out, as the drafts allow, and only names their policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told<'a> {
    /// The limits that were asked, the tightest first: the one that dialects with room for one will tell about. Of a
    /// refusal, they tell about the first one that is marked as violated.
    pub policies: &'a [Policy<'a>],
    /// When asking again could succeed; `None` if it never could. Only a refusal tells it.
    pub retry_after: Option<Duration>,
    /// Whether the request was refused, for whatever reason and with whatever status.
    pub refused: bool,
}

impl<'a> Told<'a> {
    /// The limits that refused the request.
    pub fn violated(&self) -> impl Iterator<Item = &'a Policy<'a>> {
        self.policies.iter().filter(|policy| policy.violated)
    }

    /// What `Retry-After` says, if there is anything to say.
    pub fn retry_seconds(&self) -> Option<u64> {
        let wait = self.retry_after.filter(|_| self.refused)?;
        Some(whole_seconds(wait).clamp(1, value::LARGEST))
    }

    /// The limits whose state is told.
    fn stated(&self) -> impl Iterator<Item = &'a Policy<'a>> {
        let refused = self.refused;
        self.policies.iter().filter(move |policy| policy.violated || !refused)
    }

    /// How long until the state of a limit is better than what is told of it; see [`Told`].
    fn reset(&self, policy: &Policy<'_>) -> Duration {
        let until_retry = self.retry_after.filter(|_| self.refused).unwrap_or(Duration::MAX);
        policy.reset_after.min(until_retry)
    }
}

/// Hands each header, its name in lower case, to `each`. Allocates nothing unless a header is longer than 256 bytes.
///
/// ```
/// use std::time::Duration;
/// use tollgate::Time;
/// use tollgate::headers::{self, Policy, Told};
/// use tollgate_rules::Dialect;
///
/// let minute = Duration::from_secs(60);
/// let burst = Policy {
///     name: "burst",
///     quota: 100,
///     window: Some(minute),
///     remaining: 0,
///     reset_after: minute,
///     violated: true,
/// };
/// let told = Told { policies: &[burst], retry_after: Some(Duration::from_millis(600)), refused: true };
///
/// let mut lines = Vec::new();
/// headers::write(Dialect::Draft11, &told, Time::ZERO, |name, value| lines.push(format!("{name}: {value}")));
/// assert_eq!(lines, ["retry-after: 1", "ratelimit-policy: \"burst\";q=100;w=60", "ratelimit: \"burst\";r=0;t=1"]);
/// ```
pub fn write(dialect: Dialect, told: &Told<'_>, now: Time, mut each: impl FnMut(&'static str, &str)) {
    let mut fields = Fields { value: Value::default(), each: &mut each };
    if let Some(seconds) = told.retry_seconds() {
        fields.number("retry-after", seconds);
    }
    match dialect {
        Dialect::Draft11 => draft_11(told, &mut fields),
        Dialect::Draft7 => draft_7(told, &mut fields),
        Dialect::Draft6 => draft_6(told, &mut fields),
        Dialect::XRateLimit => x_ratelimit(told, &mut fields),
        Dialect::XRateLimitEpoch => x_ratelimit_epoch(told, now, &mut fields),
        Dialect::None => {}
    }
}

/// `"burst";q=100;w=60` and `"burst";r=50;t=30`, a list of each.
fn draft_11(told: &Told<'_>, fields: &mut Fields<'_>) {
    fields.list("ratelimit-policy", told.policies.iter(), |value, policy| {
        value.string(policy.name).text(";q=").number(policy.quota);
        window(value, policy);
    });
    fields.list("ratelimit", told.stated(), |value, policy| {
        value.string(policy.name).text(";r=").number(policy.remaining);
        value.text(";t=").number(whole_seconds(told.reset(policy)));
    });
}

/// `limit=100, remaining=50, reset=5`.
fn draft_7(told: &Told<'_>, fields: &mut Fields<'_>) {
    old_policies(told, fields);
    if let Some(policy) = told.stated().next() {
        fields.field("ratelimit", |value| {
            value.text("limit=").number(policy.quota).text(", remaining=").number(policy.remaining);
            value.text(", reset=").number(whole_seconds(told.reset(policy)));
        });
    }
}

/// The same in a header each.
fn draft_6(told: &Told<'_>, fields: &mut Fields<'_>) {
    old_policies(told, fields);
    if let Some(policy) = told.stated().next() {
        fields.number("ratelimit-limit", policy.quota);
        fields.number("ratelimit-remaining", policy.remaining);
        fields.number("ratelimit-reset", whole_seconds(told.reset(policy)));
    }
}

/// `100;w=60, 1000;w=86400`. These drafts do not know of policies without a window.
fn old_policies(told: &Told<'_>, fields: &mut Fields<'_>) {
    let windowed = told.policies.iter().filter(|policy| policy.window.is_some());
    fields.list("ratelimit-policy", windowed, |value, policy| {
        value.number(policy.quota);
        window(value, policy);
    });
}

/// `10, 10;w=1;name="x"`: the limit in force, and then all of them.
fn x_ratelimit(told: &Told<'_>, fields: &mut Fields<'_>) {
    let Some(tightest) = told.stated().next() else { return };
    fields.field("x-ratelimit-limit", |value| {
        value.number(tightest.quota);
        for policy in told.policies {
            value.text(", ").number(policy.quota);
            window(value, policy);
            value.text(";name=").string(policy.name);
        }
    });
    fields.number("x-ratelimit-remaining", tightest.remaining);
    fields.number("x-ratelimit-reset", whole_seconds(told.reset(tightest)));
}

/// Bare numbers, for clients made for services like GitHub read nothing else, and the reset as a Unix time.
fn x_ratelimit_epoch(told: &Told<'_>, now: Time, fields: &mut Fields<'_>) {
    let Some(tightest) = told.stated().next() else { return };
    let reset = now + told.reset(tightest);
    fields.number("x-ratelimit-limit", tightest.quota);
    fields.number("x-ratelimit-remaining", tightest.remaining);
    fields.number("x-ratelimit-reset", reset.as_nanos().div_ceil(1_000_000_000));
}

/// A window of a second at least, as zero would mean no limit, or none that could be kept.
fn window(value: &mut Value, policy: &Policy<'_>) {
    if let Some(window) = policy.window {
        value.text(";w=").number(whole_seconds(window).max(1));
    }
}

/// Rounded up: whoever waits this long has waited long enough.
fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}

/// Where headers go, and the one buffer that all of them are written in.
struct Fields<'a> {
    value: Value,
    each: &'a mut dyn FnMut(&'static str, &str),
}

impl Fields<'_> {
    /// Sends what `fill` writes.
    fn field(&mut self, name: &'static str, fill: impl FnOnce(&mut Value)) {
        self.value.clear();
        fill(&mut self.value);
        (self.each)(name, self.value.as_str());
    }

    fn number(&mut self, name: &'static str, number: u64) {
        self.field(name, |value| _ = value.number(number));
    }

    /// Sends a list of what `fill` writes of each policy, or nothing at all: an empty list has no header.
    fn list<'p>(
        &mut self,
        name: &'static str,
        policies: impl Iterator<Item = &'p Policy<'p>>,
        fill: impl Fn(&mut Value, &Policy<'_>),
    ) {
        let mut policies = policies.peekable();
        if policies.peek().is_none() {
            return;
        }
        self.field(name, |value| {
            while let Some(policy) = policies.next() {
                fill(value, policy);
                if policies.peek().is_some() {
                    value.text(", ");
                }
            }
        });
    }
}
