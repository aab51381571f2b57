//! A server and clients on loopback.

use crate::service::Setting;
use axum::Router;
use axum::extract::ConnectInfo;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tollgate::tower::TollgateLayer;

pub(crate) const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The layer of a setting's namespace, for axum.
pub(crate) fn layer(setting: &Setting) -> TollgateLayer {
    let peer = |known: &http::Extensions| Some(known.get::<ConnectInfo<SocketAddr>>()?.ip());
    setting.tollgate.layer("test").peer(peer)
}

/// Serves on a free port for as long as the test runs.
pub(crate) async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind((LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    address
}

/// Serves `hello` behind the setting's layer.
pub(crate) async fn serve_hello(setting: &Setting) -> SocketAddr {
    serve(Router::new().fallback(async || "hello").layer(layer(setting))).await
}

/// A connection that is kept alive.
pub(crate) struct Client(SendRequest<Empty<Bytes>>);

/// What was answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: String,
}

impl Client {
    pub(crate) async fn connect(to: SocketAddr) -> Client {
        Client::connect_from(LOCALHOST, to).await
    }

    /// All of 127.0.0.0/8 is loopback.
    pub(crate) async fn connect_from(from: impl Into<IpAddr>, to: SocketAddr) -> Client {
        let (sender, connection) = handshake(TokioIo::new(stream(from, to).await)).await.unwrap();
        tokio::spawn(connection);
        Client(sender)
    }

    pub(crate) async fn get(&mut self, headers: &[(&str, &str)]) -> Answer {
        self.0.ready().await.unwrap();
        let mut request = http::Request::get("/").header("host", "localhost");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = self.0.send_request(request.body(Empty::new()).unwrap()).await.unwrap();
        let (head, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer { status: head.status.as_u16(), headers: head.headers, body: String::from_utf8(body.into()).unwrap() }
    }

    /// The status only.
    pub(crate) async fn status(&mut self, headers: &[(&str, &str)]) -> u16 {
        self.get(headers).await.status
    }
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

pub(crate) async fn stream(from: impl Into<IpAddr>, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from.into(), 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}
