//! Listeners: who is let in, how many, and how long they may take. What they say is the front ends' business.

use crate::meters::Meter;
use crate::tls::Tls;
use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

/// How long after a failure to accept the next attempt is made, as when there are too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long what was sent before the end may take to arrive.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// How long the last reply of a connection has to arrive.
const PARTING: Duration = Duration::from_secs(1);

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// What a front end does with a connection.
pub trait FrontEnd: Send + Sync + 'static {
    /// Serves one connection to its end. When `stop` comes, finishes what was asked and ends soon.
    fn serve<S>(&self, stream: S, peer: Peer, stop: Stop) -> impl Future<Output = ()> + Send
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// The same for a plain TCP connection, for those that can do more with a socket than with any stream.
    fn serve_tcp(&self, stream: TcpStream, peer: Peer, stop: Stop) -> impl Future<Output = ()> + Send {
        self.serve(stream, peer, stop)
    }

    /// Where its connections are counted.
    fn meter(&self) -> &Meter;
}

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Nothing for a Unix socket.
    pub address: Option<IpAddr>,
    /// Whether it may ask without a token: it is on this machine, has shown a certificate, or the listener lets in
    /// everybody.
    pub is_trusted: bool,
}

/// Comes when the daemon is to end.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

/// Lets [`Stop`] come.
#[derive(Debug)]
pub struct Stopper(watch::Sender<bool>);

impl Stop {
    /// One that comes when the other says so, or is dropped.
    pub fn new() -> (Stopper, Stop) {
        let (sender, receiver) = watch::channel(false);
        (Stopper(sender), Stop(receiver))
    }

    /// Returns when it has come.
    pub async fn come(&mut self) {
        let _ = self.0.wait_for(|stopped| *stopped).await;
    }

    /// Returns a moment after it has come: all that was sent before then has arrived, and can be answered.
    pub async fn come_to_an_end(&mut self) {
        self.come().await;
        tokio::time::sleep(LAST_WORDS).await;
    }
}

impl Stopper {
    /// Lets it come.
    pub fn stop(&self) {
        let _ = self.0.send(true);
    }
}

/// Where connections come from.
#[derive(Debug)]
pub enum Listener {
    /// An address and a port.
    Tcp(TcpListener),
    /// A file.
    Unix(UnixListener),
}

/// Who is let in, and how many.
#[derive(Clone, Debug)]
pub struct Door {
    /// Connections at the same time; others wait to be accepted.
    pub connections: usize,
    /// Connections of one address at the same time; more are closed at once.
    pub per_peer: usize,
    /// Whether strangers need no token.
    pub trusts_everybody: bool,
    /// With certificates.
    pub tls: Option<Arc<Tls>>,
}

impl Default for Door {
    fn default() -> Door {
        Door { connections: 10_000, per_peer: 1_000, trusts_everybody: false, tls: None }
    }
}

/// Ends a connection so that the last reply arrives: closed with something unread, it would be reset, and the reply be
/// lost on the way. Whoever goes on sending is not waited for.
pub(crate) async fn part<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) -> io::Result<()> {
    stream.shutdown().await?;
    let mut unread = vec![0; 4096];
    let drain = async { while stream.read(&mut unread).await.is_ok_and(|read| read > 0) {} };
    let _ = timeout(PARTING, drain).await;
    Ok(())
}

/// Serves connections until `stop`, then lets the ones that are open finish what they have sent.
pub async fn listen<F: FrontEnd>(listener: Listener, door: Door, front_end: Arc<F>, stop: Stop) {
    let places = Arc::new(Semaphore::new(door.connections));
    let peers = Arc::new(Peers { most: door.per_peer, open: Mutex::default() });
    let most = u32::try_from(door.connections).unwrap_or(u32::MAX);
    let door = Arc::new(door);
    // Whoever has connected is served, also if nobody has come to the door yet.
    let mut closing = stop.clone();
    let mut closing = pin!(closing.come_to_an_end());
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &places) => accepted,
            () = &mut closing => break,
        };
        let Some((stream, place)) = accepted else { continue };
        let guest = Guest { door: Arc::clone(&door), front_end: Arc::clone(&front_end), stop: stop.clone() };
        match stream {
            Stream::Unix(stream) => {
                tokio::spawn(async move {
                    guest.serve(stream, Peer { address: None, is_trusted: true }).await;
                    drop(place);
                });
            }
            Stream::Tcp(stream, address) => {
                let Some(seat) = peers.seat(address) else {
                    front_end.meter().turned_away.fetch_add(1, Ordering::Relaxed);
                    continue;
                };
                tokio::spawn(async move {
                    guest.welcome(stream, address).await;
                    drop((seat, place));
                });
            }
        }
    }
    drop(listener);
    // All places are free when the last connection has ended.
    let _ = places.acquire_many(most).await;
}

enum Stream {
    Tcp(TcpStream, IpAddr),
    Unix(UnixStream),
}

/// The next connection. A failure is nobody's fault here and no reason to stop.
async fn accept(listener: &Listener, places: &Arc<Semaphore>) -> Option<(Stream, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    let accepted = match listener {
        Listener::Tcp(listener) => {
            listener.accept().await.map(|(stream, address)| Stream::Tcp(stream, address.ip().to_canonical()))
        }
        Listener::Unix(listener) => listener.accept().await.map(|(stream, _)| Stream::Unix(stream)),
    };
    match accepted {
        Ok(stream) => Some((stream, place)),
        Err(error) => {
            tracing::warn!(%error, "cannot accept a connection");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

/// A connection that is let in.
struct Guest<F> {
    door: Arc<Door>,
    front_end: Arc<F>,
    stop: Stop,
}

impl<F: FrontEnd> Guest<F> {
    async fn welcome(self, stream: TcpStream, address: IpAddr) {
        // A socket that cannot be set up is as good as closed.
        if stream.set_nodelay(true).is_err() {
            return;
        }
        let is_trusted = self.door.trusts_everybody || address.is_loopback();
        // What a connection may need takes memory only when it needs it.
        match self.door.tls.clone() {
            None => {
                let peer = Peer { address: Some(address), is_trusted };
                self.count(self.front_end.serve_tcp(stream, peer, self.stop.clone())).await;
            }
            Some(tls) => Box::pin(self.shake_hands(stream, address, is_trusted, tls)).await,
        }
    }

    async fn shake_hands(self, stream: TcpStream, address: IpAddr, is_trusted: bool, tls: Arc<Tls>) {
        let accepted = timeout(HANDSHAKE, tls.acceptor().accept(stream)).await;
        match accepted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(stream) => {
                let has_certificate = stream.get_ref().1.peer_certificates().is_some();
                let peer = Peer { address: Some(address), is_trusted: is_trusted || has_certificate };
                self.serve(stream, peer).await;
            }
            Err(error) => {
                tracing::debug!(%address, %error, "no proper TLS");
                self.front_end.meter().turned_away.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    async fn serve<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(self, stream: S, peer: Peer) {
        self.count(self.front_end.serve(stream, peer, self.stop.clone())).await;
    }

    /// Counts a connection as open for as long as it is served.
    async fn count(&self, serving: impl Future<Output = ()>) {
        let meter = self.front_end.meter();
        meter.accepted.fetch_add(1, Ordering::Relaxed);
        meter.open.fetch_add(1, Ordering::Relaxed);
        serving.await;
        meter.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many connections each address has.
struct Peers {
    most: usize,
    open: Mutex<HashMap<IpAddr, usize>>,
}

/// A connection that is counted for its address until it ends.
struct Seat {
    peers: Arc<Peers>,
    address: IpAddr,
}

impl Peers {
    fn seat(self: &Arc<Self>, address: IpAddr) -> Option<Seat> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(address).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Seat { peers: Arc::clone(self), address })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut open = self.peers.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.address);
            }
        }
    }
}
