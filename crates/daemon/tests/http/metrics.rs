//! `/metrics`: is this rule effective, is it too strict, and who is being throttled?

use crate::server::Server;
use std::collections::HashSet;

const LOGIN: &str = r#"{"namespace":"shop","attributes":{"path":"/login","ip":"192.0.2.1"}}"#;

fn busy() -> Server {
    let server = Server::start();
    (0..5).for_each(|_| _ = server.ask("/v1/check", LOGIN));
    server.ask("/v1/check", "{");
    server
}

#[test]
fn n8_metrics_tell_what_each_rule_did() {
    let page = busy().get("/metrics", "");
    assert_eq!(page.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    for line in [
        r#"tollgate_decisions_total{namespace="shop",rule="logins",ending="allowed"} 2"#,
        r#"tollgate_decisions_total{namespace="shop",rule="logins",ending="refused"} 3"#,
        r#"tollgate_clients{namespace="shop",rule="logins"} 1"#,
        r#"tollgate_refused_clients{namespace="shop",rule="logins"} 1"#,
        r#"tollgate_limit_use_ratio_bucket{namespace="shop",rule="logins",le="0.6"} 1"#,
        r#"tollgate_limit_use_ratio_bucket{namespace="shop",rule="logins",le="1.0"} 2"#,
        r#"tollgate_limit_use_ratio_bucket{namespace="shop",rule="logins",le="+Inf"} 5"#,
        r#"tollgate_faults_total{protocol="http",fault="malformed"} 1"#,
        r#"tollgate_connections_accepted_total{protocol="http"} 7"#,
        "tollgate_rules_version 1",
        "tollgate_reservations_open 0",
        "# TYPE tollgate_questions_total counter",
    ] {
        assert!(page.body.lines().any(|known| known == line), "{line} is not in {}", page.body);
    }
    for name in ["process_cpu_seconds_total ", "process_resident_memory_bytes ", "process_open_fds "] {
        assert!(page.body.lines().any(|line| line.starts_with(name)), "{name}");
    }
    assert!(!page.body.contains("192.0.2.1"), "clients are not named");
}

#[test]
fn n8_clients_are_named_only_for_who_asks() {
    let server = busy();
    let page = server.get("/metrics?keys=top", "").body;
    let line = r#"tollgate_top_refused{namespace="shop",rule="logins",place="1",key="192.0.2.1"} 3"#;
    assert!(page.lines().any(|known| known == line), "{page}");
    assert_eq!(server.get("/metrics?keys=all", "").status, 400);
}

#[test]
fn metrics_keep_to_the_rules_of_both_formats() {
    let server = busy();
    let open =
        server.get("/metrics?keys=top", "accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n");
    assert_eq!(open.header("content-type"), Some("application/openmetrics-text; version=1.0.0; charset=utf-8"));
    assert!(open.body.ends_with("# EOF\n") && open.body.matches("# EOF").count() == 1);
    assert!(open.body.contains("# TYPE tollgate_decisions counter\ntollgate_decisions_total{"), "{}", open.body);
    for page in [open.body, server.get("/metrics?keys=top", "").body] {
        let mut families = HashSet::new();
        let mut series = HashSet::new();
        let mut family = String::new();
        for line in page.lines().filter(|line| *line != "# EOF") {
            if let Some(declared) = line.strip_prefix("# TYPE ") {
                family = declared.split(' ').next().unwrap().to_owned();
                assert!(families.insert(family.clone()), "{family} is there twice");
            } else if !line.starts_with("# HELP ") {
                assert!(line.starts_with(&family), "{line} is not of {family}");
                let (name, value) = line.rsplit_once(' ').unwrap();
                assert!(series.insert(name.to_owned()), "{name} is there twice");
                value.parse::<f64>().unwrap();
            }
        }
    }
}
