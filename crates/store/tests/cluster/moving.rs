//! Slots that move from node to node while states in them are asked about.

use crate::common::{Kind, Server, pause};
use crate::deciding::{allowed, ask, open, slot};
use crate::load::{self, BUSY, Load, MOST_WAITING, assert_hardly_any};
use crate::nodes::Cluster;
use std::time::Duration;
use tollgate::Time;

/// Moves the keys of a slot that is on its way.
fn move_keys(slot: u16, from: &Server, to: &Server) {
    let port = to.address.port().to_string();
    let mut client = from.client();
    loop {
        let tollgate_store::Reply::Array(keys) = client.ask(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "100"])
        else {
            panic!("no keys")
        };
        if keys.is_empty() {
            return;
        }
        for key in keys {
            let tollgate_store::Reply::Text(key) = key else { panic!("{key:?}") };
            let key = String::from_utf8(key).unwrap();
            // It may have expired meanwhile.
            client.text(&["MIGRATE", "127.0.0.1", &port, &key, "0", "1000"]);
        }
    }
}

#[tokio::test]
async fn n4_a_slot_that_has_moved_is_asked_for_where_it_is() {
    for kind in Kind::ALL {
        let cluster = Cluster::start(kind);
        let store = open(cluster.patient()).await;
        let check = async || allowed(&store.ask(vec![ask(1, "10 per hour")], Time::ZERO).await);
        assert_eq!(check().await, Some(true));
        let connects = store.stats().connects;
        let (from, to) = (cluster.keeper(slot(1), 0), cluster.others(slot(1))[0]);
        cluster.begin_to_move(slot(1), cluster.node_at(&from), to);
        move_keys(slot(1), cluster.node_at(&from), to);
        cluster.give(slot(1), to);
        for _ in 0..9 {
            assert_eq!(check().await, Some(true), "{kind:?}: {:?}", store.stats());
        }
        // What was spent before has come along.
        assert_eq!(check().await, Some(false));
        assert_eq!((store.stats().failed, store.stats().lost), (0, 0));
        assert!(store.stats().connects <= connects + 3, "{kind:?}: {:?}", store.stats());
    }
}

#[tokio::test]
async fn n4_a_slot_on_its_way_is_asked_for_on_both_sides_and_nothing_is_let_through_twice() {
    for kind in Kind::ALL {
        let cluster = Cluster::start(kind);
        let store = open(cluster.patient()).await;
        // Users whose states are in one slot, of which some have moved and some not.
        let users: Vec<u64> = (0..200_000).filter(|user| slot(*user) == slot(1)).take(6).collect();
        let check = async |user| allowed(&store.ask(vec![ask(user, "10 per hour")], Time::ZERO).await);
        for user in &users {
            assert_eq!(check(*user).await, Some(true));
        }
        let (from, to) = (cluster.keeper(slot(1), 0), cluster.others(slot(1))[0]);
        let from = cluster.node_at(&from);
        cluster.begin_to_move(slot(1), from, to);
        let port = to.address.port().to_string();
        for user in users.iter().take(3) {
            let name = ask(*user, "1 per hour").key.name("tg:");
            from.client().text(&["MIGRATE", "127.0.0.1", &port, &name, "0", "1000"]);
        }
        let mut admitted = 0;
        for _ in 0..12 {
            for user in &users {
                admitted += u64::from(check(*user).await.unwrap());
            }
        }
        assert_eq!(admitted, 9 * users.len() as u64, "{kind:?}: {:?}", store.stats());
        move_keys(slot(1), from, to);
        cluster.give(slot(1), to);
        for user in &users {
            assert_eq!(check(*user).await, Some(false), "{kind:?}");
        }
        assert_eq!((store.stats().failed, store.stats().lost), (0, 0));
    }
}

#[test]
fn n4_slots_move_under_load_and_hardly_anybody_notices() {
    for kind in Kind::ALL {
        let cluster = Cluster::start(kind);
        let slots = load::slots(&cluster.config());
        let load = Load::start(cluster.config(), BUSY);
        load.wait_until_steady();
        let start = load.moment();
        for slot in slots.iter().take(15) {
            let from = cluster.keeper(*slot, 0);
            let (from, to) = (cluster.node_at(&from), cluster.others(*slot)[0]);
            cluster.begin_to_move(*slot, from, to);
            pause(Duration::from_millis(20));
            move_keys(*slot, from, to);
            cluster.give(*slot, to);
            pause(Duration::from_millis(20));
        }
        let moved = start.at.elapsed();
        pause(Duration::from_millis(500));
        let report = load.report(&start, &load.moment());
        let (all, degraded) = load.undisturbed(start.at, |_| true);
        let in_vain = load.in_vain(start.at, |_| true);
        println!(
            "{kind:?}: 15 slots moved in {moved:?}; {in_vain} in vain; {degraded} of {all} without the store; {report:?}"
        );
        report.assert_nobody_waits("moving");
        assert!(in_vain <= MOST_WAITING, "{kind:?}: {in_vain} waited in vain: {report:?}");
        report.assert_limits_hold(0, "moving");
        // Two limits of a user may be on two sides for a moment.
        assert_hardly_any((all, degraded), "moving");
    }
}
