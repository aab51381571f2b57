//! Counting together by telling: hosts decide by themselves, and add up here what they have spent.

use crate::config::Address;
use crate::key::{Fingerprint, tag_name};
use crate::resp::Reply;
use crate::script::{Run, Script};
use crate::store::Store;
use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;
use tollgate_limit::{Recovery, Time};

/// Adds up.
static SYNC: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/sync.lua")));

/// Counts hosts.
static HOSTS: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/hosts.lua")));

/// How long the number of a host's last batch is kept: far longer than a batch is sent again.
const KEPT: Duration = Duration::from_secs(3_600);

/// A host that has not been heard of for so long is gone.
const SILENT: Duration = Duration::from_secs(5);

/// A host among those that count together: a random number, which no other process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Host(pub u64);

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// What a host has spent of one state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spent {
    /// Whose state.
    pub key: Fingerprint,
    /// How it comes back, by the store's clock.
    pub recovery: Recovery,
    /// The most that can be missing; what is more is forgiven.
    pub most: u64,
    /// How many tokens; below zero if more were given back.
    pub tokens: i64,
}

/// States that are told about in one piece. A batch is added once, however often it is sent; a host has to send those of one
/// [group](Store::group) in the order of their numbers, and each until it is answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// One more than that of the one before; the first has 1.
    pub number: u64,
    /// At least one, all of the same [group](Store::group).
    pub spent: Vec<Spent>,
}

/// What the store knows after a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Totals {
    /// The store's clock.
    pub time: Time,
    /// How many tokens of each state are missing to full, in the order of the batch.
    pub missing: Vec<f64>,
}

impl Store {
    /// States of the same group can be told about in one batch: all of them, unless the store is a cluster.
    pub fn group(&self, key: &Fingerprint) -> u32 {
        match self.config().address {
            Address::Server(_) | Address::Sentinels { .. } => 0,
            Address::Cluster(_) => key.tag(),
        }
    }

    /// Tells what was spent, and asks what is missing. `None` if there was no answer: then it may have been added.
    pub async fn tell(&self, host: Host, batch: &Batch) -> Option<Totals> {
        let (keys, arguments) = (self.sync_keys(host, batch), sync_arguments(batch));
        let run = Run { script: &SYNC, keys: &keys, arguments: &arguments };
        let reply = self.run(&run).await?;
        let (time, missing) = read_time(&reply)?;
        let missing: Option<Vec<f64>> = missing.iter().map(read_missing).collect();
        let missing = missing.filter(|missing| missing.len() == batch.spent.len())?;
        Some(Totals { time, missing })
    }

    /// Says that this host is there, and asks how many are, and what the store's clock says.
    pub async fn count_hosts(&self, host: Host) -> Option<(u64, Time)> {
        let keys = [format!("{}{{hosts}}", self.config().prefix).into_bytes()];
        let arguments = [host.to_string().into_bytes(), SILENT.as_micros().to_string().into_bytes()];
        let run = Run { script: &HOSTS, keys: &keys, arguments: &arguments };
        let reply = self.run(&run).await?;
        match read_time(&reply)? {
            (time, [Reply::Integer(hosts)]) => Some((u64::try_from(*hosts).ok()?, time)),
            _ => None,
        }
    }

    /// The name of what hosts have told about a state. It is kept beside that by which the store decides.
    pub(crate) fn told_name(&self, key: &Fingerprint) -> String {
        key.name(&self.config().prefix) + "s"
    }

    /// The host's own key is where the first of the states is, and so where all of them are.
    fn sync_keys(&self, host: Host, batch: &Batch) -> Vec<Vec<u8>> {
        let prefix = &self.config().prefix;
        let group = batch.spent.first().map_or(0, |spent| self.group(&spent.key));
        let own = format!("{prefix}{{{}}}host:{host}", tag_name(group));
        let states = batch.spent.iter().map(|spent| self.told_name(&spent.key));
        std::iter::once(own).chain(states).map(String::into_bytes).collect()
    }
}

fn sync_arguments(batch: &Batch) -> Vec<Vec<u8>> {
    let mut words = vec![batch.number.to_string(), KEPT.as_millis().to_string()];
    for Spent { recovery, most, tokens, .. } in &batch.spent {
        let (kind, first, last) = match recovery {
            Recovery::Steady(per_second) => ("s", format!("{:e}", per_second / 1e6), String::from("0")),
            Recovery::Window { start, length } => {
                ("w", (start.as_nanos() / 1_000).to_string(), length.as_micros().to_string())
            }
        };
        words.extend([kind.to_owned(), first, most.to_string(), tokens.to_string(), last]);
    }
    words.into_iter().map(String::into_bytes).collect()
}

/// The store's clock, which every reply begins with, and the rest.
fn read_time(reply: &Reply) -> Option<(Time, &[Reply])> {
    let Reply::Array(elements) = reply else { return None };
    let ([seconds, micros], rest) = elements.split_first_chunk()?;
    let nanos = read_number::<u64>(seconds)?.checked_mul(1_000_000_000)?;
    let nanos = nanos.checked_add(read_number::<u64>(micros)?.checked_mul(1_000)?)?;
    Some((Time::from_nanos(nanos), rest))
}

fn read_missing(reply: &Reply) -> Option<f64> {
    read_number::<f64>(reply).filter(|missing| missing.is_finite() && *missing >= 0.0)
}

fn read_number<T: std::str::FromStr>(reply: &Reply) -> Option<T> {
    match reply {
        Reply::Text(text) => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}
