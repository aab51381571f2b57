//! Real balancers in front of real daemons that each count by themselves, set up as `docs/sticky-sessions.md` says: a client
//! that always reaches the same host has one limit, and a client that does not has one on every host.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod common;
#[path = "common/front.rs"]
mod front;

use common::{Daemon, Folder, connect, read_all};
use front::{Front, free_address};
use serde_json::Value;
use std::io::Write;
use std::net::SocketAddr;

const NGINX: &str = include_str!("sticky/nginx.conf");
const HAPROXY: &str = include_str!("sticky/haproxy.cfg");
const RULES: &str = "namespace: shop\nrules:\n  - { name: per-user, key: [user], limits: [5 per day] }\n";

/// What the rules allow a client.
const LIMIT: usize = 5;
const HOSTS: usize = 3;
const CLIENTS: usize = 120;
/// How often each of them asks: more than all hosts together allow, however they are taken in turn.
const ASKS: usize = 20;

#[derive(Clone, Copy, Debug)]
enum Balancer {
    Nginx,
    Haproxy,
}

impl Balancer {
    const ALL: [Balancer; 2] = [Balancer::Nginx, Balancer::Haproxy];

    /// Sends each client to a host of its own, as documented.
    fn sticky(self, daemons: &[Daemon]) -> Front {
        self.start(daemons, |configuration| configuration)
    }

    /// Sends everybody to each host in turn.
    fn in_turn(self, daemons: &[Daemon]) -> Front {
        self.start(daemons, |configuration| match self {
            Balancer::Nginx => replaced(&configuration, "    hash $http_x_client_id consistent;\n", ""),
            Balancer::Haproxy => replaced(&configuration, "balance hdr(X-Client-Id)", "balance roundrobin"),
        })
    }

    fn start(self, daemons: &[Daemon], change: impl FnOnce(String) -> String) -> Front {
        let address = free_address();
        let configuration = match self {
            Balancer::Nginx => replaced(NGINX, "listen 80;", &format!("listen {address};")),
            Balancer::Haproxy => replaced(HAPROXY, "bind :80", &format!("bind {address}")),
        };
        let hosts = (1..).map(|number| format!("10.0.0.{number}:8080"));
        let configuration = hosts.zip(daemons).fold(change(configuration), |configuration, (host, daemon)| {
            replaced(&configuration, &host, &daemon.http.to_string())
        });
        match self {
            Balancer::Nginx => Front::nginx(address, &configuration),
            Balancer::Haproxy => Front::haproxy(address, &configuration),
        }
    }
}

/// The example with something of the test's in place of something of a user's.
fn replaced(example: &str, theirs: &str, ours: &str) -> String {
    assert!(example.contains(theirs), "no {theirs} in {example}");
    example.replace(theirs, ours)
}

/// Hosts that know nothing of each other.
fn hosts() -> (Vec<Daemon>, Folder) {
    let folder = Folder::new();
    let rules = folder.path().join("rules.yaml");
    std::fs::write(&rules, RULES).unwrap();
    let daemons = (0..HOSTS).map(|_| Daemon::start(&["--rules", rules.to_str().unwrap()])).collect();
    (daemons, folder)
}

/// What is answered about a client, who is named in a header for balancers, too.
fn ask(address: SocketAddr, page: &str, client: usize, cost: u64) -> Value {
    let body = format!(r#"{{"namespace": "shop", "attributes": {{"user": "user-{client}"}}, "cost": {cost}}}"#);
    let head = format!("POST {page} HTTP/1.1\r\nhost: tollgate\r\nx-client-id: user-{client}\r\nconnection: close");
    let mut stream = connect(address);
    write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let reply = String::from_utf8(read_all(&mut stream)).unwrap();
    let answer = reply.split_once("\r\n\r\n").and_then(|(_, body)| serde_json::from_str(body).ok());
    answer.unwrap_or_else(|| panic!("no answer about {client}: {reply:?}"))
}

/// How many requests of each client are admitted.
fn admitted(front: &Front) -> Vec<usize> {
    let allowed = |client| ask(front.address, "/v1/check", client, 1).get("allowed").and_then(Value::as_bool).unwrap();
    (0..CLIENTS).map(|client| (0..ASKS).filter(|_| allowed(client)).count()).collect()
}

/// What each of these hosts has counted for a client.
fn spent(daemons: &[Daemon], client: usize) -> Vec<usize> {
    let spent = |daemon: &Daemon| {
        let remaining = ask(daemon.http, "/v1/peek", client, 0).get("remaining").and_then(Value::as_u64).unwrap();
        LIMIT - usize::try_from(remaining).unwrap()
    };
    daemons.iter().map(spent).collect()
}

/// The host of each client: the only one that has counted anything for it.
fn owners(daemons: &[Daemon]) -> Vec<usize> {
    let owner = |client| {
        let spent = spent(daemons, client);
        let owner = spent.iter().position(|count| *count > 0).unwrap();
        assert!(spent.iter().enumerate().all(|(host, count)| host == owner || *count == 0), "{client}: {spent:?}");
        owner
    };
    (0..CLIENTS).map(owner).collect()
}

#[test]
fn c8_a_client_that_always_reaches_the_same_host_has_one_limit() {
    for balancer in Balancer::ALL {
        let (daemons, _rules) = hosts();
        let front = balancer.sticky(&daemons);
        assert_eq!(admitted(&front), [LIMIT; CLIENTS], "{balancer:?}");
        let owners = owners(&daemons);
        let shares: Vec<usize> = (0..HOSTS).map(|host| owners.iter().filter(|owner| **owner == host).count()).collect();
        println!("{balancer:?}: {LIMIT} each; of {CLIENTS} clients the hosts have {shares:?}");
        assert!(shares.iter().all(|share| *share > 0), "{balancer:?}: {shares:?}");
    }
}

#[test]
fn c8_a_client_that_reaches_hosts_in_turn_has_a_limit_on_each() {
    for balancer in Balancer::ALL {
        let (daemons, _rules) = hosts();
        let admitted = admitted(&balancer.in_turn(&daemons));
        println!("{balancer:?} in turn: {} of {CLIENTS} clients together", admitted.iter().sum::<usize>());
        assert_eq!(admitted, [HOSTS * LIMIT; CLIENTS], "{balancer:?}");
    }
}

#[test]
fn c8_when_a_host_is_taken_away_only_its_clients_move() {
    for balancer in Balancer::ALL {
        let (mut daemons, _rules) = hosts();
        let front = balancer.sticky(&daemons);
        assert_eq!(admitted(&front), [LIMIT; CLIENTS], "{balancer:?}");
        let before = owners(&daemons);
        // The last, so that the others keep their numbers.
        drop(daemons.pop());
        let again = admitted(&front);
        let after = owners(&daemons);
        let gone = HOSTS - 1;
        for (client, (before, after)) in before.iter().zip(&after).enumerate() {
            let has_moved = *before == gone;
            assert!(has_moved || before == after, "{balancer:?}: {client} went from {before} to {after}");
            let more = if has_moved { LIMIT } else { 0 };
            assert_eq!(again.get(client), Some(&more), "{balancer:?}: {client} was on {before}");
        }
        let moved = before.iter().filter(|owner| **owner == gone).count();
        println!("{balancer:?}: {moved} of {CLIENTS} clients moved, and each was admitted {LIMIT} more");
    }
}

#[test]
fn the_documentation_shows_what_is_tested() {
    let page = include_str!("../../../docs/sticky-sessions.md");
    assert!(page.contains(&format!("```nginx\n{NGINX}```")), "nginx");
    assert!(page.contains(&format!("```haproxy\n{HAPROXY}```")), "HAProxy");
}
