//! Streams: takes connections, and moves bytes when they are due.

use crate::chaos::{Chaos, Direction, Door};
use crate::fate::{Fate, Place};
use crate::line::Line;
use crate::proxy::Shared;
use bytes::{Bytes, BytesMut};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Connections that wait to be taken, where somebody takes them and where nobody does.
const BACKLOG: u32 = 1_024;
const UNATTENDED_BACKLOG: u32 = 1;

/// The most that is read at once.
const CHUNK: usize = 16 * 1_024;

/// A port of ours, also while nobody listens on it.
pub(crate) struct Port {
    address: SocketAddr,
    /// Bound and never listened on, so that nobody else is given the port.
    _reserved: TcpSocket,
}

impl Port {
    pub(crate) fn reserve(host: IpAddr) -> io::Result<Port> {
        let reserved = bind(SocketAddr::new(host, 0))?;
        Ok(Port { address: reserved.local_addr()?, _reserved: reserved })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Listens if somebody is to.
    pub(crate) fn open(&self, door: Door) -> io::Result<Option<TcpListener>> {
        let backlog = match door {
            Door::Open => BACKLOG,
            Door::Unattended => UNATTENDED_BACKLOG,
            Door::Shut => return Ok(None),
        };
        bind(self.address)?.listen(backlog).map(Some)
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Takes connections for as long as there is a proxy.
pub(crate) async fn serve(port: Port, mut listener: Option<TcpListener>, shared: Arc<Shared>) {
    let mut door = shared.chaos.borrow().door;
    let mut chaos = shared.chaos.subscribe();
    let mut connections = Connections { shared, number: 0, tasks: JoinSet::new() };
    loop {
        tokio::select! {
            biased;
            Ok(changed) = chaos.wait_for(|chaos| chaos.door != door) => door = changed.door,
            () = connections.take(listener.as_ref(), door) => continue,
        }
        // There is room for one that listens.
        drop(listener);
        listener = port.open(door).unwrap_or_else(|error| panic!("{}: {error}", port.address()));
    }
}

/// Those that were taken. They end with this.
struct Connections {
    shared: Arc<Shared>,
    number: u64,
    tasks: JoinSet<()>,
}

impl Connections {
    /// Takes the next connection, or lets go of one that is over.
    async fn take(&mut self, listener: Option<&TcpListener>, door: Door) {
        tokio::select! {
            Some(_) = self.tasks.join_next() => {}
            stream = accept(listener, door) => {
                // Whoever has given up in the meantime has no number.
                let Ok(stream) = stream else { return };
                self.tasks.spawn(carry(stream, self.number, Arc::clone(&self.shared)));
                self.number += 1;
            }
        }
    }
}

async fn accept(listener: Option<&TcpListener>, door: Door) -> io::Result<TcpStream> {
    match listener {
        Some(listener) if door == Door::Open => listener.accept().await.map(|(stream, _)| stream),
        _ => std::future::pending().await,
    }
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Both sides have said all that they wanted to.
    Said,
    /// It was to end here.
    Cut,
    /// It was to be reset.
    Reset,
    /// One of the sides is gone, and so the other one is to think.
    Broken,
}

/// One connection from its beginning to its end.
async fn carry(mut near: TcpStream, number: u64, shared: Arc<Shared>) {
    shared.counters.connections.add(1);
    let mut chaos = shared.chaos.subscribe();
    let end = tokio::select! {
        biased;
        _ = chaos.wait_for(|chaos| chaos.connection(number) == Fate::Reset) => End::Reset,
        end = relay(&mut near, number, &shared) => end,
    };
    match end {
        End::Said => {}
        End::Cut => shared.counters.cut.add(1),
        End::Reset => shared.counters.reset.add(1),
        End::Broken => {}
    }
    if matches!(end, End::Reset | End::Broken) {
        // If that cannot be asked for, the client sees an orderly end, which is one too.
        let _ = near.set_zero_linger();
    }
}

async fn relay(near: &mut TcpStream, number: u64, shared: &Shared) -> End {
    let Ok(mut far) = TcpStream::connect(shared.target).await else { return End::Broken };
    if near.set_nodelay(true).and_then(|()| far.set_nodelay(true)).is_err() {
        return End::Broken;
    }
    let ((near_reader, near_writer), (far_reader, far_writer)) = (near.split(), far.split());
    let pump = |direction| Pump::new(Place { connection: number, direction, number: 0 }, shared);
    let both = tokio::try_join!(
        pump(Direction::ToServer).run(near_reader, far_writer),
        pump(Direction::ToClient).run(far_reader, near_writer),
    );
    match both {
        Ok((End::Said, End::Said)) => End::Said,
        Ok(_) => End::Broken,
        Err(end) => end,
    }
}

/// One direction of a connection.
struct Pump<'a> {
    /// The next chunk.
    place: Place,
    shared: &'a Shared,
    changes: watch::Receiver<Arc<Chaos>>,
    chaos: Arc<Chaos>,
    /// Bytes that have come since what happens was last changed.
    came: u64,
    /// What is on its way. The last chunk is empty: an end takes its time as well.
    line: Line<Bytes>,
    source: Source,
}

/// What there is still to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Open,
    /// Nothing: that was all.
    Over,
    /// Nothing: here it is cut off.
    Cut,
    /// Nothing: whoever wrote is gone.
    Gone,
}

impl<'a> Pump<'a> {
    fn new(place: Place, shared: &'a Shared) -> Pump<'a> {
        let changes = shared.chaos.subscribe();
        let chaos = Arc::clone(&changes.borrow());
        Pump { place, shared, changes, chaos, came: 0, line: Line::new(), source: Source::Open }
    }

    /// Moves bytes until there are no more. An error is the end of the other direction, too.
    async fn run(mut self, mut reader: ReadHalf<'_>, mut writer: WriteHalf<'_>) -> Result<End, End> {
        let mut unread = BytesMut::new();
        while self.source == Source::Open || !self.line.is_empty() {
            let goes_on = !self.is_held();
            unread.reserve(CHUNK);
            // Each of these can be left off at any time without losing anything.
            tokio::select! {
                Ok(()) = self.changes.changed() => self.adopt(),
                read = reader.read_buf(&mut unread), if goes_on && self.source == Source::Open && !self.line.is_full() => {
                    self.take(read.ok(), unread.split().freeze());
                }
                written = write(&mut writer, &self.line, self.shared), if goes_on && !self.line.is_empty() => {
                    // The other direction ends by itself, after what was said before this.
                    let Ok(count) = written else { return Ok(End::Broken) };
                    self.shared.counters.bytes.add(count as u64);
                    self.line.advance(count);
                }
            }
        }
        self.finish(&mut writer).await
    }

    async fn finish(&self, writer: &mut WriteHalf<'_>) -> Result<End, End> {
        match self.source {
            Source::Cut => Err(End::Cut),
            Source::Gone => Err(End::Broken),
            Source::Open | Source::Over => Ok(writer.shutdown().await.map_or(End::Broken, |()| End::Said)),
        }
    }

    /// From here on, what happens is what was last said.
    fn adopt(&mut self) {
        self.chaos = Arc::clone(&self.changes.borrow_and_update());
        self.came = 0;
    }

    /// Whether nothing passes for now, or ever again.
    fn is_held(&self) -> bool {
        let chaos = self.changes.borrow();
        let fate = chaos.connection(self.place.connection);
        chaos.link(self.place.direction).is_parted || matches!(fate, Fate::Held | Fate::Reset)
    }

    /// Takes what was read, if anything can be: a chunk, or an end.
    fn take(&mut self, length: Option<usize>, chunk: Bytes) {
        match length {
            Some(0) => self.source = Source::Over,
            Some(_) => {}
            None => self.source = Source::Gone,
        }
        // It may have come after a change that nobody has looked at.
        if self.changes.has_changed().unwrap_or(false) {
            self.adopt();
        }
        self.push(chunk);
    }

    /// Sends a chunk on its way, or as much of it as is to arrive.
    fn push(&mut self, mut chunk: Bytes) {
        let left = self.left();
        if left < chunk.len() as u64 {
            chunk.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            self.source = Source::Cut;
        }
        self.came += chunk.len() as u64;
        let link = self.chaos.link(self.place.direction);
        self.line.push(chunk, self.chaos.chunk(self.place), link, self.shared.elapsed());
        self.place.number += 1;
    }

    /// How many more bytes are to arrive.
    fn left(&self) -> u64 {
        match (self.place.direction, self.chaos.connection(self.place.connection)) {
            (Direction::ToClient, Fate::Cut { after }) => after.saturating_sub(self.came),
            _ => u64::MAX,
        }
    }
}

/// Writes some of what is due next, when it is.
async fn write(writer: &mut WriteHalf<'_>, line: &Line<Bytes>, shared: &Shared) -> io::Result<usize> {
    let Some((due, chunk)) = line.next() else { return Ok(0) };
    shared.until(due).await;
    match writer.write(chunk).await? {
        0 if !chunk.is_empty() => Err(io::ErrorKind::WriteZero.into()),
        count => Ok(count),
    }
}
