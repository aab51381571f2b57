//! Forwarded addresses count as far as the proxies that wrote them are trusted.

use crate::fuzzed_forwarded;
use crate::random::Random;
use crate::table::{self, Case};
use std::net::IpAddr;
use tollgate_rules::identity::{ForwardedHeader, Network, Trust};

/// `x-forwarded-for 10.0.0.0/8 hops 1`.
fn trust(heading: &str) -> Trust {
    let mut words = heading.split_whitespace();
    let name = words.next().unwrap();
    let (_, header) = ForwardedHeader::NAMES.into_iter().find(|(known, _)| *known == name).unwrap();
    let networks: Vec<Network> =
        words.by_ref().take_while(|word| *word != "hops").map(|word| word.parse().unwrap()).collect();
    let hops = words.next().map_or(0, |word| word.parse().unwrap());
    Trust::default().with_header(header).with_proxies(networks).with_hops(hops)
}

fn client(case: &Case<'_>) -> IpAddr {
    let mut fields = case.input.split('|').map(str::trim);
    let peer: IpAddr = fields.next().unwrap().parse().unwrap();
    let lines: Vec<Vec<u8>> = fields.map(table::bytes).collect();
    trust(case.heading).client(peer, lines.iter().map(Vec::as_slice))
}

#[test]
fn i2_forwarded_addresses_count_only_from_trusted_proxies() {
    let cases: Vec<_> = table::cases(include_str!("forwarded.txt")).collect();
    assert!(cases.len() >= 80, "only {} cases", cases.len());
    let is_wrong = |case: &&Case<'_>| client(case) != case.result.parse::<IpAddr>().unwrap();
    let wrong: Vec<_> = cases.iter().filter(is_wrong).collect();
    for case in &wrong {
        println!("forwarded.txt:{}: {} gives {}", case.line, case.input, client(case));
    }
    assert!(wrong.is_empty(), "{} cases are wrong", wrong.len());
}

/// Pieces that headers are made of, and that break readers of them.
const PIECES: [&str; 24] = [
    "\"",
    "\\",
    ",",
    ";",
    "=",
    " ",
    "\t",
    "for",
    "for=",
    "For=\"",
    "6.6.6.6",
    "10.0.0.9",
    "unknown",
    "_x",
    "[",
    "]",
    ":80",
    "::ffff:10.0.0.9",
    "\n",
    "\u{0}",
    "é",
    ", for=10.0.0.9",
    "\", for=10.0.0.9;x=\"",
    "\\\"",
];

#[test]
fn i2_whatever_a_client_writes_it_is_found_where_the_proxies_saw_it() {
    let mut random = Random::new(7239);
    for _ in 0..20_000 {
        let pieces = random.below(12);
        let header: String = (0..pieces).map(|_| random.pick(&PIECES)).collect();
        fuzzed_forwarded::check(header.as_bytes());
    }
}

fn from_proxy(header: ForwardedHeader, line: &str) -> String {
    let trust = fuzzed_forwarded::trust(header);
    trust.client([10, 0, 0, 1].into(), [line.as_bytes()].into_iter()).to_string()
}

#[test]
fn entries_beyond_the_first_64_from_the_right_are_not_trusted() {
    let proxies = |count: usize| (0..count).map(|n| format!(", 10.0.1.{n}")).collect::<String>();
    let line = |count| format!("192.0.2.1{}", proxies(count));
    assert_eq!(from_proxy(ForwardedHeader::XForwardedFor, &line(63)), "192.0.2.1");
    assert_eq!(from_proxy(ForwardedHeader::XForwardedFor, &line(64)), "10.0.1.0");
    assert_eq!(from_proxy(ForwardedHeader::XForwardedFor, &line(100)), "10.0.1.36");
    let lines: Vec<_> = (0..100).map(|n| format!("10.0.1.{n}")).collect();
    let trust = fuzzed_forwarded::trust(ForwardedHeader::XForwardedFor);
    let client = trust.client([10, 0, 0, 1].into(), lines.iter().map(String::as_bytes));
    assert_eq!(client.to_string(), "10.0.1.36");
}

#[test]
fn entries_that_are_too_long_are_never_cut_to_an_address() {
    let blanks = |count: usize| " ".repeat(count);
    let x = ForwardedHeader::XForwardedFor;
    assert_eq!(from_proxy(x, &format!("6.6.6.6,{}192.0.2.1", blanks(503))), "192.0.2.1");
    assert_eq!(from_proxy(x, &format!("6.6.6.6,{}192.0.2.1", blanks(504))), "10.0.0.1");
    assert_eq!(from_proxy(x, &format!("{}192.0.2.1", blanks(503))), "192.0.2.1");
    assert_eq!(from_proxy(x, &format!("{}192.0.2.1", blanks(504))), "10.0.0.1");
    assert_eq!(from_proxy(x, &format!("1{}.0.0.2", "0".repeat(600))), "10.0.0.1");
    // The cut would be between the digits of 110.0.0.2, which is not the trusted 10.0.0.2.
    assert_eq!(from_proxy(x, &format!("6.6.6.6,110.0.0.2{}", blanks(504))), "10.0.0.1");
    let f = ForwardedHeader::Forwarded;
    let host = "h".repeat(490);
    assert_eq!(from_proxy(f, &format!("for=6.6.6.6, for=192.0.2.1;host={host}")), "192.0.2.1");
    assert_eq!(from_proxy(f, &format!("for=6.6.6.6, for=192.0.2.1;host=\"{host}, \"")), "10.0.0.1");
    assert_eq!(from_proxy(f, &format!("for=6.6.6.6, for=\"{}192.0.2.1\"", "\\1".repeat(200))), "10.0.0.1");
    assert_eq!(from_proxy(f, &format!("for=6.6.6.6, x=\"{}\",for=10.0.0.2", "\\".repeat(600))), "10.0.0.2");
}

#[test]
fn headers_are_known_by_their_names() {
    for (name, header) in ForwardedHeader::NAMES {
        assert_eq!(header.name(), name);
    }
}

#[test]
fn trust_is_in_nobody_unless_it_is_given() {
    let nobody = Trust::default();
    assert_eq!((nobody.proxies(), nobody.hops()), (&[][..], 0));
    let networks: [Network; 4] =
        ["10.1.0.0/16", "fd00::/8", "10.0.0.0/8", "10.0.0.0/8"].map(|text| text.parse().unwrap());
    let some = nobody.with_proxies(networks);
    assert_eq!(some.proxies(), [networks[2], networks[1]]);
}
