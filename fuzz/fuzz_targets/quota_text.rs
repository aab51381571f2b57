//! Any bytes as the text of a quota.

#![no_main]

#[path = "../../crates/limit/tests/fuzzed/quota_text.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::check(bytes));
