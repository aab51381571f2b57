//! The rate limiter that a service embeds.
//!
//! [`RateLimiter`] is one limit for everybody, [`KeyedRateLimiter`] one for every client, and [`Tollgate`] decides by
//! rules in files. All own a [`Clock`], decide without a lock, and can be asked from any thread.
//!
//! ```
//! use tollgate::RateLimiter;
//!
//! let limiter = RateLimiter::keyed("100 per second burst 200".parse()?);
//! let decision = limiter.check("alice", 1);
//! if decision.is_allowed() {
//!     println!("go ahead, {} left", decision.remaining);
//! } else {
//!     println!("come back in {:?}", decision.retry_after());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! By rules, which can change while the service runs:
//!
//! ```
//! use tollgate::{Request, Tollgate};
//!
//! let tollgate = Tollgate::from_yaml("
//! namespace: payments
//! rules:
//!   - name: login-attempts
//!     match: { path: /login }
//!     key: [ip]
//!     limits: [5 per minute, 100 per day]
//! ")?;
//! let attributes = [("path", "/login".into()), ("ip", "192.0.2.1".into())];
//! let verdict = tollgate.check(&Request::new("payments", &attributes));
//! assert!(verdict.is_allowed());
//! # Ok::<(), tollgate::Mistakes>(())
//! ```
//!
//! With the feature `tower` it is a layer for axum, hyper and tonic (the module `tower`).

mod clock;
mod engine;
mod files;
mod gate;
pub mod headers;
mod keyed;
pub mod ledger;
mod limiter;
mod live;
pub mod problem;
#[cfg(feature = "redis")]
mod sharing;
pub mod stats;
#[cfg(feature = "tower")]
pub mod tower;
#[cfg(feature = "async")]
mod waiting;
mod watch;

pub use clock::{Clock, ManualClock};
pub use engine::{
    Action, Answer, Applied, Booking, Checked, Considered, Engine, EngineBuilder, Event, Explanation, Hold, InForce,
    Pending, Question, Reason, Step, Verdict,
};
pub use files::{LoadError, read_rules};
pub use gate::{Tollgate, TollgateBuilder};
pub use keyed::{KeyedRateLimiter, KeyedRateLimiterBuilder};
pub use limiter::{RateLimiter, RateLimiterBuilder};
pub use tollgate_limit::{
    Blocked, Calendar, CalendarUnit, Capacity, Cell, Change, Decision, Forgotten, Limit, Op, Outcome, ParseQuotaError,
    Quota, QuotaError, Reservation, Retry, Table, Time, format_duration, parse_duration,
};

#[cfg(feature = "redis")]
pub use sharing::{Sharing, Unreached};
pub use tollgate_rules::{
    CompiledLimit, CompiledNamespace, CompiledRule, Dialect, Glob, Mistake, Mistakes, PathGlob, Pattern, Regex,
    Request, RuleSet, Source, Value, did_you_mean, identity, json_schema, model,
};
#[cfg(feature = "redis")]
pub use tollgate_store as store;
pub use watch::Watch;

/// The README's example is run, too.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// And that of the page about sharing.
#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../../../docs/sharing.md")]
struct SharingPage;
