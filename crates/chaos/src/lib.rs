//! A proxy for tests: it stands between a client and a server on this host, TCP or UDP, and does to what passes what
//! networks do.
//!
//! ```
//! use tokio::net::UdpSocket;
//! use tollgate_chaos::{Chaos, Proxy, ms};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let server = UdpSocket::bind("127.0.0.1:0").await?;
//! let chaos = Chaos::new(42).delay(ms(2)..ms(10)).loss(0.3).duplicate(0.1).reorder(0.2);
//! let proxy = Proxy::udp(server.local_addr()?, chaos).await?;
//!
//! let client = UdpSocket::bind("127.0.0.1:0").await?;
//! for number in 0..100_u8 {
//!     client.send_to(&[number], proxy.address()).await?;
//! }
//! let mut datagram = [0];
//! server.recv_from(&mut datagram).await?;
//! assert!(proxy.counts().datagrams > 0);
//!
//! // From now on nothing happens to them.
//! proxy.set(Chaos::new(42));
//! # Ok(())
//! # }
//! ```
//!
//! # A failure is a seed
//!
//! What happens to the n-th connection, and to the n-th datagram or chunk of it, depends on nothing but the seed and
//! those numbers: [`Chaos::connection`], [`Chaos::datagram`] and [`Chaos::chunk`] are functions without a clock or a
//! socket. When a test fails, run it again with the seed it prints. Some things are not in anybody's hand: when
//! datagrams of two clients reach the proxy, where TCP cuts a stream into chunks, and whether anybody comes in time to
//! overtake. So clients are numbered in the order in which they appear and each has numbers of its own, and a stream is
//! cut off after a number of bytes, not of chunks.
//!
//! # What it never does
//!
//! It makes nothing up. A stream arrives unaltered up to where it ends; a datagram arrives whole, once, twice or
//! not at all; and the order is kept where no other is asked for, however much delays differ.
//!
//! # How exact it is
//!
//! Timers are those of tokio: a millisecond late at times, and more on a busy machine. A connection to a server that is not
//! there is taken and then reset; only [`Chaos::refuse`] refuses as a server does that does not run.

mod chaos;
mod counts;
mod fate;
mod line;
mod proxy;
mod script;
mod tcp;
mod udp;

pub use chaos::{Chaos, Delay, Direction, Link, ms};
pub use counts::Counts;
pub use fate::{Fate, Passage, Place};
pub use proxy::Proxy;
pub use script::Script;
