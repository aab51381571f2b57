//! Our own service: `tollgate.v1`.

use crate::messages::native::{
    Answer, Attribute, CheckManyRequest, CheckManyResponse, CheckRequest, ExplainResponse, ResetResponse, SettleRequest,
};
use crate::server::{Client, Server};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::tokio_stream;
use tonic::{Code, Request};
use tonic_prost::ProstCodec;

const RULES: &str = "
namespace: shop
rules:
  - { name: logins, match: { op: login }, key: [ip], limits: [2 per minute] }
  - { name: tokens, match: { op: prompt }, key: [user], limits: [100 per hour] }
";

fn request(attributes: &[(&str, &str)]) -> CheckRequest {
    let attribute = |(name, value): &(&str, &str)| Attribute { name: (*name).to_owned(), value: (*value).to_owned() };
    CheckRequest {
        namespace: "shop".to_owned(),
        attributes: attributes.iter().map(attribute).collect(),
        ..CheckRequest::default()
    }
}

fn login() -> CheckRequest {
    request(&[("op", "login"), ("ip", "192.0.2.1")])
}

fn prompt(cost: u64) -> CheckRequest {
    CheckRequest { cost: Some(cost), ..request(&[("op", "prompt"), ("user", "alice")]) }
}

async fn check(client: &mut Client, request: CheckRequest) -> Answer {
    client.call("/tollgate.v1.Tollgate/Check", request).await.unwrap()
}

fn answer(remaining: u64) -> Answer {
    Answer {
        allowed: true,
        status: 200,
        limit: Some(2),
        remaining: Some(remaining),
        reset_after_ms: Some((2 - remaining) * 30_000),
        rule: Some("logins".to_owned()),
        reason: "within-limits".to_owned(),
        ..Answer::default()
    }
}

fn refusal() -> Answer {
    Answer { allowed: false, status: 429, retry_after_ms: Some(30_000), reason: "over-limit".to_owned(), ..answer(0) }
}

#[tokio::test]
async fn h2_checks_are_answered_with_the_fields_of_every_protocol() {
    let server = Server::start(RULES).await;
    let mut client = server.client().await;
    let free = CheckRequest { cost: Some(0), ..login() };
    assert_eq!(check(&mut client, free).await, answer(2));
    assert_eq!(check(&mut client, login()).await, answer(1));
    let peeked: Answer = client.call("/tollgate.v1.Tollgate/Peek", login()).await.unwrap();
    assert_eq!(peeked, answer(1));
    assert_eq!(check(&mut client, login()).await, answer(0));
    assert_eq!(check(&mut client, login()).await, refusal());
    let unknown = check(&mut client, CheckRequest { namespace: "other".to_owned(), ..login() }).await;
    let expected = Answer { allowed: true, status: 200, reason: "unknown-namespace".to_owned(), ..Answer::default() };
    assert_eq!(unknown, expected);
    let reset: ResetResponse = client.call("/tollgate.v1.Tollgate/Reset", login()).await.unwrap();
    assert_eq!(reset.buckets, 1);
    assert_eq!(check(&mut client, login()).await, answer(1));
    let explained: ExplainResponse = client.call("/tollgate.v1.Tollgate/Explain", login()).await.unwrap();
    assert!(explained.text.contains("+ logins: counts for"), "{}", explained.text);
    assert_eq!(explained.answer, Some(answer(1)));
}

#[tokio::test]
async fn a_batch_is_answered_one_by_one_or_not_at_all() {
    let server = Server::start(RULES).await;
    let mut client = server.client().await;
    let mut many = async |requests: Vec<CheckRequest>| {
        let batch = CheckManyRequest { requests };
        client.call::<_, CheckManyResponse>("/tollgate.v1.Tollgate/CheckMany", batch).await
    };
    let answers = many(vec![login(); 3]).await.unwrap().answers;
    assert_eq!(answers, [answer(1), answer(0), refusal()]);
    assert_eq!(many(vec![]).await.unwrap().answers, []);
    let other = request(&[("op", "login"), ("ip", "192.0.2.2")]);
    let full = many(vec![other.clone(); 1000]).await.unwrap().answers;
    assert_eq!((full.len(), full.iter().filter(|answer| answer.allowed).count()), (1000, 2));
    let large = request(&[("op", "login"), ("ip", "192.0.2.4"), ("note", &"x".repeat(900))]);
    assert_eq!(many(vec![large.clone(); 1000]).await.unwrap().answers.len(), 1000);
    let larger = request(&[("op", "login"), ("ip", "192.0.2.4"), ("note", &"x".repeat(1100))]);
    assert_eq!(many(vec![larger; 1000]).await.unwrap_err().code(), Code::ResourceExhausted);
    let third = request(&[("op", "login"), ("ip", "192.0.2.3")]);
    let status = many(vec![third.clone(); 1001]).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "a batch has at most 1000 requests"));
    let long = request(&[("x", "y"); 65]);
    assert_eq!(many(vec![third.clone(), long]).await.unwrap_err().code(), Code::ResourceExhausted);
    assert_eq!(many(vec![third]).await.unwrap().answers, [answer(1)], "what was not answered was not paid");
    assert_eq!(server.meter().questions.load(std::sync::atomic::Ordering::Relaxed), 3 + 1000 + 1000 + 1 + 1 + 1 + 1);
}

/// A stream of requests that go on while the sender lasts, and its answers.
async fn stream(client: &mut Client) -> (tokio::sync::mpsc::Sender<CheckRequest>, tonic::Streaming<Answer>) {
    client.0.ready().await.unwrap();
    let (sender, mut receiver) = tokio::sync::mpsc::channel::<CheckRequest>(4);
    let requests = async_stream(move |cx| receiver.poll_recv(cx));
    let path = PathAndQuery::from_static("/tollgate.v1.Tollgate/CheckStream");
    let codec = ProstCodec::<CheckRequest, Answer>::default();
    let answers = client.0.streaming(Request::new(requests), path, codec).await.unwrap().into_inner();
    (sender, answers)
}

#[tokio::test]
async fn a_stream_is_answered_in_order_while_it_lasts() {
    let server = Server::start(RULES).await;
    let mut client = server.client().await;
    let (sender, mut answers) = stream(&mut client).await;
    for expected in [answer(1), answer(0), refusal()] {
        sender.send(login()).await.unwrap();
        assert_eq!(answers.message().await.unwrap(), Some(expected));
    }
    for _ in 0..100 {
        sender.send(prompt(1)).await.unwrap();
    }
    drop(sender);
    let mut left = Vec::new();
    while let Some(answer) = answers.message().await.unwrap() {
        left.push(answer.remaining.unwrap());
    }
    assert_eq!(left, (0..100).rev().collect::<Vec<_>>());
}

#[tokio::test]
async fn a_stream_ends_with_the_daemon_or_with_what_is_no_request() {
    let server = Server::start(RULES).await;
    let mut client = server.client().await;
    let (sender, mut answers) = stream(&mut client).await;
    let (other, mut others) = stream(&mut client).await;
    for sender in [&sender, &other] {
        sender.send(prompt(1)).await.unwrap();
    }
    assert!(answers.message().await.unwrap().unwrap().allowed);
    assert!(others.message().await.unwrap().unwrap().allowed);
    sender.send(request(&[("x", "y"); 65])).await.unwrap();
    assert_eq!(answers.message().await.unwrap_err().code(), Code::ResourceExhausted);
    server.stopper.stop();
    assert_eq!(others.message().await.unwrap_err().code(), Code::Unavailable);
    server.running.await.unwrap();
}

/// A stream from a function, as the standard library has it for futures.
fn async_stream<T>(
    next: impl FnMut(&mut std::task::Context<'_>) -> std::task::Poll<Option<T>> + Unpin,
) -> impl tokio_stream::Stream<Item = T> {
    struct PollFn<F>(F);
    impl<T, F: FnMut(&mut std::task::Context<'_>) -> std::task::Poll<Option<T>> + Unpin> tokio_stream::Stream
        for PollFn<F>
    {
        type Item = T;

        fn poll_next(
            mut self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<T>> {
            (self.0)(cx)
        }
    }
    PollFn(next)
}

#[tokio::test]
async fn what_is_reserved_can_be_settled_once() {
    let server = Server::start(RULES).await;
    let mut client = server.client().await;
    let reserve = "/tollgate.v1.Tollgate/Reserve";
    let settle = "/tollgate.v1.Tollgate/Settle";
    let open: Answer = client.call(reserve, CheckRequest { expires_ms: Some(5_000), ..prompt(80) }).await.unwrap();
    let reservation = open.reservation.clone().unwrap();
    assert_eq!((open.allowed, open.status, reservation.len()), (true, 200, 16));
    let refused: Answer = client.call(reserve, prompt(80)).await.unwrap();
    assert_eq!((refused.allowed, refused.status, refused.reservation), (false, 429, None));
    let settlement = SettleRequest { reservation, actual: 30 };
    client.call::<_, ()>(settle, settlement.clone()).await.unwrap();
    assert_eq!(check(&mut client, prompt(0)).await.remaining, Some(70));
    let again = client.call::<_, ()>(settle, settlement).await.unwrap_err();
    assert_eq!(again.code(), Code::NotFound);
    let second: Answer = client.call(reserve, prompt(70)).await.unwrap();
    let refund = SettleRequest { reservation: second.reservation.unwrap(), actual: 0 };
    client.call::<_, ()>("/tollgate.v1.Tollgate/Refund", refund).await.unwrap();
    assert_eq!(check(&mut client, prompt(0)).await.remaining, Some(70));
    let nonsense = SettleRequest { reservation: "nonsense".to_owned(), actual: 0 };
    assert_eq!(client.call::<_, ()>(settle, nonsense).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn strangers_need_a_token_for_everything_but_health() {
    let server = Server::start_suspicious(RULES, "let me in").await;
    let mut client = server.client().await;
    let mut with = async |token: Option<&str>| {
        let mut request = Request::new(login());
        if let Some(token) = token {
            request.metadata_mut().insert("authorization", token.parse().unwrap());
        }
        client.call_with::<_, Answer>("/tollgate.v1.Tollgate/Check", request).await.map_err(|status| status.code())
    };
    assert_eq!(with(None).await, Err(Code::Unauthenticated));
    assert_eq!(with(Some("let me in")).await, Err(Code::Unauthenticated));
    assert_eq!(with(Some("Bearer open up")).await, Err(Code::Unauthenticated));
    assert_eq!(with(Some("Bearer let me in")).await, Ok(answer(1)));
    assert_eq!(with(Some("bearer let me in")).await, Ok(answer(0)));
    let health = crate::messages::health::Request::default();
    let health: crate::messages::health::Response = client.call("/grpc.health.v1.Health/Check", health).await.unwrap();
    assert_eq!(health.status, 1);
    let faults = server.meter().faults();
    assert_eq!((faults["no-token"], faults["wrong-token"]), (2, 1));
}
