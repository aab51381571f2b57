//! gRPC: Envoy's service, our own, health and reflection, asked by other people's clients.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

#[path = "grpc/abuse.rs"]
mod abuse;
#[path = "grpc/corpus.rs"]
mod corpus;
#[path = "fuzzed/grpc.rs"]
mod fuzzed;
#[path = "grpc/malformed.rs"]
mod malformed;
#[path = "grpc/messages.rs"]
mod messages;
#[path = "grpc/native.rs"]
mod native;
#[path = "grpc/rls.rs"]
mod rls;
#[path = "grpc/server.rs"]
mod server;
#[path = "grpc/tools.rs"]
mod tools;
#[path = "common/venv.rs"]
mod venv;
