//! Who keeps which slot: all of them one server, or each a node of a cluster.

use crate::config::Config;
use crate::node::Node;
use crate::slots::{Range, SLOTS};
use std::collections::HashMap;
use std::sync::Arc;

/// More nodes than any cluster has that still works.
const MOST_NODES: usize = 2_048;

/// A slot that nobody keeps, as far as is known.
const NOBODY: u16 = u16::MAX;

/// Nodes, and for every slot the number of the one that keeps it.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    nodes: Vec<Arc<Node>>,
    slots: Vec<u16>,
    /// Those who keep any slot.
    keepers: Vec<Arc<Node>>,
    /// Whether each slot is kept by somebody.
    is_whole: bool,
}

impl Map {
    /// Of a cluster that nothing is known of yet.
    pub(crate) fn empty() -> Map {
        Map { nodes: Vec::new(), slots: vec![NOBODY; usize::from(SLOTS)], keepers: Vec::new(), is_whole: false }
    }

    /// Of a server that keeps everything.
    pub(crate) fn of_one(node: Node) -> Map {
        let nodes = vec![Arc::new(node)];
        Map { keepers: nodes.clone(), nodes, slots: vec![0; usize::from(SLOTS)], is_whole: true }
    }

    pub(crate) fn nodes(&self) -> &[Arc<Node>] {
        &self.nodes
    }

    /// Who keeps a slot.
    pub(crate) fn node(&self, slot: u16) -> Option<&Arc<Node>> {
        self.nodes.get(usize::from(*self.slots.get(usize::from(slot))?))
    }

    /// Who is at an address of a cluster.
    pub(crate) fn at(&self, address: &str) -> Option<&Arc<Node>> {
        self.nodes.get(self.place(address)?)
    }

    fn place(&self, address: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.address() == Some(address))
    }

    pub(crate) fn is_keeper(&self, node: &Arc<Node>) -> bool {
        self.keepers.iter().any(|keeper| Arc::ptr_eq(keeper, node))
    }

    /// Whether somebody keeps each slot, and there is a connection to all of them.
    pub(crate) fn is_connected(&self) -> bool {
        self.is_whole && self.keepers.iter().all(|node| node.is_connected())
    }

    /// What a cluster says itself, and besides those who keep slots these others. Who was known stays connected.
    pub(crate) fn told(&self, ranges: &[Range], others: &[String], config: &Config) -> Map {
        let known: HashMap<&str, &Arc<Node>> =
            self.nodes.iter().filter_map(|node| Some((node.address()?, node))).collect();
        let mut told = Map::empty();
        for range in ranges {
            let number = told.enter(&range.address, &known, config);
            let slots = told.slots.get_mut(usize::from(range.first)..=usize::from(range.last));
            slots.into_iter().flatten().for_each(|slot| *slot = number);
        }
        for address in others {
            told.enter(address, &known, config);
        }
        told.with_keepers()
    }

    /// The same, where a slot is somewhere else.
    pub(crate) fn moved(&self, slot: u16, address: &str, config: &Config) -> Map {
        let mut moved = self.clone();
        let number = moved.enter(address, &HashMap::new(), config);
        if let Some(slot) = moved.slots.get_mut(usize::from(slot)) {
            *slot = number;
        }
        moved.with_keepers()
    }

    /// The same, with a node that may keep nothing.
    pub(crate) fn with(&self, address: &str, config: &Config) -> Map {
        let mut with = self.clone();
        with.enter(address, &HashMap::new(), config);
        with
    }

    /// The number of the node at this address; nobody if there are too many already.
    fn enter(&mut self, address: &str, known: &HashMap<&str, &Arc<Node>>, config: &Config) -> u16 {
        let place = self.place(address).unwrap_or(self.nodes.len());
        if place == self.nodes.len() {
            if place >= MOST_NODES {
                return NOBODY;
            }
            let new = || Arc::new(Node::new(Some(address.to_owned()), config));
            self.nodes.push(known.get(address).map_or_else(new, |node| Arc::clone(node)));
        }
        u16::try_from(place).unwrap_or(NOBODY)
    }

    /// Finds out who keeps anything, and whether anything is kept by nobody.
    fn with_keepers(mut self) -> Map {
        let mut keeps = vec![false; self.nodes.len()];
        self.is_whole = true;
        for number in &self.slots {
            match keeps.get_mut(usize::from(*number)) {
                Some(keeps) => *keeps = true,
                None => self.is_whole = false,
            }
        }
        let keepers = self.nodes.iter().zip(keeps).filter(|(_, keeps)| *keeps);
        self.keepers = keepers.map(|(node, _)| Arc::clone(node)).collect();
        self
    }

    /// Whether another map says the same.
    pub(crate) fn is_same(&self, other: &Map) -> bool {
        let is_same = |(one, other): (&Arc<Node>, &Arc<Node>)| Arc::ptr_eq(one, other);
        self.slots == other.slots
            && self.nodes.len() == other.nodes.len()
            && self.nodes.iter().zip(&other.nodes).all(is_same)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u16, last: u16, address: &str) -> Range {
        Range { first, last, address: address.to_owned() }
    }

    fn addresses(map: &Map, slots: [u16; 4]) -> [Option<&str>; 4] {
        slots.map(|slot| map.node(slot).and_then(|node| node.address()))
    }

    #[tokio::test]
    async fn a_map_keeps_those_it_knows_and_forgets_the_others() {
        let config = Config::new("unused");
        let first = Map::empty().told(&[range(0, 9, "a:1"), range(10, 16_383, "b:1")], &[], &config);
        assert_eq!(addresses(&first, [0, 9, 10, 16_383]), [Some("a:1"), Some("a:1"), Some("b:1"), Some("b:1")]);
        let then = first.told(&[range(5, 9, "c:1"), range(10, 16_383, "b:1")], &["d:1".to_owned()], &config);
        assert_eq!(addresses(&then, [0, 9, 10, 16_384]), [None, Some("c:1"), Some("b:1"), None]);
        assert!(Arc::ptr_eq(first.at("b:1").unwrap(), then.at("b:1").unwrap()));
        assert!(then.at("a:1").is_none() && then.at("d:1").is_some());
        assert!(then.is_keeper(then.at("c:1").unwrap()) && !then.is_keeper(then.at("d:1").unwrap()));
        assert!(!then.is_connected() && !first.is_same(&then));
        assert!(then.is_same(&then.told(
            &[range(5, 9, "c:1"), range(10, 16_383, "b:1")],
            &["d:1".to_owned()],
            &config
        )));
    }

    #[tokio::test]
    async fn one_slot_moves_alone() {
        let config = Config::new("unused");
        let map = Map::empty().told(&[range(0, 16_383, "a:1")], &[], &config).moved(7, "b:1", &config);
        assert_eq!(addresses(&map, [6, 7, 8, 9]), [Some("a:1"), Some("b:1"), Some("a:1"), Some("a:1")]);
        assert!(Arc::ptr_eq(map.at("b:1").unwrap(), map.with("b:1", &config).at("b:1").unwrap()));
        assert_eq!(map.with("c:1", &config).nodes().len(), 3);
    }

    #[test]
    fn there_are_never_too_many_nodes() {
        let config = Config::new("unused");
        let others: Vec<String> = (0..MOST_NODES + 10).map(|number| format!("a:{number}")).collect();
        let map = Map::empty().told(&[], &others, &config);
        assert_eq!(map.nodes().len(), MOST_NODES);
        assert!(map.moved(0, "b:1", &config).node(0).is_none());
    }
}
