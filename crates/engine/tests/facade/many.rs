//! Many questions at once are the same as one after the other.

use crate::{limits_of_ten, secs, started_keyed};
use tollgate::{Decision, KeyedRateLimiter, Limit};

/// Around and above the number of requests that are looked at together.
const LENGTHS: [usize; 8] = [0, 1, 2, 15, 16, 17, 33, 100];

/// A few clients that come again and again, some of them in a row.
fn clients(count: usize) -> Vec<String> {
    (0..count).map(|request| format!("client {}", request / 2 % 5)).collect()
}

/// Two limiters that have seen the same: one to be asked at once, one to be asked one by one.
fn twins(limit: Limit) -> [KeyedRateLimiter; 2] {
    [(); 2].map(|()| started_keyed(KeyedRateLimiter::with_limit(limit)).0)
}

#[test]
fn allow_many_is_allow_of_each_in_order() {
    for limit in limits_of_ten() {
        let [at_once, one_by_one] = twins(limit);
        for length in LENGTHS {
            let keys = clients(length);
            let mut answers = Vec::new();
            at_once.allow_many(&keys, |index, allowed| answers.push((index, allowed)));
            let right: Vec<_> = keys.iter().map(|key| one_by_one.allow(key)).enumerate().collect();
            assert_eq!(answers, right, "{length} requests to {limit:?}");
        }
    }
}

#[test]
fn check_many_is_check_of_each_in_order() {
    for limit in limits_of_ten() {
        let [at_once, one_by_one] = twins(limit);
        for length in LENGTHS {
            let keys = clients(length);
            let mut answers: Vec<(usize, Decision)> = Vec::new();
            at_once.check_many(&keys, |index, decision| answers.push((index, decision)));
            let right: Vec<_> = keys.iter().map(|key| one_by_one.check(key, 1)).enumerate().collect();
            assert_eq!(answers, right, "{length} requests to {limit:?}");
        }
    }
}

#[test]
fn asking_at_once_and_one_by_one_count_together() {
    for limit in limits_of_ten() {
        let (limiter, hands) = started_keyed(KeyedRateLimiter::with_limit(limit));
        for _ in 0..2 {
            let mut allowed = usize::from(limiter.allow("alice"));
            limiter.allow_many(&["alice"; 6], |_, yes| allowed += usize::from(yes));
            limiter.check_many(&["alice"; 6], |_, decision| allowed += usize::from(decision.is_allowed()));
            assert_eq!(allowed, 10, "{limit:?}");
            hands.advance(secs(400_000));
        }
    }
}
