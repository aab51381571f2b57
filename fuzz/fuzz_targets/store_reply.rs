//! Any bytes as what a store says.

#![no_main]

#[path = "../../crates/store/tests/fuzzed/reply.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::check(bytes));
