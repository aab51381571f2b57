//! What is asked of an attribute: a value, a list, a glob, a network, or a map that says it in full.

use super::fields::{Fields, text, truth};
use super::identity::network;
use crate::identity::{Fingerprint, PathForm};
use crate::mistake::{Place, Report};
use crate::model::{Condition, Identity};
use crate::pattern::{Glob, PathGlob, Pattern, Regex};
use crate::yaml::{Node, Value};

pub(super) const FIELDS: [&str; 6] = ["present", "not", "exact", "glob", "regex", "cidr"];

/// Reads one condition.
pub(super) fn read(attribute: &str, node: &Node, identity: &Identity, report: &mut Report<'_>) -> Option<Condition> {
    if let Value::Map(_) = node.value {
        return in_full(attribute, node, identity, report);
    }
    Some(Condition::AnyOf(patterns(attribute, node, identity, report)?))
}

fn in_full(attribute: &str, node: &Node, identity: &Identity, report: &mut Report<'_>) -> Option<Condition> {
    let fields = Fields::new(node, "a condition", &FIELDS, report)?;
    let mut said = FIELDS.into_iter().filter(|name| fields.has(name));
    let (Some(name), None) = (said.next(), said.next()) else {
        let help = format!("write exactly one of {}", FIELDS.join(", "));
        report.wrong(fields.place(), "this condition says nothing, or several things", help);
        return None;
    };
    let value = fields.get(name, report)?;
    match name {
        "present" => Some(if truth(value, report)? { Condition::Present } else { Condition::Absent }),
        "not" => Some(Condition::NoneOf(patterns(attribute, value, identity, report)?)),
        _ => Some(Condition::AnyOf(each(value, report, |text, place, report| match name {
            "exact" => Some(Pattern::Exact(text.into())),
            "glob" => glob(attribute, text, place, identity, report),
            "regex" => regex(text, place, report),
            _ => network(text, place, report).map(Pattern::Network),
        })?)),
    }
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

/// A path as requests are matched by: in its normal form, or else it could never match.
fn path(text: &str, place: Place, form: &PathForm, report: &mut Report<'_>) -> Option<Pattern> {
    if !text.contains('*') {
        let normal = form.normalise(text);
        if *normal != *text {
            let help = format!("write \"{normal}\": that is how requests are compared");
            report.wrong(place, "no request has a path that is written like this", help);
            return None;
        }
        return Some(Pattern::Exact(text.into()));
    }
    // A letter in place of each wildcard shows whether the rest is as it should be.
    let sample = text.replace('*', "x");
    let normal = form.normalise(&sample);
    let glob = PathGlob::new(text);
    match glob {
        Ok(glob) if *normal == *sample => Some(Pattern::Path(glob)),
        Ok(_) => {
            let help = "write it as requests are compared: no doubled slashes, dot segments or trailing slash, decoded";
            report.wrong(place, "no request has a path that is written like this", help);
            None
        }
        Err(help) => {
            report.wrong(place, "this is no pattern of paths", help);
            None
        }
    }
}

fn regex(text: &str, place: Place, report: &mut Report<'_>) -> Option<Pattern> {
    match Regex::new(text) {
        Ok(regex) => Some(Pattern::Regex(regex)),
        Err(error) => {
            report.wrong(place, "this regular expression cannot be used", error);
            None
        }
    }
}

/// Keys are compared by their fingerprints, so that none has to stand in a file.
fn api_key(text: &str, place: Place, report: &mut Report<'_>) -> Option<Pattern> {
    if !Fingerprint::is_text(text) {
        let help = "write the key's fingerprint, `sha256:` and 32 hexadecimal digits; secrets do not belong in rules";
        report.wrong(place, "API keys are known by their fingerprints", help);
        return None;
    }
    Some(Pattern::Exact(text.into()))
}
