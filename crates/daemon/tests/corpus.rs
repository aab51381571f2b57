//! Everything that the fuzzer was given or found, again, by the same checks.

#![expect(clippy::indexing_slicing, reason = "a test that cannot be set up has failed")]

#[path = "fuzzed/resp.rs"]
mod fuzzed;

use std::fs;
use std::path::Path;

#[test]
fn nothing_that_arrives_is_understood_too_early_or_too_far() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/resp");
    let files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 20, "only {} files", files.len());
    files.iter().for_each(|file| fuzzed::check(&fs::read(file).unwrap()));
}

#[test]
fn random_changes_of_the_corpus_hold_as_well() {
    let mut random = 11_u64;
    let mut draw = |most: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % most
    };
    let pieces: [&[u8]; 12] = [
        b"*1\r\n", b"*3\r\n", b"$4\r\n", b"PING", b"\r\n", b"$-1\r\n", b"\"", b"'", b"\\x41", b" ", b"*0\r\n",
        b"$0\r\n",
    ];
    for _ in 0..100_000 {
        let count = draw(12);
        let bytes: Vec<u8> = (0..count).flat_map(|_| pieces[draw(pieces.len())]).copied().collect();
        fuzzed::check(&bytes);
    }
}
