//! The `OpenAPI` document says what there is, and what there is keeps to it.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod common;
#[path = "http/server.rs"]
mod server;
#[path = "common/venv.rs"]
mod venv;

use serde_json::Value;
use server::{Reply, Server};
use std::path::Path;
use std::process::Command;

/// Each page and method that the document names.
fn operations() -> Vec<(String, String, Value)> {
    let document: Value = serde_json::from_str(tollgate_daemon::http::OPENAPI).unwrap();
    let pages = document.get("paths").and_then(Value::as_object).unwrap().clone();
    let of_page = |(path, page): (String, Value)| {
        let methods = page.as_object().unwrap().clone().into_iter().filter(|(name, _)| name != "parameters");
        methods.map(move |(method, operation)| (path.clone(), method.to_uppercase(), operation)).collect::<Vec<_>>()
    };
    pages.into_iter().flat_map(of_page).collect()
}

#[test]
fn the_document_is_of_this_version_and_its_examples_work() {
    let server = Server::start();
    let served = server.get("/openapi.json", "").json();
    assert_eq!(served, serde_json::from_str::<Value>(tollgate_daemon::http::OPENAPI).unwrap());
    assert_eq!(served["info"]["version"], env!("CARGO_PKG_VERSION"));
    for (path, method, operation) in operations().into_iter().filter(|(path, ..)| path != "/v1/auth") {
        let example = &operation["requestBody"]["content"]["application/json"]["example"];
        let body = if example.is_null() { String::new() } else { example.to_string() };
        let request = format!("{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let reply = Reply::new(&server.send(request.as_bytes()));
        // The examples of reservations are of none that is open.
        let expected = if matches!(&*path, "/v1/settle" | "/v1/refund") { 404 } else { 200 };
        assert_eq!(reply.status, expected, "{method} {path}: {reply:?}");
    }
}

#[test]
fn what_the_first_page_lists_is_what_the_document_has() {
    let listed = Server::start().get("/", "").json();
    for (path, method, _) in operations().into_iter().filter(|(path, ..)| !matches!(&**path, "/" | "/openapi.json")) {
        let name = if path == "/v1/auth" { path } else { format!("{method} {path}") };
        assert!(listed["pages"][&name].is_string(), "{name}");
    }
}

#[test]
fn schemathesis_finds_no_fault_of_ours_and_no_mismatch() {
    let server = Server::start();
    let environment = venv::with(&["schemathesis==4.32.5"], "schemathesis");
    let configuration = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http/schemathesis.toml");
    let output = Command::new(environment.join("bin/st"))
        .arg("--config-file")
        .arg(configuration)
        .arg("run")
        .arg(format!("http://{}/openapi.json", server.address))
        .args(["--max-examples", "12", "--seed", "1", "--no-color"])
        .current_dir(environment)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
}
