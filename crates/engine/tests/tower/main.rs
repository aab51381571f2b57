//! The layer for tower services, alone and over real HTTP on loopback.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod acting;
mod dropping;
mod examples;
mod grpc;
mod http;
mod identity;
mod live;
mod many;
mod queueing;
mod reporting;
mod service;
