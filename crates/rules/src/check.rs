//! From text to rules: everything that a file says is looked at, and every mistake is reported.

pub(crate) mod condition;
pub(crate) mod fields;
pub(crate) mod identity;
pub(crate) mod rule;

use crate::mistake::{Mistakes, Place, Report, Source};
use crate::model::{Namespace, RuleSet, names};
use crate::yaml::{self, Node};
use fields::{Fields, named};
use std::collections::HashMap;

/// The most rules of all files together.
const MOST_RULES: usize = 1_000_000;

pub(crate) const NAMESPACE_FIELDS: [&str; 5] = ["namespace", "no_match", "headers", "identity", "rules"];

impl RuleSet {
    /// Reads rules from texts in YAML or JSON, our own and those of envoyproxy/ratelimit. Each document of a text
    /// is a namespace.
    ///
    /// ```
    /// use tollgate_rules::{RuleSet, Source};
    ///
    /// let text = "
    /// namespace: payments
    /// rules:
    ///   - name: login-attempts
    ///     match: { operation: login }
    ///     key: [ip]
    ///     limts: [5 per minute]
    /// ";
    /// let mistakes = RuleSet::parse(&[Source::new("rules.yaml", text)]).unwrap_err();
    /// assert!(mistakes.to_string().contains("did you mean `limits`?"));
    /// ```
    ///
    /// # Errors
    /// Everything that is wrong with them. A set is taken as a whole or not at all.
    pub fn parse(sources: &[Source]) -> Result<RuleSet, Mistakes> {
        let mut mistakes = Mistakes::default();
        let mut set = RuleSet::default();
        let mut seen = HashMap::new();
        for source in sources {
            let mut report = Report::new(source, &mut mistakes);
            let mut documents = yaml::read(&mut report).unwrap_or_default();
            if documents.first().is_some_and(crate::envoy::is_envoys) {
                // envoyproxy/ratelimit reads no more of a file, so what follows has never been in force.
                documents.truncate(1);
            }
            for document in documents {
                let Some(namespace) = namespace(&document, &mut report) else { continue };
                if let Some(before) = seen.insert(namespace.name.clone(), source.name()) {
                    let problem = format!("there are two namespaces called `{}`", namespace.name);
                    report.wrong(
                        name_place(&document),
                        problem,
                        format!("rename one of them; the other is in {before}"),
                    );
                }
                set.namespaces.push(namespace);
            }
        }
        if mistakes.is_empty() { Ok(set) } else { Err(mistakes) }
    }
}

/// Where a namespace or domain is named.
fn name_place(document: &Node) -> Place {
    let mut fields = document.map().unwrap_or_default().iter();
    let named = fields.find(|(name, _)| matches!(&*name.text, "namespace" | "domain"));
    named.map_or(document.place, |(_, node)| node.place)
}

fn namespace(document: &Node, report: &mut Report<'_>) -> Option<Namespace> {
    if crate::envoy::is_envoys(document) {
        return crate::envoy::namespace(document, report);
    }
    let fields = Fields::new(document, "a namespace", &NAMESPACE_FIELDS, report)?;
    let name = fields.required("namespace", "name the namespace, as in `namespace: payments`", report);
    let name = name.and_then(|node| fields::name(node, "a namespace", report));
    let no_match = fields.get("no_match", report).and_then(|node| named(node, &names::NO_MATCH, report));
    let headers = fields.get("headers", report).and_then(|node| named(node, &crate::Dialect::NAMES, report));
    let identity = fields.get("identity", report).and_then(|node| identity::read(node, report)).unwrap_or_default();
    let nodes = match fields.required("rules", "list the rules, as in `rules: []`", report) {
        Some(node) => fields::list(node, "the rules", report),
        None => &[],
    };
    if nodes.len() > MOST_RULES {
        report.wrong(document.place, "these are too many rules", format!("at most {MOST_RULES} are read"));
        return None;
    }
    let rules = rule::read_all(nodes, &identity, report);
    Some(Namespace {
        name: name?,
        no_match: no_match.unwrap_or_default(),
        headers: headers.unwrap_or_default(),
        identity,
        rules,
    })
}
