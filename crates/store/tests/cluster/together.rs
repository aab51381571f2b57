//! Hosts that tell a cluster what they spend, or borrow from it.

use crate::common::{Kind, PATIENCE, now};
use crate::nodes::Cluster;
use std::time::Duration;
use tollgate::{Request, RuleSet, Source, Tollgate, Value};

fn host(cluster: &Cluster, shared: &str) -> Tollgate {
    let text = format!("namespace: n\nrules: [{{ name: a, key: [user], limits: [100 per hour], shared: {shared} }}]\n");
    let rules = RuleSet::parse(&[Source::new("rules", &*text)]).unwrap();
    Tollgate::builder().store(cluster.patient()).build(rules)
}

async fn admit(host: &Tollgate, user: &str, requests: u64) -> u64 {
    let mut admitted = 0;
    for _ in 0..requests {
        let verdict = host.decide(&Request::new("n", &[("user", Value::Text(user))])).await;
        assert!(!verdict.is_degraded());
        admitted += u64::from(verdict.is_allowed());
    }
    admitted
}

/// Clients all over the cluster, each on both hosts.
#[tokio::test(flavor = "multi_thread")]
async fn c4_hosts_count_together_on_a_cluster_by_telling_and_by_borrowing() {
    for kind in Kind::ALL {
        let cluster = Cluster::start(kind);
        for shared in ["store", "store-lease"] {
            let hosts = [host(&cluster, shared), host(&cluster, shared)];
            let start = now();
            while hosts.iter().any(|host| host.engine().ledger().is_cut_off() || host.engine().ledger().hosts() < 2) {
                assert!(start.elapsed() < PATIENCE);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            for number in 0..20 {
                let user = format!("{shared}-{number}");
                let first = admit(&hosts[0], &user, 70).await;
                // Until the second host has heard what the first one spent.
                let (start, mut second, mut left) = (now(), 0, u64::MAX);
                while left > 30 {
                    assert!(start.elapsed() < PATIENCE, "{kind:?} {shared}: {left}");
                    let verdict = hosts[1].decide(&Request::new("n", &[("user", Value::Text(&user))])).await;
                    (second, left) = (second + u64::from(verdict.is_allowed()), verdict.remaining().unwrap());
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                second += admit(&hosts[1], &user, 100).await;
                assert_eq!(first, 70, "{kind:?} {shared}");
                // Whoever only tells may have hidden half of what it thought was left before it heard; and of what can be
                // borrowed, the first host may still have an eighth of the limit in hand.
                let expected = if shared == "store" { 25..=60 } else { 18..=30 };
                assert!(expected.contains(&second), "{kind:?} {shared}: {second}");
            }
        }
    }
}
