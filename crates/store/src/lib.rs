//! Rate limits that many hosts count together, in Redis or Valkey.
//!
//! Rules with `shared: store-exact` are decided in the store: all limits of a request by one constant script in one round
//! trip, all or nothing, by the store's own clock. So it matters neither how a balancer spreads requests over hosts
//! nor whether the clocks of those are right: not one token more than the limit is let through.
//!
//! Services use it through the crate `tollgate` with its feature `redis`. [`Store::ask`] is what that stands on; whoever
//! has a connection of another kind takes [`Call`] and [`Refund`], which say what to send and what the reply means, and no
//! more; [`take_reply`], [`read_map`] and [`Redirection`] read what servers say.
//!
//! # What the scripts keep
//!
//! Each limit of each client is one key: the prefix, in braces 18 bits of a SHA-256 of the client, and 128 bits of one of
//! the limit and the client. Nothing that a client sends is in it. In a cluster the states of one client are kept
//! together, and no client chooses where. Every key expires when it would say no more than one that does not exist; that of a
//! bucket a little later, so that it need not be said with every request: by ten seconds or the time of sixteen tokens,
//! whichever is more, and by no more than a quarter of the bucket's filling time.
//!
//! | limit | script | value | invariant |
//! |---|---|---|---|
//! | token bucket, leaky bucket and queue, smooth bursty | `buckets.lua`, `bucket.lua`, `paced.lua` | when it is full again | only moved ahead, by the price of what fitted |
//! | fixed and calendar window, cycles | `window.lua` | the window's number, and what was used | every window that follows takes the limit off what was used |
//! | sliding window | `sliding.lua` | `number:current:previous` | `current` is never above the limit |
//! | sliding log | `log.lua` | a sorted set, a member for each request | no more members than tokens in the limit |
//! | warm-up | `warm_up.lua` | `stored:next` | rounds as the library does |
//!
//! What was taken and not used is given back by `give_back.lua` ([`Store::give_back`]), which moves states back as far as
//! nothing is missing, and leaves logs and warm-ups alone. [`Store::look`] takes nothing. What hosts have spent by
//! themselves (`shared: store`) is added up by `sync.lua` in keys of its own ([`Store::tell`]).
//!
//! Scripts only compare and add. What a client is told (what is left, when to come back) is worked out here from what was
//! kept, by the code that decides about limits of this host ([`tollgate_limit::kept`]). Numbers in Lua are exact up
//! to 2^53; what may be larger is computed in two or more parts, so that decisions agree with the library to the token.
//!
//! # When the store fails
//!
//! No decision waits for longer than its [budget](Config::budget), and no more than [so many](Config::most_waiting) wait in vain for
//! one outage. After three late answers in a row nobody asks until the store was asked for nobody and is prompt again: within
//! two thirds of the budget. A connection on which it is not for a tenth of a second, or the budget, is given up, and one on which it
//! says that it can do nothing at once. Meanwhile each rule does what its `on_failure` says, and the verdict
//! says that it was degraded. New connections are made no more than ten times a second, and used once the store has run every script
//! that decides and was prompt, so that one that only reads, has no memory left or is still loading is not asked. A
//! request that was given up may still have been counted: then a client gets less, never more. A primary that dies may take with it
//! what its replicas did not hear in time, and so much is then let through again.
//!
//! # Clusters
//!
//! With [`Address::Cluster`] every node that keeps slots has its own connections, and each question goes to the node of its
//! slot. Which that is, any node says; it is asked again when something is not as it said. Slots that have moved or are on
//! their way are asked for where they are. A node that fails matters to its own keys alone, if the cluster itself goes on
//! with the others (`cluster-require-full-coverage no`); only [`Store::is_connected`] wants all of them, and somebody who keeps each
//! slot.
//!
//! The limits of a client are in one slot, and decided as on one server. Those of a request that belong to several clients
//! (a user and everybody, say) may be in several. They are decided at once, each slot all or nothing by the clock of its
//! node; if one of them refuses, or does not answer, what the others took is given back at once, and nobody waits for that.
//! No limit ever lets through more than it says. What is weaker than on one server is this, and only for such requests:
//!
//! - Until it is given back, a few milliseconds, others may be refused by what was taken; their hosts remember that as they do
//!   every refusal, for a second at the most.
//! - What came in between taking and giving back (the rate times that time) is not given back, since others may have taken
//!   it meanwhile; nor is what was taken from a window that has ended since.
//! - Logs and warm-ups get nothing back: a refused request stays in them. Keep such limits with the key of the others.
//! - If the node does not hear that it is to give back, it does not; what was taken then comes back by itself.
//! - A node that was asked and did not answer in time may have counted the request.
//!
//! # What the store has to allow
//!
//! `ACL SETUSER tollgate on >secret ~tg:* +eval +evalsha +time +mget +set +psetex +incrby +del +pexpire +zadd +zcard +zrange
//! +zrangebyscore +zrem +zremrangebyscore` is enough, and in a cluster `+cluster|slots +asking` besides; `HELLO` and `AUTH`
//! are everybody's. Redis from 6.0 and every Valkey will do. A store that evicts keys forgets what was spent;
//! `maxmemory-policy noeviction` refuses instead, and the rules then do what they say for failures.
//!
//! # What this crate does not contain
//!
//! Arithmetic of algorithms, rules, a clock: those are of `tollgate-limit`, `tollgate-rules` and the caller. Nor who decides
//! when hosts tell each other, or how many tokens are taken ahead of need: that is `tollgate` with its feature `redis`.
//!
//! With the feature `tls` connections can be encrypted ([`Config`]).

mod apart;
mod call;
mod cluster;
mod config;
mod connection;
mod forget;
mod keeper;
mod key;
mod map;
mod node;
mod patience;
mod refund;
mod refusals;
mod resp;
mod script;
mod slots;
mod stats;
mod store;
mod stream;
mod sync;
mod trial;

pub use call::{Ask, Call, Says, Unreadable};
#[cfg(feature = "tls")]
pub use config::Tls;
pub use config::{Address, Config, Protocol};
pub use keeper::Trouble;
pub use key::{Client, Fingerprint};
pub use refund::Refund;
pub use resp::{Malformed, Reply, take_reply};
pub use script::{BUCKETS, GIVE_BACK, LIMITS, LOOK, Script, WINDOWS};
pub use slots::{NoMap, Range, Redirection, read_map};
pub use stats::Snapshot;
pub use store::{Store, Told};
pub use sync::{Batch, Host, Spent, Totals};
