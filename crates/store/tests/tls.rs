//! A store that is reached over TLS, and by nobody else.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod common;

use common::{Kind, PATIENCE, Server, now};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tollgate::{Engine, Request, RuleSet, Source, Time, Value};
use tollgate_store::{Config, Store, Tls, Trouble};

/// A certificate for 127.0.0.1 in files, and who has signed it.
struct Certificate {
    folder: PathBuf,
    authority: CertificateDer<'static>,
}

impl Certificate {
    fn new() -> Certificate {
        let authority_key = KeyPair::generate().unwrap();
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = authority.self_signed(&authority_key).unwrap();
        let key = KeyPair::generate().unwrap();
        let issuer = Issuer::new(authority, authority_key);
        let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        let folder = std::env::temp_dir().join(format!("tollgate-store-tls-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (name, text) in [("ca.pem", root.pem()), ("cert.pem", leaf.pem()), ("key.pem", key.serialize_pem())] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        Certificate { folder, authority: root.der().clone() }
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().to_owned()
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

#[tokio::test]
async fn c3_a_store_is_asked_over_tls_if_it_is_the_one_it_says() {
    let certificate = Certificate::new();
    // Valkey from its package is built without.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (cert, key, ca) = (certificate.file("cert.pem"), certificate.file("key.pem"), certificate.file("ca.pem"));
    let arguments = [
        "--tls-port",
        &port.to_string(),
        "--tls-cert-file",
        &cert,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &ca,
        "--tls-auth-clients",
        "no",
    ];
    let _server = Server::start(Kind::Redis, &arguments);
    let config = |tls| Config {
        tls: Some(tls),
        budget: Duration::from_secs(5),
        connect_timeout: Duration::from_secs(5),
        ..Config::new(format!("127.0.0.1:{port}"))
    };
    let store = Store::open(config(certificate.trusted()));
    tokio::time::timeout(PATIENCE, store.connected()).await.unwrap_or_else(|_| panic!("{:?}", store.trouble()));
    let rules = "namespace: n\nrules: [{ name: a, key: [user], limits: [500 per hour], shared: store-exact, on_failure: refuse }]";
    let engine = Arc::new(Engine::new(RuleSet::parse(&[Source::new("rules", rules)]).unwrap(), Time::ZERO));
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

    let stranger = Store::open(config(tls(RootCertStore::empty())));
    let start = now();
    while stranger.trouble().is_none() && start.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let trouble = stranger.trouble().unwrap();
    assert!(matches!(&*trouble, Trouble::Unreachable(why) if why.contains("certificate")), "{trouble}");
    assert!(!stranger.is_connected());
}
