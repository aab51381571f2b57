//! Limits of single clients, of whom there may be many.

use crate::compiled::CompiledLimits;
use crate::identity::{Key, Part};
use hashbrown::HashTable;
use std::hash::BuildHasher;
use std::net::IpAddr;

/// The values of a client's key, as they stand in an override.
pub(crate) type Owner = Vec<OwnedPart>;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum OwnedPart {
    Text(Box<str>),
    Address(IpAddr),
}

impl OwnedPart {
    fn part(&self) -> Part<'_> {
        match self {
            OwnedPart::Text(text) => Part::Text(text),
            OwnedPart::Address(address) => Part::Address(*address),
        }
    }
}

/// Found by keys that are only borrowed.
#[derive(Debug, Default)]
pub(crate) struct Overrides {
    clients: HashTable<(Owner, CompiledLimits)>,
    hasher: foldhash::fast::RandomState,
}

impl Overrides {
    /// Adds a client that is not there yet.
    pub(crate) fn insert(&mut self, client: Owner, limits: CompiledLimits) {
        let hash = |client: &Owner| {
            let parts: Vec<Part<'_>> = client.iter().map(OwnedPart::part).collect();
            self.hasher.hash_one(Key::new(&parts))
        };
        self.clients.insert_unique(hash(&client), (client, limits), |(client, _)| hash(client));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    pub(crate) fn get(&self, key: &[Part<'_>]) -> Option<&CompiledLimits> {
        let same =
            |client: &Owner| client.len() == key.len() && client.iter().zip(key).all(|(own, part)| own.part() == *part);
        self.clients.find(self.hasher.hash_one(Key::new(key)), |(client, _)| same(client)).map(|(_, limits)| limits)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &CompiledLimits> {
        self.clients.iter().map(|(_, limits)| limits)
    }
}
