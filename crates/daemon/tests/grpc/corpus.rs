//! Everything that the fuzzer was given or found, again, by the same checks.

use crate::fuzzed;
use std::fs;
use std::path::Path;

fn files() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/rls");
    let files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap()).collect();
    assert!(files.len() >= 20, "only {} files", files.len());
    files
}

#[test]
fn questions_are_read_as_another_library_reads_them_and_answered_in_full() {
    files().iter().for_each(|file| fuzzed::check(file));
}

#[test]
fn random_changes_of_the_corpus_hold_as_well() {
    let mut random = 7_u64;
    let mut draw = |most: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % most.max(1)
    };
    let files = files();
    for _ in 0..50_000 {
        let mut bytes = files[draw(files.len())].clone();
        for _ in 0..draw(4) {
            let at = draw(bytes.len() + 1);
            match draw(3) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, draw(256) as u8),
                _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = draw(256) as u8),
            }
        }
        let other = &files[draw(files.len())];
        bytes.extend_from_slice(&other[..draw(other.len() + 1)]);
        fuzzed::check(&bytes);
    }
}
