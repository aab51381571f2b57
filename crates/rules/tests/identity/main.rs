//! Who the client is: every spelling of one thing is one key, and nobody gets to use somebody else's.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot be set up has failed")]

mod addresses;
mod corpus;
mod forwarded;
#[path = "../fuzzed/forwarded.rs"]
mod fuzzed_forwarded;
#[path = "../fuzzed/key.rs"]
mod fuzzed_key;
#[path = "../fuzzed/path.rs"]
mod fuzzed_path;
mod keys;
mod paths;
mod random;
mod table;
