//! Datagrams: takes them from clients and from the server, and sends them on when they are due.

use crate::chaos::Direction;
use crate::fate::Place;
use crate::line::{Line, Overtaking};
use crate::proxy::{Shared, loopback};
use bytes::Bytes;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// More than fits into a datagram.
const LONGEST: usize = 65_536;

/// Hands on datagrams for as long as there is a proxy. A test has a handful of clients, so that none is forgotten.
pub(crate) async fn serve(socket: UdpSocket, shared: Arc<Shared>) {
    let socket = Arc::new(socket);
    let mut tasks = JoinSet::new();
    let mut clients: HashMap<SocketAddr, mpsc::UnboundedSender<Bytes>> = HashMap::new();
    let mut datagram = vec![0; LONGEST];
    loop {
        let Ok((length, client)) = socket.recv_from(&mut datagram).await else { continue };
        let number = clients.len() as u64;
        let sender = match clients.get(&client) {
            Some(sender) => sender,
            None => match welcome(client, number, &socket, &shared, &mut tasks).await {
                Ok(sender) => clients.entry(client).or_insert(sender),
                Err(_) => continue,
            },
        };
        // Nobody stops receiving before all of this ends.
        let _ = sender.send(copy(&datagram, length));
    }
}

fn copy(datagram: &[u8], length: usize) -> Bytes {
    Bytes::copy_from_slice(datagram.get(..length).unwrap_or_default())
}

/// Gives a client an address that the server sees it at, and a line each way.
async fn welcome(
    client: SocketAddr,
    number: u64,
    near: &Arc<UdpSocket>,
    shared: &Arc<Shared>,
    tasks: &mut JoinSet<()>,
) -> io::Result<mpsc::UnboundedSender<Bytes>> {
    let far = Arc::new(UdpSocket::bind((loopback(shared.target), 0)).await?);
    let (to_server, requests) = mpsc::unbounded_channel();
    let (to_client, replies) = mpsc::unbounded_channel();
    let lane = |direction, socket: &Arc<UdpSocket>, to| Lane {
        place: Place { connection: number, direction, number: 0 },
        shared: Arc::clone(shared),
        socket: Arc::clone(socket),
        to,
        line: Line::new(),
        overtaking: Overtaking::new(),
    };
    tasks.spawn(lane(Direction::ToServer, &far, shared.target).run(requests));
    tasks.spawn(lane(Direction::ToClient, near, client).run(replies));
    tasks.spawn(listen(far, shared.target, to_client));
    Ok(to_server)
}

/// Takes what the server answers, and nobody else's datagrams.
async fn listen(socket: Arc<UdpSocket>, server: SocketAddr, replies: mpsc::UnboundedSender<Bytes>) {
    let mut datagram = vec![0; LONGEST];
    loop {
        match socket.recv_from(&mut datagram).await {
            Ok((length, from)) if from == server => {
                let _ = replies.send(copy(&datagram, length));
            }
            _ => {}
        }
    }
}

/// One direction of what a client and the server say.
struct Lane {
    /// The next datagram.
    place: Place,
    shared: Arc<Shared>,
    socket: Arc<UdpSocket>,
    to: SocketAddr,
    line: Line<Bytes>,
    overtaking: Overtaking<Bytes>,
}

impl Lane {
    async fn run(mut self, mut arrivals: mpsc::UnboundedReceiver<Bytes>) {
        loop {
            let next =
                [self.line.next().map(|(due, _)| due), self.overtaking.next_expiry()].into_iter().flatten().min();
            tokio::select! {
                arrived = arrivals.recv() => match arrived {
                    Some(datagram) => self.take(&datagram),
                    None => return,
                },
                () = self.shared.until(next.unwrap_or_default()), if next.is_some() => {
                    let now = self.shared.elapsed();
                    let ready = self.overtaking.expire(now);
                    self.push(ready, now);
                    self.send(now).await;
                }
            }
        }
    }

    /// Decides what becomes of a datagram.
    fn take(&mut self, datagram: &Bytes) {
        let passages = self.shared.chaos.borrow().datagram(self.place);
        self.place.number += 1;
        let counters = &self.shared.counters;
        counters.datagrams.add(1);
        if self.line.is_full() || passages.is_empty() {
            return counters.lost.add(1);
        }
        counters.duplicated.add(passages.len() as u64 - 1);
        counters.reordered.add(passages.iter().filter(|passage| passage.overtaken_by > 0).count() as u64);
        let now = self.shared.elapsed();
        let ready = self.overtaking.pass(datagram, &passages, now);
        self.push(ready, now);
    }

    fn push(&mut self, ready: Vec<(Duration, Bytes)>, now: Duration) {
        let chaos = Arc::clone(&self.shared.chaos.borrow());
        for (delay, datagram) in ready {
            self.line.push(datagram, delay, chaos.link(self.place.direction), now);
        }
    }

    /// Sends all that is due. What the socket does not take is lost, as anywhere.
    async fn send(&mut self, now: Duration) {
        while self.line.next().is_some_and(|(due, _)| due <= now) {
            if let Some(datagram) = self.line.pop() {
                let _ = self.socket.send_to(&datagram, self.to).await;
            }
        }
    }
}
