//! The daemon: one process that any language can ask.
//!
//! Front ends move bytes; all of them ask the one [`Engine`](tollgate::Engine). What they share is here: who may connect
//! ([`listen`], [`tls`], [`access`]), what can be asked ([`State`]), what an answer says ([`answer`]), and what can go
//! wrong ([`fault`]).

pub mod access;
pub mod answer;
pub mod fault;
mod holds;
pub mod listen;
pub mod meters;
pub mod resp;
mod state;
pub mod throttle;
pub mod tls;

pub use holds::HoldId;
pub use state::{RESERVED_FOR, Reserved, State};
