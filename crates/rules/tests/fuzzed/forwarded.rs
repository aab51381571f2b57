//! What holds whatever a client writes into the header that proxies append to.
//!
//! Bytes are the lines of the header, as the client sent them.

use std::net::{IpAddr, Ipv4Addr};
use tollgate_rules::identity::{ForwardedHeader, Network, Trust, canonical, parse_address};

/// Where the header ends for [`Trust::client`].
const MOST_ENTRIES: usize = 64;
const LONGEST_ENTRY: usize = 512;

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const OUTER_PROXY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const INNER_PROXY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

/// What a proxy may append for the client, correctly.
const FOR_CLIENT: [&str; 6] = [
    "for=192.0.2.7",
    "For=\"192.0.2.7:4711\";proto=https",
    "by=_hidden;for=\"[::ffff:192.0.2.7]\"",
    "host=\"a, for=6.6.6.6\";for=192.0.2.7",
    "for=192.0.2.7;host=\"\\\", for=6.6.6.6, \\\\\"",
    "for=\"\\1\\9\\2.0.2.7\" ; ext=\"\"",
];

/// Sends the lines through proxies that are trusted and through some that are not.
pub(crate) fn check(bytes: &[u8]) {
    let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    for (_, header) in ForwardedHeader::NAMES {
        nobody_is_believed_who_is_not_trusted(header, &lines);
        what_proxies_append_counts(header, &lines);
    }
    x_forwarded_for_is_what_its_model_says(&lines);
}

/// The networks of our proxies.
pub(crate) fn trust(header: ForwardedHeader) -> Trust {
    let networks: [Network; 2] = ["10.0.0.0/8", "fd00::/8"].map(|text| text.parse().unwrap());
    Trust::default().with_header(header).with_proxies(networks)
}

fn client(trust: &Trust, lines: &[&[u8]]) -> IpAddr {
    let client = trust.client(INNER_PROXY, lines.iter().copied());
    assert_eq!(client, canonical(client), "not unwrapped");
    client
}

fn nobody_is_believed_who_is_not_trusted(header: ForwardedHeader, lines: &[&[u8]]) {
    assert_eq!(client(&Trust::default().with_header(header), lines), INNER_PROXY);
    assert_eq!(trust(header).client(CLIENT, lines.iter().copied()), CLIENT);
}

/// Two proxies append to the last line, or add lines of their own; the client is the one that the outer one saw.
fn what_proxies_append_counts(header: ForwardedHeader, lines: &[&[u8]]) {
    let entries = match header {
        ForwardedHeader::XForwardedFor => &["192.0.2.7", "192.0.2.7:80", "[::FFFF:c000:207]:80"][..],
        ForwardedHeader::Forwarded => &FOR_CLIENT,
    };
    let outer = match header {
        ForwardedHeader::XForwardedFor => OUTER_PROXY.to_string(),
        ForwardedHeader::Forwarded => format!("for=\"{OUTER_PROXY}\""),
    };
    let by_networks = trust(header);
    let by_hops = Trust::default().with_header(header).with_hops(2);
    for entry in entries {
        let appended = [*lines.last().unwrap(), format!(", {entry},{outer}").as_bytes()].concat();
        let mut joined = lines.to_vec();
        *joined.last_mut().unwrap() = &appended;
        let added = [lines, &[entry.as_bytes(), outer.as_bytes()]].concat();
        for trust in [&by_networks, &by_hops] {
            assert_eq!(client(trust, &joined), CLIENT, "{entry}");
            assert_eq!(client(trust, &added), CLIENT, "{entry}");
        }
    }
}

/// The same, slowly: all lines joined, split at each comma, and walked from the end.
fn x_forwarded_for_is_what_its_model_says(lines: &[&[u8]]) {
    let trust = trust(ForwardedHeader::XForwardedFor);
    let joined = lines.join(&b","[..]);
    let mut expected = INNER_PROXY;
    for entry in joined.split(|byte| *byte == b',').rev().take(MOST_ENTRIES) {
        let text = String::from_utf8_lossy(entry);
        let address = parse_address(text.trim_matches([' ', '\t'])).filter(|_| entry.len() <= LONGEST_ENTRY);
        expected = address.unwrap_or(expected);
        let is_trusted = |address| trust.proxies().iter().any(|network| network.contains(address));
        if !address.is_some_and(is_trusted) {
            break;
        }
    }
    assert_eq!(client(&trust, lines), expected);
}
