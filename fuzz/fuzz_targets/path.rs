//! Any bytes as the target of a request.

#![no_main]

#[path = "../../crates/rules/tests/fuzzed/path.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::check(bytes));
