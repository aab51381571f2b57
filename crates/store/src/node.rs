//! One server that keeps states: our connections to it, and how long it has been silent.

use crate::config::Config;
use crate::connection::{Commands, Connection, Late};
use crate::keeper::Trouble;
use crate::resp::Reply;
use crate::stats::Stats;
use arc_swap::ArcSwapOption;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How many wait for a server that was late. As many give up a connection.
const MOST_DOUBTING: usize = 3;

/// What is known of a server. Nobody but its keeper makes connections.
#[derive(Debug)]
pub(crate) struct Node {
    /// Where a node of a cluster is; `None` if it is where the configuration says.
    address: Option<String>,
    /// Told when a connection is lost.
    pub(crate) lost: Arc<Notify>,
    connections: Vec<ArcSwapOption<Connection>>,
    trouble: ArcSwapOption<Trouble>,
    /// When it began to be silent, in microseconds since `start`: it said something then, or was asked after it had not
    /// been for a while.
    silent_since: AtomicU64,
    /// Whether it did not answer in time, and has not answered anything since.
    is_doubted: AtomicBool,
    start: Instant,
}

/// Why nothing came of asking a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoReply {
    /// It was not asked: there is no connection.
    Unreachable,
    /// It was not asked: as many wait for it as may.
    Crowded,
    /// It was asked, and hung up or did not answer in time.
    Silent,
}

impl Node {
    /// One that nothing is known of yet.
    pub(crate) fn new(address: Option<String>, config: &Config) -> Node {
        Node {
            address,
            lost: Arc::default(),
            connections: (0..config.connections.max(1)).map(|_| ArcSwapOption::empty()).collect(),
            trouble: ArcSwapOption::empty(),
            silent_since: AtomicU64::new(0),
            is_doubted: AtomicBool::new(false),
            start: Instant::now(),
        }
    }

    /// Where it is, if it is a node of a cluster.
    pub(crate) fn address(&self) -> Option<&str> {
        self.address.as_deref()
    }

    /// The first place in which there is no connection.
    pub(crate) fn missing(&self) -> Option<usize> {
        self.connections.iter().position(|place| place.load().as_ref().is_none_or(|connection| connection.is_closed()))
    }

    pub(crate) fn set(&self, place: usize, connection: Connection) {
        if let Some(place) = self.connections.get(place) {
            place.store(Some(Arc::new(connection)));
        }
        self.trouble.store(None);
    }

    /// Remembers what came of the last attempt.
    pub(crate) fn failed_to_connect(&self, trouble: Trouble) {
        self.trouble.store(Some(Arc::new(trouble)));
    }

    pub(crate) fn trouble(&self) -> Option<Arc<Trouble>> {
        self.trouble.load_full()
    }

    /// The first connection that is worth asking on: what goes through one of them is written and read together, which is half of the
    /// work on both sides.
    pub(crate) fn connection(&self) -> Option<Arc<Connection>> {
        self.connections.iter().filter_map(ArcSwapOption::load_full).find(|connection| connection.is_ready())
    }

    /// Whether there is a connection, be it that it rests.
    pub(crate) fn is_connected(&self) -> bool {
        let is_open = |place: &ArcSwapOption<Connection>| place.load().as_ref().is_some_and(|one| !one.is_closed());
        self.connections.iter().any(is_open)
    }

    /// Asks it before a deadline, unless that would be in vain as far as is known.
    pub(crate) async fn ask(
        &self,
        commands: Commands,
        deadline: Instant,
        (config, stats): (&Config, &Stats),
    ) -> Result<(Arc<Connection>, Reply), NoReply> {
        let Some(connection) = self.connection() else {
            stats.unreachable.add();
            return Err(NoReply::Unreachable);
        };
        if self.is_crowded(config) {
            stats.crowded.add();
            return Err(NoReply::Crowded);
        }
        let reply = self.exchange(&connection, commands, deadline, (config, stats)).await.ok_or(NoReply::Silent)?;
        Ok((connection, reply))
    }

    async fn exchange(
        &self,
        connection: &Arc<Connection>,
        commands: Commands,
        deadline: Instant,
        (config, stats): (&Config, &Stats),
    ) -> Option<Reply> {
        if self.waiting() == 0 && !self.is_doubted() {
            self.heard();
        }
        match connection.ask(commands, deadline).await {
            Some(Ok(reply)) => {
                self.is_doubted.store(false, Ordering::Relaxed);
                self.heard();
                Some(reply)
            }
            // The connection is gone, or too much waits in it.
            None => {
                stats.failed.add();
                None
            }
            Some(Err(Late { is_ours })) => {
                stats.late.add();
                if !is_ours {
                    self.is_doubted.store(true, Ordering::Relaxed);
                    connection.was_late(config.budget);
                }
                None
            }
        }
    }

    /// Whether it is silent, and as many wait for it as may. Once it is late, a few are enough to see whether it answers.
    fn is_crowded(&self, config: &Config) -> bool {
        let most = if self.is_doubted() { MOST_DOUBTING.min(config.most_waiting) } else { config.most_waiting };
        self.waiting() >= most && self.silence() > config.budget / 3
    }

    fn is_doubted(&self) -> bool {
        self.is_doubted.load(Ordering::Relaxed)
    }

    fn waiting(&self) -> usize {
        self.connections.iter().filter_map(|place| place.load().as_ref().map(|connection| connection.waiting())).sum()
    }

    fn silence(&self) -> Duration {
        let since = Duration::from_micros(self.silent_since.load(Ordering::Relaxed));
        self.start.elapsed().saturating_sub(since)
    }

    fn heard(&self) {
        let now = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.silent_since.store(now, Ordering::Relaxed);
    }
}
