//! Either version of the protocol, whoever we are to the store.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod common;

use common::{Client, Kind, PATIENCE, Server};
use std::time::Duration;
use tollgate_limit::{Limit, Time};
use tollgate_store::{Ask, Config, Fingerprint, Protocol, Says, Store, Told};

fn config(server: &Server) -> Config {
    let (budget, connect_timeout) = (Duration::from_secs(5), Duration::from_secs(5));
    Config { budget, connect_timeout, connections: 1, ..Config::new(server.address.to_string()) }
}

/// What is left of a limit after each of three requests.
async fn left(config: Config) -> Vec<u64> {
    let store = Store::open(config);
    tokio::time::timeout(PATIENCE, store.connected()).await.unwrap_or_else(|_| panic!("{:?}", store.trouble()));
    let limit = Limit::sliding_log("10 per hour".parse().unwrap());
    let ask = Ask { key: Fingerprint::new(1, b"ann"), limit, cost: 1, max_wait: None, says: Says::Refuse };
    let mut left = Vec::new();
    for _ in 0..3 {
        match store.ask(vec![ask.clone()], Time::ZERO).await {
            Told::Decided(decisions) => left.extend(decisions.iter().map(|decision| decision.remaining)),
            told => panic!("{told:?}: {:?}", store.stats()),
        }
    }
    left
}

/// The version of the protocol and the name of everybody who is connected and has run a script.
fn clients(client: &mut Client) -> Vec<(String, String)> {
    let list = client.text(&["CLIENT", "LIST"]);
    let field = |line: &str, name: &str| {
        line.split(' ').find_map(|word| word.strip_prefix(name)).map(str::to_owned).unwrap_or_default()
    };
    let ours = list.lines().filter(|line| line.contains(" cmd=eval"));
    ours.map(|line| (field(line, "resp="), field(line, "name="))).collect()
}

/// Decides while somebody looks on.
fn spoken(server: &Server, config: Config) -> Vec<(String, String)> {
    let mut client = server.client();
    client.text(&["FLUSHALL"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert_eq!(runtime.block_on(left(config)), [9, 8, 7]);
    clients(&mut client)
}

fn both(resp: &str, name: &str) -> Vec<(String, String)> {
    vec![(resp.to_owned(), name.to_owned())]
}

#[test]
fn c3_the_newest_protocol_is_spoken_whoever_we_are() {
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        let mut client = server.client();
        client.text(&["ACL", "SETUSER", "tollgate", "on", ">own", "~*", "+@all"]);
        let (user, own) = (Some("tollgate".to_owned()), Some("own".to_owned()));
        let stranger = config(&server);
        let known = Config { user, password: own, ..config(&server) };
        for config in [stranger.clone(), known.clone()] {
            assert_eq!(spoken(&server, config.clone()), both("3", "tollgate"), "{kind:?}: {config:?}");
            let older = Config { protocol: Protocol::Resp2, ..config };
            assert_eq!(spoken(&server, older.clone()), both("2", ""), "{kind:?}: {older:?}");
        }
    }
}

#[test]
fn c3_a_password_alone_is_enough() {
    for kind in Kind::ALL {
        let server = Server::start(kind, &[]);
        // Who is connected already stays.
        let mut client = server.client();
        client.text(&["CONFIG", "SET", "requirepass", "secret"]);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for protocol in [Protocol::Newest, Protocol::Resp2] {
            client.text(&["FLUSHALL"]);
            let config = Config { password: Some("secret".to_owned()), protocol, ..config(&server) };
            assert_eq!(runtime.block_on(left(config)), [9, 8, 7], "{kind:?}: {protocol:?}");
        }
    }
}

#[test]
fn c3_a_store_that_knows_only_the_older_protocol_is_spoken_to_by_that() {
    for kind in Kind::ALL {
        let server = Server::start(kind, &["--rename-command", "HELLO", ""]);
        server.client().text(&["ACL", "SETUSER", "tollgate", "on", ">own", "~*", "+@all"]);
        let (user, own) = (Some("tollgate".to_owned()), Some("own".to_owned()));
        for config in [config(&server), Config { user, password: own, ..config(&server) }] {
            assert_eq!(spoken(&server, config.clone()), both("2", ""), "{kind:?}: {config:?}");
        }
    }
}
