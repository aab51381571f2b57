//! The daemon: one process that any language can ask.
//!
//! Front ends move bytes; all of them ask the one [`Engine`](tollgate::Engine). So far there is RESP, which every Redis client
//! speaks.

pub mod resp;
mod state;
pub mod throttle;

pub use state::State;
