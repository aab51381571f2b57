//! Endings of paths that do not matter.

use std::fmt;

/// Endings to be taken off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Suffixes(Vec<Box<str>>);

impl Suffixes {
    pub(super) fn new<S: AsRef<str>>(suffixes: impl IntoIterator<Item = S>) -> Result<Suffixes, SuffixError> {
        let check = |suffix: S| match suffix.as_ref() {
            text if is_suffix(text) => Ok(text.into()),
            text => Err(SuffixError { suffix: text.to_owned() }),
        };
        suffixes.into_iter().map(check).collect::<Result<_, _>>().map(Suffixes)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|suffix| &**suffix)
    }

    /// The path without any of the endings. All that apply are taken off, one after the other, so that nothing is
    /// left to be taken off later.
    pub(super) fn strip<'a>(&self, mut path: &'a str, fold_case: bool) -> &'a str {
        while let Some(shorter) = self.0.iter().find_map(|suffix| strip_one(path, suffix, fold_case)) {
            path = shorter;
        }
        path
    }
}

fn strip_one<'a>(path: &'a str, suffix: &str, fold_case: bool) -> Option<&'a str> {
    let (rest, end) = path.split_at_checked(path.len().checked_sub(suffix.len())?)?;
    let same = if fold_case { end.eq_ignore_ascii_case(suffix) } else { end == suffix };
    // What is left has to be a name, and none that would mean another segment.
    let is_named = !["/", "/.", "/.."].iter().any(|nothing| rest.ends_with(nothing));
    (same && is_named).then_some(rest)
}

/// A dot first, so that the cut is never within an escape; then what no path has another spelling for.
fn is_suffix(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.len() > 1 && text.starts_with('.') && text.bytes().all(is_allowed)
}

/// A text that is no suffix of paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuffixError {
    suffix: String,
}

impl fmt::Display for SuffixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no suffix: write a dot and letters, as in \".json\"", self.suffix)
    }
}

impl std::error::Error for SuffixError {}
