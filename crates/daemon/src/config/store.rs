//! Where limits are kept that many daemons count together.

use super::Reader;
use crate::tls::certificates;
use rustls::{ClientConfig, RootCertStore};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tollgate::store::{Address, Config, Tls};

/// Where the certificates of public authorities are: on Debian, on Red Hat, on SUSE, on Alpine and the BSDs.
const AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

const SERVER_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// What stands between the scheme and the end of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Server,
    Sentinels,
    Cluster,
}

/// What a URL says.
#[derive(Debug, PartialEq, Eq)]
struct Location {
    address: Address,
    user: Option<String>,
    password: Option<String>,
    is_encrypted: bool,
}

impl Reader<'_> {
    /// The store, if there is one.
    pub(super) fn store(&mut self) -> Option<Config> {
        let location = self.location()?;
        let tls = if location.is_encrypted { self.store_tls() } else { None };
        Some(Config {
            user: location.user,
            password: self.store_password(location.password),
            tls,
            prefix: self.layers.get("store-prefix").0.to_owned(),
            budget: self.duration("store-budget"),
            interval: self.duration("store-interval"),
            connections: self.count("store-connections"),
            ..Config::new(location.address)
        })
    }

    fn location(&mut self) -> Option<Location> {
        let (url, origin) = self.layers.get("store");
        if url.is_empty() {
            return None;
        }
        let located = locate(url);
        if let Err(expected) = &located {
            let shown = self.layers.shown("store");
            self.mistakes.0.push(format!("{origin}: `store` is `{shown}`; {expected}"));
        }
        located.ok()
    }

    /// The one in the URL, in the environment or in a file.
    fn store_password(&mut self, in_url: Option<String>) -> Option<String> {
        let own = Some(self.layers.get("store-password").0).filter(|text| !text.is_empty()).map(str::to_owned);
        let in_file = self.optional("store-password-file").and_then(|path| self.first_line(&path));
        let mut given = [in_url, own, in_file].into_iter().flatten();
        let password = given.next();
        if given.next().is_some() {
            let mistake = "the store's password is given twice; leave it to one of `store-password-file`, \
                           `TOLLGATE_STORE_PASSWORD` and the URL of `store`";
            self.mistakes.0.push(mistake.to_owned());
        }
        password
    }

    fn first_line(&mut self, path: &Path) -> Option<String> {
        let origin = self.layers.get("store-password-file").1;
        let mistake = match std::fs::read_to_string(path) {
            Ok(text) => match text.lines().next().map(str::trim) {
                Some(line) if !line.is_empty() => return Some(line.to_owned()),
                _ => "there is no password in its first line".to_owned(),
            },
            Err(error) => error.to_string(),
        };
        self.mistakes.0.push(format!("{origin}: cannot read `store-password-file` {}: {mistake}", path.display()));
        None
    }

    /// Whom to trust.
    fn store_tls(&mut self) -> Option<Tls> {
        let known = || AUTHORITIES.iter().map(PathBuf::from).find(|path| path.exists());
        let trusted = match self.optional("store-tls-ca").or_else(known) {
            Some(path) => trusting(&path),
            None => Err("no certificates of public authorities are here".to_owned()),
        };
        let origin = self.layers.get("store-tls-ca").1;
        trusted
            .map_err(|error| {
                self.mistakes.0.push(format!("{origin}: {error}; name the authority of the store by `store-tls-ca`"));
            })
            .ok()
    }
}

fn trusting(path: &Path) -> Result<Tls, String> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates(path)?);
    if added == 0 {
        return Err(format!("{}: no certificate in it can be used", path.display()));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(Tls(Arc::new(builder.with_root_certificates(roots).with_no_client_auth())))
}

const EXPECTED: &str = "it should be a URL such as `redis://127.0.0.1:6379`, `rediss://redis.internal` for TLS, \
                        `redis-sentinel://ONE,OTHER/NAME` or `redis-cluster://ONE,OTHER`";

/// What a URL says, or what it should say.
fn locate(url: &str) -> Result<Location, &'static str> {
    let (scheme, rest) = url.split_once("://").ok_or(EXPECTED)?;
    let (protocol, kind) = scheme.split_once('-').unwrap_or((scheme, ""));
    let is_encrypted = match protocol {
        "redis" => false,
        "rediss" => true,
        _ => return Err(EXPECTED),
    };
    let kind = match kind {
        "" => Kind::Server,
        "sentinel" => Kind::Sentinels,
        "cluster" => Kind::Cluster,
        _ => return Err(EXPECTED),
    };
    let (login, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    let address = match kind {
        Kind::Sentinels => Address::Sentinels { sentinels: each(hosts, SENTINEL_PORT)?, name: name(path)? },
        Kind::Server | Kind::Cluster if !matches!(path, "" | "0") => return Err(ONE_DATABASE),
        Kind::Server => Address::Server(with_port(hosts, SERVER_PORT)?),
        Kind::Cluster => Address::Cluster(each(hosts, SERVER_PORT)?),
    };
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    Ok(Location { address, user: given(user)?, password: given(password)?, is_encrypted })
}

const ONE_DATABASE: &str = "only the database 0 is used; to be apart from others set `store-prefix`";

/// What sentinels call the primary.
fn name(path: &str) -> Result<String, &'static str> {
    if path.is_empty() || path.contains(['/', '?']) {
        return Err("after the sentinels comes what they call the primary, as in `redis-sentinel://ONE,OTHER/NAME`");
    }
    Ok(path.to_owned())
}

fn each(hosts: &str, port: u16) -> Result<Vec<String>, &'static str> {
    hosts.split(',').map(|host| with_port(host, port)).collect()
}

/// A host with its port, or else the usual one. The colons of an IPv6 address are within brackets.
fn with_port(host: &str, usual: u16) -> Result<String, &'static str> {
    let name_end = host.rfind(']').map_or(0, |bracket| bracket + 1);
    let port = host.get(name_end..).and_then(|rest| rest.rsplit_once(':'));
    let is_sound = match port {
        Some((_, port)) => port.parse::<u16>().is_ok_and(|port| port > 0),
        None => true,
    };
    let is_host = !host.is_empty() && !host.starts_with(':') && !host.contains([' ', '?', '#', ',']);
    match port {
        _ if !is_sound || !is_host => Err(EXPECTED),
        Some(_) => Ok(host.to_owned()),
        None => Ok(format!("{host}:{usual}")),
    }
}

/// A part of a URL in which `%40` stands for `@`; nothing where it is empty.
fn given(part: &str) -> Result<Option<String>, &'static str> {
    const WRONG: &str =
        "in the user and the password `%` is followed by two hexadecimal digits; `%25` stands for `%` itself";
    let mut pieces = part.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2).ok_or(WRONG)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| WRONG)?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    let text = String::from_utf8(bytes).map_err(|_| WRONG)?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn located(address: Address) -> Location {
        Location { address, user: None, password: None, is_encrypted: false }
    }

    #[test]
    fn urls_say_where_and_as_whom() {
        let one = located(Address::Server("redis.internal:6379".to_owned()));
        assert_eq!(locate("redis://redis.internal"), Ok(one));
        let other = located(Address::Server("[::1]:7000".to_owned()));
        assert_eq!(locate("redis://[::1]:7000/0"), Ok(other));
        assert_eq!(locate("redis://[::1]"), Ok(located(Address::Server("[::1]:6379".to_owned()))));
        let named = Location {
            user: Some("to:ll".to_owned()),
            password: Some("p@ss/word".to_owned()),
            is_encrypted: true,
            ..located(Address::Server("h:1".to_owned()))
        };
        assert_eq!(locate("rediss://to%3all:p%40ss/word@h:1/"), Ok(named));
        let sentinels = vec!["a:26379".to_owned(), "b:1".to_owned()];
        let many = located(Address::Sentinels { sentinels, name: "limits".to_owned() });
        let nodes = located(Address::Cluster(vec!["a:6379".to_owned(), "b:7001".to_owned()]));
        assert_eq!(locate("redis-cluster://a,b:7001"), Ok(nodes));
        assert_eq!(locate("redis-sentinel://:x@a,b:1/limits"), Ok(Location { password: Some("x".to_owned()), ..many }));
    }

    #[test]
    fn what_is_no_url_is_told_what_one_is() {
        for wrong in [
            "localhost:6379",
            "http://h",
            "redis://",
            "redis://h:0",
            "redis://h:x",
            "redis://:1",
            "redis://a b",
            "redis-x://h",
        ] {
            assert_eq!(locate(wrong), Err(EXPECTED), "{wrong}");
        }
        assert!(locate("redis://h/3").unwrap_err().contains("`store-prefix`"));
        assert!(locate("redis-sentinel://a,b").unwrap_err().contains("/NAME"));
        assert!(locate("redis://a:%zz@h").unwrap_err().contains("hexadecimal"));
    }
}
