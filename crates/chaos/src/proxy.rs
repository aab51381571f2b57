use crate::chaos::Chaos;
use crate::counts::{Counters, Counts};
use crate::script::Script;
use crate::{tcp, udp};
use futures_timer::Delay;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// Stands between clients and a server until it is dropped; every connection through it ends with it, in a moment.
///
/// ```
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
/// use tokio::net::{TcpListener, TcpStream};
/// use tollgate_chaos::{Chaos, Proxy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let server = TcpListener::bind("127.0.0.1:0").await?;
/// // The server gets what it is asked, and nobody its answer.
/// let proxy = Proxy::tcp(server.local_addr()?, Chaos::new(7).lose_replies(1.0)).await?;
/// let mut client = TcpStream::connect(proxy.address()).await?;
/// client.write_all(b"request").await?;
///
/// let (mut accepted, _) = server.accept().await?;
/// accepted.read_exact(&mut [0; 7]).await?;
/// accepted.write_all(b"reply").await?;
/// let mut reply = Vec::new();
/// assert!(client.read_to_end(&mut reply).await.is_err() || reply.is_empty());
/// # Ok(())
/// # }
/// ```
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    runtime: Handle,
    /// The one that plays, if it has phases to come.
    script: Mutex<Option<Task>>,
    _task: Task,
}

/// What the parts of a proxy share.
pub(crate) struct Shared {
    pub(crate) target: SocketAddr,
    pub(crate) chaos: watch::Sender<Arc<Chaos>>,
    pub(crate) counters: Counters,
    /// How many scripts there were. A task that is told to end may be about to enter a phase.
    turn: Mutex<u64>,
    /// Times are counted from here.
    start: Instant,
}

/// Ends when it is dropped.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Proxy {
    /// Between clients and a server that talk TCP, on a free port of this host.
    ///
    /// # Errors
    /// If there is none.
    pub async fn tcp(target: SocketAddr, chaos: Chaos) -> io::Result<Proxy> {
        let port = tcp::Port::reserve(loopback(target))?;
        let (address, door) = (port.address(), chaos.door);
        let shared = Shared::new(target, chaos);
        // Opened here, so that whoever has the proxy can connect.
        let listener = port.open(door)?;
        let task = tokio::spawn(tcp::serve(port, listener, Arc::clone(&shared)));
        Ok(Proxy::new(address, shared, task))
    }

    /// Between clients and a server that talk UDP, on a free port of this host. The server sees every client at an address of its
    /// own, and answers through it.
    ///
    /// # Errors
    /// If there is none.
    pub async fn udp(target: SocketAddr, chaos: Chaos) -> io::Result<Proxy> {
        let socket = UdpSocket::bind((loopback(target), 0)).await?;
        let (address, shared) = (socket.local_addr()?, Shared::new(target, chaos));
        let task = tokio::spawn(udp::serve(socket, Arc::clone(&shared)));
        Ok(Proxy::new(address, shared, task))
    }

    fn new(address: SocketAddr, shared: Arc<Shared>, task: JoinHandle<()>) -> Proxy {
        Proxy { address, shared, runtime: Handle::current(), script: Mutex::new(None), _task: Task(task) }
    }

    /// Where clients find it.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on, this happens. What is on its way already arrives as it would have; connections that there are meet
    /// what the seed has for their number, counted in bytes from here. A script that plays is over.
    pub fn set(&self, chaos: Chaos) {
        self.play(Script::new().then(Duration::ZERO, chaos));
    }

    /// From now on, this happens, one phase after the other, and no script that played before. Whatever changes
    /// twice in the same moment may have changed once.
    ///
    /// ```no_run
    /// # fn example(proxy: &tollgate_chaos::Proxy) {
    /// use tollgate_chaos::{Chaos, Script, ms};
    ///
    /// proxy.play(Script::new().then(ms(200), Chaos::new(1).down()).then(ms(200), Chaos::new(1)).repeated());
    /// # }
    /// ```
    pub fn play(&self, script: Script) {
        let mut playing = self.script.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = self.shared.next_turn();
        // Here and not in its task, so that it happens to whatever comes after this call.
        let end = self.shared.enter(&script, Duration::ZERO, turn);
        *playing = end.map(|end| Task(self.runtime.spawn(play(script, end, turn, Arc::clone(&self.shared)))));
    }

    /// What it has done so far.
    pub fn counts(&self) -> Counts {
        self.shared.counters.read()
    }
}

/// Enters each phase when the one before it is over, until one goes on for ever.
async fn play(script: Script, first_end: Duration, turn: u64, shared: Arc<Shared>) {
    let start = Instant::now();
    let mut next = Some(first_end);
    while let Some(end) = next {
        sleep_until(start + end).await;
        // By the script's time and not by the clock's, so that a late timer leaves out no phase.
        next = shared.enter(&script, end, turn);
    }
}

impl Shared {
    fn new(target: SocketAddr, chaos: Chaos) -> Arc<Shared> {
        let (chaos, _) = watch::channel(Arc::new(chaos));
        Arc::new(Shared { target, chaos, counters: Counters::default(), turn: Mutex::new(0), start: Instant::now() })
    }

    fn turn(&self) -> MutexGuard<'_, u64> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_turn(&self) -> u64 {
        let mut turn = self.turn();
        *turn += 1;
        *turn
    }

    /// Enters the phase of a script at that time, if it is still the script's turn, and returns when it is over.
    fn enter(&self, script: &Script, elapsed: Duration, turn: u64) -> Option<Duration> {
        let current = self.turn();
        let (chaos, end) = script.phase(elapsed).filter(|_| *current == turn)?;
        self.chaos.send_replace(Arc::new(chaos.clone()));
        end
    }

    /// How long there has been a proxy.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Waits until there has been one for so long. Timers of tokio go by whole milliseconds, and two would be nearly three.
    pub(crate) async fn until(&self, due: Duration) {
        let rest = due.saturating_sub(self.elapsed());
        if !rest.is_zero() {
            Delay::new(rest).await;
        }
    }
}

/// This host, as the server knows it.
pub(crate) fn loopback(target: SocketAddr) -> IpAddr {
    match target {
        SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy")
            .field("address", &self.address)
            .field("target", &self.shared.target)
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}
