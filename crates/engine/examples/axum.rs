//! An axum service whose visitors get ten requests a second each.
//!
//! `cargo run --example axum --features tower`, and then `curl -i localhost:3000` a few times.

use axum::extract::ConnectInfo;
use axum::{Router, routing::get, serve};
use std::{error::Error, net::SocketAddr};
use tokio::net::TcpListener;
use tollgate::Tollgate;

pub(crate) const RULES: &str = include_str!("axum.yaml");

pub(crate) fn app(tollgate: &Tollgate) -> Router {
    let layer = tollgate.layer("shop").peer(|known| Some(known.get::<ConnectInfo<SocketAddr>>()?.ip()));
    Router::new().route("/", get(async || "hello")).layer(layer)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let app = app(&Tollgate::from_yaml(RULES)?);
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    Ok(serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?)
}
