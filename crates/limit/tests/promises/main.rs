//! What users are promised, whatever they ask and in whatever order. Each property is a sentence of the docs.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod any;
mod bounds;
mod bounds_across_changes;
mod changes;
mod clocks;
mod overflow;
mod quota_text;
mod rate;
mod refunds;
mod shared;
mod waits;

use proptest::test_runner::{Config, FileFailurePersistence};

/// So many cases; what fails once is made small for twenty seconds, kept beside the test and tried first from
/// then on.
fn cases(cases: u32) -> Config {
    let persistence = FileFailurePersistence::WithSource("regressions");
    Config {
        cases,
        failure_persistence: Some(Box::new(persistence)),
        max_shrink_iters: 50_000,
        max_shrink_time: 20_000,
        ..Config::default()
    }
}
