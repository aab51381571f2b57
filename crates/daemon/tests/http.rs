//! HTTP: what everybody can ask, by raw sockets and by curl.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

#[path = "http/abuse.rs"]
mod abuse;
#[path = "common/mod.rs"]
mod common;
#[path = "http/malformed.rs"]
mod malformed;
#[path = "http/metrics.rs"]
mod metrics;
#[path = "http/proxies.rs"]
mod proxies;
#[path = "http/questions.rs"]
mod questions;
#[path = "http/server.rs"]
mod server;
