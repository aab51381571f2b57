//! Fields of a map, and plain values in them.

use crate::mistake::{Place, Report, did_you_mean};
use crate::yaml::{Name, Node, Value};

/// The longest name of a namespace, rule, attribute or limit.
pub(crate) const LONGEST_NAME: usize = 128;

/// The longest list of names that is worth reading.
const MOST_LISTED: usize = 32;

/// The fields of a map, all of which are known.
pub(crate) struct Fields<'a> {
    place: Place,
    what: &'static str,
    fields: &'a [(Name, Node)],
}

impl<'a> Fields<'a> {
    /// Takes a map, and reports what it does not know.
    pub(crate) fn new(
        node: &'a Node,
        what: &'static str,
        known: &[&str],
        report: &mut Report<'_>,
    ) -> Option<Fields<'a>> {
        let Value::Map(fields) = &node.value else {
            let problem = format!("expected {what}, found {}", node.kind());
            report.wrong(node.place, problem, format!("write a map with {}", known.join(", ")));
            return None;
        };
        for (name, _) in fields.iter().filter(|(name, _)| !known.contains(&&*name.text)) {
            unknown(&name.text, name.place, "field", known.iter().copied(), report);
        }
        Some(Fields { place: node.place, what, fields })
    }

    /// A field, if it is there and says something.
    pub(crate) fn get(&self, name: &str, report: &mut Report<'_>) -> Option<&'a Node> {
        self.filled(name, "write a value, or leave the line out", report)
    }

    fn filled(&self, name: &str, help: &str, report: &mut Report<'_>) -> Option<&'a Node> {
        let (name, node) = self.fields.iter().find(|(known, _)| *known.text == *name)?;
        if matches!(node.value, Value::Null) {
            report.wrong(name.place, format!("`{}` is blank", name.text), help);
            return None;
        }
        Some(node)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|(known, _)| *known.text == *name)
    }

    /// A field that must not be missing.
    pub(crate) fn required(&self, name: &str, help: &str, report: &mut Report<'_>) -> Option<&'a Node> {
        if !self.has(name) {
            report.wrong(self.place, format!("{} without `{name}`", self.what), help);
        }
        self.filled(name, help, report)
    }

    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// Where a field is named, or else where the map begins.
    pub(crate) fn place_of(&self, name: &str) -> Place {
        self.fields.iter().find(|(known, _)| *known.text == *name).map_or(self.place, |(name, _)| name.place)
    }
}

/// Reports a name that nobody knows.
pub(crate) fn unknown<'a>(
    name: &str,
    place: Place,
    what: &str,
    known: impl Iterator<Item = &'a str> + Clone,
    report: &mut Report<'_>,
) {
    let close = if report.is_long() { None } else { did_you_mean(name, known.clone()) };
    let help = match close {
        Some(close) => format!("did you mean `{}`?", shorten(close)),
        None if known.clone().nth(MOST_LISTED).is_some() => "write one that exists".to_owned(),
        None if known.clone().next().is_none() => "there are none".to_owned(),
        None => format!("known are {}", known.map(shorten).collect::<Vec<_>>().join(", ")),
    };
    report.wrong(place, format!("unknown {what} `{}`", shorten(name)), help);
}

/// Enough of a text to recognise it, with nothing that would garble a terminal.
pub(crate) fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(60).flat_map(char::escape_debug).collect();
    if text.chars().nth(60).is_some() {
        short.push('…');
    }
    short
}

/// The items of a list, or nothing.
pub(crate) fn list<'a>(node: &'a Node, what: &str, report: &mut Report<'_>) -> &'a [Node] {
    node.list().unwrap_or_else(|| {
        report.wrong(
            node.place,
            format!("{what} are a list, not {}", node.kind()),
            "write `[…]`, or lines that begin with `- `",
        );
        &[]
    })
}

/// A text.
pub(crate) fn text<'a>(node: &'a Node, what: &str, report: &mut Report<'_>) -> Option<&'a str> {
    if node.text().is_none() {
        report.wrong(node.place, format!("{what} is a text, not {}", node.kind()), "write a text here");
    }
    node.text()
}

/// The name of something: a text that is not empty, not long and printable.
pub(crate) fn name(node: &Node, what: &str, report: &mut Report<'_>) -> Option<Box<str>> {
    let name = text(node, &format!("the name of {what}"), report)?;
    let help = if name.is_empty() {
        "write a name".to_owned()
    } else if name.len() > LONGEST_NAME {
        format!("write at most {LONGEST_NAME} bytes")
    } else if name.chars().any(char::is_control) {
        "leave control characters out".to_owned()
    } else {
        return Some(name.into());
    };
    report.wrong(node.place, format!("this cannot be the name of {what}"), help);
    None
}

/// One of some values that have names.
pub(crate) fn named<T: Copy>(node: &Node, names: &[(&'static str, T)], report: &mut Report<'_>) -> Option<T> {
    let known = || names.iter().map(|(name, _)| *name);
    let Some(given) = node.text() else {
        let help = format!("write one of {}", known().collect::<Vec<_>>().join(", "));
        report.wrong(node.place, format!("expected a word, found {}", node.kind()), help);
        return None;
    };
    let found = names.iter().find(|(name, _)| *name == given).map(|(_, value)| *value);
    if found.is_none() {
        unknown(given, node.place, "value", known(), report);
    }
    found
}

/// `true` or `false`.
pub(crate) fn truth(node: &Node, report: &mut Report<'_>) -> Option<bool> {
    match node.plain() {
        Some("true" | "True" | "TRUE") => Some(true),
        Some("false" | "False" | "FALSE") => Some(false),
        _ => {
            report.wrong(node.place, "this is neither true nor false", "write `true` or `false`");
            None
        }
    }
}

/// A whole number within bounds.
pub(crate) fn number<T>(node: &Node, range: std::ops::RangeInclusive<T>, report: &mut Report<'_>) -> Option<T>
where
    T: Copy + PartialOrd + std::str::FromStr + std::fmt::Display,
{
    // To some readers, a zero in front means that the number is octal.
    let digits = node.plain().map(|text| text.replace('_', "")).filter(|text| text == "0" || !text.starts_with('0'));
    let number = digits.and_then(|digits| digits.parse().ok()).filter(|number| range.contains(number));
    if number.is_none() {
        let help = format!("write a whole number from {} to {}", range.start(), range.end());
        report.wrong(node.place, "this number cannot be used here", help);
    }
    number
}

/// Texts in a list, or a single one.
pub(crate) fn texts<'a>(node: &'a Node, what: &str, report: &mut Report<'_>) -> Vec<(&'a str, Place)> {
    let nodes = node.list().unwrap_or(std::slice::from_ref(node));
    nodes.iter().filter_map(|node| Some((text(node, what, report)?, node.place))).collect()
}
