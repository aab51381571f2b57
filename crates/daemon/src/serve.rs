//! The whole daemon: rules, listeners, signals, and an end in order.

use crate::config::Config;
use crate::grpc::GrpcServer;
use crate::http::HttpServer;
use crate::listen::{Door, FrontEnd, Listener, Stop, Stopper, listen};
use crate::otlp::Tracer;
use crate::resp::RespServer;
use crate::state::State;
use crate::systemd::{self, Sockets};
use crate::tls::{Tls, TlsFiles};
use crate::{example, logging, otlp, sharing};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tollgate::{Capacity, RuleSet, Tollgate};
use tracing::{info, warn};

/// How often the files of certificates are looked at.
const LOOK: Duration = Duration::from_secs(10);

/// How long those who are being answered have, once the daemon is to end.
const DRAIN: Duration = Duration::from_secs(25);

type Failure = Box<dyn std::error::Error>;

/// Answers whoever asks, until interrupted or terminated.
///
/// # Errors
/// What kept it from starting.
pub async fn serve(config: Config) -> Result<(), Failure> {
    logging::start(config.log, config.log_format);
    let rules = rules_path(&config)?;
    let tollgate = open_rules(&config, rules.as_deref())?;
    let _watching = rules.as_ref().map(|_| tollgate.watch());
    let state = State::new(tollgate, config.keys, config.access.clone());
    let mut daemon = match config.otlp.clone() {
        None => Daemon::new(&config, Arc::new(state)),
        Some(collector) => {
            let (tracer, spans) = Tracer::new(config.otlp_share);
            let mut daemon = Daemon::new(&config, Arc::new(state.with_tracer(tracer)));
            let state = Arc::clone(&daemon.state);
            let export = otlp::export(collector, config.otlp_interval, state, spans, daemon.stop.clone());
            daemon.listening.spawn(export);
            daemon
        }
    };
    daemon.listening.spawn(sharing::watch(Arc::clone(&daemon.state), daemon.stop.clone()));
    daemon.open_all().await?;
    // Whoever reads that it is ready may tell it to end at once.
    let signals = Signals::new()?;
    greet(&daemon.addresses, rules.as_deref());
    systemd::notify("READY=1");
    daemon.run(signals).await
}

/// Where the rules are. Where nobody says, and nothing is there yet, the examples are.
fn rules_path(config: &Config) -> Result<Option<PathBuf>, Failure> {
    if config.rules.is_some() {
        return Ok(config.rules.clone());
    }
    let path = PathBuf::from(example::FILE);
    match example::write(&path) {
        Ok(()) => Ok(Some(path)),
        Err(error) => {
            warn!(%error, "cannot write {}; the example rules cannot be edited", path.display());
            Ok(None)
        }
    }
}

fn open_rules(config: &Config, path: Option<&Path>) -> Result<Tollgate, Failure> {
    let builder = config.store.clone().map_or_else(Tollgate::builder, |store| Tollgate::builder().store(store));
    let builder = builder
        .capacity(Capacity::Keys(config.buckets))
        .unknown_namespaces(config.unknown_namespaces)
        .observer(logging::observe);
    Ok(match path {
        Some(path) => builder.open(path)?,
        None => builder.build(RuleSet::parse(&[tollgate::Source::new(example::FILE, example::RULES)])?),
    })
}

/// Listeners, and what they have in common.
struct Daemon<'a> {
    config: &'a Config,
    state: Arc<State>,
    sockets: Sockets,
    certificates: Vec<Arc<Tls>>,
    listening: JoinSet<()>,
    stopper: Stopper,
    stop: Stop,
    /// What is listened to, for people.
    addresses: Vec<(&'static str, Address)>,
}

/// Where a front end can be reached.
enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "{address}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl<'a> Daemon<'a> {
    fn new(config: &'a Config, state: Arc<State>) -> Daemon<'a> {
        let (stopper, stop) = Stop::new();
        Daemon {
            config,
            state,
            sockets: Sockets::take(),
            certificates: Vec::new(),
            listening: JoinSet::new(),
            stopper,
            stop,
            addresses: Vec::new(),
        }
    }

    async fn open_all(&mut self) -> Result<(), Failure> {
        let idle = self.config.idle_timeout;
        let resp = Arc::new(RespServer::new(Arc::clone(&self.state), idle));
        self.open("RESP", 0, self.config.resp, &[], Arc::clone(&resp)).await?;
        if let Some(path) = &self.config.resp_socket {
            self.open_socket(path, resp)?;
        }
        let grpc = Arc::new(GrpcServer::new(Arc::clone(&self.state), idle));
        self.open("gRPC", 1, self.config.grpc, &[b"h2"], grpc).await?;
        let http = Arc::new(HttpServer::new(Arc::clone(&self.state), idle));
        self.open("HTTP", 2, self.config.http, &[b"h2", b"http/1.1"], http).await
    }

    /// Listens at an address, or at the socket that systemd has opened for it.
    async fn open<F: FrontEnd>(
        &mut self,
        name: &'static str,
        position: usize,
        address: Option<SocketAddr>,
        alpn: &[&[u8]],
        front_end: Arc<F>,
    ) -> Result<(), Failure> {
        let listener = match (self.sockets.tcp(position)?, address) {
            (Some(inherited), _) => inherited,
            (None, None) => return Ok(()),
            (None, Some(address)) => TcpListener::bind(address).await.map_err(|error| {
                let flag = name.to_ascii_lowercase();
                format!("cannot listen on {address} for {name}: {error}; choose another address with --{flag}")
            })?,
        };
        self.addresses.push((name, Address::Tcp(listener.local_addr()?)));
        let door = Door { tls: self.tls(alpn)?, ..self.door() };
        self.listening.spawn(listen(Listener::Tcp(listener), door, front_end, self.stop.clone()));
        Ok(())
    }

    fn open_socket<F: FrontEnd>(&mut self, path: &Path, front_end: Arc<F>) -> Result<(), Failure> {
        // What an earlier daemon has left behind answers nobody; what does answer is somebody else's.
        if std::os::unix::net::UnixStream::connect(path).is_err() {
            let _ = std::fs::remove_file(path);
        }
        let listener =
            UnixListener::bind(path).map_err(|error| format!("cannot listen on {}: {error}", path.display()))?;
        self.addresses.push(("RESP", Address::Unix(path.to_owned())));
        self.listening.spawn(listen(Listener::Unix(listener), self.door(), front_end, self.stop.clone()));
        Ok(())
    }

    fn door(&self) -> Door {
        Door {
            connections: self.config.connections,
            per_peer: self.config.connections_per_peer,
            trusts_everybody: self.config.allow_anonymous,
            tls: None,
        }
    }

    fn tls(&mut self, alpn: &[&[u8]]) -> Result<Option<Arc<Tls>>, Failure> {
        let Some(files) = self.config.tls.clone() else { return Ok(None) };
        let alpn = alpn.iter().map(|name| name.to_vec()).collect();
        let tls = Arc::new(Tls::open(TlsFiles { alpn, ..files })?);
        self.certificates.push(Arc::clone(&tls));
        Ok(Some(tls))
    }

    /// Waits for signals, and ends in order when it is told to.
    async fn run(mut self, mut signals: Signals) -> Result<(), Failure> {
        let mut look = tokio::time::interval(LOOK);
        let mut seen = self.changed();
        loop {
            tokio::select! {
                _ = signals.interrupt.recv() => break,
                _ = signals.terminate.recv() => break,
                _ = signals.hang_up.recv() => self.reload(),
                _ = look.tick() => {
                    let changed = self.changed();
                    if changed != seen {
                        self.reload_certificates();
                        seen = changed;
                    }
                }
            }
        }
        info!("no longer listening; requests that are being answered are finished");
        systemd::notify("STOPPING=1");
        self.state.begin_to_stop();
        self.stopper.stop();
        let drained = async { while self.listening.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN, drained).await.is_err() {
            warn!("some connections did not end in time");
        }
        if let Some(sharing) = self.state.sharing()
            && !sharing.flush().await
        {
            warn!("the store could not be told of all that was spent here");
        }
        for (_, address) in &self.addresses {
            if let Address::Unix(path) = address {
                let _ = std::fs::remove_file(path);
            }
        }
        Ok(())
    }

    fn reload(&self) {
        // What is wrong with them is logged where it is found.
        let _ = self.state.tollgate().reload();
        self.reload_certificates();
    }

    fn reload_certificates(&self) {
        for tls in &self.certificates {
            match tls.reload() {
                Ok(()) => info!("the certificates were read again"),
                Err(error) => warn!(%error, "the new certificates cannot be used, the ones before stay in use"),
            }
        }
    }

    fn changed(&self) -> Vec<Option<std::time::SystemTime>> {
        self.certificates.iter().map(|tls| tls.changed()).collect()
    }
}

/// What it is told by. From when this is made they no longer end the process by themselves.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }
}

/// Says what to try. Whether anybody reads it makes no difference.
fn greet(addresses: &[(&'static str, Address)], rules: Option<&Path>) {
    let mut text = format!("Tollgate {}\n", env!("CARGO_PKG_VERSION"));
    for (name, address) in addresses {
        text += &format!("  {name:<6} {address}\n");
    }
    if let Some(rules) = rules {
        text += &format!("  rules  {} (a change is in force a second later)\n", rules.display());
    }
    for (name, address) in addresses {
        text += &match (*name, address) {
            ("HTTP", Address::Tcp(address)) if rules.is_none_or(|path| path == Path::new(example::FILE)) => {
                example::curl(*address)
            }
            ("RESP", Address::Tcp(address)) => {
                format!("\nFrom any Redis client:\n  redis-cli -p {} CL.THROTTLE alice 4 5 60\n", address.port())
            }
            _ => String::new(),
        };
    }
    text += "\nReady.\n";
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
