//! Rules as texts: what is read, what is refused and how, and what is written again.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot be set up has failed")]

mod corpus;
mod envoy;
mod fuzz_corpus;
mod hostile;
mod round_trip;
mod schema;

use std::path::{Path, PathBuf};
use tollgate_rules::{Mistakes, RuleSet, Source};

/// Reads one text.
fn parse(text: impl AsRef<str>) -> Result<RuleSet, Mistakes> {
    RuleSet::parse(&[Source::new("rules.yaml", text.as_ref())])
}

/// Reads a text that is right.
#[track_caller]
fn parsed(text: impl AsRef<str>) -> RuleSet {
    parse(&text).unwrap_or_else(|mistakes| panic!("{mistakes}\n{}", text.as_ref()))
}

/// What is written of rules reads as the same rules.
#[track_caller]
fn reads_back(set: &RuleSet) {
    let written = set.to_yaml();
    let read = parsed(&written);
    assert!(read == *set, "{written}\nreads as {read:#?}\ninstead of {set:#?}");
    assert_eq!(read.to_yaml(), written);
}

/// The files of a folder beside this one, in the order of their names.
fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(folder);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn file_name(file: &Path) -> &str {
    file.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}
