//! What a rule has done so far: is it effective, is it too strict, and who is being throttled?
//!
//! Everything here is fixed in size whatever clients send, and nothing on the way of a decision waits for a lock.

mod distinct;
mod tally;
mod top_keys;

#[cfg(test)]
mod tests;

pub use distinct::Distinct;
pub use tally::{Counts, Ending, Tally, Use, UseHistogram};
pub use top_keys::{KeyName, TopKey, TopKeys};

use std::sync::OnceLock;

/// The statistics of one rule.
///
/// Each decision is one atomic addition and a glance at a sketch; a refusal also looks through sixteen numbers.
/// The memory is asked for when it is first needed, 1.3 KiB by the first decision and 1.6 KiB more by the first
/// refusal, so that rules which never apply cost nothing. [`ready`](Self::ready) asks for it ahead.
///
/// Clients are known by a hash, which must be evenly distributed over all 64 bits, and secret where clients choose
/// their own keys.
///
/// ```
/// use std::fmt::Write;
/// use tollgate::stats::{RuleStats, Use};
///
/// let stats = RuleStats::default();
/// stats.allowed(0x9e37_79b9_7f4a_7c15, Some(Use { used: 95, limit: 100 }));
/// stats.refused(0x9e37_79b9_7f4a_7c15, |name| _ = write!(name, "alice"));
///
/// let snapshot = stats.snapshot();
/// assert_eq!((snapshot.counts.allowed, snapshot.counts.refused), (1, 1));
/// assert_eq!((snapshot.uses.tenths[9], snapshot.uses.over), (1, 1));
/// assert_eq!((snapshot.clients.round(), snapshot.refused_clients.round()), (1.0, 1.0));
/// assert_eq!(snapshot.top[0].name, "alice");
/// ```
#[derive(Debug, Default)]
pub struct RuleStats {
    traffic: OnceLock<Box<Traffic>>,
    refusals: OnceLock<Box<Refusals>>,
}

/// What every decision writes to.
#[derive(Debug, Default)]
struct Traffic {
    tally: Tally,
    clients: Distinct,
}

/// What only refusals write to, be they real or shadowed.
#[derive(Debug, Default)]
struct Refusals {
    clients: Distinct,
    top: TopKeys,
}

/// The statistics of a rule at one moment. What is counted while it is taken may be in one part and not in another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleSnapshot {
    /// How the decisions ended.
    pub counts: Counts,
    /// How close the clients ran to their limits.
    pub uses: UseHistogram,
    /// About how many clients there were; see [`Distinct`].
    pub clients: f64,
    /// About how many of them were refused at least once, or would have been but for the rule's being shadowed.
    pub refused_clients: f64,
    /// Those most often refused, or shadowed, the worst first; see [`TopKeys`].
    pub top: Vec<TopKey>,
    /// Refusals that are not in `top`, as two threads wanted to change it at the same time.
    pub top_missed: u64,
}

impl RuleStats {
    /// Asks for all the memory there will ever be, so that no decision has to.
    pub fn ready(&self) {
        self.traffic();
        self.refusals();
    }

    /// A request went ahead; `None` stands for a client without a limit.
    #[inline]
    pub fn allowed(&self, client: u64, after: Option<Use>) {
        self.decided(client, after.map_or(Ending::Unlimited, Ending::Allowed));
    }

    /// A request went ahead, or will, after a wait.
    #[inline]
    pub fn waited(&self, client: u64) {
        self.decided(client, Ending::Waited);
    }

    /// A request was refused. `name` is only called where the client's name is not known yet.
    #[inline]
    pub fn refused(&self, client: u64, name: impl FnOnce(&mut KeyName)) {
        self.decided(client, Ending::Refused);
        self.blame(client, name);
    }

    /// A request went ahead that would have been refused if the rule were not shadowed.
    #[inline]
    pub fn shadowed(&self, client: u64, name: impl FnOnce(&mut KeyName)) {
        self.decided(client, Ending::Shadowed);
        self.blame(client, name);
    }

    /// A decision, which is counted besides, was made without the hosts that the limit is shared with.
    pub fn degraded(&self) {
        self.traffic().tally.add_degraded();
    }

    /// What there is to know.
    pub fn snapshot(&self) -> RuleSnapshot {
        let mut snapshot = RuleSnapshot::default();
        if let Some(traffic) = self.traffic.get() {
            (snapshot.counts, snapshot.uses) = traffic.tally.snapshot();
            snapshot.clients = traffic.clients.estimate();
        }
        if let Some(refusals) = self.refusals.get() {
            snapshot.refused_clients = refusals.clients.estimate();
            snapshot.top = refusals.top.snapshot();
            snapshot.top_missed = refusals.top.missed();
        }
        snapshot
    }

    #[inline]
    fn decided(&self, client: u64, ending: Ending) {
        let traffic = self.traffic();
        traffic.tally.add(ending);
        traffic.clients.insert(client);
    }

    fn blame(&self, client: u64, name: impl FnOnce(&mut KeyName)) {
        let refusals = self.refusals();
        refusals.clients.insert(client);
        refusals.top.add(client, name);
    }

    #[inline]
    fn traffic(&self) -> &Traffic {
        self.traffic.get_or_init(Box::default)
    }

    #[inline]
    fn refusals(&self) -> &Refusals {
        self.refusals.get_or_init(Box::default)
    }
}
