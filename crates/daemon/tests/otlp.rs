//! A collector is sent what Prometheus would read, and traces that go on where those of callers are.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod common;
#[path = "common/venv.rs"]
mod venv;

use common::{Daemon, PATIENCE};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// A collector that keeps what it is sent: the path and the body of each request.
fn collector() -> (String, Receiver<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let mut lines = reader.by_ref().lines().map(Result::unwrap).take_while(|line| !line.is_empty());
            let path = lines.next().unwrap_or_default().split(' ').nth(1).unwrap_or_default().to_owned();
            let length = lines.filter_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok()).last();
            let mut body = vec![0; length.unwrap_or(0)];
            reader.read_exact(&mut body).unwrap();
            reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
            let _ = sender.send((path, String::from_utf8(body).unwrap()));
        }
    });
    (address, receiver)
}

/// The first of these that has something to it.
fn await_body(received: &Receiver<(String, String)>, path: &str, is_it: impl Fn(&Value) -> bool) -> String {
    loop {
        let (at, body) = received.recv_timeout(PATIENCE).unwrap();
        if at == path && is_it(&serde_json::from_str(&body).unwrap()) {
            return body;
        }
    }
}

/// What OpenTelemetry says the bodies are.
const METRICS: &str = "metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest";
const TRACES: &str = "trace.v1.trace_service_pb2 import ExportTraceServiceRequest";

/// Fails unless the body is such a message.
fn validate(message: &str, body: &str) {
    let folder = venv::with(&["opentelemetry-proto==1.38.0"], "opentelemetry");
    let script = format!(
        "import sys\nfrom google.protobuf import json_format\nfrom opentelemetry.proto.collector.{message} as Message\n\
         print(json_format.Parse(sys.stdin.read(), Message()).ByteSize())"
    );
    let mut python = Command::new(folder.join("bin/python"));
    let mut child = python
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}\n{body}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn n8_a_collector_is_sent_metrics_and_the_traces_of_those_who_trace() {
    let (collector, received) = collector();
    let flags = ["--otlp", &collector, "--otlp-interval", "1 second", "--otlp-share", "0"];
    let daemon = Daemon::start(&flags);
    let traced = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let body = r#"{"namespace":"demo","attributes":{"operation":"hello","user":"you"}}"#;
    let page = format!("http://{}/v1/check", daemon.http);
    for headers in [&["-H", traced][..], &[]] {
        let output = Command::new("curl").args(["-sS", "-d", body, &page]).args(headers).output().unwrap();
        assert!(String::from_utf8(output.stdout).unwrap().contains("\"allowed\":true"));
    }
    let traces = await_body(&received, "/v1/traces", |_| true);
    validate(TRACES, &traces);
    let traces: Value = serde_json::from_str(&traces).unwrap();
    let spans = traces["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    assert_eq!(spans.len(), 1, "nobody else is traced: {spans:?}");
    assert_eq!(spans[0]["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!((&spans[0]["parentSpanId"], &spans[0]["name"]), (&"00f067aa0ba902b7".into(), &"check".into()));
    let attributes = spans[0]["attributes"].to_string();
    for value in ["http", "demo", "hello", "within-limits"] {
        assert!(attributes.contains(&format!("{{\"stringValue\":\"{value}\"}}")), "{value} in {attributes}");
    }
    assert!(!attributes.contains("you"), "who asked is in no trace");

    let metrics = await_body(&received, "/v1/metrics", |metrics| metrics.to_string().contains("\"asDouble\":2.0"));
    validate(METRICS, &metrics);
    assert!(metrics.contains("tollgate_decisions_total") && metrics.contains("tollgate_limit_use_ratio"));
}
