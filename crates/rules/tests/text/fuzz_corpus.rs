//! Everything that the fuzzer was given or found, and every file of the corpus, by the fuzzer's own checks.

#[path = "../fuzzed/rules_text.rs"]
mod rules_text;

use crate::files;
use std::fs;
use std::path::Path;

#[test]
fn texts_are_read_and_written_again_or_explained() {
    let fuzzed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/rules_text");
    let mut found: Vec<_> = fs::read_dir(fuzzed).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(found.len() >= 20, "only {} files", found.len());
    found.extend(files("good").into_iter().chain(files("bad")));
    let fails = |file: &&std::path::PathBuf| {
        let bytes = fs::read(file).unwrap();
        std::panic::catch_unwind(|| rules_text::check(&bytes)).is_err()
    };
    let failed: Vec<_> = found.iter().filter(fails).filter_map(|file| file.file_name()).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

/// Texts cut off and put together anew: what a fuzzer does first.
#[test]
fn broken_pieces_of_good_files_are_explained() {
    for file in files("good") {
        let bytes = fs::read(&file).unwrap();
        let step = (bytes.len() / 60).max(1);
        for at in (0..bytes.len()).step_by(step) {
            rules_text::check(&bytes[..at]);
            rules_text::check(&bytes[at..]);
            rules_text::check(&[&bytes[..at], b"\n  - [", &bytes[at..]].concat());
            let mut changed = bytes.clone();
            changed[at] = b"\0:{}*&-x\"%"[at % 10];
            rules_text::check(&changed);
        }
    }
}
