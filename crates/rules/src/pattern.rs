//! What a value has to look like.

use crate::identity::Network;
use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, MatchKind};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// The most memory that one regular expression may be compiled to.
pub(crate) const LARGEST_REGEX: usize = 2 << 20;

/// What a single value has to look like.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// Exactly this.
    Exact(Box<str>),
    /// Anything where a `*` is.
    Glob(Glob),
    /// A path: `*` is within a segment, `**` any number of segments.
    Path(PathGlob),
    /// An address in this network.
    Network(Network),
    /// All of the value matches this expression.
    Regex(Regex),
}

impl Pattern {
    /// Whether a value, and the address that it stands for if it does, looks like this.
    pub fn matches(&self, text: &str, address: Option<IpAddr>) -> bool {
        match self {
            Pattern::Exact(exact) => **exact == *text,
            Pattern::Glob(glob) => glob.matches(text),
            Pattern::Path(glob) => glob.matches(text),
            Pattern::Network(network) => address.is_some_and(|address| network.contains(address)),
            Pattern::Regex(regex) => regex.matches(text),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Exact(exact) => write!(f, "{exact:?}"),
            Pattern::Glob(glob) => write!(f, "{:?}", glob.text()),
            Pattern::Path(glob) => write!(f, "{:?}", glob.text()),
            Pattern::Network(network) => write!(f, "{network}"),
            Pattern::Regex(regex) => write!(f, "/{}/", regex.text()),
        }
    }
}

/// A text in which each `*` stands for any characters, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    text: Box<str>,
}

impl Glob {
    /// Every text is a glob; without a `*` it stands for itself.
    pub fn new(text: &str) -> Glob {
        Glob { text: text.into() }
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether all of the value looks like this. Never looks at a character twice for one `*`.
    pub fn matches(&self, value: &str) -> bool {
        glob_matches(&self.text, value)
    }
}

fn glob_matches(glob: &str, value: &str) -> bool {
    let Some((start, rest)) = glob.split_once('*') else { return glob == value };
    let Some(mut value) = value.strip_prefix(start) else { return false };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    // The leftmost place is as good as any: what follows may be anything.
    for piece in middle.split('*') {
        match value.find(piece) {
            Some(at) => value = value.get(at + piece.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    value.ends_with(end)
}

/// A path in which `*` stands for anything within a segment and `**` for any number of segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathGlob {
    text: Box<str>,
    segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(Box<str>),
    Glob(Box<str>),
    /// `**`
    Any,
}

impl PathGlob {
    /// `/v1/*/items/**`; `**` stands alone in its segment, and at the end also for nothing at all.
    ///
    /// # Errors
    /// What to write instead.
    pub fn new(text: &str) -> Result<PathGlob, String> {
        let Some(path) = text.strip_prefix('/') else {
            return Err(format!("write \"/{text}\": paths begin with a slash"));
        };
        let segments: Result<Vec<Segment>, String> = path.split('/').map(segment).collect();
        Ok(PathGlob { text: text.into(), segments: segments? })
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The segments before the first wildcard, as a path, and how many they are: at most so many.
    pub(crate) fn literal_start(&self, most: usize) -> (&str, usize) {
        let literal = self.segments.iter().take(most).take_while(|segment| matches!(segment, Segment::Literal(_)));
        let (count, length) = literal.fold((0, 0), |(count, length), segment| match segment {
            Segment::Literal(text) => (count + 1, length + 1 + text.len()),
            _ => (count, length),
        });
        (self.text.get(..length).unwrap_or_default(), count)
    }

    /// Whether a normalised path looks like this.
    pub fn matches(&self, path: &str) -> bool {
        let mut rest = path.strip_prefix('/').unwrap_or(path).split('/');
        let mut wanted = self.segments.as_slice();
        // What to go back to: after the last `**`, which may take in one segment more.
        let mut retry = None;
        loop {
            let matched = match (wanted, rest.clone().next()) {
                ([], None) => return true,
                ([Segment::Any], _) => return true,
                ([Segment::Any, after @ ..], _) => {
                    retry = Some((after, rest.clone()));
                    wanted = after;
                    continue;
                }
                ([segment, after @ ..], Some(text)) if segment.matches(text) => Some(after),
                _ => None,
            };
            if let Some(after) = matched {
                wanted = after;
                rest.next();
                continue;
            }
            let Some((after, mut from)) = retry else { return false };
            if from.next().is_none() {
                return false;
            }
            retry = Some((after, from.clone()));
            (wanted, rest) = (after, from);
        }
    }
}

fn segment(text: &str) -> Result<Segment, String> {
    match text {
        "**" => Ok(Segment::Any),
        text if text.contains("**") => Err("`**` stands alone between two slashes, as in \"/v1/**\"".to_owned()),
        text if text.contains('*') => Ok(Segment::Glob(text.into())),
        text => Ok(Segment::Literal(text.into())),
    }
}

impl Segment {
    fn matches(&self, text: &str) -> bool {
        match self {
            Segment::Literal(literal) => **literal == *text,
            Segment::Glob(glob) => glob_matches(glob, text),
            Segment::Any => true,
        }
    }
}

/// A regular expression as an automaton that looks at each byte once and needs no memory to run.
#[derive(Clone)]
pub struct Regex {
    text: Box<str>,
    automaton: Arc<dense::DFA<Vec<u32>>>,
}

impl Regex {
    /// An expression that the whole value has to match.
    ///
    /// # Errors
    /// What is wrong with it, or that it is too large.
    pub fn new(text: &str) -> Result<Regex, String> {
        let config = dense::Config::new()
            .match_kind(MatchKind::All)
            .start_kind(StartKind::Anchored)
            .dfa_size_limit(Some(LARGEST_REGEX))
            .determinize_size_limit(Some(2 * LARGEST_REGEX));
        let automaton = dense::Builder::new()
            .configure(config)
            .syntax(syntax::Config::new().nest_limit(64))
            .thompson(regex_automata::nfa::thompson::Config::new().nfa_size_limit(Some(LARGEST_REGEX)))
            .build(text)
            .map_err(|error| explain(&error))?;
        Ok(Regex { text: text.into(), automaton: Arc::new(automaton) })
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// How much memory it takes.
    pub(crate) fn size(&self) -> usize {
        self.automaton.memory_usage()
    }

    /// Whether all of the value matches.
    pub fn matches(&self, value: &str) -> bool {
        let input = Input::new(value).anchored(Anchored::Yes);
        // All matches are followed, so the one that is found is the longest.
        matches!(self.automaton.try_search_fwd(&input), Ok(Some(found)) if found.offset() == value.len())
    }
}

/// The innermost reason, on one line.
fn explain(error: &dense::BuildError) -> String {
    let mut reason: &dyn std::error::Error = error;
    while let Some(source) = reason.source() {
        reason = source;
    }
    let text = reason.to_string();
    if error.is_size_limit_exceeded() || text.contains("exceeded limit") {
        return "it is too large: repeat less, or write `[0-9]` for `\\d` and `[a-z]` for `\\w`".to_owned();
    }
    if text.contains("Unicode word boundaries") {
        return r"write `(?-u:\b)` for `\b`".to_owned();
    }
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

impl PartialEq for Regex {
    fn eq(&self, other: &Regex) -> bool {
        self.text == other.text
    }
}

impl fmt::Debug for Regex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Regex({:?})", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (glob, value, expected) in [
            ("a*", "a", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "ac", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("ab*b", "ab", false),
            ("*", "", true),
            ("**", "x/y", true),
            ("abc", "abcd", false),
        ] {
            assert_eq!(Glob::new(glob).matches(value), expected, "{glob} on {value}");
        }
    }

    #[test]
    fn stars_on_paths_know_segments() {
        for (glob, path, expected) in [
            ("/v1/**", "/v1", true),
            ("/v1/**", "/v1/a/b", true),
            ("/v1/**", "/v10", false),
            ("/v1/*", "/v1/a", true),
            ("/v1/*", "/v1/a/b", false),
            ("/v1/*", "/v1", false),
            ("/**/edit", "/a/b/edit", true),
            ("/**/edit", "/edit", true),
            ("/**/a/**/b", "/x/a/y/a/z/b", true),
            ("/**/a/**/b", "/x/a/y/a/z/c", false),
            ("/**", "/", true),
            ("/user-*/x", "/user-7/x", true),
            ("/user-*/x", "/user-7/y/x", false),
        ] {
            assert_eq!(PathGlob::new(glob).unwrap().matches(path), expected, "{glob} on {path}");
        }
        assert_eq!(PathGlob::new("/a/b/*/c").unwrap().literal_start(8), ("/a/b", 2));
        assert_eq!(PathGlob::new("/**").unwrap().literal_start(8), ("", 0));
    }

    #[test]
    fn a_regular_expression_matches_all_of_a_value() {
        let regex = Regex::new("v[0-9]+|beta").unwrap();
        assert!(regex.matches("v12") && regex.matches("beta"));
        assert!(!regex.matches("v12x") && !regex.matches("xbeta") && !regex.matches(""));
        assert!(Regex::new("a|ab").unwrap().matches("ab") && Regex::new("(?x) a b # and so on").unwrap().matches("ab"));
        assert!(Regex::new("").unwrap().matches("") && !Regex::new("").unwrap().matches("a"));
        assert!(Regex::new("(").is_err() && Regex::new("a)|(?:b").is_err());
        assert!(Regex::new("(?:a{0,1000}){0,1000}").is_err());
    }

    #[test]
    fn hostile_values_take_no_longer_than_their_length() {
        let long = "a/".repeat(50_000);
        assert!(!PathGlob::new("/**/a/**/a/**/b").unwrap().matches(&long));
        assert!(!Glob::new("*a*a*a*a*b").matches(&long));
    }
}
