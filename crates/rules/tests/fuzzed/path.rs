//! What holds for the normal form of anything that a client asks for.
//!
//! Bytes are a request's target; the first one chooses the form.

use std::borrow::Cow;
use tollgate_rules::identity::{EncodedSlash, PathForm};

/// Normalises the target.
pub(crate) fn check(bytes: &[u8]) {
    let Some((options, target)) = bytes.split_first() else { return };
    let Ok(target) = std::str::from_utf8(target) else { return };
    is_normal_at_once(&form(*options), target);
}

/// The form that the bits choose.
pub(crate) fn form(options: u8) -> PathForm {
    let is_set = |bit: u8| options & 1 << bit != 0;
    let suffixes: &[&str] = if is_set(0) { &[".json", ".XML", ".tar.gz"] } else { &[] };
    let slash = if is_set(1) { EncodedSlash::Keep } else { EncodedSlash::Separator };
    let form = PathForm::default().suffixes(suffixes).unwrap().encoded_slash(slash);
    form.fold_case(is_set(2)).keep_trailing_slash(is_set(3)).drop_parameters(is_set(4))
}

/// The normal form is normal, and is the only one that is.
pub(crate) fn is_normal_at_once(form: &PathForm, target: &str) {
    let normal = form.normalise(target);
    assert!(form.is_normal(&normal), "{target:?} became {normal:?}");
    assert!(matches!(form.normalise(&normal), Cow::Borrowed(again) if again == normal), "{target:?} became {normal:?}");
    assert_eq!(form.is_normal(target), normal == target, "{target:?} became {normal:?}");
    assert!(normal.starts_with('/'), "{normal:?}");
    assert!(!normal.contains(['?', '#', '\\', ' ']) && !normal.contains(char::is_control), "{normal:?}");
    has_one_slash_and_no_dots_between_segments(form, &normal);
}

fn has_one_slash_and_no_dots_between_segments(form: &PathForm, normal: &str) {
    let is_last_slash_kept = *form == form.clone().keep_trailing_slash(true);
    let segments = normal.strip_prefix('/').unwrap();
    let segments = segments.strip_suffix('/').filter(|_| is_last_slash_kept).unwrap_or(segments);
    assert!(
        segments.is_empty() || segments.split('/').all(|segment| !["", ".", ".."].contains(&segment)),
        "{normal:?}"
    );
}
