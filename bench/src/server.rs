//! Servers under load: what the benchmark of the daemon needs to start them, to keep them busy and to count what it costs
//! them.

pub mod daemon;
pub mod grpc;
pub mod http;
pub mod load;
pub mod process;
pub mod resp;
