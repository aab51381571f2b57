//! Messages that are none: the right error, and nothing taken.

use crate::messages::rls::{Override, RateLimitRequest};
use crate::rls::descriptor;
use crate::server::{SHOULD_RATE_LIMIT, Server};
use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, Request, StatusCode};
use prost::Message;
use std::sync::atomic::Ordering;
use tokio::net::TcpStream;

const RULES: &str = "
namespace: shop
rules: [{ name: logins, match: { op: login }, key: [], limits: [1000000 per hour] }]
";

/// A connection that sends whatever it is told to.
pub(crate) async fn connect(server: &Server) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(server.address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(async move {
        let _ = connection.await;
    });
    client
}

/// What came of a call: the status of HTTP, that of gRPC, and how many bytes of messages.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    http: StatusCode,
    grpc: Option<u16>,
    bytes: usize,
    headers: HeaderMap,
}

fn request(path: &str, headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::post(format!("http://tollgate{path}")).header("te", "trailers");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap()
}

const GRPC: (&str, &str) = ("content-type", "application/grpc");

async fn send(client: &SendRequest<Bytes>, request: Request<()>, pieces: Vec<Bytes>) -> Outcome {
    let mut client = client.clone().ready().await.unwrap();
    let (response, mut body) = client.send_request(request, pieces.is_empty()).unwrap();
    let count = pieces.len();
    for (index, piece) in pieces.into_iter().enumerate() {
        // Whoever was refused before the end need not hear it.
        let _ = body.send_data(piece, index + 1 == count);
    }
    let (head, mut body) = response.await.unwrap().into_parts();
    let mut bytes = 0;
    while let Some(Ok(data)) = body.data().await {
        bytes += data.len();
        body.flow_control().release_capacity(data.len()).unwrap();
    }
    let trailers = body.trailers().await.ok().flatten().unwrap_or_default();
    let status = |headers: &HeaderMap| headers.get("grpc-status")?.to_str().ok()?.parse().ok();
    let grpc = status(&head.headers).or_else(|| status(&trailers));
    Outcome { http: head.status, grpc, bytes, headers: head.headers }
}

fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0][..], &length, message].concat().into()
}

async fn ask(client: &SendRequest<Bytes>, message: &[u8]) -> Option<u16> {
    send(client, request(SHOULD_RATE_LIMIT, &[GRPC]), vec![framed(message)]).await.grpc
}

fn valid() -> Vec<u8> {
    let mut login = descriptor(&[("op", "login"), ("ip", "192.0.2.1")]);
    login.hits_addend = Some(300);
    let mut own = descriptor(&[("user", "älice")]);
    own.limit = Some(Override { requests_per_unit: 70_000, unit: 3 });
    RateLimitRequest { domain: "shop".to_owned(), descriptors: vec![login, own], hits_addend: 200 }.encode_to_vec()
}

#[tokio::test]
async fn messages_cut_or_changed_at_any_byte_are_errors_exactly_where_they_are_none() {
    let server = Server::start(RULES).await;
    let client = connect(&server).await;
    let valid = valid();
    let cut = (0..valid.len()).map(|length| valid[..length].to_vec());
    let changed = (0..valid.len()).flat_map(|at| {
        [0x00, 0x03, 0x0b, 0x7f, 0x80, 0xff].map(|byte| {
            let mut bytes = valid.clone();
            bytes[at] = byte;
            bytes
        })
    });
    let (mut answered, mut refused) = (0, 0);
    for bytes in cut.chain(changed) {
        let status = ask(&client, &bytes).await;
        let is_message = RateLimitRequest::decode(&bytes[..]).is_ok();
        match status {
            Some(0) => answered += 1,
            Some(3) => refused += 1,
            other => panic!("{other:?} for {bytes:02x?}"),
        }
        assert!(is_message || status == Some(3), "{bytes:02x?}");
    }
    assert!(answered > 20 && refused > 100, "{answered} {refused}");
    assert_eq!(ask(&client, &valid).await, Some(0));
}

#[tokio::test]
async fn lengths_that_promise_too_much_types_that_are_wrong_and_depths_are_refused() {
    let server = Server::start(RULES).await;
    let client = connect(&server).await;
    let deep = (0..20_000).fold(Vec::new(), |mut groups, _| {
        groups.push(0x2b);
        groups
    });
    let nested = (0..200).fold(vec![0x08, 1], |inner, _| {
        let mut outer = vec![0x12, 0x80 | (inner.len() % 128) as u8, (inner.len() / 128) as u8];
        outer.extend(inner);
        outer
    });
    let cases: [&[u8]; 9] = [
        &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f],
        &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        &[0x12, 0xff, 0xff, 0xff, 0x7f, 0x0a],
        &[0x08, 1],
        &[0x10, 1],
        &[0x1a, 1, 1],
        &[0x0a, 2, 0xc3, 0x28],
        &deep,
        &nested,
    ];
    for bytes in cases {
        assert_eq!(ask(&client, bytes).await, Some(3), "{:02x?}", &bytes[..bytes.len().min(16)]);
    }
    // What is not known is skipped, as newer clients may send more.
    let mut more = valid();
    more.extend([0x98, 0x06, 1, 0x9d, 0x06, 1, 2, 3, 4, 0x99, 0x06, 1, 2, 3, 4, 5, 6, 7, 8, 0x9a, 0x06, 1, 7]);
    assert_eq!(ask(&client, &more).await, Some(0));
}

#[tokio::test]
async fn frames_that_are_none_are_refused_before_they_are_gathered() {
    let server = Server::start(RULES).await;
    let client = connect(&server).await;
    let rls = || request(SHOULD_RATE_LIMIT, &[GRPC]);
    let promise = |length: u32| Bytes::from([&[0][..], &length.to_be_bytes()].concat());
    let compressed = Bytes::from([&[1][..], &framed(&valid())[1..]].concat());
    let cases: Vec<(&str, Vec<Bytes>, Option<u16>)> = vec![
        ("nothing", vec![], Some(3)),
        ("half a prefix", vec![Bytes::from_static(&[0, 0])], Some(3)),
        ("less than promised", vec![promise(10)], Some(3)),
        ("a promise of gigabytes", vec![promise(u32::MAX), Bytes::from_static(b"x")], Some(8)),
        ("two messages", vec![framed(&valid()), framed(&valid())], Some(3)),
        ("compressed", vec![compressed], Some(12)),
        ("byte by byte", framed(&valid()).iter().map(|byte| Bytes::from(vec![*byte])).collect(), Some(0)),
    ];
    for (what, pieces, status) in cases {
        assert_eq!(send(&client, rls(), pieces).await.grpc, status, "{what}");
    }
    assert_eq!(ask(&client, &valid()).await, Some(0));
}

#[tokio::test]
async fn what_is_no_call_is_told_so_by_http_and_what_is_unknown_by_grpc() {
    let server = Server::start(RULES).await;
    let client = connect(&server).await;
    let body = || vec![framed(&valid())];
    let json = send(&client, request(SHOULD_RATE_LIMIT, &[("content-type", "application/json")]), body()).await;
    assert_eq!((json.http, json.grpc), (StatusCode::UNSUPPORTED_MEDIA_TYPE, None));
    let get = Request::get(format!("http://tollgate{SHOULD_RATE_LIMIT}")).body(()).unwrap();
    assert_eq!(send(&client, get, vec![]).await.http, StatusCode::METHOD_NOT_ALLOWED);
    for path in ["/", "/nothing", "/tollgate.v1.Tollgate/Nothing", "/grpc.health.v1.Health/Check/", "/a/b/c"] {
        let unknown = send(&client, request(path, &[GRPC]), body()).await;
        assert_eq!((unknown.http, unknown.grpc), (StatusCode::OK, Some(12)), "{path}");
    }
    let zipped = send(&client, request(SHOULD_RATE_LIMIT, &[GRPC, ("grpc-encoding", "gzip")]), body()).await;
    assert_eq!(zipped.grpc, Some(12));
    assert_eq!(zipped.headers["grpc-accept-encoding"], "identity");
    for kind in ["application/grpc+proto", "application/grpc;charset=utf-8"] {
        let headers = [("content-type", kind), ("grpc-encoding", "identity")];
        assert_eq!(send(&client, request(SHOULD_RATE_LIMIT, &headers), body()).await.grpc, Some(0), "{kind}");
    }
    let faults = server.meter().faults();
    assert_eq!(faults["unknown"], 6);
    assert_eq!(server.meter().questions.load(Ordering::Relaxed), 8);
}
