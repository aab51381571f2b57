//! D8: `CL.THROTTLE` answers as redis-cell does.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::HashMap;
use std::hash::RandomState;
use tollgate::{Capacity, Table, Time};
use tollgate_daemon::throttle::{Throttle, ThrottleError};

const START: u64 = 1_700_000_000_000_000_000;

fn table() -> Table {
    Table::new(Capacity::Keys(1000), &RandomState::new())
}

fn ask(table: &Table, key: &str, throttle: Throttle, nanos: u64) -> [i64; 5] {
    let limit = throttle.limit().unwrap();
    throttle.decide(key.as_bytes(), &limit, table, Time::from_nanos(START + nanos)).as_cell()
}

fn throttle(max_burst: i64, count: i64, period: i64, quantity: i64) -> Throttle {
    Throttle { max_burst, count, period, quantity }
}

#[test]
fn d8_the_known_answers_are_given() {
    let table = table();
    assert_eq!(ask(&table, "a", throttle(15, 30, 60, 1), 0), [0, 16, 15, -1, 2]);
    assert_eq!(ask(&table, "b", throttle(0, 1, 2, 1), 0), [0, 1, 0, -1, 2]);
    assert_eq!(ask(&table, "b", throttle(0, 1, 2, 1), 0), [1, 1, 0, 2, 2]);
    assert_eq!(ask(&table, "c", throttle(4, 5, 60, 10), 0), [1, 5, 5, -1, 0]);
}

#[test]
fn rates_that_are_none_are_refused_for_the_right_reason() {
    assert_eq!(throttle(1, 0, 60, 1).limit().unwrap_err(), ThrottleError::ZeroRate);
    assert_eq!(throttle(1, 1, 0, 1).limit().unwrap_err().to_string(), "Zero rates are not supported");
    assert_eq!(throttle(-1, 1, 1, 1).limit().unwrap_err(), ThrottleError::Negative("max_burst"));
    assert!(matches!(throttle(i64::MAX, 1, i64::MAX, 1).limit(), Err(ThrottleError::Impossible(_))));
}

#[test]
fn throttlecrab_gets_its_own_order_of_numbers() {
    let table = table();
    let ask = |throttle: Throttle| {
        let limit = throttle.limit().unwrap();
        throttle.decide(b"k", &limit, &table, Time::from_nanos(START)).as_crab()
    };
    assert_eq!(ask(throttle(1, 1, 10, 2)), [1, 2, 0, 20, 0]);
    assert_eq!(ask(throttle(1, 1, 10, 1)), [0, 2, 0, 20, 10]);
}

/// The algorithm in its textbook form: the theoretical arrival time of each key, in nanoseconds.
#[derive(Default)]
struct Model {
    arrivals: HashMap<String, i128>,
}

impl Model {
    fn ask(&mut self, key: &str, throttle: Throttle, nanos: u64) -> [i64; 5] {
        let now = i128::from(START + nanos);
        let interval = i128::from(throttle.period) * 1_000_000_000 / i128::from(throttle.count);
        let limit = i128::from(throttle.max_burst) + 1;
        let (increment, tolerance) = (interval * i128::from(throttle.quantity), interval * limit);
        let arrival = self.arrivals.get(key).copied().unwrap_or(now).max(now);
        let next = arrival + increment;
        let is_limited = now < next - tolerance;
        if !is_limited {
            self.arrivals.insert(key.to_owned(), next);
        }
        let ahead = if is_limited { arrival - now } else { next - now };
        let retry = if is_limited && increment <= tolerance { seconds(next - tolerance - now) } else { -1 };
        let remaining = ((tolerance - ahead) / interval).clamp(0, limit);
        [i64::from(is_limited), number(limit), number(remaining), retry, seconds(ahead)]
    }
}

fn seconds(nanos: i128) -> i64 {
    number(nanos / 1_000_000_000 + i128::from(nanos % 1_000_000_000 >= 1_000_000))
}

fn number(number: i128) -> i64 {
    i64::try_from(number).unwrap()
}

#[test]
fn d8_twenty_thousand_random_calls_are_answered_as_by_the_textbook() {
    let mut random = 7_u64;
    let mut draw = |most: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % most
    };
    let (table, mut model) = (table(), Model::default());
    // Whole nanoseconds per token; what happens beyond that is where this is right and redis-cell is not.
    let rates: [(i64, i64); 6] = [(1, 1), (30, 60), (5, 60), (1000, 1), (1, 3600), (8, 10)];
    let mut nanos = 0;
    for call in 0..20_000 {
        nanos += draw(10) * draw(1_000_000_000);
        // A key keeps its rate, as it does in life.
        let name = draw(12);
        let (count, period) = rates[usize::try_from(name % 6).unwrap()];
        let asked = throttle(i64::try_from(name).unwrap() * 3, count, period, i64::try_from(draw(6)).unwrap());
        let key = format!("key-{name}");
        assert_eq!(ask(&table, &key, asked, nanos), model.ask(&key, asked, nanos), "call {call}: {asked:?} of {key}");
    }
}

#[test]
fn a_thousand_and_more_per_second_are_exact() {
    let table = table();
    let fast = throttle(0, 3_000_000, 1, 1);
    let allowed = (0..300_000_u64).filter(|call| ask(&table, "fast", fast, call * 1000 / 3)[0] == 0).count();
    // Each comes just when its token does.
    assert!((299_000..=300_001).contains(&allowed), "{allowed}");
}
