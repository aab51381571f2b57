//! Which rules may apply to a request, without looking at all of them.
//!
//! Each rule is filed under one of its conditions, the one that the fewest others share: under values, under the
//! literal beginning of paths, or under networks. A request is looked up by each of its attributes; what is found
//! is then checked in full. Rules that cannot be filed (no condition, only regular expressions, globs of texts,
//! negations) are looked at every time.

use crate::attributes::{Attribute, Attributes, Names};
use crate::model::Condition;
use crate::pattern::Pattern;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

type Map<K> = HashMap<K, Vec<u32>, foldhash::fast::RandomState>;

/// Numbers of rules, in the order in which they are looked at.
pub(crate) type Candidates = SmallVec<[u32; 32]>;

/// Literal beginnings of more segments are cut off.
const DEEPEST: usize = 8;

/// Where a pattern is filed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Place<'a> {
    Exact(u32, &'a str),
    Beginning(u32, &'a str, usize),
    Network(u32, IpAddr, u8),
}

/// Where the patterns of a condition are filed: mostly there is one.
type Places<'a> = SmallVec<[Place<'a>; 2]>;

#[derive(Debug, Default)]
pub(crate) struct Index {
    /// By the number of the attribute.
    attributes: Vec<AttributeIndex>,
    /// Those that are looked at every time.
    always: Vec<u32>,
}

#[derive(Debug, Default)]
struct AttributeIndex {
    /// Values, and the rules of each by its number.
    exact: Names,
    exactly: Vec<Vec<u32>>,
    beginnings: Map<Box<str>>,
    /// How many segments the beginnings have, as bits.
    depths: u32,
    networks: Map<(IpAddr, u8)>,
    /// Which prefixes the networks have, IPv4 and IPv6.
    prefixes: [Vec<u8>; 2],
}

impl Index {
    /// Files rules that are given by their conditions, in order. Says of each which attribute's condition is known to
    /// hold when it is found.
    pub(crate) fn new<'a>(
        rules: impl Iterator<Item = &'a [(u32, Condition)]> + Clone,
        attributes: usize,
    ) -> (Index, Vec<Option<u32>>) {
        let mut proven = Vec::new();
        let mut shared: HashMap<Place<'_>, usize, foldhash::fast::RandomState> = HashMap::default();
        for place in rules.clone().flatten().filter_map(|(number, condition)| places(*number, condition)).flatten() {
            *shared.entry(place).or_default() += 1;
        }
        let mut index =
            Index { attributes: (0..attributes).map(|_| AttributeIndex::default()).collect(), always: Vec::new() };
        for (rule, conditions) in (0_u32..).zip(rules) {
            let choices = conditions.iter().filter_map(|(number, condition)| places(*number, condition));
            let company = |places: &Places<'_>| places.iter().filter_map(|place| shared.get(place)).sum::<usize>();
            let chosen = choices.min_by_key(company);
            proven.push(chosen.as_deref().and_then(proven_by));
            match chosen {
                Some(places) => places.into_iter().for_each(|place| index.file(&place, rule)),
                None => index.always.push(rule),
            }
        }
        (index, proven)
    }

    fn file(&mut self, place: &Place<'_>, rule: u32) {
        let (Place::Exact(number, ..) | Place::Beginning(number, ..) | Place::Network(number, ..)) = place;
        let Some(index) = self.attributes.get_mut(*number as usize) else { return };
        let list = match place {
            Place::Exact(_, text) => {
                let number = index.exact.number(text) as usize;
                if number == index.exactly.len() {
                    index.exactly.push(Vec::new());
                }
                match index.exactly.get_mut(number) {
                    Some(list) => list,
                    None => return,
                }
            }
            Place::Beginning(_, text, depth) => {
                index.depths |= 1 << depth;
                index.beginnings.entry((*text).into()).or_default()
            }
            Place::Network(_, address, prefix) => {
                let [v4, v6] = &mut index.prefixes;
                let prefixes = if address.is_ipv4() { v4 } else { v6 };
                if !prefixes.contains(prefix) {
                    prefixes.push(*prefix);
                }
                index.networks.entry((*address, *prefix)).or_default()
            }
        };
        // Several patterns of a rule may have the same place, as `/v1/a*` and `/v1/b*` do.
        if list.last() != Some(&rule) {
            list.push(rule);
        }
    }

    /// Adds the rules that may apply, each once, in order, to an empty list.
    #[inline]
    pub(crate) fn candidates(&self, attributes: &Attributes<'_>, found: &mut Candidates) {
        let mut lists = 0;
        if !self.always.is_empty() {
            found.extend_from_slice(&self.always);
            lists += 1;
        }
        for (number, attribute) in attributes.iter() {
            if let Some(index) = self.attributes.get(number as usize) {
                index.look_up(attribute, |rules| {
                    // Mostly there is one.
                    match rules {
                        [rule] => found.push(*rule),
                        rules => found.extend_from_slice(rules),
                    }
                    lists += 1;
                });
            }
        }
        if lists > 1 {
            found.sort_unstable();
            found.dedup();
        }
    }
}

impl AttributeIndex {
    #[inline]
    fn look_up(&self, attribute: &Attribute<'_>, mut found: impl FnMut(&[u32])) {
        if let Some(text) = attribute.text() {
            if !self.exactly.is_empty()
                && let Some(number) = self.exact.get(text)
                && let Some(rules) = self.exactly.get(number as usize)
            {
                found(rules);
            }
            self.beginnings_of(text, &mut found);
        }
        if !self.networks.is_empty()
            && let Some(address) = attribute.ip()
        {
            self.networks_of(address, &mut found);
        }
    }

    fn beginnings_of(&self, path: &str, found: &mut impl FnMut(&[u32])) {
        if self.depths == 0 {
            return;
        }
        let ends = path.bytes().enumerate().skip(1).filter(|(_, byte)| *byte == b'/').map(|(at, _)| at);
        for (depth, end) in (1..=DEEPEST).zip(ends.chain([path.len()])) {
            if self.depths & 1 << depth != 0
                && let Some(rules) = path.get(..end).and_then(|beginning| self.beginnings.get(beginning))
            {
                found(rules);
            }
        }
    }

    fn networks_of(&self, address: IpAddr, found: &mut impl FnMut(&[u32])) {
        let [v4, v6] = &self.prefixes;
        for prefix in if address.is_ipv4() { v4 } else { v6 } {
            if let Some(rules) = self.networks.get(&(mask(address, *prefix), *prefix)) {
                found(rules);
            }
        }
    }
}

/// The attribute whose condition holds for whatever is found in these places. The beginning of a path is only a hint.
fn proven_by(places: &[Place<'_>]) -> Option<u32> {
    places.iter().try_fold(None, |_, place| match place {
        Place::Exact(number, _) | Place::Network(number, ..) => Some(Some(*number)),
        Place::Beginning(..) => None,
    })?
}

/// Where a condition can be filed: under each of its patterns, or not at all.
fn places(number: u32, condition: &Condition) -> Option<Places<'_>> {
    let Condition::AnyOf(patterns) = condition else { return None };
    patterns
        .iter()
        .map(|pattern| match pattern {
            Pattern::Exact(text) => Some(Place::Exact(number, text)),
            Pattern::Path(glob) => match glob.literal_start(DEEPEST) {
                (_, 0) => None,
                (beginning, depth) => Some(Place::Beginning(number, beginning, depth)),
            },
            Pattern::Network(network) => Some(Place::Network(number, network.address(), network.prefix())),
            Pattern::Glob(_) | Pattern::Regex(_) => None,
        })
        .collect()
}

fn mask(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
        }
    }
}
