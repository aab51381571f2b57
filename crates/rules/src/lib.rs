//! Rules: read from text, checked whole, compiled to a set that finds what applies to a request; and who the
//! client of a request is.
//!
//! This crate has no clock and does no I/O: text comes in, a checked set or all of its mistakes come out.
//!
//! ```
//! use tollgate_limit::Time;
//! use tollgate_rules::{Compiled, Request, RuleSet, Source};
//!
//! let text = "
//! namespace: payments
//! rules:
//!   - name: login-attempts
//!     match: { operation: login }
//!     key: [ip]
//!     limits: [5 per minute]
//! ";
//! let rules = Compiled::new(RuleSet::parse(&[Source::new("rules.yaml", text)])?, None, Time::ZERO);
//! let payments = rules.namespace("payments").expect("it stands there");
//!
//! let attributes = [("operation", "login".into()), ("ip", "192.0.2.1".into())];
//! let request = Request::new("payments", &attributes);
//! let mut names = Vec::new();
//! payments.each_match(&payments.attributes(&request), |number| names.push(payments.rules()[number as usize].rule().name.clone()));
//! assert_eq!(names, ["login-attempts".into()]);
//! # Ok::<(), tollgate_rules::Mistakes>(())
//! ```

mod attributes;
mod check;
mod compiled;
mod descriptors;
mod dialect;
mod envoy;
pub mod identity;
mod index;
mod limits;
mod lineage;
mod mistake;
pub mod model;
mod overrides;
mod pattern;
mod print;
mod request;
mod schema;
mod yaml;

pub use attributes::Attributes;
pub use compiled::{Compiled, CompiledLimit, CompiledLimits, CompiledNamespace, CompiledRule, KeyParts};
pub use dialect::Dialect;
pub use lineage::Predecessor;
pub use mistake::{Mistake, Mistakes, Source, did_you_mean};
pub use model::RuleSet;
pub use pattern::{Glob, PathGlob, Pattern, Regex};
pub use request::{Request, Value};
pub use schema::json_schema;
