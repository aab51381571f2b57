//! Which address sent the request, when proxies have passed it on.
//!
//! Each proxy appends the address that it was called from, so the header reads from the client on the left to the
//! last proxy on the right. Whoever sends the request can begin the header with anything. What can be believed is
//! found from the right: the peer's own address is certain; the rightmost entry was appended by the peer, and
//! counts if the peer is trusted; the entry to its left was appended by the proxy that the rightmost entry names;
//! and so on, until somebody is not trusted. That is the client.
//!
//! Nothing is ever skipped. An entry that cannot be read ends the walk at the proxy that appended it, which then
//! pays for its clients. That is unpleasant for them, and tempts nobody.
//!
//! # Quotes
//!
//! In `Forwarded` a quoted string may hold commas, so where an entry begins depends on quotes; and a client can
//! open one that, read from the left, swallows what proxies append: `for="1.1.1.1, for=192.0.2.1`. Therefore quotes
//! are matched from the right as well. What a proxy appends is whole, with a quote opened for each one closed, so
//! its left end is found whatever stands before it. For headers that are correct throughout, both directions give
//! the same entries: a backslash is only allowed within quotes, so a quote with an odd number of them before it
//! never opens or closes anything.

use super::address::{Network, canonical, parse_address};
use std::net::IpAddr;

/// Entries further to the left are not looked at. No request passes so many proxies.
const MOST_ENTRIES: usize = 64;

/// Longer entries cannot be read. A host name of 253 bytes fits beside two addresses.
const LONGEST_ENTRY: usize = 512;

/// Longer names of nodes cannot be read. An address with brackets, zone and port fits twice.
const LONGEST_NODE: usize = 128;

/// The header that proxies tell the client's address in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ForwardedHeader {
    /// `X-Forwarded-For: client, proxy, proxy`.
    #[default]
    XForwardedFor,
    /// `Forwarded: for=client;proto=https, for="[2001:db8::1]:4711"`, after RFC 7239.
    Forwarded,
}

impl ForwardedHeader {
    /// The headers by their names, in lower case.
    pub const NAMES: [(&'static str, ForwardedHeader); 2] =
        [("x-forwarded-for", ForwardedHeader::XForwardedFor), ("forwarded", ForwardedHeader::Forwarded)];

    /// The header's name, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            ForwardedHeader::XForwardedFor => "x-forwarded-for",
            ForwardedHeader::Forwarded => "forwarded",
        }
    }

    /// Where the last entry of a line begins.
    fn last_entry(self, line: &[u8]) -> usize {
        let comma = match self {
            ForwardedHeader::XForwardedFor => line.iter().rposition(|byte| *byte == b','),
            ForwardedHeader::Forwarded => last_comma_outside_quotes(line),
        };
        comma.map_or(0, |comma| comma + 1)
    }

    fn address(self, entry: &[u8]) -> Option<IpAddr> {
        match self {
            ForwardedHeader::XForwardedFor => parse_address(std::str::from_utf8(entry).ok()?),
            ForwardedHeader::Forwarded => address_of_element(entry),
        }
    }
}

/// Whose word about the client's address counts.
///
/// A proxy is trusted for being in one of the networks, or for standing among the first `hops` machines in front of
/// this one: the peer is the first. A machine is stepped over if either holds, so each is a grant of its own, and
/// networks do not make the hop count safer:
///
/// - *Networks* are the better choice where they are known. Nobody else may have addresses in them, or they can
///   write any address that they like.
/// - *Hops* suit proxies whose addresses change. They count machines by their place, those in networks included:
///   with two hops the client is the second entry from the right, or one further left if that is in a network.
///   They are safe only if no request can come past the proxies; whoever reaches this machine directly, or over
///   fewer proxies, is taken for one of them and forges its address.
///
/// Only one header is read, and it has to be one that the proxies write: most pass on the other one as the client
/// sent it. By default nobody is trusted, and the client is the peer.
///
/// ```
/// use std::net::IpAddr;
/// use tollgate_rules::identity::Trust;
///
/// let trust = Trust::default().with_proxies(["10.0.0.0/8".parse()?, "2001:db8::/32".parse()?]);
/// let client = |peer: &str, header: &str| {
///     let peer: IpAddr = peer.parse().unwrap();
///     trust.client(peer, [header.as_bytes()].into_iter()).to_string()
/// };
/// // Two proxies of ours; what stands to the left of 192.0.2.1 is only what that client claims.
/// assert_eq!(client("10.0.0.1", "6.6.6.6, 192.0.2.1, 10.0.0.2"), "192.0.2.1");
/// // Somebody else calls directly, and would like to be 6.6.6.6.
/// assert_eq!(client("203.0.113.9", "6.6.6.6"), "203.0.113.9");
/// // What cannot be read is never skipped.
/// assert_eq!(client("10.0.0.1", "6.6.6.6, unknown, 10.0.0.2"), "10.0.0.2");
/// # Ok::<(), tollgate_rules::identity::NetworkError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// In order and without any that lie within another, so that one comparison finds an address.
    proxies: Vec<Network>,
    hops: u8,
    header: ForwardedHeader,
}

impl Trust {
    /// The same, with these proxies in place of those before.
    #[must_use]
    pub fn with_proxies(mut self, proxies: impl IntoIterator<Item = Network>) -> Trust {
        self.proxies = proxies.into_iter().collect();
        self.proxies.sort_unstable();
        // A network comes after the ones that it lies in: those begin earlier or have a shorter prefix.
        self.proxies.dedup_by(|inner, outer| outer.contains(inner.address()));
        self
    }

    /// The same, with so many proxies in front of this machine that each append to the header.
    #[must_use]
    pub fn with_hops(mut self, hops: u8) -> Trust {
        self.hops = hops;
        self
    }

    /// The same, reading this header.
    #[must_use]
    pub fn with_header(mut self, header: ForwardedHeader) -> Trust {
        self.header = header;
        self
    }

    /// The trusted networks in order, without those that lie within another.
    pub fn proxies(&self) -> &[Network] {
        &self.proxies
    }

    /// How many proxies are trusted for their place.
    pub fn hops(&self) -> u8 {
        self.hops
    }

    /// The header that is read.
    pub fn header(&self) -> ForwardedHeader {
        self.header
    }

    /// Who sent the request that came from this peer with these lines of the [header](Self::header), in their
    /// order.
    ///
    /// The last 64 entries are looked at, of up to 512 bytes each; what is beyond is not trusted. Nothing is
    /// allocated.
    pub fn client<'a>(&self, peer: IpAddr, lines: impl DoubleEndedIterator<Item = &'a [u8]>) -> IpAddr {
        let mut vouched_for = canonical(peer);
        if !self.trusts(vouched_for, 0) {
            return vouched_for;
        }
        let entries = lines.rev().flat_map(|line| FromTheRight { line: Some(line), header: self.header });
        for (place, entry) in (1..=MOST_ENTRIES).zip(entries) {
            let Some(address) = entry.and_then(|entry| self.header.address(entry)) else { break };
            vouched_for = address;
            if !self.trusts(address, place) {
                break;
            }
        }
        vouched_for
    }

    /// Whether to believe what the machine at this place, counted from the peer as 0, says about the one before.
    fn trusts(&self, address: IpAddr, place: usize) -> bool {
        place < usize::from(self.hops) || self.is_proxy(address)
    }

    fn is_proxy(&self, address: IpAddr) -> bool {
        let behind = self.proxies.partition_point(|network| network.address() <= address);
        let nearest = behind.checked_sub(1).and_then(|at| self.proxies.get(at));
        nearest.is_some_and(|network| network.contains(address))
    }
}

/// The entries of a line from right to left, without the blanks around them; `None` for one that is too long.
struct FromTheRight<'a> {
    line: Option<&'a [u8]>,
    header: ForwardedHeader,
}

impl<'a> Iterator for FromTheRight<'a> {
    type Item = Option<&'a [u8]>;

    fn next(&mut self) -> Option<Option<&'a [u8]>> {
        let line = self.line.take()?;
        // One byte more than an entry may have, for the comma before it.
        let near = line.len().saturating_sub(LONGEST_ENTRY + 1);
        let (far, near) = line.split_at_checked(near)?;
        let (before, entry) = near.split_at_checked(self.header.last_entry(near))?;
        match before.split_last() {
            Some((_comma, before)) => self.line = line.get(..far.len() + before.len()),
            None if entry.len() > LONGEST_ENTRY => return Some(None),
            None => {}
        }
        Some(Some(trim(entry)))
    }
}

/// Without the blanks that HTTP allows around things.
fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

fn last_comma_outside_quotes(line: &[u8]) -> Option<usize> {
    let mut quoted = false;
    line.iter().enumerate().rposition(|(at, byte)| {
        quoted ^= *byte == b'"' && !is_escaped(line, at);
        *byte == b',' && !quoted
    })
}

/// Whether an odd number of backslashes stands before this place.
fn is_escaped(line: &[u8], at: usize) -> bool {
    let before = line.get(..at).unwrap_or_default();
    before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// The address of `for=192.0.2.1;proto=https`. There has to be exactly one, and all pairs have to be correct:
/// otherwise it would be a guess what the proxy meant.
fn address_of_element(mut element: &[u8]) -> Option<IpAddr> {
    let mut found = None;
    loop {
        match element {
            [] => break,
            // Pairs may be left out.
            [b';', rest @ ..] => element = trim(rest),
            _ => {
                let (name, value, rest) = split_pair(element)?;
                if name.eq_ignore_ascii_case(b"for") && found.replace(value).is_some() {
                    return None;
                }
                element = trim(rest);
                if !matches!(element, [] | [b';', ..]) {
                    return None;
                }
            }
        }
    }
    address_of_node(found?)
}

/// A pair's value as it is written.
#[derive(Clone, Copy)]
enum Value<'a> {
    Token(&'a [u8]),
    /// What stands between the quotes.
    Quoted(&'a [u8]),
}

/// The name and the value of the first pair, and what follows it.
fn split_pair(text: &[u8]) -> Option<(&[u8], Value<'_>, &[u8])> {
    let (name, rest) = split_token(text)?;
    match rest.strip_prefix(b"=")? {
        [b'"', rest @ ..] => {
            let end = closing_quote(rest)?;
            let (value, rest) = rest.split_at_checked(end)?;
            Some((name, Value::Quoted(value), rest.strip_prefix(b"\"")?))
        }
        rest => {
            let (value, rest) = split_token(rest)?;
            Some((name, Value::Token(value), rest))
        }
    }
}

/// A token, which has at least one byte, and what follows it.
fn split_token(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|byte| !is_token(*byte)).unwrap_or(text.len());
    if end == 0 { None } else { text.split_at_checked(end) }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn closing_quote(text: &[u8]) -> Option<usize> {
    let mut escaped = false;
    text.iter().position(|byte| {
        let closes = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        closes
    })
}

fn address_of_node(value: Value<'_>) -> Option<IpAddr> {
    match value {
        Value::Token(text) => parse_address(std::str::from_utf8(text).ok()?),
        Value::Quoted(text) => {
            let mut buffer = [0; LONGEST_NODE];
            let length = unescape(text, &mut buffer)?;
            parse_address(std::str::from_utf8(buffer.get(..length)?).ok()?)
        }
    }
}

/// Writes the text without the backslashes that escape something, and returns how long it is; nothing if it does
/// not fit.
fn unescape(text: &[u8], buffer: &mut [u8]) -> Option<usize> {
    let mut escaped = false;
    let mut length = 0;
    for byte in text {
        escaped = *byte == b'\\' && !escaped;
        if !escaped {
            *buffer.get_mut(length)? = *byte;
            length += 1;
        }
    }
    Some(length)
}
