//! YAML (and JSON, which is a part of it) as a tree that knows where everything stands.
//!
//! The tree is built from the parser's events rather than by serde: a reader that stops at the first mistake
//! cannot report all of them. Size, depth and what aliases add up to are limited before anything is built.

use crate::check::fields::shorten;
use crate::mistake::{Place, Report};
use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput, Tag};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// The longest text that is read at all.
pub(crate) const LONGEST: usize = 64 << 20;

/// How deep lists and maps may be nested.
const DEEPEST: usize = 48;

/// The most values in one text, whether they are written out or not.
const MOST_VALUES: usize = 10_000_000;

/// Values that may be kept for aliases, and added by them, together.
const MOST_ALIASED: usize = 200_000;

/// The longest name of a field. Longer ones could not be written on one line.
const LONGEST_NAME: usize = 128;

/// Something in a file, and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) value: Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Null,
    /// A text, and whether it stands there without quotes: only then can it be a number or a truth value.
    Text(Box<str>, bool),
    List(Vec<Node>),
    Map(Vec<(Name, Node)>),
}

/// The name of a field.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) place: Place,
    pub(crate) text: Box<str>,
}

impl Node {
    /// What it is, in words.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null => "nothing",
            Value::Text(..) => "a text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text, _) => Some(text),
            _ => None,
        }
    }

    /// The text, if it stands there without quotes.
    pub(crate) fn plain(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text, true) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn list(&self) -> Option<&[Node]> {
        match &self.value {
            Value::List(nodes) => Some(nodes),
            _ => None,
        }
    }

    pub(crate) fn map(&self) -> Option<&[(Name, Node)]> {
        match &self.value {
            Value::Map(fields) => Some(fields),
            _ => None,
        }
    }

    /// The same without its places.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Text(text, true) => plain_json(text),
            Value::Text(text, false) => (**text).into(),
            Value::List(nodes) => nodes.iter().map(Node::to_json).collect(),
            Value::Map(fields) => fields.iter().map(|(name, node)| (name.text.to_string(), node.to_json())).collect(),
        }
    }

    /// The levels below this one.
    fn height(&self) -> usize {
        match &self.value {
            Value::Null | Value::Text(..) => 0,
            Value::List(nodes) => 1 + nodes.iter().map(Node::height).max().unwrap_or(0),
            Value::Map(fields) => 1 + fields.iter().map(|(_, node)| node.height()).max().unwrap_or(0),
        }
    }

    fn size(&self) -> usize {
        1 + match &self.value {
            Value::Null | Value::Text(..) => 0,
            Value::List(nodes) => nodes.iter().map(Node::size).sum(),
            Value::Map(fields) => fields.iter().map(|(_, node)| 1 + node.size()).sum(),
        }
    }
}

/// What a text without quotes means: a truth value, a number as JSON writes them, or itself.
fn plain_json(text: &str) -> serde_json::Value {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number = digits.starts_with(|c: char| c.is_ascii_digit());
    match text {
        "true" => true.into(),
        "false" => false.into(),
        _ if !is_number => text.into(),
        _ => {
            let whole = text.parse::<i64>().map(Into::into).or_else(|_| text.parse::<u64>().map(Into::into));
            whole.ok().or_else(|| finite(text)).unwrap_or_else(|| text.into())
        }
    }
}

fn finite(text: &str) -> Option<serde_json::Value> {
    serde_json::Number::from_f64(text.parse().ok()?).map(Into::into)
}

/// Reads every document of a text. `None` if it is no YAML, which was then reported.
pub(crate) fn read(report: &mut Report<'_>) -> Option<Vec<Node>> {
    let source = report.source.clone();
    if source.text().len() > LONGEST {
        let help = format!("split it: at most {} MiB are read", LONGEST >> 20);
        report.wrong(START, "this file is too large", help);
        return None;
    }
    let text = source.text().trim_start_matches('\u{feff}');
    if let Some(before) = text.split_once('\0').map(|(before, _)| before) {
        // The parser would take it for the end, and what follows for nothing.
        report.wrong(end_of(before), "a NUL character", "leave it out");
        return None;
    }
    let text = with_whole_characters(text);
    let mut reader =
        Reader { parser: Parser::new_from_str(&text), anchors: HashMap::new(), values: 0, aliased: 0, report };
    match reader.documents() {
        Ok(documents) if documents.is_empty() => {
            report.wrong(START, "there is nothing in this file", "write at least `namespace: …` and `rules: []`");
            None
        }
        Ok(documents) => Some(documents),
        Err(complaint) => {
            report.wrong(complaint.place, complaint.problem, complaint.help);
            None
        }
    }
}

/// What to do about a text that cannot be read to its end.
const FIRST: &str = "correct this first: nothing from here on was read";

const START: Place = Place { line: 1, column: 1, width: 1 };

/// Where a text ends.
fn end_of(text: &str) -> Place {
    let last = text.rsplit(['\n', '\r']).next().unwrap_or_default();
    let lines = text.replace("\r\n", "\n").matches(['\n', '\r']).count() + 1;
    Place { line: u32::try_from(lines).unwrap_or(u32::MAX), ..START }.within(last.chars().count(), 1)
}

/// JSON writes characters beyond the first 65,536 as two escapes, `\ud83d\ude00`, which YAML does not know.
fn with_whole_characters(text: &str) -> Cow<'_, str> {
    let is_json = || serde_json::from_str::<serde_json::Value>(text).is_ok();
    let may_have_halves = text.trim_start().starts_with('{') && (text.contains("\\ud") || text.contains("\\uD"));
    if !may_have_halves || !is_json() {
        return text.into();
    }
    let (mut whole, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        whole.push_str(before);
        let half = |at: usize| u16::from_str_radix(escape.get(at..)?.strip_prefix("\\u")?.get(..4)?, 16).ok();
        let both = [half(0), half(6)].map(Option::unwrap_or_default);
        let length = match char::decode_utf16(both).next() {
            Some(Ok(c)) if c > '\u{ffff}' => {
                whole.push_str(&format!("\\U{:08x}", u32::from(c)));
                12
            }
            _ => {
                whole.extend(escape.chars().take(2));
                escape.chars().take(2).map(char::len_utf8).sum()
            }
        };
        rest = escape.get(length..).unwrap_or_default();
    }
    whole.push_str(rest);
    whole.into()
}

struct Complaint {
    place: Place,
    problem: String,
    help: String,
}

fn complaint(place: Place, problem: impl Into<String>, help: impl Into<String>) -> Complaint {
    Complaint { place, problem: problem.into(), help: help.into() }
}

fn too_deep(place: Place) -> Complaint {
    complaint(place, "this is nested too deeply", format!("at most {DEEPEST} levels are read"))
}

struct Reader<'a, 'b, 'r> {
    parser: Parser<'a, StrInput<'a>>,
    anchors: HashMap<usize, Node>,
    values: usize,
    aliased: usize,
    /// For what does not keep the rest from being read.
    report: &'b mut Report<'r>,
}

impl<'a> Reader<'a, '_, '_> {
    fn next(&mut self) -> Result<(Event<'a>, Place), Complaint> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((event, place(&span))),
            Some(Err(error)) => {
                let mark = error.marker();
                let place = place(&Span::new(*mark, *mark));
                Err(complaint(place, format!("this is not YAML: {}", error.info()), FIRST))
            }
            None => Ok((Event::StreamEnd, Place::default())),
        }
    }

    fn documents(&mut self) -> Result<Vec<Node>, Complaint> {
        let mut documents = Vec::new();
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return Ok(documents),
                (Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing, _) => {}
                (event, place) => documents.push(self.node(event, place, 0)?),
            }
        }
    }

    fn node(&mut self, event: Event<'a>, place: Place, depth: usize) -> Result<Node, Complaint> {
        if depth > DEEPEST {
            return Err(too_deep(place));
        }
        self.values += 1;
        if self.values > MOST_VALUES {
            return Err(complaint(
                place,
                "there is too much in this file",
                format!("at most {MOST_VALUES} values are read"),
            ));
        }
        let (anchor, value) = match event {
            Event::Alias(anchor) => return self.alias(anchor, place, depth),
            Event::Scalar(text, style, anchor, tag) => {
                let is_text = self.tag(tag.as_deref(), place);
                (anchor, scalar(&text, style == ScalarStyle::Plain && !is_text))
            }
            Event::SequenceStart(anchor, tag) => {
                self.tag(tag.as_deref(), place);
                (anchor, Value::List(self.list(depth)?))
            }
            Event::MappingStart(anchor, tag) => {
                self.tag(tag.as_deref(), place);
                (anchor, Value::Map(self.map(depth)?))
            }
            _ => return Err(complaint(place, "this is not YAML", FIRST)),
        };
        let node = Node { place, value };
        if anchor > 0 {
            self.copy(&node, place)?;
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    /// Takes the tags that say what goes without saying. Whether it is the one of texts.
    fn tag(&mut self, tag: Option<&Tag>, place: Place) -> bool {
        let Some(tag) = tag else { return false };
        let known = ["str", "int", "float", "bool", "null", "seq", "map"].contains(&&*tag.suffix);
        if !tag.is_yaml_core_schema() || !known {
            let handle = if tag.is_yaml_core_schema() { "!!" } else { &tag.handle };
            let problem = format!("unknown tag `{}`", shorten(&format!("{handle}{}", tag.suffix)));
            self.report.wrong(place, problem, "leave it out");
        }
        tag.suffix == "str"
    }

    fn alias(&mut self, anchor: usize, place: Place, depth: usize) -> Result<Node, Complaint> {
        let Some(meant) = self.anchors.remove(&anchor) else {
            return Err(complaint(place, "this alias stands inside of what it means", "write it out"));
        };
        self.copy(&meant, place)?;
        if depth + meant.height() > DEEPEST {
            return Err(too_deep(place));
        }
        let node = Node { place, value: meant.value.clone() };
        self.anchors.insert(anchor, meant);
        Ok(node)
    }

    /// Counts what is about to be copied.
    fn copy(&mut self, node: &Node, place: Place) -> Result<(), Complaint> {
        self.aliased += node.size();
        if self.aliased <= MOST_ALIASED {
            return Ok(());
        }
        let help = format!("write some of it out: they may add up to {MOST_ALIASED} values");
        Err(complaint(place, "the anchors and aliases of this file add up to too much", help))
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, Complaint> {
        let mut nodes = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(nodes),
                (event, place) => nodes.push(self.node(event, place, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Vec<(Name, Node)>, Complaint> {
        let (mut fields, mut merged) = (Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        loop {
            let (event, name_place) = self.next()?;
            if event == Event::MappingEnd {
                break;
            }
            let name = self.node(event, name_place, depth + 1)?;
            let (event, place) = self.next()?;
            let node = self.node(event, place, depth + 1)?;
            match name.value {
                Value::Text(text, true) if &*text == "<<" => merged.push(node),
                Value::Text(text, _) if !seen.insert(text.clone()) => self.report.wrong(
                    name.place,
                    format!("`{}` stands here twice", shorten(&text)),
                    "leave one of them out",
                ),
                Value::Text(text, _) if text.len() > LONGEST_NAME => {
                    let help = format!("write at most {LONGEST_NAME} bytes");
                    self.report.wrong(name.place, "the name of this field is too long", help);
                }
                Value::Text(text, _) => fields.push((Name { place: name.place, text }, node)),
                _ => self.report.wrong(
                    name.place,
                    format!("the name of a field is a text, not {}", name.kind()),
                    "write a name here",
                ),
            }
        }
        merged.into_iter().for_each(|node| self.merge(node, &mut fields, &mut seen));
        Ok(fields)
    }

    /// Adds the fields of `<<: *alias` that are not written out.
    fn merge(&mut self, node: Node, fields: &mut Vec<(Name, Node)>, seen: &mut HashSet<Box<str>>) {
        match node.value {
            Value::Map(inherited) => {
                fields.extend(inherited.into_iter().filter(|(name, _)| seen.insert(name.text.clone())));
            }
            Value::List(nodes) => nodes.into_iter().for_each(|node| self.merge(node, fields, seen)),
            _ => self.report.wrong(node.place, "`<<` takes in a map", "write an alias of a map here"),
        }
    }
}

fn scalar(text: &str, plain: bool) -> Value {
    if plain && matches!(text, "" | "~" | "null" | "Null" | "NULL") {
        Value::Null
    } else {
        Value::Text(text.into(), plain)
    }
}

fn place(span: &Span) -> Place {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let width = span.end.index().saturating_sub(span.start.index());
    let width = if span.start.line() == span.end.line() { width } else { 1 };
    Place { line: number(span.start.line()), column: number(span.start.col() + 1), width: number(width.max(1)) }
}
