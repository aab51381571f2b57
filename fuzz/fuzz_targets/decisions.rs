//! Any bytes as a script of questions to a limit.

#![no_main]

#[path = "../../crates/limit/tests/fuzzed/decisions.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::check(bytes));
