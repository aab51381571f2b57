//! Streams through the proxy, over real sockets.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod common;

use common::{eventually, within};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::num::NonZeroU64;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};
use tollgate_chaos::{Chaos, Counts, Direction, Fate, Link, Proxy, Script, ms};

const REQUEST: &[u8] = b"request";
const REPLY: &[u8] = b"a reply of some length";

/// A server that is asked in the test itself, and a proxy in front of it.
struct Pair {
    server: TcpListener,
    proxy: Proxy,
}

impl Pair {
    async fn new(chaos: Chaos) -> Pair {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Proxy::tcp(server.local_addr().unwrap(), chaos).await.unwrap();
        Pair { server, proxy }
    }

    async fn connect(&self) -> TcpStream {
        within(TcpStream::connect(self.proxy.address())).await.unwrap()
    }

    /// Both ends of a connection.
    async fn join(&self) -> (TcpStream, TcpStream) {
        let client = self.connect().await;
        (client, within(self.server.accept()).await.unwrap().0)
    }

    /// Whether a new connection serves.
    async fn serves(&self) -> bool {
        let Ok(mut client) = within(TcpStream::connect(self.proxy.address())).await else { return false };
        let ask = async {
            // Whoever was taken for a moment and then dropped has closed, and the next one is ours.
            loop {
                let (mut accepted, _) = self.server.accept().await?;
                if accepted.read_exact(&mut [0; REQUEST.len()]).await.is_ok() {
                    break accepted.write_all(REPLY).await;
                }
            }
        };
        client.write_all(REQUEST).await.unwrap();
        let mut reply = vec![0; REPLY.len()];
        tokio::select! {
            read = within(client.read_exact(&mut reply)) => read.is_ok() && reply == REPLY,
            Err(error) = ask => panic!("{error}"),
        }
    }
}

/// Everything until the end, and how it ended.
async fn read_all(stream: &mut TcpStream) -> (Vec<u8>, io::Result<()>) {
    let mut bytes = Vec::new();
    let end = within(stream.read_to_end(&mut bytes)).await;
    (bytes, end.map(drop))
}

async fn read(stream: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    within(stream.read_exact(&mut bytes)).await.unwrap();
    bytes
}

fn is_reset(end: &io::Result<()>) -> bool {
    end.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

/// Bytes that are all over the place, so that none can be missing or in another's.
fn noise(length: u32) -> Vec<u8> {
    (0..length).flat_map(|number| number.wrapping_mul(0x9e37_79b9).to_be_bytes()).collect()
}

#[tokio::test]
async fn streams_arrive_unaltered_however_much_delays_differ() {
    let pair = Pair::new(Chaos::new(5).delay(ms(0)..ms(4))).await;
    let (mut client, mut server) = pair.join().await;
    let (there, back) = (noise(200_000), noise(100_000));
    let ((mut client_reader, mut client_writer), (mut server_reader, mut server_writer)) =
        (client.split(), server.split());
    let (mut asked, mut answered) = (vec![0; there.len()], vec![0; back.len()]);
    let all = async {
        tokio::try_join!(
            client_writer.write_all(&there),
            server_writer.write_all(&back),
            async { server_reader.read_exact(&mut asked).await.map(drop) },
            async { client_reader.read_exact(&mut answered).await.map(drop) },
        )
    };
    within(all).await.unwrap();
    assert!(asked == there && answered == back);
    let bytes = (there.len() + back.len()) as u64;
    eventually(async || pair.proxy.counts() == Counts { connections: 1, bytes, ..Counts::default() }).await;
}

#[tokio::test]
async fn a_stream_may_be_closed_one_way_and_go_on_the_other() {
    let pair = Pair::new(Chaos::new(5).delay(ms(5))).await;
    let (mut client, mut server) = pair.join().await;
    client.write_all(REQUEST).await.unwrap();
    client.shutdown().await.unwrap();
    let (asked, end) = read_all(&mut server).await;
    assert!(asked == REQUEST && end.is_ok());
    server.write_all(REPLY).await.unwrap();
    drop(server);
    let (answered, end) = read_all(&mut client).await;
    assert!(answered == REPLY && end.is_ok());
}

#[tokio::test]
async fn also_an_end_takes_its_time() {
    let pair = Pair::new(Chaos::new(5).on(Direction::ToClient, Link::new().delay(ms(50)))).await;
    let (mut client, server) = pair.join().await;
    let start = Instant::now();
    drop(server);
    assert!(read_all(&mut client).await.1.is_ok());
    assert!(start.elapsed() >= ms(50));
}

#[tokio::test]
async fn what_was_said_before_a_reset_arrives_before_it() {
    let pair = Pair::new(Chaos::new(5).delay(ms(20))).await;
    let (mut client, mut server) = pair.join().await;
    client.write_all(REQUEST).await.unwrap();
    assert!(within(server.peek(&mut [0])).await.is_ok_and(|count| count == 1));
    server.write_all(REPLY).await.unwrap();
    // It has not read what it was asked, and so its end is a reset.
    drop(server);
    let (answered, end) = read_all(&mut client).await;
    assert_eq!(answered, REPLY);
    assert!(is_reset(&end), "{end:?}");
}

#[tokio::test]
async fn a_delay_is_as_long_as_it_says_both_ways() {
    let pair = Pair::new(Chaos::new(5).delay(ms(30))).await;
    let start = Instant::now();
    assert!(pair.serves().await);
    assert!(start.elapsed() >= ms(60));
}

#[tokio::test]
async fn no_more_passes_than_the_bandwidth() {
    let rate = NonZeroU64::new(400_000).unwrap();
    let pair = Pair::new(Chaos::new(5).on(Direction::ToServer, Link::new().bytes_per_second(rate))).await;
    let (mut client, mut server) = pair.join().await;
    let (sent, start, mut buffer) = (noise(25_000), Instant::now(), vec![0; 4_096]);
    client.write_all(&sent).await.unwrap();
    let mut arrived: Vec<u8> = Vec::new();
    while arrived.len() < sent.len() {
        let count = within(server.read(&mut buffer)).await.unwrap();
        arrived.extend(buffer.iter().take(count));
        assert!(arrived.len() as f64 <= start.elapsed().as_secs_f64() * 400_000.0, "{} bytes", arrived.len());
    }
    assert!(arrived == sent);
}

#[tokio::test]
async fn whoever_sends_more_than_is_taken_waits() {
    const MEBIBYTE: usize = 1 << 20;
    let pair = Pair::new(Chaos::new(5)).await;
    let (mut client, mut server) = pair.join().await;
    let block = noise(1 << 18);
    let mut sent = 0;
    // What the proxy and four buffers of the system hold, and no more.
    while let Ok(written) = timeout(ms(500), client.write(block.get(sent % MEBIBYTE..).unwrap())).await {
        sent += written.unwrap();
        assert!(sent < 64 * MEBIBYTE, "nobody waits");
    }
    drop(client);
    let (arrived, _) = read_all(&mut server).await;
    assert_eq!(arrived.len(), sent);
    assert!(arrived.chunks(MEBIBYTE).all(|chunk| block.starts_with(chunk)));
}

/// What a client sees. Who is reset as soon as it has connected may see that it has not.
async fn observed(connected: io::Result<TcpStream>) -> Fate {
    let Ok(mut client) = connected else { return Fate::Reset };
    let _ = client.write_all(REQUEST).await;
    match read_all(&mut client).await {
        (bytes, Ok(())) if bytes == REPLY => Fate::Serves,
        (bytes, end) if bytes.is_empty() && is_reset(&end) => Fate::Reset,
        (bytes, _) if REPLY.starts_with(&bytes) => Fate::Cut { after: bytes.len() as u64 },
        other => panic!("{other:?}"),
    }
}

/// Answers everybody once, each on its own: those that are held hold up nobody.
async fn serve(server: TcpListener) {
    while let Ok((mut stream, _)) = server.accept().await {
        tokio::spawn(async move {
            if stream.read_exact(&mut [0; REQUEST.len()]).await.is_ok() {
                let _ = stream.write_all(REPLY).await;
            }
        });
    }
}

#[tokio::test]
async fn each_connection_meets_the_fate_that_the_seed_has_for_its_number() {
    let chaos = Chaos::new(21).reset(0.2).hold(0.2).lose_replies(0.2).cut(0.2, 1..20);
    let Pair { server, proxy } = Pair::new(chaos.clone()).await;
    tokio::spawn(serve(server));
    let fates: Vec<Fate> = (0..100).map(|number| chaos.connection(number)).collect();
    let mut held = Vec::new();
    for expected in &fates {
        let connected = within(TcpStream::connect(proxy.address())).await;
        if *expected == Fate::Held {
            let mut client = connected.unwrap();
            client.write_all(REQUEST).await.unwrap();
            held.push(client);
        } else {
            assert_eq!(observed(connected).await, *expected, "connection {}", proxy.counts().connections);
        }
    }
    assert!(held.iter().all(|client| client.try_read(&mut [0]).is_err()));
    let count = |is_meant: fn(&Fate) -> bool| fates.iter().filter(|fate| is_meant(fate)).count() as u64;
    let Counts { connections, reset, cut, .. } = proxy.counts();
    assert_eq!((connections, reset), (100, count(|fate| *fate == Fate::Reset)));
    assert_eq!(cut, count(|fate| matches!(fate, Fate::Cut { .. })));
    // Nothing was lost that was held.
    proxy.set(Chaos::new(21));
    for client in &mut held {
        assert_eq!(read_all(client).await.0, REPLY);
    }
}

#[tokio::test]
async fn a_reply_that_is_lost_is_to_a_request_that_was_received() {
    let pair = Pair::new(Chaos::new(5)).await;
    let (mut client, mut server) = pair.join().await;
    server.write_all(b"a reply before").await.unwrap();
    read(&mut client, 14).await;
    // Also on a connection that there is already.
    pair.proxy.set(Chaos::new(5).lose_replies(1.0));
    client.write_all(REQUEST).await.unwrap();
    assert_eq!(read(&mut server, REQUEST.len()).await, REQUEST);
    assert_eq!(pair.proxy.counts().cut, 0, "it ends when the server answers");
    server.write_all(REPLY).await.unwrap();
    assert_eq!(read_all(&mut client).await.0, b"");
    assert_eq!(pair.proxy.counts().cut, 1);
}

#[tokio::test]
async fn bytes_until_a_cut_are_counted_from_when_it_was_asked_for() {
    let pair = Pair::new(Chaos::new(5)).await;
    let (mut client, mut server) = pair.join().await;
    for _ in 0..3 {
        server.write_all(REPLY).await.unwrap();
        assert_eq!(read(&mut client, REPLY.len()).await, REPLY);
    }
    pair.proxy.set(Chaos::new(5).cut(1.0, 7..8));
    server.write_all(REPLY).await.unwrap();
    assert_eq!(read_all(&mut client).await.0, b"a reply");
}

#[tokio::test]
async fn a_server_that_is_down_resets_what_there_is_and_refuses_what_comes() {
    let pair = Pair::new(Chaos::new(5)).await;
    for round in 1..=3 {
        let (mut client, _server) = pair.join().await;
        pair.proxy.set(Chaos::new(5).down());
        let (bytes, end) = read_all(&mut client).await;
        assert!(bytes.is_empty() && is_reset(&end), "{end:?}");
        eventually(async || refuses(pair.proxy.address()).await).await;
        assert!(pair.proxy.counts().reset >= round);
        pair.proxy.set(Chaos::new(5));
        eventually(async || pair.serves().await).await;
    }
}

async fn refuses(address: SocketAddr) -> bool {
    let connected = within(TcpStream::connect(address)).await;
    connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

#[tokio::test]
async fn while_new_connections_are_refused_old_ones_go_on() {
    let pair = Pair::new(Chaos::new(5)).await;
    let (mut client, mut server) = pair.join().await;
    pair.proxy.set(Chaos::new(5).refuse());
    eventually(async || refuses(pair.proxy.address()).await).await;
    client.write_all(REQUEST).await.unwrap();
    assert_eq!(read(&mut server, REQUEST.len()).await, REQUEST);
}

#[tokio::test]
async fn connections_that_hang_are_two_and_those_after_them_are_not_even_made() {
    let pair = Pair::new(Chaos::new(5).hang()).await;
    let mut hanging = [pair.connect().await, pair.connect().await];
    for client in &mut hanging {
        client.write_all(REQUEST).await.unwrap();
    }
    assert!(timeout(ms(300), TcpStream::connect(pair.proxy.address())).await.is_err());
    assert_eq!(pair.proxy.counts(), Counts::default());
    pair.proxy.set(Chaos::new(5));
    for client in &mut hanging {
        let (bytes, end) = read_all(client).await;
        assert!(bytes.is_empty() && is_reset(&end), "{end:?}");
    }
    assert!(pair.serves().await);
}

#[tokio::test]
async fn a_connection_to_nobody_is_reset() {
    let pair = Pair::new(Chaos::new(5)).await;
    let Pair { server, proxy } = pair;
    drop(server);
    let mut client = within(TcpStream::connect(proxy.address())).await.unwrap();
    assert!(is_reset(&read_all(&mut client).await.1));
    assert_eq!(proxy.counts(), Counts { connections: 1, ..Counts::default() });
}

#[tokio::test]
async fn a_stream_waits_for_the_end_of_a_partition_and_loses_nothing() {
    let pair = Pair::new(Chaos::new(5)).await;
    let (mut client, mut server) = pair.join().await;
    pair.proxy.set(Chaos::new(5).on(Direction::ToClient, Link::new().partition()));
    server.write_all(REPLY).await.unwrap();
    client.write_all(REQUEST).await.unwrap();
    // The other way goes on.
    assert_eq!(read(&mut server, REQUEST.len()).await, REQUEST);
    assert_eq!(pair.proxy.counts().bytes, REQUEST.len() as u64);
    assert_eq!(client.try_read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    pair.proxy.set(Chaos::new(5));
    assert_eq!(read(&mut client, REPLY.len()).await, REPLY);
}

#[tokio::test]
async fn a_server_sees_that_its_client_is_gone() {
    let pair = Pair::new(Chaos::new(5)).await;
    let (client, mut server) = pair.join().await;
    client.set_zero_linger().unwrap();
    drop(client);
    assert_eq!(read_all(&mut server).await.0, b"");
}

#[tokio::test]
async fn a_script_that_is_repeated_resets_over_and_over_again() {
    let pair = Pair::new(Chaos::new(5)).await;
    pair.proxy.play(Script::new().then(ms(30), Chaos::new(5).down()).then(ms(30), Chaos::new(5)).repeated());
    for round in 1..=4 {
        let mut client = None;
        eventually(async || {
            client = TcpStream::connect(pair.proxy.address()).await.ok();
            client.is_some()
        })
        .await;
        assert!(is_reset(&read_all(&mut client.unwrap()).await.1), "round {round}");
    }
}

#[tokio::test]
async fn a_script_begins_at_once_and_is_over_when_something_else_is_set() {
    let pair = Pair::new(Chaos::new(5)).await;
    let (mut client, mut server) = pair.join().await;
    let stalled = Chaos::new(5).stall();
    pair.proxy.play(Script::new().then(ms(1_000), stalled.clone()).then(ms(1_000), Chaos::new(5).down()));
    client.write_all(REQUEST).await.unwrap();
    tokio::time::pause();
    tokio::time::sleep(ms(900)).await;
    assert_eq!(
        pair.proxy.counts(),
        Counts { connections: 1, ..Counts::default() },
        "nothing passes from the beginning"
    );
    pair.proxy.set(Chaos::new(5));
    tokio::time::sleep(ms(5_000)).await;
    tokio::time::resume();
    assert_eq!(read(&mut server, REQUEST.len()).await, REQUEST);
    assert!(pair.serves().await);
    assert_eq!(pair.proxy.counts().reset, 0);
}

#[tokio::test]
async fn a_proxy_that_is_dropped_leaves_nothing_behind() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let pair = Pair::new(Chaos::new(5).delay(ms(60_000))).await;
    let (mut client, mut server) = pair.join().await;
    client.write_all(REQUEST).await.unwrap();
    pair.proxy.play(Script::new().then(ms(60_000), Chaos::new(5).stall()).repeated());
    let (mut held, _held_server) = pair.join().await;
    let address = pair.proxy.address();
    drop(pair);
    for stream in [&mut client, &mut server, &mut held] {
        assert_eq!(read_all(stream).await.0, b"");
    }
    eventually(async || tasks() == before).await;
    assert!(refuses(address).await);
    assert!(TcpListener::bind(address).await.is_ok());
}
