//! Everything that the fuzzers were given or found, again, by the same checks.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

#[path = "fuzzed/decisions.rs"]
mod decisions;
#[path = "fuzzed/quota_text.rs"]
mod quota_text;

use std::fs;
use std::panic;
use std::path::{Path, PathBuf};

/// The files of a fuzz target's corpus, in the order of their names.
fn corpus(target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Checks every file, and names those that fail.
fn replay(target: &str, check: fn(&[u8])) {
    let files = corpus(target);
    assert!(files.len() >= 20, "only {} files for {target}", files.len());
    let fails = |file: &&PathBuf| {
        let bytes = fs::read(file).unwrap();
        panic::catch_unwind(|| check(&bytes)).is_err()
    };
    let failed: Vec<_> = files.iter().filter(fails).filter_map(|file| file.file_name()).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn texts_are_read_back_or_explained() {
    replay("quota_text", quota_text::check);
}

#[test]
fn scripts_lead_to_decisions_that_are_possible() {
    replay("decisions", decisions::check);
}
