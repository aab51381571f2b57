//! Limits that are kept in a store: who decides by them, and what a decision costs the store and who asks it, together.

pub mod host;
pub mod limiter;
pub mod load;
