//! One server that keeps states: our connections to it, whom they are asked on, and when they rest.

use crate::config::Config;
use crate::connection::{Commands, Connection, NoAnswer};
use crate::keeper::Trouble;
use crate::patience::Patience;
use crate::resp::Reply;
use crate::script::Script;
use crate::stats::Stats;
use crate::trial::Trial;
use arc_swap::ArcSwapOption;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// What errors of a server begin with that does nothing that we ask for, whatever it is.
const UNFIT: [&str; 9] = [
    "BUSY ",
    "CLUSTERDOWN The cluster is down",
    "LOADING ",
    "MASTERDOWN ",
    "MISCONF ",
    "NOAUTH ",
    "NOREPLICAS ",
    "OOM ",
    "READONLY ",
];

/// What is known of a server. Nobody but its keeper makes connections.
#[derive(Debug)]
pub(crate) struct Node {
    /// Where a node of a cluster is; `None` if it is where the configuration says.
    address: Option<String>,
    /// Told when a connection is lost.
    pub(crate) lost: Arc<Notify>,
    connections: Vec<ArcSwapOption<Connection>>,
    trouble: ArcSwapOption<Trouble>,
    /// When the source of a script was last sent that it had forgotten, by the script's digest.
    reloaded_at: Mutex<HashMap<String, Instant>>,
    pub(crate) patience: Patience,
    pub(crate) budget: Duration,
    /// How long it takes at the most while it is well and has nothing else to do.
    pub(crate) prompt: Duration,
    start: Instant,
}

/// For how long an answer is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Until {
    pub(crate) deadline: Instant,
    /// Whether no request waits for it. Then it takes nobody's place, and says nothing about how long requests wait.
    pub(crate) is_patient: bool,
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
            reloaded_at: Mutex::default(),
            patience: Patience::new(config.most_waiting, config.budget),
            budget: config.budget,
            prompt: config.prompt(),
            start: Instant::now(),
        }
    }

    /// Where it is, if it is a node of a cluster.
    pub(crate) fn address(&self) -> Option<&str> {
        self.address.as_deref()
    }

    /// The first place in which there is no connection.
    pub(crate) fn missing(&self) -> Option<usize> {
        self.connections.iter().position(|place| !is_open(place))
    }

    /// Puts a connection that works into a place. If too many have waited in vain before, it is tried for a while first.
    pub(crate) fn set(self: &Arc<Node>, place: usize, connection: Connection) {
        if self.connection().is_none() {
            self.patience.was_found(self.now());
        }
        let connection = Arc::new(connection);
        if self.patience.exhausted_by().is_some() {
            self.rest(&connection);
        }
        if let Some(place) = self.connections.get(place) {
            place.store(Some(connection));
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

    /// Whether somebody who was told that a script is not known is to send its source, and not only its digest again. Scripts are
    /// large and commands are run in order, so that one of all who asked before it was sent is enough.
    pub(crate) fn reloads(&self, script: &Script, asked_at: Instant) -> bool {
        let mut reloaded_at = self.reloaded_at.lock().unwrap_or_else(PoisonError::into_inner);
        let is_on_its_way = reloaded_at.get(script.digest()).is_some_and(|sent_at| *sent_at > asked_at);
        if !is_on_its_way {
            reloaded_at.insert(script.digest().to_owned(), Instant::now());
        }
        !is_on_its_way
    }

    /// The first connection that is worth asking on: what goes through one of them is written and read together, which is half of the
    /// work on both sides.
    pub(crate) fn connection(&self) -> Option<Arc<Connection>> {
        self.each().find(|connection| connection.is_ready())
    }

    /// The same for a request that wants it. If there is none, nothing is well: it is an outage if all are gone.
    pub(crate) fn ready(&self) -> Option<Arc<Connection>> {
        let connection = self.connection();
        if connection.is_none() {
            self.was_disturbed();
        }
        connection
    }

    fn was_disturbed(&self) {
        let now = self.now();
        if self.is_open() {
            self.patience.was_troubled(now);
        } else {
            self.patience.was_gone(now);
        }
    }

    /// The time, as its patience takes it.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn each(&self) -> impl Iterator<Item = Arc<Connection>> {
        self.connections.iter().filter_map(ArcSwapOption::load_full)
    }

    /// Whether there is a connection, be it that it rests.
    fn is_open(&self) -> bool {
        self.connections.iter().any(is_open)
    }

    /// The same, and not so many have waited in vain that it has to show that it is well.
    pub(crate) fn is_connected(&self) -> bool {
        // Where nobody asks, nobody else would see that nothing is the matter any more. Without a connection something is.
        if self.connection().is_some() {
            self.patience.forget(self.now());
        }
        self.is_open() && self.patience.exhausted_by().is_none()
    }

    /// Asks it before a deadline, unless that would be in vain as far as is known.
    pub(crate) async fn ask(
        self: &Arc<Node>,
        commands: Commands,
        until: Until,
        stats: &Stats,
    ) -> Result<(Arc<Connection>, Reply), NoReply> {
        let Some(connection) = self.ready() else {
            stats.unreachable.add();
            return Err(NoReply::Unreachable);
        };
        let asked_at = self.now();
        let waiting = if until.is_patient { None } else { self.patience.admit(asked_at) };
        if waiting.is_none() && !until.is_patient {
            if self.patience.exhausted_by().is_some() {
                self.rest_all();
            }
            stats.crowded.add();
            return Err(NoReply::Crowded);
        }
        let mut asking = Asking { node: self, connection: &connection, stats, until, asked_at, is_over: false };
        let answer = connection.ask(commands, until.deadline).await;
        asking.is_over = true;
        drop(asking);
        match answer {
            Ok(reply) => {
                self.patience.answered(self.now());
                if is_unfit(&reply) {
                    self.each().for_each(|connection| connection.give_up());
                }
                Ok((connection, reply))
            }
            Err(why) => Err(self.has_not_answered(why, &connection, until.is_patient, stats)),
        }
    }

    /// Learns from a question that was not answered.
    fn has_not_answered(
        self: &Arc<Node>,
        why: NoAnswer,
        connection: &Connection,
        is_patient: bool,
        stats: &Stats,
    ) -> NoReply {
        stats.unanswered(why, is_patient);
        if why == NoAnswer::Full {
            return NoReply::Crowded;
        }
        if !is_patient {
            self.patience.waited_in_vain(self.now());
        }
        // Of several who waited on a connection that rests by now, the others need not say so again.
        let is_news = why == NoAnswer::Late && connection.fails() && connection.is_ready();
        if why == NoAnswer::Never {
            self.was_disturbed();
        } else if is_news || self.patience.exhausted_by().is_some() {
            self.rest_all();
        }
        NoReply::Silent
    }

    fn rest_all(self: &Arc<Node>) {
        self.each().for_each(|connection| self.rest(&connection));
    }

    /// Asks nothing on a connection until the server is well.
    fn rest(self: &Arc<Node>, connection: &Arc<Connection>) {
        if connection.rest() {
            connection.home().spawn(Trial::new(Arc::clone(self), Arc::clone(connection)).run());
        }
    }
}

/// Somebody who asks, and may give up before there is an answer.
struct Asking<'a> {
    node: &'a Arc<Node>,
    connection: &'a Connection,
    stats: &'a Stats,
    until: Until,
    asked_at: Duration,
    is_over: bool,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if !self.is_over && self.node.patience.is_in_vain(self.asked_at, self.node.now()) {
            self.node.has_not_answered(NoAnswer::Late, self.connection, self.until.is_patient, self.stats);
        }
    }
}

fn is_open(place: &ArcSwapOption<Connection>) -> bool {
    place.load().as_ref().is_some_and(|connection| !connection.is_closed())
}

pub(crate) fn is_unfit(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(error) if UNFIT.iter().any(|start| error.starts_with(start)))
}
