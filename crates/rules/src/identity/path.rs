//! One normal form for all spellings of a path.
//!
//! `/login`, `/login/`, `//login`, `/%6Cogin`, `/a/../login` and `\login?x` reach the same handler of most services, so
//! a limit on one of them has to hold for all. Where servers disagree, two paths that some server takes for one have
//! one form here: sharing a limit by mistake costs little, and a second spelling with a limit of its own is a bypass.
//!
//! A path in normal form
//!
//! - begins with a slash and has no query, fragment, scheme or host;
//! - has no empty segments and no `.` or `..`, encoded or not. Empty ones go first, so `/a//../b` is `/b`, as in nginx;
//! - has every character as it is, except those that would be misread: blanks, control characters, `%`, `?`, `#`, and
//!   slashes that are [kept](EncodedSlash::Keep). These, and bytes that are no UTF-8, are percent-encoded, with capital
//!   digits. A percent sign that encodes nothing is taken for itself, `%25`;
//! - is decoded once: `%252e` stays `%252e`, for that is how a service gets to see the literal text `%2e`. A service
//!   that decodes twice has two names for everything, and cannot be helped from here;
//! - has slashes for backslashes;
//! - ends as the [`PathForm`] says: without a slash or a known suffix.

mod suffix;
mod units;

pub use suffix::SuffixError;

use std::borrow::Cow;
use suffix::Suffixes;
use units::{Unit, Units, stays_encoded};

/// What an encoded slash (`%2F`, or a backslash as `%5C`) is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EncodedSlash {
    /// The same as a slash: right for services that decode a path before they split it, and safe for others.
    #[default]
    Separator,
    /// A character of its segment, which stays encoded: right where `/files/a%2Fb` is a file of the name `a/b`.
    Keep,
}

impl EncodedSlash {
    /// The choices by the names that rules know them by.
    pub const NAMES: [(&'static str, EncodedSlash); 2] =
        [("separator", EncodedSlash::Separator), ("keep", EncodedSlash::Keep)];
}

/// Which paths are the same.
///
/// By default case matters, nothing is a suffix, an encoded slash is a slash, a slash at the end is dropped, and
/// parameters of segments (`/cart;jsessionid=1`) are kept. The form should be told what the service ignores: each
/// thing that the service ignores and the form does not is a way around the limits on a path.
///
/// ```
/// use tollgate_rules::identity::PathForm;
///
/// let form = PathForm::default();
/// for spelling in ["/login/", "//login", "/%6cogin?next=/", "/x/%2e%2E/login", "http://example.com/login"] {
///     assert_eq!(form.normalise(spelling), "/login");
/// }
/// assert_eq!(form.normalise("/a%20b/%252e/caf%c3%a9/%zz"), "/a%20b/%252e/café/%25zz");
///
/// let lenient = PathForm::default().fold_case(true).suffixes([".json"])?.drop_parameters(true);
/// assert_eq!(lenient.normalise("/Login.JSON;v=1"), "/login");
/// # Ok::<(), tollgate_rules::identity::SuffixError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathForm {
    pub(crate) fold_case: bool,
    pub(crate) suffixes: Suffixes,
    pub(crate) encoded_slash: EncodedSlash,
    pub(crate) keep_trailing_slash: bool,
    pub(crate) drop_parameters: bool,
}

impl PathForm {
    /// Whether `/Login` is `/login`, for services that think so.
    #[must_use]
    pub fn fold_case(mut self, fold: bool) -> PathForm {
        self.fold_case = fold;
        self
    }

    /// Endings such as `.json` that choose a format and not another handler. They are taken off, also several in a
    /// row, unless nothing would be left of the segment.
    pub fn suffixes<S: AsRef<str>>(mut self, suffixes: impl IntoIterator<Item = S>) -> Result<PathForm, SuffixError> {
        self.suffixes = Suffixes::new(suffixes)?;
        Ok(self)
    }

    /// What `%2F` means.
    #[must_use]
    pub fn encoded_slash(mut self, meaning: EncodedSlash) -> PathForm {
        self.encoded_slash = meaning;
        self
    }

    /// Whether `/login/` is another path than `/login`.
    #[must_use]
    pub fn keep_trailing_slash(mut self, keep: bool) -> PathForm {
        self.keep_trailing_slash = keep;
        self
    }

    /// Whether a segment ends at its first semicolon, for services that do not look at what follows when they choose
    /// a handler. Those on Java servlets are of this kind: to them, `/..;/admin` is `/admin`.
    #[must_use]
    pub fn drop_parameters(mut self, drop: bool) -> PathForm {
        self.drop_parameters = drop;
        self
    }

    /// The normal form of a request's target.
    ///
    /// The target may be a path with or without a query, or a whole URL. That of `OPTIONS *` gives `/*`. Nothing is
    /// allocated if the form is a part of the target, as it is in most requests.
    pub fn normalise<'a>(&self, target: &'a str) -> Cow<'a, str> {
        let path = path_of(target);
        if self.is_normal_but_for_its_end(path) {
            return Cow::Borrowed(self.without_ending(path));
        }
        let mut normal = self.rewrite(path);
        normal.truncate(self.without_ending(&normal).len());
        Cow::Owned(normal)
    }

    /// Whether the path is its own normal form.
    pub fn is_normal(&self, path: &str) -> bool {
        self.is_normal_but_for_its_end(path) && self.without_ending(path).len() == path.len()
    }

    /// Without what does not matter at the end of a path that is normal otherwise.
    fn without_ending<'a>(&self, path: &'a str) -> &'a str {
        let path = match path.strip_suffix('/') {
            Some(shorter) if !self.keep_trailing_slash && !shorter.is_empty() => shorter,
            _ => path,
        };
        self.suffixes.strip(path, self.fold_case)
    }

    fn is_normal_but_for_its_end(&self, path: &str) -> bool {
        path.starts_with('/')
            && (self.is_plain(path) || (self.is_spelt_normally(path) && has_only_named_segments(path)))
    }

    /// A quick look, which most paths pass: nothing but characters that mean themselves, and no slash or dot beside
    /// another. It has no branches to guess, since every request pays for it.
    fn is_plain(&self, path: &str) -> bool {
        let (mut found, mut before) = (0, 0);
        for kind in kinds_of(path) {
            // Two borders side by side make the bit above theirs, which is that of others.
            found |= kind | (before & kind & kind::BORDER) << 1;
            before = kind;
        }
        let folded = if self.fold_case { kind::CAPITAL } else { 0 };
        let dropped = if self.drop_parameters { kind::SEMICOLON } else { 0 };
        found & (kind::OTHER | folded | dropped) == 0
    }

    /// Whether each character is written as this form writes it.
    fn is_spelt_normally(&self, path: &str) -> bool {
        let mut units = self.units(path);
        loop {
            let before = units.rest();
            let Some(unit) = units.next() else { return true };
            let written = before.get(..before.len() - units.rest().len()).unwrap_or_default();
            if !self.is_spelling(written, unit) {
                return false;
            }
        }
    }

    fn is_spelling(&self, written: &str, unit: Unit) -> bool {
        match unit {
            Unit::Slash => written == "/",
            Unit::Char(';') if self.drop_parameters => false,
            Unit::Char(c) if stays_encoded(c) => is_encoded_in_capitals(written),
            Unit::Char(c) => written.starts_with(c) && (!self.fold_case || c.to_lowercase().eq([c])),
            Unit::Byte(_) => is_encoded_in_capitals(written),
        }
    }

    fn rewrite(&self, path: &str) -> String {
        let mut normal = String::with_capacity(path.len() + 1);
        normal.push('/');
        let mut in_parameters = false;
        for unit in self.units(path) {
            match unit {
                Unit::Slash => {
                    end_segment(&mut normal);
                    in_parameters = false;
                }
                Unit::Char(';') if self.drop_parameters => in_parameters = true,
                _ if in_parameters => {}
                Unit::Char(c) if stays_encoded(c) => {
                    c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| push_encoded(&mut normal, byte));
                }
                Unit::Char(c) if self.fold_case => normal.extend(c.to_lowercase()),
                Unit::Char(c) => normal.push(c),
                Unit::Byte(byte) => push_encoded(&mut normal, byte),
            }
        }
        end_last_segment(&mut normal);
        normal
    }

    fn units<'a>(&self, path: &'a str) -> Units<'a> {
        Units::new(path, self.encoded_slash)
    }
}

/// What the quick look tells apart, each a bit.
mod kind {
    pub(super) const PLAIN: u8 = 0;
    /// Slashes and dots.
    pub(super) const BORDER: u8 = 1;
    /// Anything that has to be looked at more closely.
    pub(super) const OTHER: u8 = 2;
    pub(super) const CAPITAL: u8 = 4;
    pub(super) const SEMICOLON: u8 = 8;
    /// Where a path ends.
    pub(super) const END: u8 = 16 | OTHER;
}

/// The kinds of all bytes.
static KINDS: [u8; 256] = {
    let mut kinds = [kind::OTHER; 256];
    let mut byte = 0;
    while byte < 128_u8 {
        #[expect(clippy::indexing_slicing, reason = "the compiler has done it")]
        {
            kinds[byte as usize] = kind_of_ascii(byte);
        }
        byte += 1;
    }
    kinds
};

const fn kind_of_ascii(byte: u8) -> u8 {
    match byte {
        b'/' | b'.' => kind::BORDER,
        b'A'..=b'Z' => kind::CAPITAL,
        b';' => kind::SEMICOLON,
        b'?' | b'#' => kind::END,
        b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' => kind::PLAIN,
        b'!' | b'$' | b'&'..=b',' | b':' | b'=' | b'@' => kind::PLAIN,
        _ => kind::OTHER,
    }
}

fn kinds_of(path: &str) -> impl Iterator<Item = u8> {
    path.bytes().map(|byte| KINDS.get(usize::from(byte)).copied().unwrap_or(kind::OTHER))
}

/// A target without its scheme, host, query and fragment.
fn path_of(target: &str) -> &str {
    let path = match target.starts_with('/') {
        true => target,
        false => without_origin(target),
    };
    let end = kinds_of(path).position(|kind| kind == kind::END).unwrap_or(path.len());
    path.get(..end).unwrap_or_default()
}

/// `/path` of `http://host/path`; anything else as it is.
fn without_origin(target: &str) -> &str {
    match target.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) => {
            let end = rest.find(['/', '\\', '?', '#']).unwrap_or(rest.len());
            rest.get(end..).unwrap_or_default()
        }
        _ => target,
    }
}

fn is_scheme(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.bytes().all(is_allowed)
}

/// Whether no segment is empty or made of dots. The last one may be empty, after a slash at the end.
fn has_only_named_segments(path: &str) -> bool {
    let path = path.strip_suffix('/').unwrap_or(path);
    path.is_empty() || path.split('/').skip(1).all(|segment| !matches!(segment, "" | "." | ".."))
}

fn is_encoded_in_capitals(written: &str) -> bool {
    // A percent sign alone is a spelling of one, but not the normal one.
    written.starts_with('%') && written.len() > 1 && !written.bytes().any(|byte| byte.is_ascii_lowercase())
}

fn push_encoded(path: &mut String, byte: u8) {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or_default().to_ascii_uppercase();
    path.extend(['%', digit(byte >> 4), digit(byte & 0xF)]);
}

/// Completes the segment behind the last slash, and begins another.
fn end_segment(path: &mut String) {
    end_last_segment(path);
    if !path.ends_with('/') {
        path.push('/');
    }
}

/// Takes back the segment behind the last slash if it names nothing, and the one before, if there is any, if it
/// says so.
fn end_last_segment(path: &mut String) {
    let start = start_of_last_segment(path);
    match path.get(start..) {
        Some(".") => path.truncate(start),
        Some("..") => {
            path.truncate(start);
            let parent = path.strip_suffix('/').map_or(0, start_of_last_segment);
            path.truncate(parent.max(1));
        }
        _ => {}
    }
}

fn start_of_last_segment(path: &str) -> usize {
    path.rfind('/').map_or(0, |slash| slash + 1)
}
