//! Stores that are reached over TLS, and by nobody else.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod common;
#[allow(dead_code, reason = "no test uses all of it")]
#[path = "cluster/nodes.rs"]
mod nodes;

use common::{FREE_PORT, Kind, PATIENCE, Server, now};
use nodes::Cluster;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tollgate::{Engine, Request, RuleSet, Source, Time, Value};
use tollgate_store::{Address, Config, Reply, Store, Tls, Trouble};

/// A certificate for 127.0.0.1 in files, and who has signed it.
struct Certificate {
    folder: PathBuf,
    authority: CertificateDer<'static>,
}

impl Certificate {
    fn new() -> Certificate {
        let authority_key = KeyPair::generate().unwrap();
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        // Who has the name of its authority is taken for one that has signed itself.
        authority.distinguished_name.push(DnType::CommonName, "an authority");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = authority.self_signed(&authority_key).unwrap();
        let key = KeyPair::generate().unwrap();
        let issuer = Issuer::new(authority, authority_key);
        let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        static LAST: AtomicUsize = AtomicUsize::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("tollgate-store-tls-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (name, text) in [("ca.pem", root.pem()), ("cert.pem", leaf.pem()), ("key.pem", key.serialize_pem())] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        Certificate { folder, authority: root.der().clone() }
    }

    /// What a server is told to take it.
    fn arguments(&self) -> Vec<String> {
        let file = |name: &str| self.folder.join(name).to_str().unwrap().to_owned();
        [
            ("--tls-port", FREE_PORT.to_owned()),
            ("--tls-cert-file", file("cert.pem")),
            ("--tls-key-file", file("key.pem")),
            ("--tls-ca-cert-file", file("ca.pem")),
            ("--tls-auth-clients", "no".to_owned()),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect()
    }

    fn trusted(&self) -> Tls {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.clone()).unwrap();
        tls(roots)
    }
}

impl Drop for Certificate {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn tls(roots: RootCertStore) -> Tls {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    Tls(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

/// Where a server is asked over TLS.
fn secured(server: &Server) -> String {
    let Reply::Array(setting) = server.client().ask(&["CONFIG", "GET", "tls-port"]) else { panic!("no port") };
    let Some(Reply::Text(port)) = setting.last() else { panic!("{setting:?}") };
    format!("127.0.0.1:{}", std::str::from_utf8(port).unwrap())
}

/// Patient, since nothing is measured here.
fn config(address: impl Into<Address>, tls: Tls) -> Config {
    let (budget, connect_timeout) = (Duration::from_secs(5), Duration::from_secs(5));
    Config { tls: Some(tls), budget, connect_timeout, ..Config::new(address) }
}

async fn open(config: Config) -> Store {
    let store = Store::open(config);
    tokio::time::timeout(PATIENCE, store.connected()).await.unwrap_or_else(|_| panic!("{:?}", store.trouble()));
    store
}

fn engine(limit: &str) -> Engine {
    let rule = format!("{{ name: a, key: [user], limits: [{limit}], shared: store-exact, on_failure: refuse }}");
    let rules = format!("namespace: n\nrules: [{rule}]");
    Engine::new(RuleSet::parse(&[Source::new("rules", rules)]).unwrap(), Time::ZERO)
}

/// Valkey from its package is built without.
const KIND: Kind = Kind::Redis;

#[tokio::test]
async fn c3_every_node_of_a_cluster_is_asked_over_tls() {
    let certificate = Certificate::new();
    let mut arguments = certificate.arguments();
    arguments.extend(["--tls-cluster", "yes", "--tls-replication", "yes"].map(str::to_owned));
    let cluster = Cluster::start_with(KIND, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let seeds = cluster.nodes.iter().take(1).map(secured).collect();
    let store = open(config(Address::Cluster(seeds), certificate.trusted())).await;
    let engine = engine("2 per hour");
    for user in 0..100 {
        let user = user.to_string();
        let attributes = [("user", Value::Text(&user))];
        for is_allowed in [true, true, false] {
            let verdict = engine.check_with(&store, &Request::new("n", &attributes), Time::ZERO).await;
            assert_eq!((verdict.is_allowed(), verdict.is_degraded()), (is_allowed, false), "{:?}", store.trouble());
        }
    }
    for node in cluster.nodes.iter().take(nodes::PRIMARIES) {
        let users: u64 = node.client().text(&["DBSIZE"]).parse().unwrap();
        assert!(users > 10, "{users} of 100 at one of three nodes");
    }
}

#[tokio::test]
async fn c3_a_store_is_asked_over_tls_if_it_is_the_one_it_says() {
    let certificate = Certificate::new();
    let arguments = certificate.arguments();
    let server = Server::start(KIND, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let address = secured(&server);
    let store = open(config(address.clone(), certificate.trusted())).await;
    let engine = Arc::new(engine("500 per hour"));
    let asking = (0..1_000).map(|_| {
        let (store, engine) = (store.clone(), Arc::clone(&engine));
        tokio::spawn(async move {
            let attributes = [("user", Value::Text("ann"))];
            engine.check_with(&store, &Request::new("n", &attributes), Time::ZERO).await.is_allowed()
        })
    });
    let mut admitted = 0;
    for task in asking.collect::<Vec<_>>() {
        admitted += usize::from(task.await.unwrap());
    }
    assert_eq!(admitted, 500);

    let stranger = Store::open(config(address, tls(RootCertStore::empty())));
    let start = now();
    while stranger.trouble().is_none() && start.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let trouble = stranger.trouble().unwrap();
    assert!(matches!(&*trouble, Trouble::Unreachable(why) if why.contains("certificate")), "{trouble}");
    assert!(!stranger.is_connected());
}
