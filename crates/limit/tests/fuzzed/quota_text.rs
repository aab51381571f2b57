//! What holds for any text that somebody takes for a quota.

use tollgate_limit::{ParseQuotaError, Quota};

/// Reads the bytes as a quota, if they are a text at all.
pub(crate) fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match text.parse() {
        Ok(quota) => reads_back(quota),
        Err(error) => explains(text, &error),
    }
}

/// What is printed means the same, and is printed the same way again.
fn reads_back(quota: Quota) {
    let printed = quota.to_string();
    let read: Quota = printed.parse().unwrap_or_else(|error| panic!("{printed} was printed, but: {error}"));
    assert_eq!(read, quota, "{printed}");
    assert_eq!(read.to_string(), printed);
}

/// An error says what is wrong and what would be right, and points at a part of the text.
fn explains(text: &str, error: &ParseQuotaError) {
    assert!(!error.problem().is_empty() && !error.help().is_empty(), "{error:?}");
    let place = error.place();
    assert!(text.get(place.clone()).is_some(), "{place:?} is no part of {text:?}");
    let before = text.get(..place.start).unwrap_or_default();
    points_behind(before, &error.to_string());
}

/// Three lines: the problem, the text, and a mark that begins below what is wrong and ends within the text.
fn points_behind(before: &str, printed: &str) {
    let lines: Vec<&str> = printed.split('\n').collect();
    let [_, text, mark] = lines.as_slice() else { panic!("not three lines: {printed:?}") };
    let start = mark.chars().take_while(|c| *c != '^').count();
    let marked = mark.chars().skip(start).take_while(|c| *c == '^').count();
    let margin = "  | ".len();
    assert_eq!(start, margin + before.escape_debug().count(), "marked elsewhere:\n{printed}");
    // The end of a text is marked, too, where something is missing.
    assert!(start + marked <= text.chars().count() + 1, "marked beyond the text:\n{printed}");
}
