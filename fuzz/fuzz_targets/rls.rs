//! Any bytes as a question of Envoy's.

#![no_main]

#[path = "../../crates/daemon/tests/fuzzed/grpc.rs"]
mod checks;
#[path = "../../crates/daemon/tests/grpc/messages.rs"]
mod messages;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::check(bytes));
