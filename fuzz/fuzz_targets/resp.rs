//! Any bytes on a RESP connection.

#![no_main]

#[path = "../../crates/daemon/tests/fuzzed/resp.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::check(bytes));
