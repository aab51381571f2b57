use super::verdict::Verdict;
use std::fmt;
use tollgate_limit::Decision;
use tollgate_rules::identity::Key;
use tollgate_rules::model::Then;
use tollgate_rules::{CompiledNamespace, Request};

/// Why a request would be decided as it would be.
#[derive(Debug)]
pub struct Explanation {
    /// What a [check](super::Engine::check) would say.
    pub verdict: Verdict,
    /// Every rule of the namespace, in the order in which they are looked at.
    pub rules: Vec<Considered>,
}

/// What became of one rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Considered {
    /// The rule's name.
    pub rule: String,
    /// Whom it counts the request for, and what each limit would say, if it applies; or else why not.
    pub result: Result<Applied, String>,
}

/// What a rule that applies says.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// Whom the request is counted for.
    pub client: String,
    /// Each limit, as it is written, and what it would say.
    pub limits: Vec<(String, Decision)>,
}

impl Explanation {
    /// That of what a decision about a request would be.
    pub(crate) fn new(verdict: Verdict, request: &Request<'_>) -> Explanation {
        let namespace = verdict.plan.rules.compiled.namespace(request.namespace);
        let rules = namespace.map(|namespace| consider(namespace, request, &verdict));
        Explanation { rules: rules.unwrap_or_default(), verdict }
    }
}

fn consider(namespace: &CompiledNamespace, request: &Request<'_>, verdict: &Verdict) -> Vec<Considered> {
    let attributes = namespace.attributes(request);
    let mut stopped_by: Option<&str> = None;
    let mut considered = Vec::new();
    for rule in namespace.rules() {
        let name = &*rule.rule().name;
        let result = match (stopped_by, namespace.explain(&attributes, rule)) {
            (Some(before), Ok(())) => Err(format!("`{before}` applies, and says `then: stop`")),
            (_, Err(reason)) => Err(reason),
            (None, Ok(())) => {
                if rule.rule().then == Then::Stop {
                    stopped_by = Some(name);
                }
                let client = Key::new(&rule.key(&attributes)).to_string();
                Ok(Applied { client, limits: said_by(name, verdict) })
            }
        };
        considered.push(Considered { rule: name.to_owned(), result });
    }
    mark_replaced(&mut considered, namespace);
    considered
}

fn said_by(rule: &str, verdict: &Verdict) -> Vec<(String, Decision)> {
    let checks = verdict.checks().iter().filter(|check| verdict.rule_of(check).is_some_and(|of| *of.name == *rule));
    checks.filter_map(|check| Some((verdict.limit_of(check)?.amount.to_string(), check.decision))).collect()
}

fn mark_replaced(considered: &mut [Considered], namespace: &CompiledNamespace) {
    // Also one that is replaced itself replaces others.
    let applied: Vec<bool> = considered.iter().map(|rule| rule.result.is_ok()).collect();
    for (rule, _) in namespace.rules().iter().zip(applied).filter(|(_, applied)| *applied) {
        for replaced in rule.replaces() {
            if let Some(one) = considered.get_mut(*replaced as usize).filter(|one| one.result.is_ok()) {
                one.result = Err(format!("`{}` replaces it", rule.rule().name));
            }
        }
    }
}

/// For people.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.verdict.action(), self.verdict.reason().name())?;
        if self.verdict.is_degraded() {
            writeln!(f, "  ! a limit that hosts share could not be asked; its rule's `on_failure` has decided")?;
        }
        for Considered { rule, result } in &self.rules {
            match result {
                Err(reason) => writeln!(f, "  - {rule}: {reason}")?,
                Ok(Applied { client, limits }) => {
                    writeln!(f, "  + {rule}: counts for {}", if client.is_empty() { "everybody" } else { client })?;
                    for (limit, decision) in limits {
                        let word = if decision.is_allowed() { "has room" } else { "refuses" };
                        writeln!(f, "      {limit}: {word}, {} of {} left", decision.remaining, decision.limit)?;
                    }
                }
            }
        }
        Ok(())
    }
}
