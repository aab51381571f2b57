use super::*;
use std::sync::Mutex;
use tollgate_limit::{Decision, Limit, Outcome, Retry};
use tollgate_rules::model::ErrorBudget;

/// Somebody's, told of to all hosts.
pub(super) fn account() -> Account {
    Account {
        limit_id: 1,
        client: Box::from(*b"alice"),
        limit: Limit::token_bucket("100 per second burst 1000".parse().unwrap()),
        shared: Shared::Store,
        error_budget: ErrorBudget::default(),
        counts_here: true,
        fingerprint: 7,
    }
}

fn debt_of(client: &[u8], cost: u64) -> Ask {
    let limit = Limit::token_bucket("100 per hour".parse().unwrap());
    Ask { key: Fingerprint::new(1, client), limit, cost, max_wait: None, says: Says::Quota }
}

fn decision(outcome: Outcome, remaining: u64) -> Decision {
    Decision { outcome, granted: 0, limit: 100, remaining, debt: 0, reset_after: Duration::ZERO }
}

/// Charges what two owe, of whom the second has only thirty left and cannot go into debt. The store says these things, one after the
/// other. Returns who is not charged, and the costs that were asked for.
async fn charge_two(says: Vec<Told>) -> (Vec<Fingerprint>, Vec<Vec<u64>>) {
    let (says, asked) = (Mutex::new(says.into_iter()), Mutex::new(Vec::new()));
    let ask = |asks: Vec<Ask>| {
        asked.lock().unwrap().push(asks.iter().map(|ask| ask.cost).collect());
        std::future::ready(says.lock().unwrap().next().unwrap())
    };
    let uncharged = charge(ask, &[debt_of(b"ann", 50), debt_of(b"bob", 80)]).await;
    (uncharged, asked.into_inner().unwrap())
}

fn first_of_two() -> Told {
    let refused = Outcome::Refused(Retry::After(Duration::from_secs(60)));
    Told::Decided(vec![decision(Outcome::Allowed, 50), decision(refused, 30)])
}

#[tokio::test]
async fn who_has_not_all_that_it_owes_gives_what_it_has() {
    let second = Told::Decided(vec![decision(Outcome::Allowed, 0)]);
    assert_eq!(charge_two(vec![first_of_two(), second]).await, (vec![], vec![vec![50, 80], vec![30]]));
}

#[tokio::test]
async fn what_the_store_says_was_charged_is_not_charged_again_with_what_was_not() {
    let (ann, bob) = (Fingerprint::new(1, b"ann"), Fingerprint::new(1, b"bob"));
    assert_eq!(charge_two(vec![first_of_two(), Told::Failed]).await.0, [bob]);
    assert_eq!(charge_two(vec![Told::Failed]).await.0, [ann, bob]);
}
