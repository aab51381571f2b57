//! HTTP/1.1 and HTTP/2: what everybody can ask, and what proxies ask by themselves.
//!
//! `docs/http.md` is for those who ask. Here, `server.rs` serves connections: `quick.rs` answers what nearly all requests
//! are, hyper all others, and `watch.rs` ends those that take too long. `page.rs` finds what was asked for, and one file each answers: `question.rs` for everything by rules, `auth.rs` for
//! proxies, `throttle.rs` for clients of throttlecrab and `json.rs` for those of envoyproxy/ratelimit.

mod auth;
mod body;
mod json;
mod number;
mod page;
mod query;
mod question;
mod quick;
mod reply;
mod server;
mod throttle;
mod watch;

pub use server::HttpServer;

/// The `OpenAPI` document that describes all pages.
pub const OPENAPI: &str = include_str!("http/openapi.json");
