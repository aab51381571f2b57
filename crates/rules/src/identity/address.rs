//! Addresses and networks, whatever way they are spelt.
//!
//! Everything here decides on bits. Notation is only read, and an IPv4 address that is wrapped in IPv6 is
//! unwrapped before anything is masked or compared; masking it first would put all of IPv4 into one group.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// How many bits of an IPv4-mapped address say that it is one.
const MAPPED_PREFIX: u8 = 96;

/// Reads an address as proxies and people write it; the port and the zone are left out.
///
/// Every spelling of one address gives one value: IPv6 in any notation and case, in brackets, with a port or a
/// zone; and IPv4 wrapped in IPv6 is IPv4. Whatever some programs read in another way than others (`127.1`,
/// `010.0.0.1`, `0x7f.0.0.1`, blanks) is no address.
///
/// ```
/// use tollgate_rules::identity::parse_address;
///
/// let client = parse_address("192.0.2.1");
/// for spelling in ["192.0.2.1:8080", "::ffff:192.0.2.1", "::FFFF:c000:201", "[0:0:0:0:0:ffff:c000:201]:80"] {
///     assert_eq!(parse_address(spelling), client);
/// }
/// assert_eq!(parse_address("192.0.2.01"), None);
/// ```
pub fn parse_address(text: &str) -> Option<IpAddr> {
    let address = match text.strip_prefix('[') {
        Some(bracketed) => IpAddr::V6(parse_bracketed(bracketed)?),
        None => parse_v4(text).map(IpAddr::V4).or_else(|| parse_v6(text).map(IpAddr::V6))?,
    };
    Some(canonical(address))
}

/// The address itself, or the IPv4 address that is wrapped in it (`::ffff:0:0/96`).
///
/// ```
/// use std::net::IpAddr;
/// use tollgate_rules::identity::canonical;
///
/// let wrapped: IpAddr = "::ffff:102:304".parse()?;
/// assert_eq!(canonical(wrapped), "1.2.3.4".parse::<IpAddr>()?);
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
pub fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// `1.2.3.4` or `1.2.3.4:80`.
fn parse_v4(text: &str) -> Option<Ipv4Addr> {
    match text.split_once(':') {
        None => text.parse().ok(),
        Some((address, port)) if is_port(port) => address.parse().ok(),
        Some(_) => None,
    }
}

/// `2001:db8::1` or `fe80::1%eth0`.
fn parse_v6(text: &str) -> Option<Ipv6Addr> {
    match text.split_once('%') {
        None => text.parse().ok(),
        Some((address, zone)) if is_zone(zone) => address.parse().ok(),
        Some(_) => None,
    }
}

/// What follows an opening bracket: `2001:db8::1]` or `2001:db8::1]:80`.
fn parse_bracketed(text: &str) -> Option<Ipv6Addr> {
    let (address, rest) = text.split_once(']')?;
    let address = parse_v6(address)?;
    match rest.strip_prefix(':') {
        Some(port) => is_port(port).then_some(address),
        None => rest.is_empty().then_some(address),
    }
}

fn is_port(text: &str) -> bool {
    // The integer's parser would also take a sign.
    text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

/// A zone names a network card of whoever wrote it, and means nothing here.
fn is_zone(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_allowed)
}

/// The address without the bits behind its prefix.
fn mask(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let hidden = 32_u8.saturating_sub(prefix);
            let kept = u32::MAX.checked_shl(u32::from(hidden)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & kept))
        }
        IpAddr::V6(address) => {
            let hidden = 128_u8.saturating_sub(prefix);
            let kept = u128::MAX.checked_shl(u32::from(hidden)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & kept))
        }
    }
}

fn longest_prefix(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Addresses that begin with the same bits, as in `10.0.0.0/8`.
///
/// A single address is a network of one. `::/0` is all of IPv6 and nothing of IPv4, although IPv4 can be wrapped
/// in it: addresses are unwrapped first.
///
/// ```
/// use tollgate_rules::identity::Network;
///
/// let office: Network = "10.0.0.0/8".parse()?;
/// assert!(office.contains("10.1.2.3".parse().unwrap()));
/// assert!(office.contains("::ffff:10.1.2.3".parse().unwrap()));
///
/// let error = "10.0.0.1/8".parse::<Network>().unwrap_err();
/// assert_eq!(error.to_string(), "this is an address within a network: write 10.0.0.0/8");
/// # Ok::<(), tollgate_rules::identity::NetworkError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// The network that begins with the first `prefix` bits of the address, all others being zero.
    pub fn new(address: IpAddr, prefix: u8) -> Result<Network, NetworkError> {
        let most = longest_prefix(address);
        if prefix > most {
            return Err(NetworkError::PrefixTooLong { most });
        }
        let prefix = match canonical(address).is_ipv4() && address.is_ipv6() {
            true => prefix.checked_sub(MAPPED_PREFIX).ok_or(NetworkError::MappedTooShort)?,
            false => prefix,
        };
        let address = canonical(address);
        let network = Network { address: mask(address, prefix), prefix };
        if network.address == address { Ok(network) } else { Err(NetworkError::HostBits { network }) }
    }

    /// The first address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// How many bits all addresses have in common.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Whether the address, unwrapped if need be, is one of this network's.
    pub fn contains(&self, address: IpAddr) -> bool {
        // An address of the other kind masks to one of the other kind, which never equals.
        mask(canonical(address), self.prefix) == self.address
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Network, NetworkError> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NetworkError::NotAnAddress)?;
        match prefix {
            Some(prefix) => Network::new(address, parse_prefix(prefix)?),
            None => Network::new(address, longest_prefix(address)),
        }
    }
}

/// A number without a sign or leading zeros; one that is too large for a byte is too large for any address.
fn parse_prefix(text: &str) -> Result<u8, NetworkError> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || (text.len() > 1 && text.starts_with('0')) {
        return Err(NetworkError::NotAPrefix);
    }
    Ok(text.parse().unwrap_or(u8::MAX))
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// Why something is no network, or no grouping, and what to write instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NetworkError {
    /// What stands before the slash is no address; ports, zones and brackets have no place here.
    NotAnAddress,
    /// What stands behind the slash is no number.
    NotAPrefix,
    /// The prefix is longer than the address.
    PrefixTooLong {
        /// The longest that there is for such an address.
        most: u8,
    },
    /// Bits are set behind the prefix, so it is not clear whether the network or the address is meant.
    HostBits {
        /// The network that the address is part of.
        network: Network,
    },
    /// The prefix of an IPv4-mapped network ends before IPv4 begins.
    MappedTooShort,
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NetworkError::NotAnAddress => {
                f.write_str("this is no address: write a network as in 10.0.0.0/8 or 2001:db8::/32")
            }
            NetworkError::NotAPrefix => {
                f.write_str("the length of the prefix is no number: write bits as in 10.0.0.0/8")
            }
            NetworkError::PrefixTooLong { most } => write!(f, "the prefix is too long: write at most {most} bits"),
            NetworkError::HostBits { network } => {
                write!(f, "this is an address within a network: write {network}")
            }
            NetworkError::MappedTooShort => {
                f.write_str("an IPv4-mapped network has at least 96 bits: write it as IPv4, or 0.0.0.0/0 for all of it")
            }
        }
    }
}

impl std::error::Error for NetworkError {}

/// Which addresses count as one client.
///
/// A household is usually given a /64 of IPv6 and can use any address of it, so that limits by single address are
/// no limits there. Some providers give a /56 or a /48: shorter prefixes catch these, and put more strangers into
/// one group.
///
/// ```
/// use tollgate_rules::identity::{Grouping, parse_address};
///
/// let grouping = Grouping::default();
/// let group = |text| grouping.group(parse_address(text).unwrap()).to_string();
/// assert_eq!(group("2001:db8:5:6:1:2:3:4"), "2001:db8:5:6::");
/// assert_eq!(group("192.0.2.1"), "192.0.2.1");
/// assert_eq!(group("::ffff:192.0.2.1"), "192.0.2.1");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grouping {
    v4: u8,
    v6: u8,
}

impl Grouping {
    /// Groups IPv4 by the first so many bits, and IPv6 by its own.
    pub fn new(v4: u8, v6: u8) -> Result<Grouping, NetworkError> {
        match (v4, v6) {
            (33.., _) => Err(NetworkError::PrefixTooLong { most: 32 }),
            (_, 129..) => Err(NetworkError::PrefixTooLong { most: 128 }),
            _ => Ok(Grouping { v4, v6 }),
        }
    }

    /// How many bits of an IPv4 address count.
    pub fn v4(&self) -> u8 {
        self.v4
    }

    /// How many bits of an IPv6 address count.
    pub fn v6(&self) -> u8 {
        self.v6
    }

    /// The first address of the group that this address belongs to.
    pub fn group(&self, address: IpAddr) -> IpAddr {
        match canonical(address) {
            address @ IpAddr::V4(_) => mask(address, self.v4),
            address @ IpAddr::V6(_) => mask(address, self.v6),
        }
    }
}

/// Single addresses of IPv4, and /64 of IPv6.
impl Default for Grouping {
    fn default() -> Grouping {
        Grouping { v4: 32, v6: 64 }
    }
}
