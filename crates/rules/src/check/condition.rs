//! What is asked of an attribute: a value, a list, a glob, a network, or a map that says it in full.

use super::fields::{Fields, shorten, text, truth};
use super::identity::network;
use crate::identity::{Fingerprint, PathForm};
use crate::mistake::{Place, Report};
use crate::model::{Condition, Identity};
use crate::pattern::{Glob, LARGEST_REGEX, PathGlob, Pattern, Regex};
use crate::yaml::{Node, Value};

pub(crate) const FIELDS: [&str; 6] = ["present", "not", "exact", "glob", "regex", "cidr"];

/// Reads one condition.
pub(super) fn read(attribute: &str, node: &Node, identity: &Identity, report: &mut Report<'_>) -> Option<Condition> {
    if let Value::Map(_) = node.value {
        return in_full(attribute, node, identity, report);
    }
    Some(Condition::AnyOf(patterns(attribute, node, identity, report)?))
}

fn in_full(attribute: &str, node: &Node, identity: &Identity, report: &mut Report<'_>) -> Option<Condition> {
    let fields = Fields::new(node, "a condition", &FIELDS, report)?;
    let said: Vec<&str> = FIELDS.into_iter().filter(|name| fields.has(name)).collect();
    let name = match *said.as_slice() {
        [name] => name,
        // What stands there instead was reported.
        [] if node.map().is_some_and(|fields| !fields.is_empty()) => return None,
        _ => {
            let help = format!("write exactly one of {}", FIELDS.join(", "));
            report.wrong(fields.place(), "this condition says nothing, or several things", help);
            return None;
        }
    };
    let value = fields.get(name, report)?;
    match name {
        "present" => Some(if truth(value, report)? { Condition::Present } else { Condition::Absent }),
        "not" => Some(Condition::NoneOf(patterns(attribute, value, identity, report)?)),
        _ => {
            suits(attribute, name, fields.place_of(name), report)?;
            let read = |text: &str, place, report: &mut Report<'_>| match (name, attribute) {
                ("exact", "path") => normal(text, place, &identity.path, report).map(|_| Pattern::Exact(text.into())),
                ("exact", "api_key") => api_key(text, place, report),
                ("exact", _) => Some(Pattern::Exact(text.into())),
                ("glob", _) => glob(attribute, text, place, identity, report),
                ("regex", _) => regex(text, place, report),
                _ => network(text, place, report).map(Pattern::Network),
            };
            Some(Condition::AnyOf(each(value, report, read)?))
        }
    }
}

/// Addresses are compared by their bits and API keys by their fingerprints: patterns of texts would match none.
fn suits(attribute: &str, kind: &str, place: Place, report: &mut Report<'_>) -> Option<()> {
    let (problem, help) = match (attribute, kind) {
        ("ip", "exact" | "glob" | "regex") => {
            ("addresses are no texts", "write an address or a network, as in `ip: 192.0.2.0/24`")
        }
        ("api_key", "glob" | "regex" | "cidr") => {
            ("API keys are known by their fingerprints", "write the fingerprints in full, or `{ present: true }`")
        }
        ("path", "cidr") => ("paths are no addresses", "write a path, as in `path: /v1/**`"),
        _ => return Some(()),
    };
    report.wrong(place, problem, help);
    None
}

fn patterns(attribute: &str, node: &Node, identity: &Identity, report: &mut Report<'_>) -> Option<Vec<Pattern>> {
    each(node, report, |text, place, report| match attribute {
        "ip" => network(text, place, report).map(Pattern::Network),
        "api_key" => api_key(text, place, report),
        _ => glob(attribute, text, place, identity, report),
    })
}

/// One or several texts, each read by `read`. A list of which nothing is left could match nothing.
fn each(
    node: &Node,
    report: &mut Report<'_>,
    mut read: impl FnMut(&str, Place, &mut Report<'_>) -> Option<Pattern>,
) -> Option<Vec<Pattern>> {
    let nodes = node.list().unwrap_or(std::slice::from_ref(node));
    if nodes.is_empty() {
        report.wrong(
            node.place,
            "an empty list matches nothing",
            "write at least one value, or leave the condition out",
        );
        return None;
    }
    let patterns: Vec<_> = nodes
        .iter()
        .filter_map(|node| {
            let text = text(node, "a value", report)?;
            read(text, node.place, report)
        })
        .collect();
    (patterns.len() == nodes.len()).then_some(patterns)
}

fn glob(attribute: &str, text: &str, place: Place, identity: &Identity, report: &mut Report<'_>) -> Option<Pattern> {
    if attribute == "path" {
        return path(text, place, &identity.path, report);
    }
    Some(if text.contains('*') { Pattern::Glob(Glob::new(text)) } else { Pattern::Exact(text.into()) })
}

/// A path or a pattern of paths.
fn path(text: &str, place: Place, form: &PathForm, report: &mut Report<'_>) -> Option<Pattern> {
    normal(text, place, form, report)?;
    if !text.contains('*') {
        return Some(Pattern::Exact(text.into()));
    }
    match PathGlob::new(text) {
        Ok(glob) => Some(Pattern::Path(glob)),
        Err(help) => {
            report.wrong(place, "this is no pattern of paths", help);
            None
        }
    }
}

/// Whether a path is written as requests are compared: any other could never match.
fn normal(text: &str, place: Place, form: &PathForm, report: &mut Report<'_>) -> Option<()> {
    let normal = form.normalise(text);
    if *normal == *text {
        return Some(());
    }
    let help = format!("write \"{}\": that is how requests are compared", shorten(&normal));
    report.wrong(place, "no request has a path that is written like this", help);
    None
}

fn regex(text: &str, place: Place, report: &mut Report<'_>) -> Option<Pattern> {
    if !report.has_memory_left() {
        let help = "make them fewer, or simpler: character classes such as `[0-9]` are smaller than `\\d`";
        report.wrong(place, "the regular expressions of this file take up too much memory", help);
        return None;
    }
    let regex = Regex::new(text);
    report.use_memory(regex.as_ref().map_or(LARGEST_REGEX, Regex::size));
    match regex {
        Ok(regex) => Some(Pattern::Regex(regex)),
        Err(error) => {
            report.wrong(place, "this regular expression cannot be used", error);
            None
        }
    }
}

/// Keys are compared by their fingerprints, so that none has to stand in a file.
pub(super) fn api_key(text: &str, place: Place, report: &mut Report<'_>) -> Option<Pattern> {
    if !Fingerprint::is_text(text) {
        let help = "write the key's fingerprint, `sha256:` and 32 hexadecimal digits; secrets do not belong in rules";
        report.wrong(place, "API keys are known by their fingerprints", help);
        return None;
    }
    Some(Pattern::Exact(text.into()))
}
