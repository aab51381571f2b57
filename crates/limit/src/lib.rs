//! Rate limits as pure functions, and a table that holds millions of them.
//!
//! This crate decides; it never reads a clock, a socket or a random number. [`Quota`] says how much, [`Limit`]
//! by which algorithm, [`Op`] what is asked, and [`Decision`] is the answer. [`Cell`] keeps the state of one
//! client, [`Table`] that of millions, both shared between threads without a lock.
//!
//! Services embed the crate `tollgate`, which adds the clock and the waiting.
//!
//! ```
//! use std::time::Duration;
//! use tollgate_limit::{Cell, Limit, Op, Time};
//!
//! // The example of every textbook: a bucket of 10, refilled by 10 a second, and full.
//! let limit = Limit::token_bucket("10 per second".parse()?);
//! let cell = Cell::new(&limit, Time::ZERO);
//! let at = |millis| Time::ZERO + Duration::from_millis(millis);
//!
//! assert_eq!(cell.decide(&limit, Op::Take(6), at(300)).remaining, 4);
//! assert_eq!(cell.decide(&limit, Op::Peek(1), at(500)).remaining, 6);
//! assert_eq!(cell.decide(&limit, Op::Take(5), at(500)).remaining, 1);
//! assert_eq!(cell.decide(&limit, Op::Peek(1), at(1500)).remaining, 10);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod algorithm;
mod cell;
mod decision;
pub mod kept;
mod limit;
mod pace;
mod quota;
mod reservation;
mod shared;
mod sync;
mod table;
mod time;

pub use algorithm::calendar::{Calendar, CalendarUnit};
pub use algorithm::sliding_log::Blocked;
pub use algorithm::{Change, Op};
pub use cell::Cell;
pub use decision::{Decision, Outcome, Retry};
pub use limit::Limit;
pub use quota::{ParseQuotaError, Quota, QuotaError, format_duration, parse_duration};
pub use reservation::Reservation;
pub use shared::Recovery;
pub use table::{Capacity, Forgotten, Table};
pub use time::Time;
