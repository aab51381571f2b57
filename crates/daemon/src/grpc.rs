//! gRPC: Envoy's rate limit service, a service of our own, health and reflection.
//!
//! It stands on `h2` alone. A call is one message in and one message out, so what lies between is some lines of framing
//! (`call`) and a reader and writer for the few messages there are ([`wire`]); most calls are answered within the
//! connection's own task, and all answers of one turn leave in one write (`cork`).

mod call;
mod cork;
pub mod envoy;
mod health;
mod method;
mod native;
mod reflection;
mod refusal;
mod server;
mod streaming;
pub mod wire;

pub use server::GrpcServer;
