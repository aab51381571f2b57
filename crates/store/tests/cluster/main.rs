//! A cluster of six real servers: what is decided there, and what becomes of it while slots move and nodes die.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/load.rs"]
mod load;
#[path = "../common/machine.rs"]
mod machine;
#[path = "../common/notes.rs"]
mod notes;

mod deciding;
mod failing;
mod moving;
mod nodes;
mod together;
