//! YAML (and JSON, which is a part of it) as a tree that knows where everything stands.
//!
//! The tree is built from the parser's events rather than by serde: a reader that stops at the first mistake
//! cannot report all of them. Size, depth and what aliases add up to are limited before anything is built.

use crate::mistake::{Place, Report};
use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput};
use std::collections::{HashMap, HashSet};

/// The longest text that is read at all.
pub(crate) const LONGEST: usize = 64 << 20;

/// How deep lists and maps may be nested.
const DEEPEST: usize = 48;

/// Nodes that aliases may add to those that are written out.
const MOST_ALIASED: usize = 100_000;

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
            Value::Text(text, true) => match &**text {
                "true" => true.into(),
                "false" => false.into(),
                text => text.parse::<i64>().map_or_else(|_| text.into(), Into::into),
            },
            Value::Text(text, false) => (**text).into(),
            Value::List(nodes) => nodes.iter().map(Node::to_json).collect(),
            Value::Map(fields) => fields.iter().map(|(name, node)| (name.text.to_string(), node.to_json())).collect(),
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

/// Reads every document of a text. `None` if it is no YAML, which was then reported.
pub(crate) fn read(report: &mut Report<'_>) -> Option<Vec<Node>> {
    let source = report.source.clone();
    if source.text().len() > LONGEST {
        let help = format!("split it: at most {} MiB are read", LONGEST >> 20);
        report.wrong(Place { line: 1, column: 1, width: 1 }, "this file is too large", help);
        return None;
    }
    let mut reader = Reader {
        parser: Parser::new_from_str(source.text()),
        anchors: HashMap::new(),
        aliased: 0,
        complaints: Vec::new(),
    };
    let documents = reader.documents();
    for complaint in reader.complaints {
        report.wrong(complaint.place, complaint.problem, complaint.help);
    }
    match documents {
        Ok(documents) => Some(documents),
        Err(complaint) => {
            report.wrong(complaint.place, complaint.problem, complaint.help);
            None
        }
    }
}

struct Complaint {
    place: Place,
    problem: String,
    help: String,
}

fn complaint(place: Place, problem: impl Into<String>, help: impl Into<String>) -> Complaint {
    Complaint { place, problem: problem.into(), help: help.into() }
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    anchors: HashMap<usize, Node>,
    aliased: usize,
    /// What does not keep the rest from being read.
    complaints: Vec<Complaint>,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Place), Complaint> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((event, place(&span))),
            Some(Err(error)) => {
                let mark = error.marker();
                let place = place(&Span::new(*mark, *mark));
                Err(complaint(place, format!("this is not YAML: {}", error.info()), "see the lines up to here"))
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
            return Err(complaint(place, "this is nested too deeply", format!("at most {DEEPEST} levels are read")));
        }
        let (anchor, value) = match event {
            Event::Alias(anchor) => return self.alias(anchor, place),
            Event::Scalar(text, style, anchor, _) => (anchor, scalar(&text, style)),
            Event::SequenceStart(anchor, _) => (anchor, Value::List(self.list(depth)?)),
            Event::MappingStart(anchor, _) => (anchor, Value::Map(self.map(depth)?)),
            _ => return Err(complaint(place, "this is not YAML", "see the lines up to here")),
        };
        let node = Node { place, value };
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn alias(&mut self, anchor: usize, place: Place) -> Result<Node, Complaint> {
        let Some(meant) = self.anchors.get(&anchor) else {
            return Err(complaint(place, "this alias stands inside of what it means", "write it out"));
        };
        self.aliased += meant.size();
        if self.aliased > MOST_ALIASED {
            let help = format!("write some of it out: aliases may add up to {MOST_ALIASED} values");
            return Err(complaint(place, "the aliases of this file add up to too much", help));
        }
        Ok(Node { place, value: meant.value.clone() })
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
                Value::Text(text, _) if !seen.insert(text.clone()) => self.complaints.push(complaint(
                    name.place,
                    format!("`{}` stands here twice", text.escape_debug()),
                    "leave one of them out",
                )),
                Value::Text(text, _) => fields.push((Name { place: name.place, text }, node)),
                _ => self.complaints.push(complaint(name.place, "the name of a field is a text", "write a name here")),
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
            _ => self.complaints.push(complaint(node.place, "`<<` takes in a map", "write an alias of a map here")),
        }
    }
}

fn scalar(text: &str, style: ScalarStyle) -> Value {
    let plain = style == ScalarStyle::Plain;
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
