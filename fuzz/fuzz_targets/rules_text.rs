//! Any bytes as a file of rules.

#![no_main]

#[path = "../../crates/rules/tests/fuzzed/rules_text.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::check(bytes));
