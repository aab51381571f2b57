//! What becomes of decisions while the store fails, under load: nobody waits for long, hardly anybody waits at all, and
//! the store is found again soon after it is back.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod common;
#[path = "common/load.rs"]
mod load;
#[path = "common/machine.rs"]
mod machine;
#[path = "common/notes.rs"]
mod notes;

use common::{Kind, Server, now, pause};
use load::{BURSTS, BUSY, CALM, Load, MOST_WAITING, Pace, Report, assert_hardly_any};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tollgate_chaos::{Chaos, Counts, Direction, Link, Proxy, Script, ms};
use tollgate_store::Config;

/// Runs a test with a server of each kind while no other one runs: whatever that starts would be measured, too.
fn with_each_kind(test: impl Fn(Kind)) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    Kind::ALL.into_iter().for_each(test);
}

/// Runs load through a fault and out of it again.
fn ride(
    server: &mut Server,
    (config, pace): (Config, Pace),
    story: &str,
    fault: impl FnOnce(&mut Server),
    heal: impl FnOnce(&mut Server),
) {
    let story = &format!("{:?}: {story}", server.kind);
    let load = Load::start(config, pace);
    load.wait_until_steady();
    let (broken, who) = (load.moment(), server.process());
    fault(server);
    pause(Duration::from_millis(1_500));
    let (mended, (decisions, degraded)) = (load.moment(), load.degraded(broken.at, |_| true));
    heal(server);
    let recovery = load.wait_for_store();
    let report = load.report(&broken, &mended);
    println!("{story}: back after {recovery:?}; {report:?}");
    report.assert_hardly_anybody_waits(story);
    assert!(report.waited + report.failed <= MOST_WAITING, "{story}: {report:?}");
    assert!(degraded > decisions / 3, "{story}: {degraded} of {decisions}: {report:?}");
    report.assert_limits_hold(u32::from(server.process() != who), story);
    recovery.assert_is_soon(story);
}

fn config(server: &Server) -> Config {
    Config::new(server.address.to_string())
}

#[test]
fn n4_nobody_waits_for_a_store_that_was_killed() {
    with_each_kind(|kind| {
        let mut server = Server::start(kind, &[]);
        let config = config(&server);
        ride(&mut server, (config, BUSY), "killed", Server::kill, Server::restart);
    });
}

#[test]
fn n4_nobody_waits_for_a_store_that_hangs() {
    with_each_kind(|kind| {
        let mut server = Server::start(kind, &[]);
        let config = config(&server);
        for (pace, story) in [(BUSY, "stopped"), (BURSTS, "stopped, bursts")] {
            let (stop, go_on) =
                (|server: &mut Server| server.signal("STOP"), |server: &mut Server| server.signal("CONT"));
            ride(&mut server, (config.clone(), pace), story, stop, go_on);
        }
    });
}

#[test]
fn n4_a_store_without_memory_is_not_asked() {
    with_each_kind(|kind| {
        let mut server = Server::start(kind, &[]);
        let config = config(&server);
        let set = |most: &'static str| {
            move |server: &mut Server| drop(server.client().text(&["CONFIG", "SET", "maxmemory", most]))
        };
        ride(&mut server, (config, BUSY), "out of memory", set("1"), set("0"));
    });
}

#[test]
fn n4_a_store_that_became_a_replica_is_not_asked() {
    with_each_kind(|kind| {
        let mut server = Server::start(kind, &[]);
        let config = config(&server);
        // Of a primary that is not there.
        let follow =
            |to: [&'static str; 2]| move |server: &mut Server| drop(server.client().text(&["REPLICAOF", to[0], to[1]]));
        ride(&mut server, (config, BUSY), "replica", follow(["127.0.0.1", "1"]), follow(["NO", "ONE"]));
    });
}

#[test]
fn n4_a_store_that_does_not_know_us_any_more_is_not_asked() {
    let known = ["ACL", "SETUSER", "tollgate", "on", ">secret", "~*", "+@all"];
    with_each_kind(|kind| {
        let mut server = Server::start(kind, &[]);
        server.client().text(&known);
        let (user, password) = (Some("tollgate".to_owned()), Some("secret".to_owned()));
        let config = Config { user, password, ..config(&server) };
        let forget = |server: &mut Server| drop(server.client().text(&["ACL", "DELUSER", "tollgate"]));
        ride(&mut server, (config, BUSY), "unknown user", forget, |server| drop(server.client().text(&known)));
    });
}

#[test]
fn n4_a_store_that_is_loading_is_not_asked() {
    // Slow enough that it answers meanwhile, and that it takes a second.
    let slowly = ["--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024"];
    with_each_kind(|kind| {
        let mut server = Server::start(kind, &slowly);
        let mut client = server.client();
        for number in 0..2_000 {
            client.text(&["SET", &format!("other:{number}"), "x"]);
        }
        client.text(&["SAVE"]);
        let config = config(&server);
        let fault = |server: &mut Server| {
            server.kill();
            server.spawn_again();
        };
        let heal = |server: &mut Server| {
            let mut client = server.client();
            let mut seen = 0;
            while format!("{:?}", client.ask(&["GET", "x"])).contains("LOADING") {
                seen += 1;
                pause(Duration::from_millis(1));
            }
            assert!(seen > 0, "it was loaded before anybody looked");
        };
        ride(&mut server, (config, BUSY), "loading", fault, heal);
    });
}

#[test]
fn n4_scripts_that_a_store_forgets_under_load_are_sent_again_and_nobody_notices() {
    with_each_kind(|kind| {
        let server = Server::start(kind, &[]);
        let mut client = server.client();
        let load = Load::start(config(&server), BUSY);
        load.wait_until_steady();
        let start = load.moment();
        let mut forgotten = Vec::new();
        for _ in 0..15 {
            forgotten.push(now());
            client.text(&["SCRIPT", "FLUSH"]);
            pause(Duration::from_millis(100));
        }
        forgotten.push(now());
        let report = load.report(&start, &load.moment());
        let reloaded = load.store.stats().reloaded - start.stats.reloaded;
        let in_vain = |time: &[Instant]| load.in_vain_between(time[0], time[1], |_| true);
        let in_vain: Vec<u64> = forgotten.windows(2).map(in_vain).collect();
        println!("{kind:?}: scripts forgotten 15 times; {reloaded} sent again; {in_vain:?} in vain; {report:?}");
        report.assert_nobody_waits("forgotten");
        report.assert_limits_hold(0, "forgotten");
        // There are four that are needed all the time, and whoever finds one forgotten need not send it if somebody else does.
        assert!((15..=75).contains(&reloaded) && report.failed == 0, "{kind:?}: {reloaded} sent again: {report:?}");
        assert!(in_vain.iter().all(|count| *count <= MOST_WAITING), "{kind:?}: {in_vain:?} waited in vain");
        assert_hardly_any(load.undisturbed(start.at, |_| true), "forgotten");
    });
}

#[test]
fn n4_a_store_that_comes_and_goes_is_not_stormed() {
    with_each_kind(|kind| {
        let server = Server::start(kind, &[]);
        let load = Load::start(config(&server), BUSY);
        load.wait_until_steady();
        let start = load.moment();
        for _ in 0..8 {
            server.signal("STOP");
            pause(Duration::from_millis(200));
            server.signal("CONT");
            pause(Duration::from_millis(200));
        }
        let mended = load.moment();
        let recovery = load.wait_for_store();
        let report = load.report(&start, &mended);
        println!("{kind:?}: flapping; back after {recovery:?}; {report:?}");
        report.assert_hardly_anybody_waits("flapping");
        report.assert_limits_hold(0, "flapping");
        recovery.assert_is_soon("flapping");
    });
}

/// What lies between us and a server.
struct Network {
    proxy: Proxy,
    _runtime: Runtime,
}

impl Network {
    fn start(server: &Server) -> Network {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let proxy = runtime.block_on(Proxy::tcp(server.address, calm())).unwrap();
        Network { proxy, _runtime: runtime }
    }

    fn config(&self) -> Config {
        Config::new(self.proxy.address().to_string())
    }

    /// Runs load through this and out of it again.
    fn ride(&self, server: &mut Server, pace: Pace, story: &str, chaos: Chaos) {
        ride(server, (self.config(), pace), story, |_| self.proxy.set(chaos), |_| self.proxy.set(calm()));
    }
}

/// Nothing happens.
fn calm() -> Chaos {
    Chaos::new(0)
}

/// What the server says comes late.
fn slow(millis: u64) -> Chaos {
    Chaos::new(0).on(Direction::ToClient, Link::new().delay(ms(millis)))
}

#[test]
fn n4_nobody_waits_for_a_store_that_is_slow() {
    with_each_kind(|kind| {
        let mut server = Server::start(kind, &[]);
        let network = Network::start(&server);
        for millis in [10, 50, 200] {
            network.ride(&mut server, BUSY, &format!("slow by {millis} ms"), slow(millis));
        }
        network.ride(&mut server, CALM, "slow by 10 ms, calm", slow(10));
        network.ride(&mut server, BURSTS, "slow by 10 ms, bursts", slow(10));
        // Within the budget it is asked, late as it is.
        for (millis, budget) in [(1, 50), (25, 150)] {
            network.proxy.set(slow(millis));
            let patient = Config { budget: Duration::from_millis(budget), ..network.config() };
            let load = Load::start(patient, CALM);
            load.wait_until_steady();
        }
    });
}

#[test]
fn n4_nobody_waits_for_a_store_that_cannot_be_connected_to() {
    with_each_kind(|kind| {
        let mut server = Server::start(kind, &[]);
        let network = Network::start(&server);
        network.ride(&mut server, BUSY, "down", calm().down());
        network.ride(&mut server, BUSY, "connections hang", calm().reset(1.0).hang());
        network.ride(&mut server, BUSY, "connections are taken and reset", calm().reset(1.0));
    });
}

#[test]
fn n4_nobody_waits_for_replies_that_do_not_arrive() {
    with_each_kind(|kind| {
        let mut server = Server::start(kind, &[]);
        let network = Network::start(&server);
        let parted = Link::new().partition();
        network.ride(&mut server, BUSY, "requests are lost", calm().on(Direction::ToServer, parted.clone()));
        network.ride(&mut server, BUSY, "replies are lost", calm().on(Direction::ToClient, parted));
        network.ride(&mut server, BUSY, "connections end when it replies", calm().lose_replies(1.0));
    });
}

/// Another seed every so often, so that connections that were spared once are not spared for ever.
fn every(lasts: Duration, chaos: impl Fn(u64) -> Chaos) -> Script {
    (0..100).fold(Script::new(), |script, seed| script.then(lasts, chaos(seed))).repeated()
}

/// Runs load through something that comes and goes.
fn endure(kind: Kind, story: &str, script: Script) -> (Report, Counts) {
    let server = Server::start(kind, &[]);
    let network = Network::start(&server);
    let load = Load::start(network.config(), BUSY);
    load.wait_until_steady();
    let start = load.moment();
    network.proxy.play(script);
    pause(Duration::from_millis(2_000));
    let (mended, counts) = (load.moment(), network.proxy.counts());
    network.proxy.set(calm());
    let recovery = load.wait_for_store();
    let report = load.report(&start, &mended);
    println!("{kind:?}: {story}; back after {recovery:?}; {counts:?}; {report:?}");
    report.assert_nobody_waits(story);
    report.assert_limits_hold(0, story);
    recovery.assert_is_soon(story);
    (report, counts)
}

#[test]
fn n4_a_store_that_is_barely_fast_enough_is_not_waited_for_too_long() {
    with_each_kind(|kind| {
        let (report, _) = endure(kind, "slow by 2 ms", Script::new().then(ms(0), slow(2)));
        report.assert_hardly_anybody_waits("slow by 2 ms");
        // Whoever is answered in between makes up for somebody who waited in vain.
        endure(kind, "slow by 0 to 6 ms", Script::new().then(ms(0), calm().delay(ms(0)..ms(3))));
    });
}

#[test]
fn n4_a_network_that_comes_and_goes_brings_no_storm() {
    with_each_kind(|kind| {
        for (story, chaos) in [("down", calm().down()), ("silent", calm().stall()), ("slow", slow(50))] {
            let story = &format!("{story} every 200 ms");
            let (report, counts) =
                endure(kind, story, Script::new().then(ms(200), chaos).then(ms(200), calm()).repeated());
            report.assert_hardly_anybody_waits(story);
            assert!(counts.reset > 0 || !story.starts_with("down"), "{counts:?}");
        }
    });
}

#[test]
fn n4_connections_that_break_at_random_hold_up_nobody() {
    with_each_kind(|kind| {
        let (_, counts) = endure(kind, "reset", every(ms(50), |seed| Chaos::new(seed).reset(0.3)));
        assert!(counts.reset > 2, "{counts:?}");
        let (_, counts) = endure(kind, "replies lost", every(ms(50), |seed| Chaos::new(seed).lose_replies(0.3)));
        assert!(counts.cut > 2, "{counts:?}");
        let (_, counts) = endure(kind, "replies cut", every(ms(50), |seed| Chaos::new(seed).cut(0.3, 1..1_024)));
        assert!(counts.cut > 2, "{counts:?}");
        endure(kind, "held", every(ms(50), |seed| Chaos::new(seed).hold(0.3)));
    });
}
