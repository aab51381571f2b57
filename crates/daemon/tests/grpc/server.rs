//! A server within the test, and a client that is not ours.

#[path = "../common/within.rs"]
mod within;

use prost::Message;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tollgate::ManualClock;
use tollgate_daemon::State;
use tollgate_daemon::grpc::GrpcServer;
use tollgate_daemon::listen::{Door, FrontEnd, Listener, Stop, Stopper, listen};
use tollgate_daemon::meters::{Meter, Protocol};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;
use within::Suspicious;
pub(crate) use within::state;

pub(crate) const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// A server on a free port, whose clock stands still. It ends when this is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) state: Arc<State>,
    pub(crate) hands: ManualClock,
    pub(crate) stopper: Stopper,
    pub(crate) running: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(rules: &str) -> Server {
        let (state, hands) = state(rules, &[]);
        let server = GrpcServer::new(Arc::clone(&state), Duration::from_secs(60));
        Server::run(server, state, hands).await
    }

    /// One that wants to see a token.
    pub(crate) async fn start_suspicious(rules: &str, token: &str) -> Server {
        let (state, hands) = state(rules, &[token]);
        let server = GrpcServer::new(Arc::clone(&state), Duration::from_secs(60));
        Server::run(Suspicious(server), state, hands).await
    }

    async fn run(server: impl FrontEnd, state: Arc<State>, hands: ManualClock) -> Server {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stopper, stop) = Stop::new();
        let running = tokio::spawn(listen(Listener::Tcp(listener), Door::default(), Arc::new(server), stop));
        Server { address, state, hands, stopper, running }
    }

    pub(crate) async fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.address)).unwrap().connect().await.unwrap()
    }

    pub(crate) async fn client(&self) -> Client {
        Client(Grpc::new(self.channel().await))
    }

    pub(crate) fn meter(&self) -> &Meter {
        self.state.meters().of(Protocol::Grpc)
    }
}

/// A tonic client of whichever service.
#[derive(Clone)]
pub(crate) struct Client(pub(crate) Grpc<Channel>);

impl Client {
    pub(crate) async fn call<Q, A>(&mut self, method: &'static str, message: Q) -> Result<A, tonic::Status>
    where
        Q: Message + Send + 'static,
        A: Message + Default + Send + 'static,
    {
        self.call_with(method, tonic::Request::new(message)).await
    }

    pub(crate) async fn call_with<Q, A>(
        &mut self,
        method: &'static str,
        request: tonic::Request<Q>,
    ) -> Result<A, tonic::Status>
    where
        Q: Message + Send + 'static,
        A: Message + Default + Send + 'static,
    {
        self.0.ready().await.unwrap();
        let path = PathAndQuery::from_static(method);
        Ok(self.0.unary(request, path, ProstCodec::default()).await?.into_inner())
    }
}
