//! Datagrams through the proxy, over real sockets.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod common;

use common::{eventually, within};
use std::net::SocketAddr;
use std::num::NonZeroU64;
use tokio::net::UdpSocket;
use tokio::time::Instant;
use tollgate_chaos::{Chaos, Counts, Direction, Link, Place, Proxy, Script, ms};

/// A server that says nothing unless it is told to, and a proxy in front of it.
struct Pair {
    server: UdpSocket,
    proxy: Proxy,
}

async fn socket() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").await.unwrap()
}

impl Pair {
    async fn new(chaos: Chaos) -> Pair {
        let server = socket().await;
        let proxy = Proxy::udp(server.local_addr().unwrap(), chaos).await.unwrap();
        Pair { server, proxy }
    }

    /// Sends a number from a client to the server.
    async fn send(&self, client: &UdpSocket, number: u16) {
        client.send_to(&number.to_be_bytes(), self.proxy.address()).await.unwrap();
    }

    /// Sends the numbers up to this one, each when the proxy has seen the one before, so that no buffer is too small.
    async fn send_all(&self, client: &UdpSocket, count: u16) {
        for number in 0..count {
            let seen = self.proxy.counts().datagrams;
            self.send(client, number).await;
            within(async {
                while self.proxy.counts().datagrams == seen {
                    tokio::task::yield_now().await;
                }
            })
            .await;
        }
    }
}

/// A number, and who sent it.
async fn receive(socket: &UdpSocket) -> (u16, SocketAddr) {
    let mut datagram = [0; 3];
    let (length, from) = within(socket.recv_from(&mut datagram)).await.unwrap();
    assert_eq!(length, 2, "a datagram arrives whole");
    let [high, low, _] = datagram;
    (u16::from_be_bytes([high, low]), from)
}

async fn receive_all(socket: &UdpSocket, count: usize) -> Vec<u16> {
    let mut numbers = Vec::new();
    while numbers.len() < count {
        numbers.push(receive(socket).await.0);
    }
    numbers
}

/// What is to reach the server of the numbers that the n-th client sends, in their order.
fn expected(chaos: &Chaos, connection: u64, count: u16) -> Vec<u16> {
    let place = |number: u16| Place { connection, direction: Direction::ToServer, number: number.into() };
    (0..count).flat_map(|number| chaos.datagram(place(number)).into_iter().map(move |_| number)).collect()
}

#[tokio::test]
async fn without_chaos_everything_arrives_once_and_in_order_and_answers_find_their_client() {
    let pair = Pair::new(Chaos::new(1)).await;
    let clients = [socket().await, socket().await];
    for number in 0..200 {
        for (index, client) in clients.iter().enumerate() {
            pair.send(client, number).await;
            let (arrived, from) = receive(&pair.server).await;
            assert_eq!(arrived, number);
            let answer = number * 2 + u16::try_from(index).unwrap();
            pair.server.send_to(&answer.to_be_bytes(), from).await.unwrap();
            assert_eq!(receive(client).await, (answer, pair.proxy.address()));
        }
    }
    assert_eq!(pair.proxy.counts(), Counts { datagrams: 800, ..Counts::default() });
}

#[tokio::test]
async fn what_arrives_is_what_the_seed_says_every_time() {
    let chaos = Chaos::new(11).loss(0.3).duplicate(0.2).delay(ms(0)..ms(3));
    for _ in 0..2 {
        let pair = Pair::new(chaos.clone()).await;
        for connection in 0..3 {
            let client = socket().await;
            let expected = expected(&chaos, connection, 300);
            let (arrived, ()) = tokio::join!(receive_all(&pair.server, expected.len()), pair.send_all(&client, 300));
            assert_eq!(arrived, expected, "client {connection}");
        }
    }
}

#[tokio::test]
async fn what_happens_is_counted() {
    let chaos = Chaos::new(3).loss(0.3).duplicate(0.2);
    let pair = Pair::new(chaos.clone()).await;
    let (client, expected) = (socket().await, expected(&chaos, 0, 500));
    let (arrived, ()) = tokio::join!(receive_all(&pair.server, expected.len()), pair.send_all(&client, 500));
    let mut once = arrived.clone();
    once.dedup();
    let (lost, duplicated) = (500 - once.len() as u64, (arrived.len() - once.len()) as u64);
    assert!(lost > 100 && duplicated > 40, "{lost} {duplicated}");
    assert_eq!(pair.proxy.counts(), Counts { datagrams: 500, lost, duplicated, ..Counts::default() });
}

#[tokio::test]
async fn some_are_overtaken_by_a_few_and_none_is_made_up_or_forgotten() {
    let pair = Pair::new(Chaos::new(8).reorder(0.3)).await;
    let client = socket().await;
    let (arrived, ()) = tokio::join!(receive_all(&pair.server, 500), pair.send_all(&client, 500));
    let overtaken_by = |index: usize| {
        let number = arrived.get(index).unwrap();
        arrived.iter().take(index).filter(|other| *other > number).count()
    };
    let overtaken: Vec<usize> = (0..arrived.len()).map(overtaken_by).filter(|count| *count > 0).collect();
    assert!(overtaken.len() > 50 && overtaken.iter().all(|count| *count <= 3), "{overtaken:?}");
    assert!(pair.proxy.counts().reordered >= overtaken.len() as u64);
    let mut sorted = arrived;
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(0..500));
}

#[tokio::test]
async fn a_delay_keeps_the_order_and_everybody_for_as_long_as_it_says() {
    let pair = Pair::new(Chaos::new(2).delay(ms(20)..ms(60))).await;
    let (client, start) = (socket().await, Instant::now());
    let (arrived, ()) = tokio::join!(receive_all(&pair.server, 100), pair.send_all(&client, 100));
    assert!(arrived.into_iter().eq(0..100));
    assert!(start.elapsed() >= ms(20));
}

#[tokio::test]
async fn no_more_passes_than_the_bandwidth() {
    let rate = NonZeroU64::new(10_000).unwrap();
    let pair = Pair::new(Chaos::new(2).bytes_per_second(rate)).await;
    let (client, start) = (socket().await, Instant::now());
    let sending = pair.send_all(&client, 1_000);
    let receiving = async {
        for number in 0..1_000 {
            assert_eq!(receive(&pair.server).await.0, number);
            let passed = 2.0 * f64::from(number + 1);
            assert!(passed <= start.elapsed().as_secs_f64() * 10_000.0, "{number} after {:?}", start.elapsed());
        }
    };
    tokio::join!(receiving, sending);
}

#[tokio::test]
async fn a_partition_may_be_one_way_and_what_is_lost_in_it_stays_lost() {
    let pair = Pair::new(Chaos::new(1).on(Direction::ToServer, Link::new().partition())).await;
    let client = socket().await;
    pair.send_all(&client, 5).await;
    pair.proxy.set(Chaos::new(1).on(Direction::ToClient, Link::new().partition()));
    pair.send(&client, 5).await;
    // The first that arrives was sent after the partition.
    let (number, from) = receive(&pair.server).await;
    assert_eq!(number, 5);
    pair.server.send_to(&[0, 6], from).await.unwrap();
    eventually(async || pair.proxy.counts().lost == 6).await;
    pair.proxy.set(Chaos::new(1));
    pair.server.send_to(&[0, 7], from).await.unwrap();
    assert_eq!(receive(&client).await.0, 7);
    assert_eq!(pair.proxy.counts().datagrams, 8);
}

#[tokio::test]
async fn nothing_reaches_a_server_that_is_down() {
    let pair = Pair::new(Chaos::new(1).down()).await;
    let client = socket().await;
    pair.send_all(&client, 5).await;
    assert_eq!(pair.proxy.counts().lost, 5);
    pair.proxy.set(Chaos::new(1));
    pair.send(&client, 5).await;
    assert_eq!(receive(&pair.server).await.0, 5);
}

#[tokio::test]
async fn a_script_parts_and_joins_over_and_over_again() {
    let pair = Pair::new(Chaos::new(1)).await;
    let (client, mut buffer) = (socket().await, [0; 2]);
    pair.proxy.play(Script::new().then(ms(20), Chaos::new(1).stall()).then(ms(20), Chaos::new(1)).repeated());
    for _ in 0..5 {
        let lost = pair.proxy.counts().lost;
        eventually(async || {
            pair.send(&client, 1).await;
            pair.proxy.counts().lost > lost
        })
        .await;
        while pair.server.try_recv_from(&mut buffer).is_ok() {}
        eventually(async || {
            pair.send(&client, 2).await;
            pair.server.try_recv_from(&mut buffer).is_ok()
        })
        .await;
    }
}

#[tokio::test]
async fn a_proxy_that_is_dropped_leaves_nothing_behind() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let pair = Pair::new(Chaos::new(1).delay(ms(60_000)).reorder(0.5)).await;
    for _ in 0..3 {
        pair.send_all(&socket().await, 10).await;
    }
    pair.proxy.play(Script::new().then(ms(60_000), Chaos::new(1)).repeated());
    let address = pair.proxy.address();
    assert!(tasks() > before);
    drop(pair);
    eventually(async || tasks() == before).await;
    assert!(UdpSocket::bind(address).await.is_ok());
}
