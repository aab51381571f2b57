//! Which node of a cluster keeps which keys, as its nodes tell it. Nothing here reads a socket.

use crate::resp::Reply;
use std::fmt;

/// Every key is in one of these.
pub(crate) const SLOTS: u16 = 16_384;

/// More primaries than any cluster can have that still works.
const MOST_PRIMARIES: usize = 1_024;

/// The longest that a name of a host can be.
const LONGEST_HOST: usize = 255;

/// The slot of a key: what is between the first brace and the next that closes it says where it is kept, otherwise all
/// of its name.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = key.get(open + 1..)?;
        let close = rest.iter().position(|byte| *byte == b'}').filter(|close| *close > 0)?;
        rest.get(..close)
    });
    slot_of_tag(tag.unwrap_or(key).iter().copied())
}

/// The slot of keys with this between their braces.
pub(crate) fn slot_of_tag(tag: impl Iterator<Item = u8>) -> u16 {
    crc16(tag) % SLOTS
}

/// CRC-16/XMODEM, which clusters use.
fn crc16(bytes: impl Iterator<Item = u8>) -> u16 {
    const POLYNOMIAL: u16 = 0x1021;
    bytes.fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| if crc >> 15 == 1 { crc << 1 ^ POLYNOMIAL } else { crc << 1 })
    })
}

/// Slots from the first to the last, and where their primary is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first slot.
    pub first: u16,
    /// The last slot, which is one of them.
    pub last: u16,
    /// The host and port of who keeps them.
    pub address: String,
}

/// What a node says is no map of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoMap(String);

impl fmt::Display for NoMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoMap {}

/// Reads what `CLUSTER SLOTS` answers, ordered by slots. A primary that does not say its host is where `asked` is; one
/// that nobody knows the host of keeps its slots to itself.
///
/// ```
/// use bytes::BytesMut;
/// use tollgate_store::{read_map, take_reply};
///
/// let mut said = BytesMut::from("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$4\r\nhost\r\n:7000\r\n");
/// let reply = take_reply(&mut said)?.ok_or("there is more to come")?;
/// assert_eq!(read_map(reply, "seed:6379")?[0].address, "host:7000");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The reply is no map, or one of more nodes than a cluster can have.
pub fn read_map(reply: Reply, asked: &str) -> Result<Vec<Range>, NoMap> {
    let entries = match reply {
        Reply::Array(entries) => entries,
        Reply::Error(error) => return Err(NoMap(error)),
        _ => return Err(NoMap("a node does not say which slots there are".to_owned())),
    };
    let unreadable = || NoMap("a node says what is no map of a cluster".to_owned());
    let mut ranges = Vec::with_capacity(entries.len());
    for entry in &entries {
        ranges.extend(read_range(entry, asked).ok_or_else(unreadable)?);
    }
    if ranges.is_empty() {
        return Err(NoMap("a node knows nobody who keeps any slot".to_owned()));
    }
    ranges.sort_unstable_by_key(|range| range.first);
    let is_apart = ranges.is_sorted_by(|one, next| one.last < next.first);
    let mut addresses: Vec<&str> = ranges.iter().map(|range| &*range.address).collect();
    addresses.sort_unstable();
    addresses.dedup();
    if !is_apart || addresses.len() > MOST_PRIMARIES { Err(unreadable()) } else { Ok(ranges) }
}

/// An entry: the first slot, the last, the primary and its replicas. `Some(None)` if nobody knows where that is.
fn read_range(entry: &Reply, asked: &str) -> Option<Option<Range>> {
    let Reply::Array(parts) = entry else { return None };
    let [Reply::Integer(first), Reply::Integer(last), Reply::Array(primary), ..] = parts.as_slice() else {
        return None;
    };
    let [first, last] = [first, last].map(|slot| u16::try_from(*slot).ok().filter(|slot| *slot < SLOTS));
    let (first, last) = (first?, last?);
    let [host, Reply::Integer(port), ..] = primary.as_slice() else { return None };
    let host = match host {
        Reply::Null => "",
        Reply::Text(host) => std::str::from_utf8(host).ok()?,
        _ => return None,
    };
    if first > last {
        return None;
    }
    if host == "?" {
        return Some(None);
    }
    let address = address(host, u16::try_from(*port).ok()?, asked)?;
    Some(Some(Range { first, last, address }))
}

/// A host and a port as they are connected to. Without a host it is that of the one who says so.
fn address(host: &str, port: u16, asked: &str) -> Option<String> {
    if host.len() > LONGEST_HOST || port == 0 {
        return None;
    }
    if host.is_empty() {
        let (host, _) = asked.rsplit_once(':')?;
        return Some(format!("{host}:{port}"));
    }
    Some(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
}

/// What a node says instead of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redirection {
    /// Another node keeps the slot from now on.
    Moved(String),
    /// The slot is on its way to another node, and so are the keys.
    Ask(String),
    /// The slot is on its way, and some of the keys are there already.
    TryAgain,
    /// The node does not know the script.
    NoScript,
    /// The node does not keep its slots at present, and perhaps somebody else does.
    Unfit,
}

impl Redirection {
    /// What an error means, if it is one of these. `asked` is where it comes from.
    ///
    /// ```
    /// use tollgate_store::Redirection;
    ///
    /// let said = Redirection::read("MOVED 3999 10.0.0.2:6379", "10.0.0.1:6379");
    /// assert_eq!(said, Some(Redirection::Moved("10.0.0.2:6379".to_owned())));
    /// ```
    pub fn read(error: &str, asked: &str) -> Option<Redirection> {
        let mut words = error.split(' ');
        let first = words.next()?;
        let mut other = || {
            let (host, port) = words.nth(1)?.rsplit_once(':')?;
            address(host, port.parse().ok()?, asked)
        };
        match first {
            "MOVED" => other().map(Redirection::Moved),
            "ASK" => other().map(Redirection::Ask),
            "TRYAGAIN" => Some(Redirection::TryAgain),
            "NOSCRIPT" => Some(Redirection::NoScript),
            "CLUSTERDOWN" | "READONLY" | "LOADING" | "MASTERDOWN" => Some(Redirection::Unfit),
            _ => None,
        }
    }

    /// Whether the node is in order, and others keep the slot or a part of it.
    pub(crate) fn is_elsewhere(&self) -> bool {
        matches!(self, Redirection::Moved(_) | Redirection::Ask(_) | Redirection::TryAgain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Reply {
        Reply::Text(text.as_bytes().to_vec())
    }

    fn entry(first: i64, last: i64, host: Reply, port: i64) -> Reply {
        let node = |host, port| Reply::Array(vec![host, Reply::Integer(port), text("id"), Reply::Array(Vec::new())]);
        let (first, last) = (Reply::Integer(first), Reply::Integer(last));
        Reply::Array(vec![first, last, node(host, port), node(text("replica"), 1)])
    }

    #[test]
    fn slots_are_those_that_clusters_count() {
        assert_eq!(crc16(b"123456789".iter().copied()), 0x31c3);
        for (key, slot) in [
            ("", 0),
            ("foo", 12_182),
            ("{foo}bar", 12_182),
            ("a{foo}{bar}", 12_182),
            ("{}foo", 9_500),
            ("{foo", 13_308),
            ("foo{{bar}}zap", 4_015),
        ] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }

    #[test]
    fn maps_are_read_and_ordered() {
        let reply = Reply::Array(vec![
            entry(8_192, 16_383, text("::1"), 7_002),
            entry(100, 8_191, text("?"), 7_003),
            entry(0, 9, text("host"), 7_000),
            entry(10, 99, Reply::Null, 7_001),
        ]);
        let range = |first, last, address: &str| Range { first, last, address: address.to_owned() };
        let expected = [range(0, 9, "host:7000"), range(10, 99, "seed:7001"), range(8_192, 16_383, "[::1]:7002")];
        assert_eq!(read_map(reply, "seed:6379").unwrap(), expected);
    }

    #[test]
    fn what_is_no_map_is_not_believed() {
        let host = || text("host");
        for wrong in [
            Reply::Null,
            Reply::Error("ERR This instance has cluster support disabled".to_owned()),
            Reply::Array(Vec::new()),
            Reply::Array(vec![Reply::Integer(1)]),
            Reply::Array(vec![entry(0, 16_384, host(), 1)]),
            Reply::Array(vec![entry(-1, 1, host(), 1)]),
            Reply::Array(vec![entry(2, 1, host(), 1)]),
            Reply::Array(vec![entry(0, 1, host(), 0)]),
            Reply::Array(vec![entry(0, 1, host(), 70_000)]),
            Reply::Array(vec![entry(0, 1, Reply::Integer(1), 1)]),
            Reply::Array(vec![entry(0, 1, text(&"h".repeat(256)), 1)]),
            Reply::Array(vec![entry(0, 5, host(), 1), entry(5, 9, host(), 1)]),
            Reply::Array((0..1_025).map(|slot| entry(slot, slot, host(), slot + 1)).collect()),
        ] {
            assert!(read_map(wrong.clone(), "seed:1").is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn redirections_say_where_to() {
        let read = |error| Redirection::read(error, "seed:1");
        assert_eq!(read("MOVED 3999 10.0.0.1:6381"), Some(Redirection::Moved("10.0.0.1:6381".to_owned())));
        assert_eq!(read("ASK 3999 ::1:6381"), Some(Redirection::Ask("[::1]:6381".to_owned())));
        assert_eq!(read("MOVED 3999 :6381"), Some(Redirection::Moved("seed:6381".to_owned())));
        assert_eq!(read("TRYAGAIN Multiple keys"), Some(Redirection::TryAgain));
        assert_eq!(read("CLUSTERDOWN Hash slot not served"), Some(Redirection::Unfit));
        for none in ["", "MOVED", "MOVED 1", "MOVED 1 x", "ASK 1 x:99999", "ERR no", "OOM x"] {
            assert_eq!(read(none), None, "{none}");
        }
    }
}
