//! Everything that the fuzzers were given or found, again, by the same checks.

use crate::{fuzzed_forwarded, fuzzed_key, fuzzed_path};
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
fn headers_cannot_forge_what_proxies_append() {
    replay("forwarded", fuzzed_forwarded::check);
}

#[test]
fn targets_have_one_normal_form() {
    replay("path", fuzzed_path::check);
}

#[test]
fn keys_have_one_encoding() {
    replay("key", fuzzed_key::check);
}
