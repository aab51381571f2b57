//! The layer around a service of one's own, without any network.

use http::{Request, Response};
use std::convert::Infallible;
use std::fmt::Debug;
use std::future::{Future, Ready, ready};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tollgate::tower::{Attributes, Gated, ResponseBody};
use tollgate::{Action, Clock, Event, ManualClock, RuleSet, Source, Tollgate};
use tower_layer::Layer;
use tower_service::Service;

/// A tollgate by these rules on a clock that stands still, and all that has happened there.
pub(crate) struct Setting {
    pub(crate) tollgate: Tollgate,
    pub(crate) hands: ManualClock,
    pub(crate) seen: Arc<Mutex<Seen>>,
}

/// What the observer was told.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) actions: Vec<Action>,
    /// The attributes of the last request.
    pub(crate) attributes: Vec<(String, String)>,
    pub(crate) answered: Vec<(String, Duration, bool)>,
    /// Everything.
    pub(crate) text: String,
}

impl Setting {
    /// Of a namespace called `test`.
    pub(crate) fn new(rules: &str) -> Setting {
        Setting::of(&format!("namespace: test\n{rules}"))
    }

    pub(crate) fn of(rules: &str) -> Setting {
        let (clock, hands) = Clock::manual();
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let observer = {
            let seen = Arc::clone(&seen);
            move |event: &Event<'_>| seen.lock().unwrap().note(event)
        };
        Setting { tollgate: Tollgate::builder().clock(clock).observer(observer).build(parse(rules)), hands, seen }
    }

    pub(crate) fn service(&self) -> Gated<Hello> {
        self.tollgate.layer("test").layer(Hello::default())
    }

    /// How often something was decided.
    pub(crate) fn decisions(&self) -> usize {
        self.seen.lock().unwrap().actions.len()
    }

    /// Lets other tasks run until so many requests were decided.
    pub(crate) async fn until_decided(&self, count: usize) {
        until(|| self.decisions() >= count).await;
    }
}

impl Seen {
    fn note(&mut self, event: &Event<'_>) {
        self.text += &format!("{event:?}\n");
        match event {
            Event::Decided { parts, verdict } => {
                self.actions.push(verdict.action());
                let attributes = parts.iter().flat_map(|part| part.attributes);
                self.attributes = attributes.map(|(name, value)| ((*name).to_owned(), shown(value))).collect();
                self.attributes.sort();
            }
            Event::Answered { namespace, took, failed } => {
                self.answered.push(((*namespace).to_owned(), *took, *failed));
            }
            _ => {}
        }
    }
}

fn shown(value: &tollgate::Value<'_>) -> String {
    match value {
        tollgate::Value::Text(text) => (*text).to_owned(),
        tollgate::Value::Address(address) => address.to_string(),
        tollgate::Value::Number(number) => number.to_string(),
    }
}

pub(crate) fn parse(rules: &str) -> RuleSet {
    RuleSet::parse(&[Source::new("rules.yaml", rules)]).unwrap()
}

/// Lets other tasks run until it is so.
pub(crate) async fn until(mut is_so: impl FnMut() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap();
}

/// A service that counts its calls, and is ready once it is told to be.
#[derive(Clone, Debug)]
pub(crate) struct Hello {
    pub(crate) calls: Arc<AtomicUsize>,
    pub(crate) room: Arc<AtomicUsize>,
    is_ready: bool,
}

impl Default for Hello {
    fn default() -> Hello {
        Hello { calls: Arc::default(), room: Arc::new(AtomicUsize::new(usize::MAX)), is_ready: false }
    }
}

impl Hello {
    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

impl Service<Request<()>> for Hello {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.is_ready = self.room.load(Ordering::SeqCst) > 0;
        if self.is_ready { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(std::mem::take(&mut self.is_ready), "it was called before it was ready");
        self.calls.fetch_add(1, Ordering::SeqCst);
        ready(Ok(Response::builder().header("ratelimit-limit", "7").body("hello".to_owned()).unwrap()))
    }
}

pub(crate) type Answer = Response<ResponseBody<String>>;

pub(crate) fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// What is answered at once.
pub(crate) fn ask<S>(service: &mut S, request: Request<()>) -> Answer
where
    S: Service<Request<()>, Response = Answer>,
    S::Error: Debug,
{
    assert!(service.poll_ready(&mut Context::from_waker(Waker::noop())).is_ready());
    match poll(pin!(service.call(request))) {
        Poll::Ready(answer) => answer.unwrap(),
        Poll::Pending => panic!("it waits"),
    }
}

pub(crate) fn get() -> Request<()> {
    Request::new(())
}

const ONE_A_SECOND: &str = "rules: [{ name: all, key: [], limits: [1 per second], over: queue up to 10s }]";

#[test]
fn h1_services_cloned_from_one_layer_or_two_count_together() {
    let setting = Setting::new("rules: [{ name: all, key: [], limits: [4 per hour] }]");
    let mut first = setting.service();
    let mut others = [first.clone(), setting.service(), setting.tollgate.clone().layer("test").layer(Hello::default())];
    assert_eq!(ask(&mut first, get()).status(), 200);
    assert!(others.iter_mut().all(|service| ask(service, get()).status() == 200));
    assert_eq!(ask(&mut first, get()).status(), 429);
}

#[test]
fn a_refused_request_does_not_reach_the_service() {
    let setting = Setting::new("rules: [{ name: all, key: [], limits: [1 per hour] }]");
    let hello = Hello::default();
    let mut service = setting.tollgate.layer("test").layer(hello.clone());
    let statuses = [(); 3].map(|()| ask(&mut service, get()).status().as_u16());
    assert_eq!((statuses, hello.calls()), ([200, 429, 429], 1));
}

#[test]
fn a_namespace_without_rules_lets_everything_through() {
    let setting = Setting::of("namespace: other\nrules: []");
    assert_eq!(ask(&mut setting.service(), get()).status(), 200);
}

#[test]
fn what_the_service_says_about_its_own_limits_stays() {
    let setting = Setting::new("headers: draft-6\nrules: [{ name: all, key: [], limits: [100 per hour] }]");
    let answer = ask(&mut setting.service(), get());
    let header = |name| answer.headers().get(name).unwrap().to_str().unwrap();
    assert_eq!((header("ratelimit-limit"), header("ratelimit-remaining")), ("7", "99"));
}

#[test]
fn a1_a_queued_request_takes_no_place_in_the_service_until_it_is_its_turn() {
    let setting = Setting::new(ONE_A_SECOND);
    let hello = Hello::default();
    let mut service = setting.tollgate.layer("test").layer(hello.clone());
    assert_eq!(ask(&mut service, get()).status(), 200);
    assert!(service.poll_ready(&mut Context::from_waker(Waker::noop())).is_ready());
    let mut queued = pin!(service.call(get()));
    assert!(poll(queued.as_mut()).is_pending());

    // Its time has come, but the service has no room for it.
    hello.room.store(0, Ordering::SeqCst);
    setting.hands.advance(Duration::from_secs(1));
    assert!(poll(queued.as_mut()).is_pending());
    assert_eq!(hello.calls(), 1);
    hello.room.store(1, Ordering::SeqCst);
    assert!(poll(queued.as_mut()).is_ready());
    assert_eq!(hello.calls(), 2);
}

#[test]
fn a_service_that_is_not_ready_keeps_requests_away() {
    let setting = Setting::new(ONE_A_SECOND);
    let hello = Hello::default();
    hello.room.store(0, Ordering::SeqCst);
    let mut service = setting.tollgate.layer("test").layer(hello);
    assert!(service.poll_ready(&mut Context::from_waker(Waker::noop())).is_pending());
}

#[test]
fn a_queued_request_that_is_dropped_gives_its_token_back() {
    let setting = Setting::new(ONE_A_SECOND);
    let mut service = setting.service();
    ask(&mut service, get());
    let wait = || setting.tollgate.peek(&tollgate::Request::new("test", &[])).wait();
    assert_eq!(wait(), Duration::from_secs(1));
    let (second, third) = (service.call(get()), service.call(get()));
    assert_eq!(wait(), Duration::from_secs(3));
    drop(third);
    assert_eq!(wait(), Duration::from_secs(2));
    drop(second);
    assert_eq!(wait(), Duration::from_secs(1));
}

#[test]
fn a_queued_request_that_is_dropped_does_not_make_those_behind_it_come_all_at_once() {
    let setting = Setting::new(ONE_A_SECOND);
    let mut service = setting.service();
    ask(&mut service, get());
    let (second, _third) = (service.call(get()), service.call(get()));
    drop(second);
    // The third keeps its time, and the fourth must not come together with it.
    assert_eq!(setting.tollgate.peek(&tollgate::Request::new("test", &[])).wait(), Duration::from_secs(3));
}

#[test]
fn a_request_that_was_dropped_while_queued_by_one_limit_gets_back_what_others_took() {
    let daily = "{ name: daily, key: [], limits: [10 per day] }";
    let queue = "{ name: queue, match: { method: GET }, key: [], limits: [1 per second], over: queue up to 10s }";
    let setting = Setting::new(&format!("rules: [{daily}, {queue}]"));
    let mut service = setting.service();
    ask(&mut service, get());
    drop(service.call(get()));
    // A request that is not queued tells what is left of the day.
    assert_eq!(setting.tollgate.peek(&tollgate::Request::new("test", &[])).remaining(), Some(9));
}

#[test]
fn a_request_whose_turn_has_come_keeps_its_token_whatever_becomes_of_it() {
    let setting = Setting::new(ONE_A_SECOND);
    let mut service = setting.service();
    ask(&mut service, get());
    {
        let mut queued = pin!(service.call(get()));
        assert!(poll(queued.as_mut()).is_pending());
        setting.hands.advance(Duration::from_secs(1));
        assert!(poll(queued.as_mut()).is_ready());
    }
    assert_eq!(setting.tollgate.peek(&tollgate::Request::new("test", &[])).wait(), Duration::from_secs(1));
}

#[test]
fn the_application_knows_better_than_the_request() {
    let rules = "
identity: { login: x-user }
rules:
  - { name: users, key: [login], limits: [100 per hour], tiers: { plan: { gold: [1000 per hour] } } }
";
    let setting = Setting::new(rules);
    let mut request = Request::builder().header("x-user", "mallory").body(()).unwrap();
    let known = Attributes::default().with("login", "alice").with("plan", "gold").with("unknown", 5).with_cost(10);
    request.extensions_mut().insert(known);
    ask(&mut setting.service(), request);
    let seen = setting.seen.lock().unwrap();
    assert_eq!(seen.attributes, [("login", "alice"), ("plan", "gold")].map(|(n, v)| (n.to_owned(), v.to_owned())));
    let alice = [("login", "alice".into()), ("plan", "gold".into())];
    drop(seen);
    assert_eq!(setting.tollgate.peek(&tollgate::Request::new("test", &alice)).remaining(), Some(990));
}
