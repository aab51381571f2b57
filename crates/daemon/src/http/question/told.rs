//! What is answered.

use crate::answer::{Answer, milliseconds};
use serde::Serialize;
use tollgate::{Considered, Decision, Explanation};

/// An [`Answer`] in JSON.
#[derive(Debug, Serialize)]
pub(super) struct Told<'a> {
    allowed: bool,
    status: u16,
    limit: Option<u64>,
    remaining: Option<u64>,
    wait_ms: u64,
    retry_after_ms: Option<u64>,
    reset_after_ms: Option<u64>,
    rule: Option<&'a str>,
    reason: &'static str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    degraded: bool,
}

impl<'a> Told<'a> {
    pub(super) fn new(answer: &Answer<'a>) -> Told<'a> {
        Told {
            allowed: answer.allowed,
            status: answer.status,
            limit: answer.limit,
            remaining: answer.remaining,
            wait_ms: milliseconds(answer.wait),
            retry_after_ms: answer.retry_after.map(milliseconds),
            reset_after_ms: answer.reset_after.map(milliseconds),
            rule: answer.rule,
            reason: answer.reason,
            degraded: answer.degraded,
        }
    }
}

/// An [`Explanation`] in JSON.
#[derive(Debug, Serialize)]
pub(super) struct Explained<'a> {
    verdict: Told<'a>,
    rules: Vec<Rule<'a>>,
    /// The same for people.
    text: String,
}

#[derive(Debug, Serialize)]
struct Rule<'a> {
    rule: &'a str,
    applies: bool,
    /// Why it does not apply.
    because: Option<&'a str>,
    /// Whom the request is counted for; empty where that is everybody.
    client: Option<&'a str>,
    limits: Vec<Limit<'a>>,
}

#[derive(Debug, Serialize)]
struct Limit<'a> {
    limit: &'a str,
    allowed: bool,
    most: u64,
    remaining: u64,
    retry_after_ms: Option<u64>,
    reset_after_ms: u64,
}

impl<'a> Explained<'a> {
    pub(super) fn new(explanation: &'a Explanation) -> Explained<'a> {
        Explained {
            verdict: Told::new(&Answer::new(&explanation.verdict)),
            rules: explanation.rules.iter().map(Rule::new).collect(),
            text: explanation.to_string(),
        }
    }
}

impl<'a> Rule<'a> {
    fn new(considered: &'a Considered) -> Rule<'a> {
        let (applied, because) = match &considered.result {
            Ok(applied) => (Some(applied), None),
            Err(because) => (None, Some(because.as_str())),
        };
        let limits = applied.iter().flat_map(|applied| &applied.limits);
        Rule {
            rule: &considered.rule,
            applies: applied.is_some(),
            because,
            client: applied.map(|applied| applied.client.as_str()),
            limits: limits.map(|(limit, decision)| Limit::new(limit, decision)).collect(),
        }
    }
}

impl<'a> Limit<'a> {
    fn new(limit: &'a str, decision: &Decision) -> Limit<'a> {
        Limit {
            limit,
            allowed: decision.is_allowed(),
            most: decision.limit,
            remaining: decision.remaining,
            retry_after_ms: decision.retry_after().map(milliseconds),
            reset_after_ms: milliseconds(decision.reset_after),
        }
    }
}
