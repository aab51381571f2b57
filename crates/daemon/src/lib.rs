//! The daemon: one process that any language can ask.
//!
//! Front ends move bytes; all of them ask the one [`Engine`](tollgate::Engine). What they share is here: who may connect
//! ([`listen`], [`tls`], [`access`]), what can be asked ([`State`]), what an answer says ([`answer`]), and what can go
//! wrong ([`fault`]). [`serve()`] puts it all together.

pub mod access;
pub mod answer;
pub mod config;
mod example;
pub mod fault;
pub mod grpc;
mod holds;
pub mod http;
pub mod listen;
mod logging;
pub mod meters;
pub mod metrics;
pub mod otlp;
pub mod resp;
mod serve;
mod sharing;
mod state;
mod systemd;
pub mod throttle;
pub mod tls;

pub use holds::HoldId;
pub use serve::serve;
pub use state::{RESERVED_FOR, Reserved, State, Turn, at_once};
