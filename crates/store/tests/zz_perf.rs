mod common;
use common::*;
use std::sync::Arc;
use std::time::Duration;
use tollgate::*;
use tollgate_store::*;
fn cpu(pid: &str) -> f64 {
    let s = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let f: Vec<&str> = s.rsplit(')').next().unwrap().split_whitespace().collect();
    (f[11].parse::<f64>().unwrap() + f[12].parse::<f64>().unwrap()) * 10.0
}
#[test]
fn perf() {
    let server = Server::start(Kind::Redis, &[]);
    let info = server.client().text(&["INFO", "server"]);
    let pid = info.lines().find_map(|l| l.strip_prefix("process_id:")).unwrap().trim().to_owned();
    for limits in ["1000000 per second", "1000000 per second, 1000000 per minute, 100000000 per hour, 1000000000 per day"] {
        for conc in [1, 16] {
            let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            rt.block_on(async {
                let store = Store::open(Config { budget: Duration::from_secs(1), connections: 1, ..Config::new(server.address.to_string()) });
                store.connected().await;
                let rules = format!("namespace: n\nrules: [{{ name: a, key: [user], limits: [{limits}], shared: store-exact }}]");
                let engine = Arc::new(Engine::new(RuleSet::parse(&[Source::new("r", rules)]).unwrap(), Time::ZERO));
                let n = 60_000;
                let (c0, s0, t0) = (cpu("self"), cpu(&pid), now());
                let tasks: Vec<_> = (0..conc).map(|t| {
                    let (store, engine) = (store.clone(), Arc::clone(&engine));
                    tokio::spawn(async move {
                        for i in 0..n / conc {
                            let user = ((i * 31 + t) % 1000).to_string();
                            let attributes = [("user", Value::Text(&user))];
                            assert!(store.check(&engine, &Request::new("n", &attributes), Time::ZERO).await.is_allowed());
                        }
                    })
                }).collect();
                for t in tasks { t.await.unwrap(); }
                println!("PERF {} limits, {conc} at once: wall {:.1} us, client {:.1} us, server {:.1} us", limits.matches("per").count(), t0.elapsed().as_micros() as f64 / n as f64, (cpu("self") - c0) * 1e3 / n as f64, (cpu(&pid) - s0) * 1e3 / n as f64);
            });
        }
    }
}
