//! Nodes that die, hang, or do not know us any more, under load.

use crate::common::{Kind, PATIENCE, Server, now, pause};
use crate::deciding::{ask, open, slot};
use crate::load::{self, BUSY, Load, MOST_WAITING, assert_hardly_any};
use crate::nodes::{Cluster, PRIMARIES, map, until};
use std::time::Duration;
use tollgate::Time;
use tollgate_store::Config;

/// Runs load through the end of a primary until its replica has taken over. Says how many were decided for those whose
/// states others keep while nothing else disturbed that, and how many of them without the store.
fn fail_over(mut cluster: Cluster, story: &str, end: impl FnOnce(&mut Server)) -> (usize, usize) {
    let story = &format!("{:?}: {story}", cluster.nodes.first().unwrap().kind);
    let slots = load::slots(&cluster.config());
    let load = Load::start(cluster.config(), BUSY);
    load.wait_until_steady();
    let gone = cluster.nodes.get(1).unwrap().address.to_string();
    let (low, high, _) = map(&mut cluster.nodes.first().unwrap().client()).swap_remove(1);
    let is_meant = |user: u64| slots.get(user as usize).is_some_and(|slot| (low..=high).contains(slot));
    let broken = load.moment();
    end(cluster.nodes.get_mut(1).unwrap());
    until("somebody takes over", || {
        let taken_over = |number: usize| {
            let mut client = cluster.nodes.get(number).unwrap().client();
            let is_ok = client.text(&["CLUSTER", "INFO"]).contains("cluster_state:ok");
            is_ok && map(&mut client).iter().all(|(_, _, address)| *address != gone)
        };
        [0, 2, 4].into_iter().all(taken_over)
    });
    let (failed_over, mended) = (broken.at.elapsed(), load.moment());
    let recovery = load.wait_for(is_meant);
    let report = load.report(&broken, &mended);
    pause(Duration::from_millis(300));
    let (others, affected) = load.undisturbed(broken.at, |user| !is_meant(user));
    let in_vain = load.in_vain(broken.at, is_meant);
    println!(
        "{story}: the cluster took {failed_over:?}, we {recovery:?} more; {in_vain} in vain; of others {affected} of {others}; {report:?}"
    );
    report.assert_nobody_waits(story);
    assert!(in_vain <= MOST_WAITING, "{story}: {in_vain} waited in vain: {report:?}");
    // A primary that dies takes with it what its replica has not heard.
    report.assert_limits_hold(1, story);
    recovery.assert_is_soon(story);
    let (meant, degraded) = load.degraded(broken.at, is_meant);
    assert!(degraded > meant / 3, "{story}: {degraded} of {meant}");
    (others, affected)
}

/// Where some slots are nobody's, hosts that decide by themselves could not tell each other what they spend of those.
#[tokio::test]
async fn n4_a_cluster_in_which_a_slot_is_nobodys_does_not_count_as_reached() {
    for kind in Kind::ALL {
        let cluster = Cluster::start(kind);
        let store = open(cluster.patient()).await;
        assert!(store.is_connected());
        for node in cluster.nodes.iter().take(PRIMARIES) {
            node.client().text(&["CLUSTER", "DELSLOTS", &slot(1).to_string()]);
        }
        let reached = async |is_expected: bool| {
            let start = now();
            while store.is_connected() != is_expected {
                assert!(start.elapsed() < PATIENCE, "{kind:?}: reached: {is_expected}");
                // Whoever asks for it makes us look who keeps it.
                let _ = store.ask(vec![ask(1, "10 per hour")], Time::ZERO).await;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        reached(false).await;
        cluster.nodes.first().unwrap().client().text(&["CLUSTER", "ADDSLOTS", &slot(1).to_string()]);
        reached(true).await;
    }
}

#[test]
fn n4_a_primary_that_was_killed_is_not_waited_for_and_its_replica_is_found() {
    for kind in Kind::ALL {
        let others = fail_over(Cluster::start(kind), "killed", Server::kill);
        assert_hardly_any(others, "others than the killed one");
    }
}

#[test]
fn n4_a_primary_that_hangs_is_not_waited_for_and_its_replica_is_found() {
    for kind in Kind::ALL {
        let others = fail_over(Cluster::start(kind), "stopped", |node| node.signal("STOP"));
        assert_hardly_any(others, "others than the stopped one");
    }
}

#[test]
fn n4_a_cluster_that_goes_down_with_one_of_its_nodes_is_found_again() {
    for kind in Kind::ALL {
        fail_over(Cluster::start_with(kind, &[]), "killed, and all slots are required", Server::kill);
    }
}

#[test]
fn n4_a_node_that_does_not_know_us_any_more_is_not_asked_and_the_others_are() {
    let known = ["ACL", "SETUSER", "tollgate", "on", ">secret", "~*", "+@all"];
    for kind in Kind::ALL {
        let cluster = Cluster::start(kind);
        for node in &cluster.nodes {
            node.client().text(&known);
        }
        let slots = load::slots(&cluster.config());
        let (user, password) = (Some("tollgate".to_owned()), Some("secret".to_owned()));
        let load = Load::start(Config { user, password, ..cluster.config() }, BUSY);
        load.wait_until_steady();
        let node = cluster.nodes.first().unwrap();
        let (low, high, _) = map(&mut node.client()).swap_remove(0);
        let is_meant = |user: u64| slots.get(user as usize).is_some_and(|slot| (low..=high).contains(slot));
        let start = load.moment();
        node.client().text(&["ACL", "DELUSER", "tollgate"]);
        pause(Duration::from_millis(1_500));
        let mended = load.moment();
        node.client().text(&known);
        let recovery = load.wait_for(is_meant);
        let report = load.report(&start, &mended);
        let (others, affected) = load.undisturbed(start.at, |user| !is_meant(user));
        let in_vain = load.in_vain(start.at, is_meant);
        println!(
            "{kind:?}: unknown: back after {recovery:?}; {in_vain} in vain; of others {affected} of {others}; {report:?}"
        );
        report.assert_nobody_waits("unknown");
        assert!(in_vain <= MOST_WAITING, "{kind:?}: {in_vain} waited in vain: {report:?}");
        assert!(report.failed <= MOST_WAITING, "{kind:?}: {report:?}");
        report.assert_limits_hold(0, "unknown");
        recovery.assert_is_soon("unknown");
        assert_hardly_any((others, affected), "others than the one that does not know us");
    }
}

#[test]
fn a_cluster_that_is_not_there_is_told_about_and_found_when_it_comes() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut cluster = Cluster::start(Kind::Redis);
    for node in &mut cluster.nodes {
        node.kill();
    }
    runtime.block_on(async {
        let store = tollgate_store::Store::open(cluster.patient());
        let start = now();
        while store.trouble().is_none() && start.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(matches!(*store.trouble().unwrap(), tollgate_store::Trouble::Unreachable(_)), "{:?}", store.trouble());
        assert!(!store.is_connected());
        for node in cluster.nodes.iter_mut().take(2 * PRIMARIES) {
            node.restart();
        }
        tokio::time::timeout(PATIENCE, store.connected()).await.unwrap_or_else(|_| panic!("{:?}", store.trouble()));
    });
}
