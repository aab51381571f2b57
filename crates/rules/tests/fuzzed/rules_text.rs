//! What holds for any text that somebody takes for rules.

use tollgate_limit::Time;
use tollgate_rules::{Compiled, Mistakes, RuleSet, Source};

/// Reads the bytes as rules, if they are a text at all.
pub(crate) fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match RuleSet::parse(&[Source::new("fuzzed.yaml", text)]) {
        Ok(set) => reads_back(set),
        Err(mistakes) => explains(text, &mistakes),
    }
}

/// What is written means the same, is written the same way again, and can be asked.
fn reads_back(set: RuleSet) {
    let written = set.to_yaml();
    let read = RuleSet::parse(&[Source::new("written.yaml", written.as_str())])
        .unwrap_or_else(|mistakes| panic!("{written}\nwas written, but: {mistakes}"));
    assert_eq!(read, set, "{written}");
    assert_eq!(read.to_yaml(), written);
    let compiled = Compiled::new(set, None, Time::ZERO);
    Compiled::new(read, Some(&compiled), Time::ZERO);
}

/// Each mistake says what is wrong and what would be right, and stands somewhere in the text.
fn explains(text: &str, mistakes: &Mistakes) {
    assert!(!mistakes.is_empty() && mistakes.to_string().ends_with("nothing was loaded"));
    let lines = text.split(['\n', '\r']).count();
    for mistake in mistakes.iter() {
        assert!(!mistake.problem().is_empty() && !mistake.help().is_empty(), "{mistake:?}");
        assert!((1..=lines + 1).contains(&(mistake.line() as usize)) && mistake.column() >= 1, "{mistake:?}");
        let printed = mistake.to_string();
        assert!(!printed.chars().any(|c| c.is_control() && c != '\n'), "{printed:?}");
    }
}
