//! Any bytes as what a client writes into a forwarded header.

#![no_main]

#[path = "../../crates/rules/tests/fuzzed/forwarded.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::check(bytes));
