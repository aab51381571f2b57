//! What becomes of decisions while the store fails, under load: nobody waits for long, hardly anybody waits at all, and
//! the store is found again soon after it is back.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod common;
#[path = "common/load.rs"]
mod load;

use common::{Kind, Server, now, pause};
use load::{LONGEST_RECOVERY, Load, RATE};
use std::time::Duration;
use tokio::runtime::Runtime;
use tollgate_chaos::{Chaos, Counts, Direction, Link, Proxy, Script, ms};
use tollgate_store::{Config, Snapshot};

/// Runs load through a fault and out of it again.
fn ride(
    server: &mut Server,
    (config, rate): (Config, u64),
    story: &str,
    fault: impl FnOnce(&mut Server),
    heal: impl FnOnce(&mut Server),
) {
    let story = &format!("{:?}: {story}", server.kind);
    let load = Load::start(config, rate);
    load.wait_until_steady();
    let (broken, before) = (now(), load.store.stats());
    fault(server);
    pause(Duration::from_millis(1_500));
    let during = load.store.stats();
    heal(server);
    let recovery = load.wait_for_store();
    let report = load.report(broken);
    println!("{story}: back after {recovery:?}; {} waited; {report:?}", waited(&during, &before));
    report.assert_nobody_waits(story);
    assert!(report.degraded > report.decisions / 3, "{story}: {report:?}");
    assert!(waited(&during, &before) <= 40, "{story}: {before:?} {during:?}");
    assert!(recovery <= LONGEST_RECOVERY + report.lateness, "{story}: back after {recovery:?}");
}

/// How many asked a store that did not answer.
fn waited(after: &Snapshot, before: &Snapshot) -> u64 {
    after.late + after.failed - before.late - before.failed
}

fn config(server: &Server) -> Config {
    Config::new(server.address.to_string())
}

#[test]
fn n4_nobody_waits_for_a_store_that_was_killed() {
    for kind in Kind::ALL {
        let mut server = Server::start(kind, &[]);
        let config = config(&server);
        ride(&mut server, (config, RATE), "killed", Server::kill, Server::restart);
    }
}

#[test]
fn n4_nobody_waits_for_a_store_that_hangs() {
    for kind in Kind::ALL {
        let mut server = Server::start(kind, &[]);
        let config = config(&server);
        ride(&mut server, (config, RATE), "stopped", |server| server.signal("STOP"), |server| server.signal("CONT"));
    }
}

#[test]
fn n4_a_store_without_memory_is_not_asked() {
    for kind in Kind::ALL {
        let mut server = Server::start(kind, &[]);
        let config = config(&server);
        let set = |most: &'static str| {
            move |server: &mut Server| drop(server.client().text(&["CONFIG", "SET", "maxmemory", most]))
        };
        ride(&mut server, (config, RATE), "out of memory", set("1"), set("0"));
    }
}

#[test]
fn n4_a_store_that_became_a_replica_is_not_asked() {
    for kind in Kind::ALL {
        let mut server = Server::start(kind, &[]);
        let config = config(&server);
        // Of a primary that is not there.
        let follow =
            |to: [&'static str; 2]| move |server: &mut Server| drop(server.client().text(&["REPLICAOF", to[0], to[1]]));
        ride(&mut server, (config, RATE), "replica", follow(["127.0.0.1", "1"]), follow(["NO", "ONE"]));
    }
}

#[test]
fn n4_a_store_that_does_not_know_us_any_more_is_not_asked() {
    let known = ["ACL", "SETUSER", "tollgate", "on", ">secret", "~*", "+@all"];
    for kind in Kind::ALL {
        let mut server = Server::start(kind, &[]);
        server.client().text(&known);
        let (user, password) = (Some("tollgate".to_owned()), Some("secret".to_owned()));
        let config = Config { user, password, ..config(&server) };
        let forget = |server: &mut Server| drop(server.client().text(&["ACL", "DELUSER", "tollgate"]));
        ride(&mut server, (config, RATE), "unknown user", forget, |server| drop(server.client().text(&known)));
    }
}

#[test]
fn n4_a_store_that_is_loading_is_not_asked() {
    // Slow enough that it answers meanwhile, and that it takes a second.
    let slowly = ["--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024"];
    for kind in Kind::ALL {
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
        ride(&mut server, (config, RATE), "loading", fault, heal);
    }
}

#[test]
fn n4_a_store_that_comes_and_goes_is_not_stormed() {
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let load = Load::start(config(&server), RATE);
        load.wait_until_steady();
        let start = now();
        for _ in 0..8 {
            server.signal("STOP");
            pause(Duration::from_millis(200));
            server.signal("CONT");
            pause(Duration::from_millis(200));
        }
        let recovery = load.wait_for_store();
        let report = load.report(start);
        println!("{kind:?}: flapping; back after {recovery:?}; {report:?}");
        report.assert_nobody_waits("flapping");
        assert!(recovery <= LONGEST_RECOVERY + report.lateness, "back after {recovery:?}");
    }
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
    fn ride(&self, server: &mut Server, rate: u64, story: &str, chaos: Chaos) {
        ride(server, (self.config(), rate), story, |_| self.proxy.set(chaos), |_| self.proxy.set(calm()));
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
    for kind in Kind::ALL {
        let mut server = Server::start(kind, &[]);
        let network = Network::start(&server);
        for millis in [10, 50, 200] {
            network.ride(&mut server, 1, &format!("slow by {millis} ms"), slow(millis));
        }
        // Within the budget it is asked, late as it is.
        network.proxy.set(slow(1));
        let patient = Config { budget: Duration::from_millis(50), ..network.config() };
        let load = Load::start(patient, 1);
        load.wait_until_steady();
    }
}

#[test]
fn n4_nobody_waits_for_a_store_that_cannot_be_connected_to() {
    for kind in Kind::ALL {
        let mut server = Server::start(kind, &[]);
        let network = Network::start(&server);
        network.ride(&mut server, RATE, "down", calm().down());
        network.ride(&mut server, RATE, "connections hang", calm().reset(1.0).hang());
        network.ride(&mut server, RATE, "connections are taken and reset", calm().reset(1.0));
    }
}

#[test]
fn n4_nobody_waits_for_replies_that_do_not_arrive() {
    for kind in Kind::ALL {
        let mut server = Server::start(kind, &[]);
        let network = Network::start(&server);
        let parted = Link::new().partition();
        network.ride(&mut server, RATE, "requests are lost", calm().on(Direction::ToServer, parted.clone()));
        network.ride(&mut server, RATE, "replies are lost", calm().on(Direction::ToClient, parted));
        network.ride(&mut server, RATE, "connections end when it replies", calm().lose_replies(1.0));
    }
}

/// Another seed every so often, so that connections that were spared once are not spared for ever.
fn every(lasts: Duration, chaos: impl Fn(u64) -> Chaos) -> Script {
    (0..100).fold(Script::new(), |script, seed| script.then(lasts, chaos(seed))).repeated()
}

/// Runs load through something that comes and goes.
fn endure(kind: Kind, story: &str, script: Script) -> Counts {
    let server = Server::start(kind, &[]);
    let network = Network::start(&server);
    let load = Load::start(network.config(), RATE);
    load.wait_until_steady();
    let (start, before) = (now(), load.store.stats());
    network.proxy.play(script);
    pause(Duration::from_millis(2_000));
    let (during, counts) = (load.store.stats(), network.proxy.counts());
    network.proxy.set(calm());
    let recovery = load.wait_for_store();
    let (report, waited) = (load.report(start), waited(&during, &before));
    println!("{kind:?}: {story}; back after {recovery:?}; {waited} waited; {counts:?}; {report:?}");
    report.assert_nobody_waits(story);
    assert!(recovery <= LONGEST_RECOVERY + report.lateness, "{story}: back after {recovery:?}");
    counts
}

#[test]
fn n4_a_store_that_is_barely_fast_enough_is_not_waited_for_too_long() {
    for kind in Kind::ALL {
        endure(kind, "slow by 2 ms", Script::new().then(ms(0), slow(2)));
        endure(kind, "slow by 0 to 6 ms", Script::new().then(ms(0), calm().delay(ms(0)..ms(3))));
    }
}

#[test]
fn n4_a_network_that_comes_and_goes_brings_no_storm() {
    for kind in Kind::ALL {
        let flapping = |chaos: Chaos| Script::new().then(ms(200), chaos).then(ms(200), calm()).repeated();
        let counts = endure(kind, "down every 200 ms", flapping(calm().down()));
        assert!(counts.reset > 0, "{counts:?}");
        endure(kind, "silent every 200 ms", flapping(calm().stall()));
        endure(kind, "slow every 200 ms", flapping(slow(50)));
    }
}

#[test]
fn n4_connections_that_break_at_random_hold_up_nobody() {
    for kind in Kind::ALL {
        let counts = endure(kind, "reset", every(ms(50), |seed| Chaos::new(seed).reset(0.3)));
        assert!(counts.reset > 2, "{counts:?}");
        let counts = endure(kind, "replies lost", every(ms(50), |seed| Chaos::new(seed).lose_replies(0.3)));
        assert!(counts.cut > 2, "{counts:?}");
        let counts = endure(kind, "replies cut", every(ms(50), |seed| Chaos::new(seed).cut(0.3, 1..1_024)));
        assert!(counts.cut > 2, "{counts:?}");
        endure(kind, "held", every(ms(50), |seed| Chaos::new(seed).hold(0.3)));
    }
}
