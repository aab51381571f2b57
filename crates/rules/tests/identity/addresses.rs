//! Every spelling of one address is one value.

use crate::random::Random;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tollgate_rules::identity::{Grouping, Network, NetworkError, canonical, parse_address};

const FORMS: usize = 1_000_000;
const FORMS_PER_ADDRESS: usize = 20;

fn address(text: &str) -> IpAddr {
    parse_address(text).unwrap_or_else(|| panic!("{text} is no address"))
}

/// Addresses as they occur, and some that are easily taken for others: with runs of zeros, or nearly mapped.
fn any_address(random: &mut Random) -> IpAddr {
    let bits = u128::from(random.next()) << 64 | u128::from(random.next());
    let gaps: [u16; 8] = std::array::from_fn(|_| if random.once_in(2) { 0 } else { random.next() as u16 });
    match random.below(4) {
        0 => IpAddr::V4(Ipv4Addr::from_bits(bits as u32)),
        1 => canonical(IpAddr::V6(Ipv6Addr::from_bits(bits))),
        2 => canonical(IpAddr::V6(Ipv6Addr::from(gaps))),
        _ => canonical(IpAddr::V6(Ipv6Addr::from_bits(bits & 0xFFFF_FFFF | 0xFFFF << random.pick(&[31, 48, 33])))),
    }
}

/// Writes the address in one of the ways that there are.
fn spell(address: IpAddr, random: &mut Random, out: &mut String) {
    out.clear();
    let v6 = match address {
        IpAddr::V4(v4) if random.once_in(3) => {
            write!(out, "{v4}").unwrap();
            return spell_port(random, out);
        }
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let bracketed = random.once_in(2);
    out.push_str(if bracketed { "[" } else { "" });
    spell_groups(v6, random, out);
    if random.once_in(4) {
        out.push_str(random.pick(&["%eth0", "%1", "%25en0", "%wg-0.1_~"]));
    }
    if bracketed {
        out.push(']');
        spell_port(random, out);
    }
}

fn spell_port(random: &mut Random, out: &mut String) {
    if random.once_in(2) {
        write!(out, ":{}", random.below(65_536)).unwrap();
    }
}

fn spell_groups(address: Ipv6Addr, random: &mut Random, out: &mut String) {
    let dotted = random.once_in(3);
    let groups = &address.segments()[..if dotted { 6 } else { 8 }];
    let blank = if random.once_in(4) { 0..0 } else { run_of_zeros(groups, random) };
    for (at, group) in groups.iter().enumerate() {
        if at == blank.start && !blank.is_empty() {
            out.push_str(if at == 0 { "::" } else { ":" });
        }
        if !blank.contains(&at) {
            spell_group(*group, random, out);
            out.push_str(if at < 7 { ":" } else { "" });
        }
    }
    if dotted {
        let [.., a, b, c, d] = address.octets();
        write!(out, "{}", Ipv4Addr::new(a, b, c, d)).unwrap();
    }
}

fn spell_group(group: u16, random: &mut Random, out: &mut String) {
    let width = 1 + random.below(4);
    let start = out.len();
    write!(out, "{group:0width$x}").unwrap();
    if random.once_in(2) {
        out[start..].make_ascii_uppercase();
    }
}

/// Any zeros in a row, not necessarily the most.
fn run_of_zeros(groups: &[u16], random: &mut Random) -> std::ops::Range<usize> {
    let start = random.below(groups.len());
    let most = groups[start..].iter().take_while(|group| **group == 0).count();
    start..start + if most == 0 { 0 } else { 1 + random.below(most) }
}

#[test]
fn i2_a_million_spellings_of_addresses_each_give_the_address() {
    let mut random = Random::new(2);
    let mut text = String::new();
    for _ in 0..FORMS / FORMS_PER_ADDRESS {
        let address = any_address(&mut random);
        for _ in 0..FORMS_PER_ADDRESS {
            spell(address, &mut random, &mut text);
            assert_eq!(parse_address(&text), Some(address), "{text}");
        }
    }
}

#[test]
fn what_could_be_read_in_two_ways_is_no_address() {
    let refused = "
        127.1 1 2130706433 0x7f.0.0.1 0x7f000001 017700000001 010.0.0.1 10.0.0.01 1.2.3.00 1.2.3 1.2.3.4.5 1.2.3.256
        1.2.3.-4 +1.2.3.4 1.2.3.4. .1.2.3.4 1..2.3 1.2.3.4: 1.2.3.4:+80 1.2.3.4:65536 1.2.3.4:000080 1.2.3.4:_p
        1.2.3.4:80:80 1.2.3.4/32 1.2.3.4%eth0 [1.2.3.4] [1.2.3.4]:80 \"1.2.3.4\" 1.2.3.4,5.6.7.8 1,2,3,4
        ::1::2 1:2:3:4:5:6:7 1:2:3:4:5:6:7:8:9 1:2:3:4:5:6:7:8:: ::00001 ::g ::ffff:1.2.3 ::ffff:01.2.3.4 :: 1
        ::1% ::1%eth0%eth1 ::1%eth/0 ::1%é [::1 ::1] [::1]] [[::1]] [::1]80 [::1]: [::1]:x [::1]:65536 [] [%eth0]
        [::1%]:80 ::1/128 2001:db8::1.2.3.4.5 ::ffff:0x1.2.3.4 1.2.3.4:: unknown _hidden - localhost １.２.３.４
    ";
    // `:: 1` are two of them, the first of which is fine.
    let refused = refused.split_whitespace().filter(|text| *text != "::");
    for text in
        refused.chain(["", " ", " 1.2.3.4", "1.2.3.4 ", "1.2. 3.4", ":: 1", "1.2.3.4\n", "1.2.3.4\0", "[::1] :80"])
    {
        assert_eq!(parse_address(text), None, "{text:?}");
    }
}

#[test]
fn i2_ipv4_in_ipv6_is_unwrapped_by_bits_and_its_likes_are_not() {
    for mapped in ["::ffff:1.2.3.4", "::ffff:102:304", "0:0:0:0:0:ffff:1.2.3.4", "0000::0:FFFF:0102:0304"] {
        assert_eq!(address(mapped), address("1.2.3.4"), "{mapped}");
        assert_eq!(canonical(mapped.parse().unwrap()), address("1.2.3.4"), "{mapped}");
    }
    for other in
        ["::1.2.3.4", "::ffff:0:1.2.3.4", "::fffe:1.2.3.4", "1::ffff:1.2.3.4", "64:ff9b::1.2.3.4", "2001:db8::1.2.3.4"]
    {
        assert!(address(other).is_ipv6(), "{other}");
    }
}

#[test]
fn i2_ipv6_clients_are_grouped_by_their_64_and_ipv4_clients_never_are() {
    let grouping = Grouping::default();
    let mut random = Random::new(64);
    for _ in 0..10_000 {
        let one = any_address(&mut random);
        let bit = random.below(if one.is_ipv4() { 32 } else { 128 });
        let other = match one {
            IpAddr::V4(one) => IpAddr::V4(Ipv4Addr::from_bits(one.to_bits() ^ 1 << bit)),
            IpAddr::V6(one) => canonical(IpAddr::V6(Ipv6Addr::from_bits(one.to_bits() ^ 1 << bit))),
        };
        let same = one.is_ipv6() && other.is_ipv6() && bit < 64;
        assert_eq!(grouping.group(one) == grouping.group(other), same, "{one} and {other}");
        assert_eq!(grouping.group(grouping.group(one)), grouping.group(one), "{one}");
    }
}

#[test]
fn i2_grouping_unwraps_before_it_masks() {
    let wide = Grouping::new(24, 56).unwrap();
    assert_eq!(wide.group("::ffff:192.0.2.77".parse().unwrap()), address("192.0.2.0"));
    assert_eq!(wide.group("::ffff:203.0.113.77".parse().unwrap()), address("203.0.113.0"));
    assert_eq!(wide.group(address("2001:db8:1:2ff::1")), address("2001:db8:1:200::"));
    let everybody = Grouping::new(0, 0).unwrap();
    assert_eq!(everybody.group(address("192.0.2.77")), address("0.0.0.0"));
    assert_eq!(everybody.group(address("2001:db8::1")), address("::"));
    assert_eq!(Grouping::new(33, 64), Err(NetworkError::PrefixTooLong { most: 32 }));
    assert_eq!(Grouping::new(32, 129), Err(NetworkError::PrefixTooLong { most: 128 }));
}

#[test]
fn networks_are_read_back_as_they_are_printed() {
    for (text, printed) in [
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("10.0.0.1", "10.0.0.1/32"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("2001:DB8:0::/32", "2001:db8::/32"),
        ("::1", "::1/128"),
        ("::/0", "::/0"),
        ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ("::ffff:a00:0/104", "10.0.0.0/8"),
        ("::ffff:0:0/96", "0.0.0.0/0"),
        ("::ffff:10.0.0.1", "10.0.0.1/32"),
    ] {
        let network: Network = text.parse().unwrap();
        assert_eq!(network.to_string(), printed);
        assert_eq!(printed.parse(), Ok(network));
    }
}

#[test]
fn what_is_no_network_says_what_to_write() {
    for (text, error) in [
        ("10.0.0.1/8", "this is an address within a network: write 10.0.0.0/8"),
        ("::ffff:10.0.0.1/104", "this is an address within a network: write 10.0.0.0/8"),
        ("2001:db8::1/64", "this is an address within a network: write 2001:db8::/64"),
        ("10.0.0.0/33", "the prefix is too long: write at most 32 bits"),
        ("10.0.0.0/99999999999999999999", "the prefix is too long: write at most 32 bits"),
        ("::/129", "the prefix is too long: write at most 128 bits"),
        ("::ffff:0:0/95", "an IPv4-mapped network has at least 96 bits: write it as IPv4, or 0.0.0.0/0 for all of it"),
        ("10.0.0.0/08", "the length of the prefix is no number: write bits as in 10.0.0.0/8"),
        ("10.0.0.0/+8", "the length of the prefix is no number: write bits as in 10.0.0.0/8"),
        ("10.0.0.0/", "the length of the prefix is no number: write bits as in 10.0.0.0/8"),
        ("10.0.0.0/255.0.0.0", "the length of the prefix is no number: write bits as in 10.0.0.0/8"),
        ("10.0.0.0/8/8", "the length of the prefix is no number: write bits as in 10.0.0.0/8"),
        ("10.0/8", "this is no address: write a network as in 10.0.0.0/8 or 2001:db8::/32"),
        ("[::1]/128", "this is no address: write a network as in 10.0.0.0/8 or 2001:db8::/32"),
        ("fe80::1%eth0/64", "this is no address: write a network as in 10.0.0.0/8 or 2001:db8::/32"),
        (" 10.0.0.0/8", "this is no address: write a network as in 10.0.0.0/8 or 2001:db8::/32"),
        ("", "this is no address: write a network as in 10.0.0.0/8 or 2001:db8::/32"),
    ] {
        assert_eq!(text.parse::<Network>().unwrap_err().to_string(), error, "{text}");
    }
}

#[test]
fn a_network_has_the_addresses_that_share_its_prefix_and_no_others() {
    let mut random = Random::new(8);
    for _ in 0..100_000 {
        let (one, other) = (any_address(&mut random), any_address(&mut random));
        let bits = if one.is_ipv4() { 32 } else { 128 };
        let prefix = random.below(bits + 1);
        let group = match one {
            IpAddr::V4(_) => Grouping::new(prefix as u8, 0).unwrap().group(one),
            IpAddr::V6(_) => Grouping::new(0, prefix as u8).unwrap().group(one),
        };
        let network = Network::new(group, prefix as u8).unwrap();
        assert!(network.contains(one), "{network} and {one}");
        assert_eq!(network.contains(other), shares(group, other, prefix), "{network} and {other}");
    }
}

/// Bit by bit, over the octets.
fn shares(one: IpAddr, other: IpAddr, prefix: usize) -> bool {
    let bit = |octets: &[u8], at: usize| octets[at / 8] >> (7 - at % 8) & 1;
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            (0..prefix).all(|at| bit(&one.octets(), at) == bit(&other.octets(), at))
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => {
            (0..prefix).all(|at| bit(&one.octets(), at) == bit(&other.octets(), at))
        }
        _ => false,
    }
}

#[test]
fn all_of_ipv6_has_nothing_of_ipv4() {
    let all: Network = "::/0".parse().unwrap();
    assert!(all.contains(address("2001:db8::1")));
    assert!(!all.contains(address("192.0.2.1")));
    assert!(!all.contains("::ffff:192.0.2.1".parse().unwrap()));
}
