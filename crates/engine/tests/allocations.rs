//! N7: nothing on the way to a decision that could block, which rules out asking for memory.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![expect(unsafe_code, reason = "a global allocator cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use tollgate::ledger::Loan;
use tollgate::{
    Calendar, CalendarUnit, Change, Clock, Engine, KeyedRateLimiter, Limit, Op, Quota, RateLimiter, Request, RuleSet,
    Source, Time, identity,
};

/// The system's allocator, which counts how often each thread asks it for memory.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

/// Every algorithm that needs no more than words, plain and with odd or enormous rates.
fn limits() -> Vec<Limit> {
    let (plain, odd, fine) = (quota("10 per minute"), quota("7 per hour burst 10"), quota("3_000_000_007 per second"));
    let month = Calendar::utc(CalendarUnit::Month);
    let of_quota = |quota| {
        [
            Limit::token_bucket(quota),
            Limit::leaky_queue(quota),
            Limit::fixed_window(quota),
            Limit::cycles(quota, Duration::from_secs(1)),
            Limit::smooth_bursty(quota, Duration::from_secs(1)),
            Limit::sliding_window(quota),
        ]
    };
    let mut limits = [plain, odd, fine].map(of_quota).concat();
    limits.push(Limit::calendar_window(10, month).unwrap());
    limits
}

const EVERY_OPERATION: [Op; 8] = [
    Op::Take(3),
    Op::TakeUpTo(2),
    Op::Charge(1),
    Op::Reserve { cost: 1, max_wait: Duration::from_secs(1) },
    Op::Peek(1),
    Op::Refund(1),
    Op::Drain,
    Op::Reset,
];

/// Asks for more than there is, in every way there is to ask.
fn ask(limiter: &RateLimiter) {
    for _ in 0..20 {
        let _ = (limiter.allow(), limiter.check(1), limiter.peek(1));
    }
    for op in EVERY_OPERATION {
        let _ = limiter.decide(op);
    }
    let _ = limiter.reserve(1, Duration::ZERO).map(|booked| limiter.cancel(booked));
}

#[test]
fn n7_a_limit_for_everybody_decides_without_asking_for_memory() {
    for limit in limits() {
        let (clock, hands) = Clock::manual();
        let limiter = RateLimiter::with_limit(limit).clock(clock).build();
        assert_eq!(allocations(|| ask(&limiter)), 0, "{limit:?}");
        hands.advance(Duration::from_secs(7_200));
        assert_eq!(allocations(|| ask(&limiter)), 0, "{limit:?} after a while");
    }
}

/// The same of a few clients, known and new, and of several at once.
fn ask_keyed(limiter: &KeyedRateLimiter, owned: &[String], borrowed: &[&str]) {
    for _ in 0..20 {
        for key in borrowed {
            let _ = (limiter.allow(*key), limiter.check(*key, 1), limiter.peek(*key, 1));
        }
        let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
        let _ = (limiter.allow(&address), limiter.check(&("tenant", 7), 1), limiter.peek(&b"bytes"[..], 1));
        limiter.allow_many(owned, |_, _| ());
        limiter.allow_many(borrowed, |_, _| ());
        limiter.check_many(owned, |_, _| ());
    }
    for op in EVERY_OPERATION {
        let _ = limiter.decide("alice", op);
    }
    let _ = limiter.reserve("alice", 1, Duration::ZERO).map(|booked| limiter.cancel("alice", booked));
}

#[test]
fn n7_a_limit_per_client_decides_without_asking_for_memory() {
    let owned: Vec<String> =
        (0..40).map(|number| format!("a client with a rather long name, number {number}")).collect();
    let borrowed: Vec<&str> = owned.iter().map(String::as_str).collect();
    for limit in limits() {
        let (clock, hands) = Clock::manual();
        let limiter = KeyedRateLimiter::with_limit(limit).clock(clock).build();
        assert_eq!(allocations(|| ask_keyed(&limiter, &owned, &borrowed)), 0, "{limit:?}");
        hands.advance(Duration::from_secs(7_200));
        assert_eq!(allocations(|| ask_keyed(&limiter, &owned, &borrowed)), 0, "{limit:?} after a while");
    }
}

#[test]
fn n7_more_clients_than_there_is_room_for_do_not_make_it_ask_for_memory_either() {
    let limiter = KeyedRateLimiter::builder(quota("10 per hour")).capacity(tollgate::Capacity::Keys(100)).build();
    let flood = || (0..10_000).for_each(|client| assert!(limiter.allow(&client)));
    assert_eq!(allocations(flood), 0);
    assert!(limiter.table().forgotten().clients > 9_000);
}

#[test]
fn n7_no_clock_asks_for_memory_when_it_is_read() {
    let (manual, _) = Clock::manual();
    for clock in [Clock::system(), Clock::default(), Clock::cached(Duration::from_millis(1)), manual] {
        let limiter = RateLimiter::builder(quota("10 per minute")).clock(clock).build();
        assert_eq!(allocations(|| ask(&limiter)), 0, "{limiter:?}");
    }
}

#[test]
fn n7_after_a_change_each_thread_asks_for_memory_once_at_most() {
    let limiter = RateLimiter::new(quota("10 per minute"));
    limiter.change(Limit::token_bucket(quota("20 per minute")), Change::KeepTokens);
    // The first look at a limit that was changed registers the thread.
    limiter.allow();
    assert_eq!(allocations(|| ask(&limiter)), 0);
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1);
}

/// Ten thousand rules of every kind that is found by the index, and four limits that apply to `op-7` at once.
fn ten_thousand_rules() -> Engine {
    let mut text = "namespace: shop\nrules:\n".to_owned();
    for number in 0..10_000 {
        let condition = match number % 3 {
            0 => format!("operation: op-{}", number + 10),
            1 => format!("path: \"/v1/things-{number}/**\""),
            _ => format!("ip: 10.{}.{}.0/24", number / 256, number % 256),
        };
        writeln!(text, "  - {{ name: r{number}, match: {{ {condition} }}, key: [user], limits: [9 per hour] }}")
            .unwrap();
    }
    text.push_str(
        "  - { name: two, match: { operation: op-7 }, key: [user, ip], limits: [30 per hour, 90 per day using sliding-window] }
  - { name: shadow, match: { operation: op-7, path: { regex: \"/v2/.*\" } }, key: [user], limits: [2 per hour], over: shadow }
  - name: four
    match: { operation: [op-7, op-8] }
    key: []
    limits: [100000 per hour using fixed-window]
    overrides: []
    tiers: { plan: { gold: [1000000 per day] } }
",
    );
    Engine::new(RuleSet::parse(&[Source::new("rules.yaml", text)]).unwrap(), Time::ZERO)
}

#[test]
fn n7_deciding_by_ten_thousand_rules_and_four_limits_allocates_nothing() {
    let engine = ten_thousand_rules();
    let attributes = [
        ("operation", "op-7".into()),
        ("path", "/v2/orders/7".into()),
        ("ip", "2001:db8::7".into()),
        ("user", "alice".into()),
        ("plan", "gold".into()),
        ("unknown", "whatever".into()),
    ];
    let request = Request::new("shop", &attributes);
    let decide = || {
        let verdict = engine.check(&request, Time::ZERO);
        let mut bytes = 0;
        verdict.headers(Time::ZERO, |name, value| bytes += name.len() + value.len());
        (verdict.is_allowed(), verdict.checks().len(), bytes)
    };
    // The statistics of a rule take their memory when it first applies, and when it first refuses.
    let first: Vec<_> = (0..40).map(|_| decide()).collect();
    assert_eq!((first[0].0, first[0].1, first[39].0), (true, 4, false));
    assert_eq!(allocations(|| (0..100).for_each(|_| _ = decide())), 0, "refusing");
    engine.reset(&request, Time::ZERO);
    assert_eq!(allocations(|| (0..20).for_each(|_| assert!(decide().0))), 0, "allowing");
    let _ = engine.peek(&request, Time::ZERO);
    assert_eq!(allocations(|| drop(engine.peek(&request, Time::ZERO))), 0, "peeking");
}

#[test]
fn n7_deciding_about_limits_that_hosts_share_allocates_nothing_once_the_client_is_known() {
    let rules = "
namespace: n
rules:
  - { name: told, key: [user], limits: [5 per second], shared: store }
  - { name: lent, key: [user], limits: [1000 per second], shared: store-lease }
";
    let rules = RuleSet::parse(&[Source::new("rules", rules)]).unwrap();
    let engine = Engine::builder().accounts(64).build(rules, Time::ZERO);
    engine.ledger().set_cut_off(false);
    let attributes = [("user", "alice".into())];
    let decide = || engine.check(&Request::new("n", &attributes), Time::ZERO).is_allowed();
    assert!(decide());
    let until = Time::ZERO + Duration::from_secs(1);
    for id in engine.ledger().take_touched() {
        engine.ledger().lend(id, Loan { tokens: 1_000, until, left: 0, full_at: until }, Time::ZERO);
    }
    let _ = (0..10).map(|_| decide()).collect::<Vec<_>>();
    engine.reset(&Request::new("n", &attributes), Time::ZERO);
    assert_eq!(allocations(|| assert!((0..5).all(|_| decide()))), 0, "allowing");
    assert_eq!(allocations(|| assert!((0..5).all(|_| !decide()))), 0, "refusing");
}

#[test]
fn finding_out_who_the_client_is_allocates_nothing() {
    let trust = identity::Trust::default().with_proxies(["10.0.0.0/8".parse().unwrap()]).with_hops(1);
    let header: &[u8] = b"6.6.6.6, 2001:db8::1, 10.1.2.3";
    let form = identity::PathForm::default();
    let identify = || {
        let client = trust.client([10, 0, 0, 1].into(), [header].into_iter());
        let client = identity::Grouping::default().group(client);
        (client, form.normalise("/v1/orders?page=2"), identity::fingerprint(b"secret"))
    };
    assert_eq!(allocations(|| _ = identify()), 0);
}
