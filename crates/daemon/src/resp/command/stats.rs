//! What rules have done so far, for `tollgate top` and for scripts.

use crate::resp::reply::Replies;
use crate::state::State;
use tollgate::stats::RuleSnapshot;

/// A map for each rule. How many clients there were is an estimate.
pub(super) fn tell(state: &State, replies: &mut Replies) {
    let rules = state.engine().snapshot();
    replies.array(rules.len());
    for (namespace, rule, snapshot) in &rules {
        tell_rule(namespace, rule, snapshot, replies);
    }
}

fn tell_rule(namespace: &str, rule: &str, snapshot: &RuleSnapshot, replies: &mut Replies) {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let counts = snapshot.counts;
    replies.map(10);
    replies.bulk(b"namespace");
    replies.bulk(namespace.as_bytes());
    replies.bulk(b"rule");
    replies.bulk(rule.as_bytes());
    replies.pair("allowed", number(counts.allowed));
    replies.pair("waited", number(counts.waited));
    replies.pair("refused", number(counts.refused));
    replies.pair("shadowed", number(counts.shadowed));
    replies.pair("clients", snapshot.clients.round() as i64);
    replies.pair("refused_clients", snapshot.refused_clients.round() as i64);
    replies.bulk(b"top_refused");
    replies.array(2 * snapshot.top.len());
    for key in &snapshot.top {
        replies.pair(&key.name, number(key.count));
    }
    replies.pair("degraded", number(counts.degraded));
}
