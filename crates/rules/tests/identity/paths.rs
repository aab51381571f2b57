//! All spellings of a path have one normal form.

use crate::fuzzed_path;
use crate::random::Random;
use crate::table::{self, Case};
use std::borrow::Cow;
use tollgate_rules::identity::{EncodedSlash, PathForm};

/// `suffix .json .xml fold-case`.
fn form(heading: &str) -> PathForm {
    let mut form = PathForm::default();
    let suffixes: Vec<&str> = heading.split_whitespace().filter(|word| word.starts_with('.')).collect();
    for word in heading.split_whitespace() {
        form = match word {
            "fold-case" => form.fold_case(true),
            "keep-encoded-slash" => form.encoded_slash(EncodedSlash::Keep),
            "keep-trailing-slash" => form.keep_trailing_slash(true),
            "drop-parameters" => form.drop_parameters(true),
            "suffix" => form.suffixes(&suffixes).unwrap(),
            suffix => {
                assert!(suffixes.contains(&suffix), "unknown word {suffix}");
                form
            }
        };
    }
    form
}

/// Numbered bytes below 0x80 and others are the characters of that number.
fn target(text: &str) -> String {
    match text.is_ascii() {
        true => table::bytes(text).into_iter().map(char::from).collect(),
        false => text.to_owned(),
    }
}

#[test]
fn i2_every_path_of_the_table_has_its_normal_form() {
    let cases: Vec<_> = table::cases(include_str!("paths.txt")).collect();
    assert!(cases.len() >= 100, "only {} cases", cases.len());
    let normal = |case: &Case<'_>| form(case.heading).normalise(&target(case.input)).into_owned();
    let wrong: Vec<_> = cases.iter().filter(|case| normal(case) != case.result).collect();
    for case in &wrong {
        println!("paths.txt:{}: {} gives {}", case.line, case.input, normal(case));
    }
    assert!(wrong.is_empty(), "{} cases are wrong", wrong.len());
}

/// What paths are made of, and what breaks readers of them.
const PIECES: [&str; 40] = [
    "/",
    "/",
    "/",
    ".",
    "..",
    "%",
    "%2",
    "%2e",
    "%2E",
    "%2F",
    "%2f",
    "%5c",
    "\\",
    ";",
    "%3b",
    "?",
    "#",
    "a",
    "A",
    "é",
    "É",
    "%C3",
    "%A9",
    "%c3%a9",
    "%E2%82%AC",
    "%F0%9F",
    "%FF",
    "%25",
    "25",
    "2e",
    "\0",
    " ",
    "\u{85}",
    "%20",
    ".json",
    ".XML",
    ".tar.gz",
    "http://",
    "*",
    "\u{212A}",
];

#[test]
fn the_normal_form_of_anything_is_its_own_normal_form() {
    let mut random = Random::new(3986);
    let forms: Vec<_> = (0..32).map(fuzzed_path::form).collect();
    let mut target = String::new();
    for _ in 0..200_000 {
        target.clear();
        (0..random.below(10)).for_each(|_| target.push_str(random.pick(&PIECES)));
        fuzzed_path::is_normal_at_once(&forms[random.below(forms.len())], &target);
    }
}

#[test]
fn folding_any_character_twice_changes_nothing_more() {
    let form = PathForm::default().fold_case(true);
    let mut path = String::new();
    // No script beyond these has capitals.
    for c in '\0'..='\u{1FFFF}' {
        path.clear();
        path.extend(['/', 'x', c, 'X']);
        fuzzed_path::is_normal_at_once(&form, &path);
    }
}

#[test]
fn every_character_has_the_same_form_whether_it_is_encoded_or_not() {
    let form = PathForm::default();
    for c in ('\0'..=char::MAX).step_by(61).chain(['\u{7FF}', '\u{800}', '\u{FFFF}', '\u{10000}', char::MAX]) {
        // These mean something else if they are not encoded.
        if !"%/\\?#".contains(c) {
            let encoded: String = c.to_string().bytes().map(|byte| format!("%{byte:02x}")).collect();
            assert_eq!(form.normalise(&format!("/x{encoded}")), form.normalise(&format!("/x{c}")), "{encoded}");
        }
    }
}

/// A character of a segment, with its normal spelling.
struct Letter {
    bytes: Vec<u8>,
    normal: String,
}

impl Letter {
    fn of(c: char) -> Letter {
        let bytes = c.to_string().into_bytes();
        let misread = " %?#".contains(c) || c.is_control();
        let normal = if misread { bytes.iter().map(|byte| format!("%{byte:02X}")).collect() } else { c.to_string() };
        Letter { bytes, normal }
    }

    /// A byte that is no character.
    fn broken(byte: u8) -> Letter {
        Letter { bytes: vec![byte], normal: format!("%{byte:02X}") }
    }

    fn spell(&self, random: &mut Random, out: &mut String) {
        if random.once_in(2) {
            return out.push_str(&self.normal);
        }
        for byte in &self.bytes {
            let escape = if random.once_in(2) { format!("%{byte:02x}") } else { format!("%{byte:02X}") };
            out.push_str(&escape);
        }
    }
}

fn any_letter(random: &mut Random) -> Letter {
    match random.below(12) {
        0 => Letter::broken(random.pick(&[0xFF, 0xC0, 0xF8])),
        _ => Letter::of(
            random.pick(&['a', 'Z', '0', '-', '.', '~', 'é', '😀', ' ', '%', '?', '#', '\0', '\u{85}', ';', '+', '"']),
        ),
    }
}

fn any_segment(random: &mut Random) -> Vec<Letter> {
    // A letter first, for a segment of dots is none.
    let mut segment = vec![Letter::of('s')];
    segment.extend((0..random.below(4)).map(|_| any_letter(random)).collect::<Vec<_>>());
    segment
}

/// A separator, and detours that lead back to where they began.
fn spell_slash(random: &mut Random, out: &mut String) {
    const SLASHES: [&str; 5] = ["/", "\\", "%2F", "%2f", "%5C"];
    const DOTS: [&str; 3] = [".", "%2e", "%2E"];
    out.push_str(random.pick(&SLASHES));
    while random.once_in(3) {
        match random.below(3) {
            0 => {}
            1 => out.push_str(random.pick(&DOTS)),
            _ => {
                any_segment(random).iter().for_each(|letter| letter.spell(random, out));
                out.push_str(random.pick(&SLASHES));
                out.push_str(random.pick(&DOTS));
                out.push_str(random.pick(&DOTS));
            }
        }
        out.push_str(random.pick(&SLASHES));
    }
}

#[test]
fn i2_no_spelling_of_a_path_gets_past_its_normal_form() {
    let form = PathForm::default();
    let mut random = Random::new(9901);
    for _ in 0..10_000 {
        let segments: Vec<_> = (0..1 + random.below(4)).map(|_| any_segment(&mut random)).collect();
        let normal: String = segments
            .iter()
            .map(|segment| format!("/{}", segment.iter().map(|l| l.normal.as_str()).collect::<String>()))
            .collect();
        assert!(form.is_normal(&normal), "{normal}");
        for _ in 0..5 {
            let mut spelt = String::new();
            for segment in &segments {
                spell_slash(&mut random, &mut spelt);
                segment.iter().for_each(|letter| letter.spell(&mut random, &mut spelt));
            }
            spelt.push_str(random.pick(&["", "/", "//", "/.", "/x/..", "?", "?x=/../", "#", "%2F", "/%2e/"]));
            assert_eq!(form.normalise(&spelt), normal, "{spelt}");
        }
    }
}

#[test]
fn nothing_is_allocated_for_a_path_whose_form_is_a_part_of_it() {
    let form = form("suffix .json");
    for target in [
        "/",
        "/login",
        "/a/b/c.d",
        "/a/b?x=1",
        "/a/b/",
        "/a/b.json?x",
        "/é/%20",
        "http://example.com/a?b",
        "/.well-known/x",
    ] {
        let normal = form.normalise(target);
        assert!(matches!(normal, Cow::Borrowed(_)), "{target} became {normal}");
    }
}

#[test]
fn suffixes_that_could_cut_anything_else_are_refused() {
    for suffix in ["", ".", "json", "/.json", ".js/on", ".js%6Fn", ".é", ". json", ".json\n", ".a;b"] {
        let error = PathForm::default().suffixes([suffix]).unwrap_err();
        assert_eq!(error.to_string(), format!("{suffix:?} is no suffix: write a dot and letters, as in \".json\""));
    }
}

#[test]
fn encoded_slashes_are_known_by_their_names() {
    assert_eq!(EncodedSlash::NAMES, [("separator", EncodedSlash::Separator), ("keep", EncodedSlash::Keep)]);
    assert_eq!(EncodedSlash::default(), EncodedSlash::Separator);
}
