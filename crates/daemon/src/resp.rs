//! RESP2 and RESP3: any language that has a Redis client has a client.

pub mod command;
mod conversation;
pub mod decode;
mod quick;
pub mod reply;
mod server;

pub use server::RespServer;
