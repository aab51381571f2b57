//! Quotas, written down and read again.

use crate::any::any_quota;
use crate::cases;
use proptest::prelude::*;
use tollgate_limit::Quota;

/// Texts that are nearly quotas.
fn nearly_a_quota() -> impl Strategy<Value = String> {
    let words = vec![
        "5",
        "0",
        "1_000",
        "_",
        "99999999999999999999",
        "per",
        "PER",
        "burst",
        "second",
        "seconds",
        "15min",
        "ms",
        "week",
        "fortnight",
        " ",
        "  ",
        "\t",
        "é",
        "–",
        "18446744073709551615",
        "ns",
        "0s",
        "",
        "-1",
        "1.5",
    ];
    prop::collection::vec(prop::sample::select(words), 0..9).prop_map(|words| words.join(" "))
}

fn check_error(text: &str) -> Result<(), TestCaseError> {
    if let Err(error) = text.parse::<Quota>() {
        let place = error.place();
        prop_assert!(place.start <= place.end && place.end <= text.len(), "{place:?} of {text:?}");
        prop_assert!(text.get(place.clone()).is_some(), "{place:?} cuts a character of {text:?} in two");
        prop_assert!(!error.problem().is_empty() && !error.help().is_empty());
        prop_assert!(error.to_string().starts_with(error.problem()));
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn a_printed_quota_reads_as_itself(quota in any_quota()) {
        prop_assert_eq!(quota.to_string().parse::<Quota>(), Ok(quota));
    }

    #[test]
    fn an_error_points_into_any_text(text in any::<String>()) {
        check_error(&text)?;
    }

    #[test]
    fn an_error_points_into_a_text_that_is_nearly_a_quota(text in nearly_a_quota()) {
        check_error(&text)?;
    }

    #[test]
    fn an_error_points_into_a_text_that_is_too_long(text in any::<String>(), times in 1_usize..200) {
        check_error(&text.repeat(times))?;
    }
}
