//! Keys that differ are told apart, and secrets do not get out.

use crate::fuzzed_key::{self, are_told_apart};
use crate::random::Random;
use std::net::IpAddr;
use tollgate_rules::identity::{
    DecodeKeyError, Fingerprint, Grouping, Key, LONGEST_KEY, MOST_PARTS, Part, PathForm, Trust, fingerprint,
};

fn encoded(parts: &[Part<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Key::new(parts).encode(&mut bytes);
    bytes
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn i1_a_key_is_any_mix_of_login_api_key_address_header_path_and_method() {
    let client = Trust::default().with_hops(1).client(address("10.0.0.1"), [&b"2001:db8::1"[..]].into_iter());
    let client = Grouping::default().group(client);
    let form = PathForm::default();
    let path = form.normalise("/v1//users/?page=2");
    let api_key = fingerprint(b"abc");
    let parts = [
        Part::Text("alice"),
        Part::Text(&api_key),
        Part::Address(client),
        Part::Absent,
        Part::Text(&path),
        Part::Text("GET"),
    ];
    let printed = "alice, sha256:ba7816bf8f01cfea414140de5dae2223, 2001:db8::, -, /v1/users, GET";
    assert_eq!(Key::new(&parts).to_string(), printed);
    assert_eq!(Key::decode(&encoded(&parts)).unwrap(), parts);
}

#[test]
fn i1_separators_within_values_do_not_move_the_border_between_them() {
    use Part::{Absent, Text};
    let keys: [&[Part<'_>]; 20] = [
        &[],
        &[Absent],
        &[Absent, Absent],
        &[Text("")],
        &[Text(""), Text("")],
        &[Text(""), Absent],
        &[Absent, Text("")],
        &[Text("-")],
        &[Text("*")],
        &[Text("a:b"), Text("c")],
        &[Text("a"), Text("b:c")],
        &[Text("a:b:c")],
        &[Text("a, b")],
        &[Text("a"), Text("b")],
        &[Text("a\", \"b")],
        &[Text("a\0b")],
        &[Text("a"), Text(""), Text("b")],
        &[Text("192.0.2.1")],
        &[Part::Address(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)))],
        &[Text("\u{1}\u{1}a")],
    ];
    for one in keys {
        for other in keys {
            are_told_apart(one, other);
        }
    }
}

/// Texts that look like the borders between parts, in any of their forms.
const PIECES: [&str; 20] = [
    "|",
    "|",
    "|",
    ":",
    ",",
    ", ",
    "-",
    "*",
    "\"",
    "\\",
    "a",
    "b",
    "\0",
    "\u{1}",
    "\u{1}\u{1}",
    "4",
    "6",
    "\u{1b}[2J",
    "\u{202e}",
    "é",
];

#[test]
fn i1_no_injected_separator_makes_two_keys_one() {
    let mut random = Random::new(1);
    for _ in 0..20_000 {
        let length = random.below(9);
        let text: String = (0..length).map(|_| random.pick(&PIECES)).collect();
        fuzzed_key::check(text.as_bytes());
    }
}

#[test]
fn i2_all_spellings_of_an_address_are_one_key() {
    are_told_apart(&[Part::Address(address("::ffff:1.2.3.4"))], &[Part::Address(address("1.2.3.4"))]);
    assert_eq!(encoded(&[Part::Address(address("::ffff:102:304"))]), [1, 4, 1, 2, 3, 4]);
    assert_eq!(Key::new(&[Part::Address(address("::ffff:102:304"))]).to_string(), "1.2.3.4");
}

#[test]
fn printed_keys_obey_nobody() {
    for (text, printed) in [
        ("alice@example.com", "alice@example.com"),
        ("a b", "\"a b\""),
        ("", "\"\""),
        ("-", "\"-\""),
        ("192.0.2.1", "\"192.0.2.1\""),
        ("fe80::1", "\"fe80::1\""),
        ("a\r\nb\u{1b}[31m\u{7f}", "\"a\\r\\nb\\u{1b}[31m\\u{7f}\""),
        ("\u{202e}\u{200b}\u{9b}", "\"\\u{202e}\\u{200b}\\u{9b}\""),
        ("café", "\"café\""),
    ] {
        assert_eq!(Key::new(&[Part::Text(text)]).to_string(), printed);
    }
    assert_eq!(Key::new(&[]).to_string(), "*");
}

#[test]
fn keys_of_any_allowed_size_are_read_back() {
    let text = "x".repeat(LONGEST_KEY - 5);
    let longest = encoded(&[Part::Text(&text)]);
    assert_eq!(longest.len(), LONGEST_KEY);
    assert_eq!(Key::decode(&longest).unwrap(), [Part::Text(&text)]);
    for length in [0, 1, 127, 128, 16_383, 16_384] {
        let text = "x".repeat(length);
        assert_eq!(Key::decode(&encoded(&[Part::Text(&text)])).unwrap(), [Part::Text(&text)]);
    }
    let most = [Part::Absent; MOST_PARTS];
    assert_eq!(Key::decode(&encoded(&most)).unwrap(), most);
}

#[test]
fn bytes_that_are_no_key_are_refused() {
    use DecodeKeyError::{Malformed, TooLong, TooManyParts};
    let cases: [(&[u8], DecodeKeyError); 16] = [
        (&[], Malformed),
        (&[1], Malformed),
        (&[0, 0], Malformed),
        (&[1, 0, 0], Malformed),
        (&[1, 2], Malformed),
        (&[0x80, 0], Malformed),
        (&[0x81, 0], Malformed),
        (&[1, 1, 2, b'a'], Malformed),
        (&[1, 1, 1, 0xFF], Malformed),
        (&[1, 1, 0x81, 0, b'a'], Malformed),
        (&[1, 4, 1, 2, 3], Malformed),
        (&[1, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 1, 2, 3, 4], Malformed),
        (&[65], TooManyParts),
        (&[0xFF, 0xFF, 0x7F], TooManyParts),
        (&[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1], TooLong),
        (&[1, 1, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F], TooLong),
    ];
    for (bytes, error) in cases {
        assert_eq!(Key::decode(bytes), Err(error), "{bytes:?}");
    }
    assert_eq!(Key::decode(&[0; LONGEST_KEY + 1]), Err(TooLong));
}

#[test]
fn a_fingerprint_is_what_sha256sum_prints() {
    assert_eq!(fingerprint(b"").as_str(), "sha256:e3b0c44298fc1c149afbf4c8996fb924");
    assert_eq!(fingerprint(b"abc").as_str(), "sha256:ba7816bf8f01cfea414140de5dae2223");
    assert_eq!(&*fingerprint(b"abc"), fingerprint(b"abc").to_string());
    assert_ne!(fingerprint(b"abc"), fingerprint(b"abd"));
}

#[test]
fn a_secret_is_in_nothing_that_is_printed_of_it() {
    let secret = "hunter2-hunter2";
    let print = fingerprint(secret.as_bytes());
    let key = [Part::Text(&print)];
    let printed = format!("{print} {print:?} {} {:?} {:?}", Key::new(&key), Key::new(&key), encoded(&key));
    assert!(!printed.contains("hunter2"), "{printed}");
    assert!(format!("{print:?}").starts_with("Fingerprint(sha256:"));
}

#[test]
fn only_fingerprints_look_like_fingerprints() {
    assert!(Fingerprint::is_text(&fingerprint(b"x")));
    for text in [
        "",
        "sha256:",
        "hunter2",
        "sha256:ba7816bf8f01cfea414140de5dae222",
        "sha256:ba7816bf8f01cfea414140de5dae22233",
        "sha256:BA7816BF8F01CFEA414140DE5DAE2223",
        "sha256:ga7816bf8f01cfea414140de5dae2223",
        "SHA256:ba7816bf8f01cfea414140de5dae2223",
        " sha256:ba7816bf8f01cfea414140de5dae2223",
        "ba7816bf8f01cfea414140de5dae2223",
    ] {
        assert!(!Fingerprint::is_text(text), "{text}");
    }
}
