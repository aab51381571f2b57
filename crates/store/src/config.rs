use std::fmt;
use std::time::Duration;

/// Where the store is, and how much it is waited for.
///
/// ```
/// use std::time::Duration;
/// use tollgate_store::Config;
///
/// let config = Config { budget: Duration::from_millis(10), ..Config::new("redis.internal:6379") };
/// assert_eq!(config.prefix, "tg:");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    /// Where the server is, or who knows.
    pub address: Address,
    /// The user that the store's access list knows us by; `default` if there is only a password.
    pub user: Option<String>,
    /// The user's password, where the store asks for one, or a sentinel. It is never printed.
    pub password: Option<String>,
    /// Which version of the protocol is spoken. The newest that the store knows will do, unless something in between
    /// does not hand it on.
    pub protocol: Protocol,
    /// Whom to trust and how to encrypt; `None` for a connection in the clear. The server, and sentinels if there are any,
    /// must have a certificate for the name or address that they are reached by.
    #[cfg(feature = "tls")]
    pub tls: Option<Tls>,
    /// What all keys begin with. Hosts that count together have the same; two systems on one store have different ones.
    pub prefix: String,
    /// How long a decision waits for the store before its rules do what they say for failures. Five times the time that
    /// a `PING` takes is generous; a store that takes longer than two thirds of this while it has nothing else to do counts as
    /// down.
    pub budget: Duration,
    /// How many connections there are, in a cluster to each node. Requests share one of them; the others are there for
    /// when it is lost. Never more than ten are made in a second, so that many nodes take a while at first.
    pub connections: usize,
    /// How long making a connection may take; twelve budgets if that is more, since it takes eight round trips or ten. A store that comes back is found within this and the longest pause
    /// between two attempts, which is 200 ms; if many have waited in vain, it is tried for another quarter of a second.
    pub connect_timeout: Duration,
    /// How many requests wait in vain for a store, or for a node of a cluster, at least one, from the beginning of an outage until it
    /// has been well for 0.3 seconds, or for twice the budget if that is more, however often the outage comes back meanwhile.
    /// All others are decided without it at once. Only what comes in the first third of the budget, while nobody can know, waits in any case. Where a store is
    /// only held up at times, twenty who are answered make up for one who is not.
    pub most_waiting: usize,
    /// How often hosts that decide by themselves tell what they have spent, unless it is urgent. Far from a limit it is
    /// ten times as long.
    pub interval: Duration,
    /// How many refusals are remembered, so that whoever keeps asking costs no round trip. Each takes 144 bytes.
    pub remembered: usize,
}

impl Config {
    /// A store at this host and port, and everything else as usual.
    pub fn new(address: impl Into<Address>) -> Config {
        Config {
            address: address.into(),
            user: None,
            password: None,
            protocol: Protocol::Newest,
            #[cfg(feature = "tls")]
            tls: None,
            prefix: "tg:".to_owned(),
            budget: Duration::from_millis(3),
            connections: 2,
            connect_timeout: Duration::from_millis(200),
            most_waiting: 20,
            interval: Duration::from_millis(100),
            remembered: 4_096,
        }
    }

    /// How long making a connection may take, also where the store is far away.
    pub(crate) fn longest_connect(&self) -> Duration {
        self.connect_timeout.max(self.budget * 12)
    }

    /// How long a store takes at the most that is well and has nothing else to do. The rest of the budget is for when it has;
    /// without it a store would be well one moment and not the next.
    pub(crate) fn prompt(&self) -> Duration {
        self.budget * 2 / 3
    }

    #[cfg(feature = "tls")]
    pub(crate) fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    #[cfg(not(feature = "tls"))]
    pub(crate) fn is_encrypted(&self) -> bool {
        false
    }
}

/// A version of the protocol of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// RESP3, and RESP2 with a store that does not know `HELLO`. In `CLIENT LIST` we are `tollgate` then.
    Newest,
    /// RESP2, and `HELLO` is never sent.
    Resp2,
}

/// How connections are encrypted.
#[cfg(feature = "tls")]
#[derive(Clone, Debug)]
pub struct Tls(pub std::sync::Arc<tokio_rustls::rustls::ClientConfig>);

/// The very same.
#[cfg(feature = "tls")]
impl PartialEq for Tls {
    fn eq(&self, other: &Tls) -> bool {
        std::sync::Arc::ptr_eq(&self.0, &other.0)
    }
}

#[cfg(feature = "tls")]
impl Eq for Tls {}

/// Where a server is.
///
/// ```
/// use tollgate_store::{Address, Config};
///
/// let sentinels = vec!["sentinel-1:26379".to_owned(), "sentinel-2:26379".to_owned()];
/// let config = Config::new(Address::Sentinels { sentinels, name: "limits".to_owned() });
///
/// let config = Config::new(Address::Cluster(vec!["node-1:6379".to_owned(), "node-2:6379".to_owned()]));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// At this host and port.
    Server(String),
    /// Where the first of these that answers says. They are asked again before every new connection, so that a primary
    /// that takes over is found as soon as it is known.
    Sentinels {
        /// Hosts and ports.
        sentinels: Vec<String>,
        /// What they call the primary.
        name: String,
    },
    /// On the nodes of a cluster. These are some of them, by host and port, of which one that answers is enough: it knows
    /// the others.
    Cluster(Vec<String>),
}

/// As it stands in logs. Nothing in it is secret.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Server(server) => f.write_str(server),
            Address::Sentinels { sentinels, name } => write!(f, "{name} by sentinels {}", sentinels.join(", ")),
            Address::Cluster(nodes) => write!(f, "cluster of {}", nodes.join(", ")),
        }
    }
}

impl From<&str> for Address {
    fn from(address: &str) -> Address {
        Address::Server(address.to_owned())
    }
}

impl From<String> for Address {
    fn from(address: String) -> Address {
        Address::Server(address)
    }
}

/// Without the password.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("address", &self.address)
            .field("user", &self.user)
            .field("has_password", &self.password.is_some())
            .field("protocol", &self.protocol)
            .field("prefix", &self.prefix)
            .field("budget", &self.budget)
            .field("connections", &self.connections)
            .field("connect_timeout", &self.connect_timeout)
            .field("most_waiting", &self.most_waiting)
            .field("interval", &self.interval)
            .field("remembered", &self.remembered)
            .finish()
    }
}
