//! How the daemon is configured: one table of settings, from which flags, environment, file and reference are made.

mod layers;
mod settings;
mod store;

pub use layers::{Layers, Origin};
pub use settings::{SETTINGS, Setting, reference};

use crate::access::Access;
use crate::otlp::Collector;
use crate::tls::TlsFiles;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use tollgate::model::NoMatch;

/// What the daemon is to do.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the rules are; nothing stands for the example, which is written where it can be edited.
    pub rules: Option<PathBuf>,
    /// Where each front end listens.
    pub resp: Option<SocketAddr>,
    /// See `resp`.
    pub grpc: Option<SocketAddr>,
    /// See `resp`.
    pub http: Option<SocketAddr>,
    /// A Unix socket for RESP.
    pub resp_socket: Option<PathBuf>,
    /// Buckets by rules.
    pub buckets: usize,
    /// Keys that bring their own rate.
    pub keys: usize,
    /// What becomes of requests of namespaces that nobody has rules for.
    pub unknown_namespaces: NoMatch,
    /// Connections at the same time, per listener.
    pub connections: usize,
    /// Connections of one address at the same time, per listener.
    pub connections_per_peer: usize,
    /// When a connection that says nothing is closed.
    pub idle_timeout: Duration,
    /// Tokens that let strangers in.
    pub access: Access,
    /// Whether strangers need none.
    pub allow_anonymous: bool,
    /// Certificates for all TCP listeners.
    pub tls: Option<TlsFiles>,
    /// Where limits are kept that many daemons count together.
    pub store: Option<tollgate::store::Config>,
    /// How much is logged.
    pub log: LogLevel,
    /// As what.
    pub log_format: LogFormat,
    /// Who is sent metrics and traces, how often, and which share of questions is traced that nobody traces yet.
    pub otlp: Option<Collector>,
    /// See `otlp`.
    pub otlp_interval: Duration,
    /// See `otlp`.
    pub otlp_share: f64,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they say what they are")]
pub enum LogLevel {
    Off,
    Error,
    Warn,
    Info,
    Debug,
}

/// How logs are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines, an object a line.
    Json,
}

/// Everything that is wrong with a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigMistakes(pub Vec<String>);

impl fmt::Display for ConfigMistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for ConfigMistakes {}

impl Config {
    /// What the layers come to.
    ///
    /// # Errors
    /// Every value that makes no sense, where it is from, and what would.
    pub fn new(layers: &Layers) -> Result<Config, ConfigMistakes> {
        let mut read = Reader { layers, mistakes: ConfigMistakes::default() };
        let config =
            Config {
                rules: read.optional("rules"),
                resp: read.address("resp"),
                grpc: read.address("grpc"),
                http: read.address("http"),
                resp_socket: read.optional("resp-socket"),
                buckets: read.count("buckets"),
                keys: read.count("keys"),
                unknown_namespaces: read
                    .choice("unknown-namespaces", &[("allow", NoMatch::Allow), ("refuse", NoMatch::Refuse)]),
                connections: read.count("connections"),
                connections_per_peer: read.count("connections-per-peer"),
                idle_timeout: read.duration("idle-timeout"),
                access: read.tokens("token-file"),
                allow_anonymous: read.choice("allow-anonymous", &[("false", false), ("true", true)]),
                tls: read.tls(),
                store: read.store(),
                log: read.choice(
                    "log",
                    &[
                        ("off", LogLevel::Off),
                        ("error", LogLevel::Error),
                        ("warn", LogLevel::Warn),
                        ("info", LogLevel::Info),
                        ("debug", LogLevel::Debug),
                    ],
                ),
                log_format: read.choice("log-format", &[("text", LogFormat::Text), ("json", LogFormat::Json)]),
                otlp: read.parsed("otlp", "the address of a collector such as `http://127.0.0.1:4318`", |text| {
                    match text {
                        "" => Some(None),
                        text => text.parse().ok().map(Some),
                    }
                }),
                otlp_interval: read.duration("otlp-interval"),
                otlp_share: read.parsed("otlp-share", "a number from 0 to 1", |text| {
                    text.parse().ok().filter(|share| (0.0..=1.0).contains(share))
                }),
            };
        read.refuse_open_doors(&config);
        if read.mistakes.0.is_empty() { Ok(config) } else { Err(read.mistakes) }
    }
}

/// Reads values, and collects what is wrong with them. What it returns for a mistake is never used.
struct Reader<'a> {
    layers: &'a Layers,
    mistakes: ConfigMistakes,
}

impl Reader<'_> {
    fn parsed<T: Default>(&mut self, name: &str, expected: &str, parse: impl Fn(&str) -> Option<T>) -> T {
        let (value, origin) = self.layers.get(name);
        parse(value).unwrap_or_else(|| {
            let value = self.layers.shown(name);
            self.mistakes.0.push(format!("{origin}: `{name}` is `{value}`; it should be {expected}"));
            T::default()
        })
    }

    fn count(&mut self, name: &str) -> usize {
        self.parsed(name, "a whole number from 1", |text| {
            text.replace('_', "").parse().ok().filter(|number| *number > 0)
        })
    }

    fn duration(&mut self, name: &str) -> Duration {
        self.parsed(name, "a duration such as `5 minutes`", |text| {
            tollgate::parse_duration(text).ok().filter(|time| !time.is_zero())
        })
    }

    /// Nothing where it is empty.
    fn optional(&self, name: &str) -> Option<PathBuf> {
        Some(self.layers.get(name).0).filter(|text| !text.is_empty()).map(PathBuf::from)
    }

    fn address(&mut self, name: &str) -> Option<SocketAddr> {
        self.parsed(name, "an address and a port such as `127.0.0.1:6380`, or `off`", |text| match text {
            "off" | "" => Some(None),
            text => SocketAddr::from_str(text).ok().map(Some),
        })
    }

    fn choice<T: Copy>(&mut self, name: &str, choices: &[(&str, T)]) -> T {
        let (value, origin) = self.layers.get(name);
        let [(_, first), ..] = choices else { unreachable!("every setting has choices") };
        choices.iter().find(|(choice, _)| *choice == value).map_or_else(
            || {
                let names: Vec<String> = choices.iter().map(|(name, _)| format!("`{name}`")).collect();
                self.mistakes.0.push(format!("{origin}: `{name}` is `{value}`; it should be {}", names.join(" or ")));
                *first
            },
            |(_, choice)| *choice,
        )
    }

    /// The lines of the file that are neither empty nor comments.
    fn tokens(&mut self, name: &str) -> Access {
        let Some(path) = self.optional(name) else { return Access::default() };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => {
                let origin = self.layers.get(name).1;
                self.mistakes.0.push(format!("{origin}: cannot read `{name}` {}: {error}", path.display()));
                return Access::default();
            }
        };
        let tokens: Vec<&str> =
            text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        for short in tokens.iter().filter(|token| token.len() < 16) {
            let length = short.len();
            self.mistakes.0.push(format!(
                "{}: a token of {length} characters can be guessed; use 16 or more, as from `openssl rand -hex 16`",
                path.display()
            ));
        }
        Access::new(tokens)
    }

    fn tls(&mut self) -> Option<TlsFiles> {
        let client_ca = self.optional("tls-client-ca");
        match (self.optional("tls-certificate"), self.optional("tls-key")) {
            (Some(certificate), Some(key)) => Some(TlsFiles { certificate, key, client_ca, alpn: Vec::new() }),
            (None, None) if client_ca.is_none() => None,
            _ => {
                let mistake =
                    "TLS needs both `tls-certificate` and `tls-key`, and has use for `tls-client-ca` only then";
                self.mistakes.0.push(mistake.to_owned());
                None
            }
        }
    }

    /// Whoever listens to the world says whom to let in.
    fn refuse_open_doors(&mut self, config: &Config) {
        let is_guarded = config.allow_anonymous
            || !config.access.is_empty()
            || config.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        for (name, address) in [("resp", config.resp), ("grpc", config.grpc), ("http", config.http)] {
            if let Some(address) = address.filter(|address| !is_guarded && !address.ip().is_loopback()) {
                let origin = self.layers.get(name).1;
                self.mistakes.0.push(format!(
                    "{origin}: `{name}` at {address} can be reached from elsewhere, and nothing says who may ask; name tokens with \
                     `token-file`, ask for certificates with `tls-client-ca`, or let everybody in with `allow-anonymous`"
                ));
            }
        }
    }
}
