//! Everything that the fuzzer was given or found, again, by the same checks.

#[path = "fuzzed/reply.rs"]
mod fuzzed;

use std::fs;
use std::path::Path;

#[test]
fn nothing_that_a_store_says_is_believed_too_early_or_too_far() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/store_reply");
    let files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 20, "only {} files", files.len());
    files.iter().for_each(|file| fuzzed::check(&fs::read(file).unwrap()));
}

#[test]
fn random_pieces_of_replies_hold_as_well() {
    let mut random = 12_u64;
    let mut draw = |most: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % most
    };
    let pieces: [&[u8]; 24] = [
        b"*1\r\n",
        b"*2\r\n",
        b"*3\r\n",
        b":0\r\n",
        b":16383\r\n",
        b":5460\r\n",
        b":7000\r\n",
        b"$4\r\nhost\r\n",
        b"$-1\r\n",
        b"_\r\n",
        b"+?\r\n",
        b"+\r\n",
        b"%1\r\n",
        b"|1\r\n",
        b">1\r\n",
        b"~1\r\n",
        b"-MOVED 1 host:1\r\n",
        b"-ASK 16383 :6379\r\n",
        b"!5\r\nERR x\r\n",
        b"=5\r\ntxt:a\r\n",
        b"#t\r\n",
        b",1.5\r\n",
        b"*-1\r\n",
        b"\r\n",
    ];
    for _ in 0..100_000 {
        let count = draw(12);
        let bytes: Vec<u8> = (0..count).flat_map(|_| pieces[draw(pieces.len())]).copied().collect();
        fuzzed::check(&bytes);
    }
}
