use crate::engine::Verdict;
use std::fmt;
use tollgate_rules::{Mistakes, Request};

/// Everything that can be observed. Metrics, logs and pages are made from this.
#[non_exhaustive]
pub enum Event<'a> {
    /// A request was decided.
    Decided {
        /// What was asked; several where they go ahead together or not at all.
        parts: &'a [Request<'a>],
        /// What was answered.
        verdict: &'a Verdict,
    },
    /// New rules are in force.
    RulesReplaced {
        /// Which version they are. The rules that it all began with are 1, so this is from 2.
        version: u64,
    },
    /// New rules were wrong. The ones before are still in force.
    RulesRefused {
        /// What is wrong with them.
        mistakes: &'a Mistakes,
    },
    /// New rules could not be read. The ones before are still in force.
    RulesUnreadable {
        /// Which file or directory.
        path: &'a std::path::Path,
        /// Why not.
        error: &'a std::io::Error,
    },
    /// A request that went ahead has been answered.
    Answered {
        /// Whose rules it was decided by.
        namespace: &'a str,
        /// How long the answer took.
        took: std::time::Duration,
        /// Whether it failed: an error, or a status from 500.
        failed: bool,
    },
}

/// Without the attributes of requests, some of which may be secrets.
impl fmt::Debug for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Decided { parts, verdict } => {
                let namespaces: Vec<&str> = parts.iter().map(|part| part.namespace).collect();
                f.debug_struct("Decided").field("namespaces", &namespaces).field("verdict", verdict).finish()
            }
            Event::RulesReplaced { version } => f.debug_struct("RulesReplaced").field("version", version).finish(),
            Event::RulesRefused { mistakes } => f.debug_struct("RulesRefused").field("mistakes", mistakes).finish(),
            Event::RulesUnreadable { path, error } => {
                f.debug_struct("RulesUnreadable").field("path", path).field("error", error).finish()
            }
            Event::Answered { namespace, took, failed } => f
                .debug_struct("Answered")
                .field("namespace", namespace)
                .field("took", took)
                .field("failed", failed)
                .finish(),
        }
    }
}

pub(super) type Observer = Box<dyn Fn(&Event<'_>) + Send + Sync>;
