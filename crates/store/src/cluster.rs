//! Keeps the map of a cluster: asks its nodes for it when anything is not as it says, and keeps connections to whoever is
//! in it. This is the only place that changes the map.

use crate::connection::Commands;
use crate::keeper::{self, Trouble, jittered, silent};
use crate::map::Map;
use crate::resp::Command;
use crate::slots::{Range, read_map};
use crate::store::Shared;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

/// The shortest and the longest pause between two questions for the map.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(300);

/// What is noticed and not looked at yet. More is not needed, since the map is asked for anyway.
const MOST_NOTICES: usize = 64;

/// How long a node is kept connected that keeps no slots, after it was last asked for one that is on its way to it.
const ASKED_FOR: Duration = Duration::from_secs(10);

/// Where it is told that something in a cluster is not as the map says.
#[derive(Debug)]
pub(crate) struct Notices {
    sender: mpsc::Sender<Notice>,
    is_stale: AtomicBool,
}

/// What somebody who asks has noticed.
#[derive(Debug)]
pub(crate) enum Notice {
    /// The map may be out of date.
    Stale,
    /// A slot is somewhere else for good.
    Moved(u16, String),
    /// A slot is on its way to this node.
    Asked(String),
}

impl Notices {
    pub(crate) fn new() -> (Notices, mpsc::Receiver<Notice>) {
        let (sender, receiver) = mpsc::channel(MOST_NOTICES);
        (Notices { sender, is_stale: AtomicBool::new(false) }, receiver)
    }

    /// The map is to be asked for soon.
    pub(crate) fn stale(&self) {
        if !self.is_stale.swap(true, Ordering::AcqRel) {
            // If there is no room, the flag is seen with what is there.
            let _ = self.sender.try_send(Notice::Stale);
        }
    }

    pub(crate) fn moved(&self, slot: u16, address: &str) {
        let _ = self.sender.try_send(Notice::Moved(slot, address.to_owned()));
        self.stale();
    }

    pub(crate) fn asked(&self, address: &str) {
        let _ = self.sender.try_send(Notice::Asked(address.to_owned()));
    }
}

/// Goes on for as long as anybody has the store.
pub(crate) async fn keep(shared: Arc<Shared>, seeds: Vec<String>, notices: mpsc::Receiver<Notice>) {
    let mut cluster = Cluster {
        shared,
        seeds,
        notices,
        tasks: JoinSet::new(),
        keepers: HashMap::new(),
        asked: HashMap::new(),
        turn: 0,
        knows: None,
    };
    let mut pause = SHORTEST_PAUSE;
    loop {
        let has_changed = cluster.refresh().await;
        pause = if has_changed { SHORTEST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
        cluster.rest(jittered(pause)).await;
        if cluster.is_in_order() {
            cluster.wait().await;
            pause = SHORTEST_PAUSE;
        }
    }
}

struct Cluster {
    shared: Arc<Shared>,
    seeds: Vec<String>,
    notices: mpsc::Receiver<Notice>,
    /// Whoever keeps connections to a node. They end with this.
    tasks: JoinSet<()>,
    keepers: HashMap<String, AbortHandle>,
    /// Nodes that slots were on their way to, and when that was last seen.
    asked: HashMap<String, Instant>,
    /// Who is asked for the map next.
    turn: usize,
    /// Who has just been given a slot, and so knows best.
    knows: Option<String>,
}

impl Cluster {
    /// Asks for the map, and says whether it was another one.
    async fn refresh(&mut self) -> bool {
        self.take_stale();
        match self.ask().await {
            Ok(ranges) => {
                self.shared.set_trouble(None);
                self.asked.retain(|_, at| at.elapsed() < ASKED_FOR);
                let others: Vec<String> = self.asked.keys().cloned().collect();
                let map = self.shared.map().told(&ranges, &others, &self.shared.config);
                self.set(map)
            }
            Err(trouble) => {
                self.shared.set_trouble(Some(trouble));
                false
            }
        }
    }

    /// What the first says who says anything: those we are connected to; otherwise one after the other, each time another.
    async fn ask(&mut self) -> Result<Vec<Range>, Trouble> {
        self.turn = self.turn.wrapping_add(1);
        let map = self.shared.map();
        let best = self.knows.take().and_then(|address| map.at(&address).cloned());
        let nodes = map.nodes();
        let others = (0..nodes.len()).filter_map(|step| nodes.get(self.turn.wrapping_add(step) % nodes.len()));
        for node in best.iter().chain(others) {
            let (Some(connection), Some(address)) = (node.connection(), node.address()) else { continue };
            let deadline = Instant::now() + self.shared.config.longest_connect() / 4;
            let reply = connection.ask(Commands { bytes: question(), unwanted: 0 }, deadline).await;
            if let Some(ranges) = reply.ok().and_then(|reply| read_map(reply, address).ok()) {
                return Ok(ranges);
            }
        }
        self.ask_anew(&map).await
    }

    /// Asks somebody whom we are not connected to: seeds, and those who were in the map.
    async fn ask_anew(&self, map: &Map) -> Result<Vec<Range>, Trouble> {
        let known = map.nodes().iter().filter_map(|node| node.address());
        let mut addresses: Vec<&str> = self.seeds.iter().map(String::as_str).collect();
        addresses.extend(known.filter(|address| !self.seeds.iter().any(|seed| seed == address)));
        let turn = self.turn.checked_rem(addresses.len()).and_then(|turn| addresses.get(turn));
        let address = *turn.ok_or_else(|| Trouble::Unreachable("there are no nodes to ask".to_owned()))?;
        self.shared.turn_to_connect().await;
        let (longest, question) = (self.shared.config.longest_connect(), question());
        let asking = keeper::ask_once(address, &question, &self.shared.config);
        let reply = timeout(longest, asking).await.unwrap_or_else(|_| Err(silent(longest, &self.shared.config)))?;
        read_map(reply, address).map_err(|none| Trouble::Refused(none.to_string()))
    }

    /// Puts a map in place, with somebody to keep connections to each of its nodes. Says whether it is another one.
    fn set(&mut self, map: Map) -> bool {
        if map.is_same(&self.shared.map()) {
            return false;
        }
        self.keepers.retain(|address, keeper| {
            let stays = map.at(address).is_some();
            if !stays {
                keeper.abort();
            }
            stays
        });
        // Those that have ended are of no interest.
        while self.tasks.try_join_next().is_some() {}
        let map = Arc::new(map);
        self.shared.set_map(Arc::clone(&map));
        for node in map.nodes() {
            let Some(address) = node.address() else { continue };
            if !self.keepers.contains_key(address) {
                let keeper = self.tasks.spawn(keeper::keep(Arc::clone(&self.shared), Arc::clone(node)));
                self.keepers.insert(address.to_owned(), keeper);
            }
        }
        true
    }

    fn note(&mut self, notice: Notice) {
        match notice {
            Notice::Stale => {}
            Notice::Moved(slot, address) => {
                let map = self.shared.map();
                if map.node(slot).and_then(|node| node.address()) != Some(&address) {
                    self.set(map.moved(slot, &address, &self.shared.config));
                }
                self.knows = Some(address);
            }
            Notice::Asked(address) => {
                let map = self.shared.map();
                if map.at(&address).is_none() {
                    self.set(map.with(&address, &self.shared.config));
                }
                self.asked.insert(address, Instant::now());
            }
        }
    }

    /// Does no more than taking notes for a while.
    async fn rest(&mut self, pause: Duration) {
        let over = sleep(pause);
        tokio::pin!(over);
        loop {
            tokio::select! {
                () = &mut over => return,
                Some(notice) = self.notices.recv() => self.note(notice),
            }
        }
    }

    fn is_in_order(&self) -> bool {
        let is_stale = self.shared.notices().is_some_and(|notices| notices.is_stale.load(Ordering::Acquire));
        !is_stale && self.shared.map().is_connected()
    }

    /// What was noticed before the map is asked for is settled by it.
    fn take_stale(&self) {
        if let Some(notices) = self.shared.notices() {
            notices.is_stale.store(false, Ordering::Release);
        }
    }

    /// Waits until the map is worth asking for.
    async fn wait(&mut self) {
        while self.is_in_order() {
            match self.notices.recv().await {
                Some(notice) => self.note(notice),
                None => return,
            }
        }
    }
}

fn question() -> Vec<u8> {
    let mut command = Vec::new();
    Command::new(&mut command, 2).word("CLUSTER").word("SLOTS");
    command
}
