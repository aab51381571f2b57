//! Three primaries and their replicas, on free ports.

use crate::common::{Client, FREE_PORT, Kind, PATIENCE, Server, now, pause};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tollgate_store::{Address, Config, Reply, read_map};

/// How many primaries there are; as many replicas follow them.
pub(crate) const PRIMARIES: usize = 3;

/// A cluster, ended when this is dropped.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Server>,
    /// Six servers are enough for this machine.
    _alone: MutexGuard<'static, ()>,
}

impl Cluster {
    /// One that goes on with the slots that are left when a node is gone.
    pub(crate) fn start(kind: Kind) -> Cluster {
        Cluster::start_with(kind, &["--cluster-require-full-coverage", "no"])
    }

    pub(crate) fn start_with(kind: Kind, arguments: &[&str]) -> Cluster {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut cluster = Cluster { nodes: Vec::new(), _alone: alone };
        for _ in 0..2 * PRIMARIES {
            cluster.nodes.push(start_node(kind, arguments));
        }
        cluster.share_out();
        cluster.meet();
        cluster.follow();
        cluster.wait_until_whole();
        cluster
    }

    /// Gives every primary a third of the slots.
    fn share_out(&self) {
        for (number, node) in self.nodes.iter().enumerate() {
            let mut client = node.client();
            client.text(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
            if number < PRIMARIES {
                let [first, last] = [number, number + 1].map(|number| 16_384 * number / PRIMARIES);
                client.text(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &(last - 1).to_string()]);
            }
        }
    }

    fn meet(&self) {
        let mut client = self.nodes.first().unwrap().client();
        for node in self.nodes.iter().skip(1) {
            // It is at `host:port@bus`.
            let own = node.client().text(&["CLUSTER", "NODES"]);
            let bus = own.split(['@', ' ', ',']).nth(2).unwrap();
            client.text(&["CLUSTER", "MEET", "127.0.0.1", &node.address.port().to_string(), bus]);
        }
        let knows_all = |node: &Server| node.client().text(&["CLUSTER", "INFO"]).contains("cluster_known_nodes:6\r");
        until("they know each other", || self.nodes.iter().all(knows_all));
    }

    fn follow(&self) {
        let (primaries, replicas) = self.nodes.split_at(PRIMARIES);
        for (primary, replica) in primaries.iter().zip(replicas) {
            let id = primary.client().text(&["CLUSTER", "MYID"]);
            until("it follows", || matches!(replica.client().ask(&["CLUSTER", "REPLICATE", &id]), Reply::Text(_)));
        }
    }

    /// Waits until all slots are kept, everybody knows that, and every primary that lives has a replica that is up to date.
    fn wait_until_whole(&self) {
        let is_whole = |node: &Server| {
            let mut client = node.client();
            let is_up = |text: String| !text.contains("role:slave") || text.contains("master_link_status:up");
            client.text(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
                && is_up(client.text(&["INFO", "replication"]))
                && map(&mut client).len() == PRIMARIES
        };
        until("it is whole", || self.nodes.iter().all(is_whole));
        let has_replica = |node: &Server| node.client().text(&["INFO", "replication"]).contains("state=online");
        until("there are replicas", || self.nodes.iter().take(PRIMARIES).all(has_replica));
    }

    /// Seeds, of which the first is not there.
    pub(crate) fn config(&self) -> Config {
        let mut seeds = vec!["127.0.0.1:1".to_owned()];
        seeds.extend(self.nodes.iter().rev().map(|node| node.address.to_string()));
        Config::new(Address::Cluster(seeds))
    }

    /// The same for a test that measures no time, and need not fail on a busy machine.
    pub(crate) fn patient(&self) -> Config {
        let (budget, connect_timeout) = (Duration::from_secs(5), Duration::from_secs(5));
        Config { budget, connect_timeout, ..self.config() }
    }

    pub(crate) fn node_at(&self, address: &str) -> &Server {
        self.nodes.iter().find(|node| node.address.to_string() == address).unwrap()
    }

    /// Who keeps a slot, as somebody who lives knows.
    pub(crate) fn keeper(&self, slot: u16, asked: usize) -> String {
        let map = map(&mut self.nodes.get(asked).unwrap().client());
        map.into_iter().find(|(first, last, _)| (*first..=*last).contains(&slot)).unwrap().2
    }

    /// Everybody else who keeps slots.
    pub(crate) fn others(&self, slot: u16) -> Vec<&Server> {
        let keeper = self.keeper(slot, 0);
        let primaries = self.nodes.iter().take(PRIMARIES);
        primaries.filter(|node| node.address.to_string() != keeper).collect()
    }

    /// Says that a slot is on its way.
    pub(crate) fn begin_to_move(&self, slot: u16, from: &Server, to: &Server) {
        let [from_id, to_id] = [from, to].map(|node| node.client().text(&["CLUSTER", "MYID"]));
        to.client().text(&["CLUSTER", "SETSLOT", &slot.to_string(), "IMPORTING", &from_id]);
        from.client().text(&["CLUSTER", "SETSLOT", &slot.to_string(), "MIGRATING", &to_id]);
    }

    /// Says that a slot has arrived.
    pub(crate) fn give(&self, slot: u16, to: &Server) {
        let to_id = to.client().text(&["CLUSTER", "MYID"]);
        for node in self.nodes.iter().take(PRIMARIES) {
            node.client().text(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &to_id]);
        }
    }
}

fn start_node(kind: Kind, more: &[&str]) -> Server {
    let arguments = [
        "--cluster-enabled",
        "yes",
        "--cluster-config-file",
        "nodes",
        "--cluster-port",
        FREE_PORT,
        "--cluster-node-timeout",
        "700",
        "--cluster-replica-validity-factor",
        "0",
        "--cluster-migration-barrier",
        "10",
        "--repl-diskless-sync-delay",
        "0",
    ];
    Server::start(kind, &[&arguments, more].concat())
}

/// Slots from the first to the last, and who keeps them.
pub(crate) fn map(client: &mut Client) -> Vec<(u16, u16, String)> {
    let reply = client.ask(&["CLUSTER", "SLOTS"]);
    let ranges = read_map(reply, "").unwrap_or_default();
    ranges.into_iter().map(|range| (range.first, range.last, range.address)).collect()
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "it takes too long until {what}");
        pause(Duration::from_millis(5));
    }
}
