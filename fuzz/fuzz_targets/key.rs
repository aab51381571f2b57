//! Any bytes as a key, and as the parts of one.

#![no_main]

#[path = "../../crates/rules/tests/fuzzed/key.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::check(bytes));
