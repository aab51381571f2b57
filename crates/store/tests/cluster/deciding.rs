//! Deciding where nothing is wrong.

use crate::common::{Kind, PATIENCE, Random, Server, now};
use crate::nodes::{Cluster, PRIMARIES, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tollgate::{Clock, Limit, Time};
use tollgate_store::{Ask, Config, Fingerprint, Reply, Says, Store, Told};

pub(crate) async fn open(config: Config) -> Store {
    let store = Store::open(config);
    tokio::time::timeout(PATIENCE, store.connected()).await.unwrap_or_else(|_| panic!("{:?}", store.trouble()));
    store
}

/// A question for one token of somebody's bucket.
pub(crate) fn ask(user: u64, limit: &str) -> Ask {
    let key = Fingerprint::new(1, &user.to_be_bytes());
    Ask { key, limit: Limit::token_bucket(limit.parse().unwrap()), cost: 1, max_wait: None, says: Says::Refuse }
}

pub(crate) fn slot(user: u64) -> u16 {
    ask(user, "1 per hour").key.slot("tg:")
}

/// Whether all of it was let through; `None` if nobody knows.
pub(crate) fn allowed(told: &Told) -> Option<bool> {
    match told {
        Told::Decided(decisions) => Some(decisions.iter().all(tollgate::Decision::is_allowed)),
        Told::Refused { .. } => Some(false),
        Told::Failed => None,
    }
}

/// The first users whose states are kept by different primaries.
pub(crate) fn apart(cluster: &Cluster) -> Vec<u64> {
    let mut found: Vec<(String, u64)> = Vec::new();
    for user in 0_u64.. {
        let keeper = cluster.keeper(slot(user), 0);
        if found.iter().all(|(other, _)| *other != keeper) {
            found.push((keeper, user));
        }
        if found.len() == PRIMARIES {
            break;
        }
    }
    found.into_iter().map(|(_, user)| user).collect()
}

/// Two of them hear of it also if neither has said anything yet: nobody waits for one to ask the other.
#[tokio::test]
async fn c3_all_nodes_that_keep_a_request_s_limits_are_asked_at_once() {
    for kind in Kind::ALL {
        let cluster = Cluster::start(kind);
        let budget = Duration::from_millis(100);
        let store = open(Config { budget, connect_timeout: PATIENCE, ..cluster.config() }).await;
        let users = apart(&cluster);
        let nodes: Vec<&Server> = users.iter().map(|user| cluster.node_at(&cluster.keeper(slot(*user), 0))).collect();
        nodes.iter().for_each(|node| node.signal("STOP"));
        let told = store.ask(users.iter().map(|user| ask(*user, "10 per hour")).collect(), Time::ZERO).await;
        nodes.iter().for_each(|node| node.signal("CONT"));
        assert_eq!(allowed(&told), None, "{kind:?}");
        let names = users.iter().map(|user| ask(*user, "10 per hour").key.name("tg:"));
        for (node, name) in nodes.iter().zip(names) {
            let mut client = node.client();
            until("each has heard of it", || client.text(&["EXISTS", &name]) == "1");
        }
    }
}

#[tokio::test]
async fn c3_a_cluster_decides_exactly_wherever_the_states_are() {
    const BURST: u64 = 20;
    const USERS: u64 = 200;
    for kind in Kind::ALL {
        let cluster = Cluster::start(kind);
        let hosts = [open(cluster.patient()).await, open(cluster.patient()).await];
        let admitted: Arc<Vec<AtomicU64>> = Arc::new((0..USERS).map(|_| AtomicU64::new(0)).collect());
        let (mut random, start) = (Random(1), now());
        let mut tasks = Vec::new();
        for _ in 0..USERS * BURST * 2 {
            let (user, host) = (random.below(USERS), hosts[random.below(2) as usize].clone());
            let admitted = Arc::clone(&admitted);
            tasks.push(tokio::spawn(async move {
                let told = host.ask(vec![ask(user, "1 per second burst 20")], Time::ZERO).await;
                if allowed(&told).unwrap() {
                    admitted[user as usize].fetch_add(1, Ordering::Relaxed);
                }
            }));
            if tasks.len() > 500 {
                for task in tasks.drain(..) {
                    task.await.unwrap();
                }
            }
        }
        for task in tasks {
            task.await.unwrap();
        }
        let most = BURST + start.elapsed().as_secs() + 1;
        let counts: Vec<u64> = admitted.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        assert!(counts.iter().all(|count| *count <= most), "{kind:?}: {counts:?} of {most}");
        assert!(counts.iter().filter(|count| **count >= BURST).count() as u64 > USERS * 9 / 10, "{kind:?}: {counts:?}");
        let stats = hosts[0].stats();
        assert_eq!((stats.failed, stats.lost, stats.late, stats.unreachable), (0, 0, 0, 0), "{kind:?}");
        // A map, and connections to three primaries.
        assert!(stats.connects <= 2 + 2 * PRIMARIES as u64, "{kind:?}: {stats:?}");
        println!("{kind:?}: {} let through of {} to {}", counts.iter().sum::<u64>(), BURST * USERS, most * USERS);
    }
}

#[tokio::test]
async fn c3_a_user_of_the_access_list_needs_two_commands_more() {
    // As in the documentation of the crate.
    let user = "on >secret ~tg:* +eval +evalsha +time +mget +set +psetex +incrby +del +pexpire +zadd +zcard +zrange +zrangebyscore +zrem \
                +zremrangebyscore +cluster|slots +asking";
    for kind in Kind::ALL {
        let cluster = Cluster::start(kind);
        for node in &cluster.nodes {
            let mut words = vec!["ACL", "SETUSER", "tollgate"];
            words.extend(user.split_whitespace());
            node.client().text(&words);
        }
        let (name, password) = (Some("tollgate".to_owned()), Some("secret".to_owned()));
        let store = open(Config { user: name, password, ..cluster.patient() }).await;
        let users = apart(&cluster);
        for user in &users {
            assert_eq!(allowed(&store.ask(vec![ask(*user, "5 per hour")], Time::ZERO).await), Some(true));
        }
        // A slot that is on its way is asked for where it goes.
        let (from, to) = (cluster.keeper(slot(users[0]), 0), cluster.others(slot(users[0]))[0]);
        cluster.begin_to_move(slot(users[0]), cluster.node_at(&from), to);
        for _ in 0..3 {
            assert_eq!(allowed(&store.ask(vec![ask(users[0], "5 per day")], Time::ZERO).await), Some(true));
        }
        assert_eq!((store.stats().failed, store.stats().lost), (0, 0));
    }
}

fn left(node: &Server, key: &Fingerprint) -> Reply {
    node.client().ask(&["GET", &key.name("tg:")])
}

#[tokio::test]
async fn c3_a_request_over_several_slots_is_paid_in_all_or_none_of_them() {
    for kind in Kind::ALL {
        let cluster = Cluster::start(kind);
        let store = open(cluster.patient()).await;
        let users = apart(&cluster);
        let limits = ["1000 per hour", "7 per hour burst 100", "5 per hour"];
        let all = || users.iter().zip(limits).map(|(user, limit)| ask(*user, limit)).collect::<Vec<_>>();
        for left in (0..5).rev() {
            let Told::Decided(decisions) = store.ask(all(), Time::ZERO).await else { panic!("{:?}", store.stats()) };
            assert_eq!(decisions[2].remaining, left);
            assert!(decisions.iter().all(tollgate::Decision::is_allowed));
        }
        // Every time with a clock that has forgotten the refusal.
        let clock = Clock::system();
        for turn in 1..=20_u64 {
            let now = clock.now() + Duration::from_secs(turn * 86_400);
            let Told::Decided(decisions) = store.ask(all(), now).await else { panic!("{:?}", store.stats()) };
            assert_eq!(decisions.iter().map(tollgate::Decision::is_allowed).collect::<Vec<_>>(), [true, true, false]);
        }
        let start = now();
        loop {
            let looked = store.look(all()).await.unwrap();
            assert_eq!(looked.iter().map(tollgate::Decision::is_allowed).collect::<Vec<_>>(), [true, true, false]);
            let remaining: Vec<u64> = looked.iter().map(|decision| decision.remaining).collect();
            // What came in between taking and giving back may be lost, and that is not one token here.
            if remaining[0] >= 994 && remaining[1] >= 94 {
                assert!(remaining[0] <= 995 && remaining[1] <= 95, "{kind:?}: {remaining:?}");
                break;
            }
            assert!(start.elapsed() < PATIENCE, "{kind:?}: {remaining:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(matches!(left(cluster.node_at(&cluster.keeper(slot(users[0]), 0)), &all()[0].key), Reply::Text(_)));
    }
}

#[tokio::test]
async fn c3_requests_over_several_slots_never_get_more_than_each_of_their_limits() {
    for kind in Kind::ALL {
        let cluster = Cluster::start(kind);
        // Nobody remembers refusals, so that there is as much to give back as can be.
        let config = Config { remembered: 0, ..cluster.patient() };
        let hosts = [open(config.clone()).await, open(config).await];
        let users = apart(&cluster);
        let limits = ["20 per hour", "30 per hour", "40 per hour"];
        let admitted: Arc<Vec<AtomicU64>> = Arc::new((0..3).map(|_| AtomicU64::new(0)).collect());
        let mut tasks = Vec::new();
        for number in 0..600_usize {
            // One limit, two of them, or all three.
            let chosen: Vec<usize> = (0..3).filter(|limit| (number % 7 + 1) >> limit & 1 == 1).collect();
            let asks: Vec<Ask> = chosen.iter().map(|limit| ask(users[*limit], limits[*limit])).collect();
            let (host, admitted) = (hosts[number % 2].clone(), Arc::clone(&admitted));
            tasks.push(tokio::spawn(async move {
                if allowed(&host.ask(asks, Time::ZERO).await).unwrap() {
                    for limit in chosen {
                        admitted[limit].fetch_add(1, Ordering::Relaxed);
                    }
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        let counts: Vec<u64> = admitted.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        println!("{kind:?}: {counts:?} of [20, 30, 40]");
        assert!(counts.iter().zip([20, 30, 40]).all(|(count, most)| *count <= most), "{kind:?}: {counts:?}");
        // Those that ask for one alone have the rest.
        for (limit, count) in counts.iter().enumerate() {
            let mut all = *count;
            let start = now();
            while all < [19, 29, 39][limit] && start.elapsed() < PATIENCE {
                all += u64::from(
                    allowed(&hosts[0].ask(vec![ask(users[limit], limits[limit])], Time::ZERO).await).unwrap(),
                );
            }
            assert!(all >= [19, 29, 39][limit], "{kind:?}: {all} of {limit}");
        }
    }
}

#[tokio::test]
async fn in_quota_mode_one_quota_of_any_slot_is_enough() {
    let cluster = Cluster::start(Kind::Redis);
    let store = open(cluster.patient()).await;
    let users = apart(&cluster);
    let quotas = |limits: [&str; 3]| {
        let each = users.iter().zip(limits).map(|(user, limit)| Ask { says: Says::Quota, ..ask(*user, limit) });
        each.collect::<Vec<_>>()
    };
    let mut told = Vec::new();
    for _ in 0..5 {
        told.push(allowed_by_any(&store.ask(quotas(["1 per hour", "2 per hour", "4 per hour"]), Time::ZERO).await));
    }
    assert_eq!(told, [3, 2, 1, 1, 0]);
}

/// How many quotas have room.
fn allowed_by_any(told: &Told) -> usize {
    match told {
        Told::Decided(decisions) => decisions.iter().filter(|decision| decision.is_allowed()).count(),
        told => panic!("{told:?}"),
    }
}

#[tokio::test]
async fn tokens_of_several_slots_are_given_back_at_once() {
    let cluster = Cluster::start(Kind::Redis);
    let store = open(cluster.patient()).await;
    let asks: Vec<Ask> = apart(&cluster).into_iter().map(|user| ask(user, "5 per hour")).collect();
    for _ in 0..3 {
        assert_eq!(allowed(&store.ask(asks.clone(), Time::ZERO).await), Some(true));
    }
    let more: Vec<Ask> = asks.iter().map(|ask| Ask { cost: 5, ..ask.clone() }).collect();
    assert_eq!(store.give_back(asks.clone()).await, [Some(1); 3]);
    assert_eq!(store.give_back(more).await, [Some(2); 3]);
}

#[tokio::test]
async fn n4_scripts_that_a_node_has_forgotten_are_sent_again_and_nobody_notices() {
    for kind in Kind::ALL {
        let cluster = Cluster::start(kind);
        let store = open(Config { connections: 1, ..cluster.patient() }).await;
        let users = apart(&cluster);
        for round in 1..=10 {
            for node in cluster.nodes.iter().take(PRIMARIES) {
                node.client().text(&["SCRIPT", "FLUSH"]);
            }
            for user in users.iter().chain(&users) {
                assert_eq!(allowed(&store.ask(vec![ask(*user, "1000 per hour")], Time::ZERO).await), Some(true));
            }
            let stats = store.stats();
            assert_eq!((stats.reloaded, stats.failed, stats.lost), (3 * round, 0, 0));
        }
    }
}
