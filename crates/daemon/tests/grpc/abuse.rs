//! Peers that abuse HTTP/2: they are refused or closed, and everybody else is served.

use crate::messages::native::{Answer, CheckRequest};
use crate::server::{Server, state};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tollgate_daemon::grpc::GrpcServer;
use tollgate_daemon::listen::{FrontEnd, Peer, Stop, Stopper};
use tollgate_daemon::meters::Protocol;

const RULES: &str = "
namespace: shop
rules: [{ name: all, key: [], limits: [1000000 per hour] }]
";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The headers of a call, none of them remembered by the other side.
fn headers() -> Vec<u8> {
    let mut block = vec![0x83, 0x86];
    for (name, value) in [
        (&b":path"[..], &b"/tollgate.v1.Tollgate/Check"[..]),
        (b":authority", b"tollgate"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
    ] {
        block.extend(literal(name, value));
    }
    block
}

fn literal(name: &[u8], value: &[u8]) -> Vec<u8> {
    let text = |text: &[u8]| [&[u8::try_from(text.len()).unwrap()][..], text].concat();
    [&[0][..], &text(name), &text(value)].concat()
}

fn opening(settings: &[u8]) -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frame(SETTINGS, 0, 0, settings)[..]].concat()
}

/// Sends bytes until the other side has enough of them, and says why it closed: the code of its farewell, if there was
/// one.
async fn until_closed(server: &Server, opening: Vec<u8>, more: impl Fn(u32) -> Vec<u8>) -> Option<u32> {
    let (mut reader, mut writer) = TcpStream::connect(server.address).await.unwrap().into_split();
    let reading = tokio::spawn(async move {
        let mut received = Vec::new();
        // A connection that is reset has been closed, too.
        let _ = reader.read_to_end(&mut received).await;
        received
    });
    writer.write_all(&opening).await.unwrap();
    for number in 0..200_000 {
        if writer.write_all(&more(number)).await.is_err() || reading.is_finished() {
            break;
        }
    }
    let received = timeout(Duration::from_secs(30), reading).await.unwrap().unwrap();
    farewell(&received)
}

/// What the other side said when it closed.
fn farewell(bytes: &[u8]) -> Option<u32> {
    let payload = frames(bytes).filter(|(kind, _)| *kind == GOAWAY).last()?.1;
    payload.get(4..8).map(|code| u32::from_be_bytes(code.try_into().unwrap()))
}

/// The kinds and the contents of all frames that have come as a whole.
fn frames(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let ([a, b, c, kind, ..], rest) = bytes.split_first_chunk::<9>()?;
        let (payload, rest) = rest.split_at_checked(u32::from_be_bytes([0, *a, *b, *c]) as usize)?;
        bytes = rest;
        Some((*kind, payload))
    })
}

const REFUSED_STREAM: [u8; 4] = 7_u32.to_be_bytes();
const PROTOCOL_ERROR: u32 = 1;
const ENHANCE_YOUR_CALM: u32 = 11;

async fn serves_others(server: &Server) {
    let request = CheckRequest { namespace: "shop".to_owned(), ..CheckRequest::default() };
    let answer: Answer = server.client().await.call("/tollgate.v1.Tollgate/Check", request).await.unwrap();
    assert!(answer.allowed);
}

#[tokio::test]
async fn n1_calls_taken_back_at_once_end_the_connection() {
    let server = Server::start(RULES).await;
    let call = |number: u32| {
        let stream = 2 * number + 1;
        let taken_back = frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes());
        [frame(HEADERS, END_HEADERS, stream, &headers()), taken_back].concat()
    };
    assert_eq!(until_closed(&server, opening(&[]), call).await, Some(ENHANCE_YOUR_CALM));
    serves_others(&server).await;
}

#[tokio::test]
async fn n1_headers_without_end_close_the_connection() {
    let server = Server::start(RULES).await;
    let begun = [opening(&[]), frame(HEADERS, 0, 1, &headers())].concat();
    for more in [vec![], literal(b"x", &[b'x'; 100])] {
        let code = until_closed(&server, begun.clone(), |_| frame(CONTINUATION, 0, 1, &more)).await;
        assert_eq!(code, Some(ENHANCE_YOUR_CALM), "{} bytes", more.len());
    }
    serves_others(&server).await;
}

#[tokio::test]
async fn headers_that_are_too_large_are_refused_and_the_rest_of_the_connection_goes_on() {
    let server = Server::start(RULES).await;
    let client = crate::malformed::connect(&server).await;
    let mut client = client.ready().await.unwrap();
    let mut request = http::Request::post("http://tollgate/tollgate.v1.Tollgate/Check");
    for number in 0..40 {
        request = request.header(format!("x-{number}"), "x".repeat(500));
    }
    let (response, _) = client.send_request(request.body(()).unwrap(), true).unwrap();
    assert_eq!(response.await.unwrap().status(), http::StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    let small = http::Request::get("http://tollgate/").body(()).unwrap();
    let mut client = client.ready().await.unwrap();
    let (response, _) = client.send_request(small, true).unwrap();
    assert_eq!(response.await.unwrap().status(), http::StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn what_is_no_http2_is_closed() {
    let server = Server::start(RULES).await;
    let garbage = |_| b"GET / HTTP/1.1\r\nhost: tollgate\r\n\r\n".to_vec();
    until_closed(&server, b"GET / HTTP/1.1\r\nhost: tollgate\r\n\r\n".to_vec(), garbage).await;
    let data_of_nobody = |_| frame(DATA, 0, 1, b"x");
    assert_eq!(until_closed(&server, opening(&[]), data_of_nobody).await, Some(PROTOCOL_ERROR));
    serves_others(&server).await;
}

#[tokio::test]
async fn calls_beyond_the_most_are_refused_and_those_before_are_not() {
    let server = Server::start(RULES).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let call = |number: u32| frame(HEADERS, END_HEADERS, 2 * number + 1, &headers());
    let begun: Vec<u8> = (0..300).flat_map(call).collect();
    let message = frame(DATA, END_STREAM, 1, &[0, 0, 0, 0, 6, 0x0a, 4, b's', b'h', b'o', b'p']);
    stream.write_all(&[opening(&[]), begun, message].concat()).await.unwrap();
    let (mut received, mut refused) = (Vec::new(), 0);
    // The first one is answered, by headers, a message and trailers.
    while frames(&received).filter(|(kind, _)| *kind == DATA).count() == 0 {
        assert!(stream.read_buf(&mut received).await.unwrap() > 0);
        refused = frames(&received).filter(|(kind, code)| *kind == RST_STREAM && code[..] == REFUSED_STREAM).count();
    }
    assert_eq!(refused, 300 - 256);
}

/// A connection in memory, on virtual time.
struct Virtual {
    stream: DuplexStream,
    serving: JoinHandle<()>,
    _stopper: Stopper,
}

fn virtually() -> Virtual {
    let (stream, there) = duplex(1024 * 1024);
    let (state, _) = state(RULES, &[]);
    let (stopper, stop) = Stop::new();
    let server = Arc::new(GrpcServer::new(state, Duration::from_secs(60)));
    let serving = tokio::spawn(async move {
        server.serve(there, Peer { address: None, is_trusted: true }, stop).await;
    });
    Virtual { stream, serving, _stopper: stopper }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_does_not_come_is_not_waited_for() {
    let Virtual { stream, serving, _stopper } = virtually();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    let driving = tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let request = http::Request::post("http://tollgate/tollgate.v1.Tollgate/Check");
    let request = request.header("content-type", "application/grpc").body(()).unwrap();
    let (response, mut body) = client.send_request(request, false).unwrap();
    body.send_data(Bytes::from_static(&[0, 0, 0, 0, 6, 0x0a, 4, b's', b'h', b'o', b'p']), false).unwrap();
    let began = tokio::time::Instant::now();
    let response = response.await.unwrap();
    assert_eq!(response.headers()["grpc-status"], "4");
    assert_eq!(began.elapsed().as_secs(), 10);
    drop((body, client, response));
    driving.await.unwrap().unwrap();
    serving.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_is_closed_in_time() {
    let begun = [&opening(&[])[..], &frame(HEADERS, 0, 1, &headers())[..20]].concat();
    // Nothing at all; half of an opening; an opening; and half of a call.
    let cases: [(Vec<u8>, u64); 4] = [(vec![], 5), (b"PRI * HT".to_vec(), 5), (opening(&[]), 70), (begun, 70)];
    for (bytes, seconds) in cases {
        let Virtual { mut stream, serving, _stopper } = virtually();
        stream.write_all(&bytes).await.unwrap();
        let began = tokio::time::Instant::now();
        serving.await.unwrap();
        assert!(began.elapsed().as_secs() <= seconds, "{bytes:02x?}: {:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn answers_that_nobody_takes_are_not_kept_for_ever() {
    let Virtual { mut stream, serving, _stopper } = virtually();
    // No window at all, so no message can be sent.
    stream.write_all(&opening(&[0, 4, 0, 0, 0, 0])).await.unwrap();
    for number in 0..300 {
        let stream_id = 2 * number + 1;
        stream.write_all(&frame(HEADERS, END_HEADERS, stream_id, &headers())).await.unwrap();
        let message = [0, 0, 0, 0, 6, 0x0a, 4, b's', b'h', b'o', b'p'];
        stream.write_all(&frame(DATA, END_STREAM, stream_id, &message)).await.unwrap();
    }
    let began = tokio::time::Instant::now();
    serving.await.unwrap();
    assert!(began.elapsed().as_secs() <= 130, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn who_only_listens_is_asked_whether_it_is_still_there() {
    let Virtual { mut stream, serving, _stopper } = virtually();
    let mut watch = vec![0x83, 0x86];
    for (name, value) in [
        (&b":path"[..], &b"/grpc.health.v1.Health/Watch"[..]),
        (b":authority", b"tollgate"),
        (b"content-type", b"application/grpc"),
    ] {
        watch.extend(literal(name, value));
    }
    stream.write_all(&opening(&[])).await.unwrap();
    stream.write_all(&frame(HEADERS, END_HEADERS, 1, &watch)).await.unwrap();
    stream.write_all(&frame(DATA, END_STREAM, 1, &[0; 5])).await.unwrap();
    // It reads, but answers nothing.
    let began = tokio::time::Instant::now();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).await.unwrap();
    serving.await.unwrap();
    assert!((120..190).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    assert!(frames(&received).any(|(kind, _)| kind == PING));
}

#[tokio::test]
async fn h4_a_call_in_flight_is_answered_when_the_daemon_ends() {
    let server = Server::start(RULES).await;
    let client = crate::malformed::connect(&server).await;
    let mut client = client.ready().await.unwrap();
    let request = http::Request::post("http://tollgate/tollgate.v1.Tollgate/Check");
    let request = request.header("content-type", "application/grpc").body(()).unwrap();
    let (response, mut body) = client.send_request(request, false).unwrap();
    body.send_data(Bytes::from_static(&[0, 0, 0, 0, 6]), false).unwrap();
    // The connection is known to have got so far when a second call is answered.
    let mut second = client.clone().ready().await.unwrap();
    let probe = http::Request::get("http://tollgate/").body(()).unwrap();
    second.send_request(probe, true).unwrap().0.await.unwrap();
    server.stopper.stop();
    body.send_data(Bytes::from_static(&[0x0a, 4, b's', b'h', b'o', b'p']), true).unwrap();
    let mut body = response.await.unwrap().into_body();
    assert!(body.data().await.unwrap().is_ok());
    let trailers = body.trailers().await.unwrap().unwrap();
    assert_eq!(trailers["grpc-status"], "0");
    server.running.await.unwrap();
}

#[tokio::test]
async fn h4_under_load_every_question_that_was_counted_is_answered_when_the_daemon_ends() {
    let server = Server::start(RULES).await;
    let client = crate::malformed::connect(&server).await;
    let mut answered = 0;
    // Until the connection takes no more calls, which it says after the stop in the midst of them.
    while let Ok(mut client) = client.clone().ready().await {
        let calls: Vec<_> = (0..64).map_while(|_| send_check(&mut client)).collect();
        if answered > 1000 {
            server.stopper.stop();
        }
        for call in calls {
            match call.await {
                Ok(response) => {
                    let mut body = response.into_body();
                    assert!(body.data().await.unwrap().is_ok());
                    assert_eq!(body.trailers().await.unwrap().unwrap()["grpc-status"], "0");
                    answered += 1;
                }
                // It came too late, and can be asked elsewhere.
                Err(error) => assert!(error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR), "{error}"),
            }
        }
    }
    server.running.await.unwrap();
    assert!(answered > 1000);
    assert_eq!(server.state.meters().of(Protocol::Grpc).questions.load(Ordering::Relaxed), answered);
}

fn send_check(client: &mut h2::client::SendRequest<Bytes>) -> Option<h2::client::ResponseFuture> {
    let request = http::Request::post("http://tollgate/tollgate.v1.Tollgate/Check");
    let request = request.header("content-type", "application/grpc").body(()).unwrap();
    let (response, mut body) = client.send_request(request, false).ok()?;
    body.send_data(Bytes::from_static(&[0, 0, 0, 0, 6, 0x0a, 4, b's', b'h', b'o', b'p']), true).ok()?;
    Some(response)
}
