//! A tonic service whose users get five calls a second each, by the API key in their metadata.
//!
//! `cargo run --example tonic --features tower` serves and asks itself: five calls pass, the sixth does not.
//! The service is written by hand, so that the example needs no `protoc`; one that was generated is layered alike.

use std::convert::Infallible;
use std::error::Error;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::net::TcpListener;
use tollgate::Tollgate;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response, uri::PathAndQuery};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::server::{Router, TcpConnectInfo, TcpIncoming};
use tonic::transport::{Channel, Server};
use tonic::{Status, metadata::AsciiMetadataValue};
use tonic_prost::ProstCodec;
use tower_service::Service;

pub(crate) const RULES: &str = include_str!("tonic.yaml");

/// `message Text { string text = 1; }`
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Text {
    #[prost(string, tag = "1")]
    pub(crate) text: String,
}

/// `service Echo { rpc Say(Text) returns (Text); }`
#[derive(Clone)]
pub(crate) struct Echo;

impl NamedService for Echo {
    const NAME: &'static str = "example.Echo";
}

impl UnaryService<Text> for Echo {
    type Response = Text;
    type Future = Ready<Result<tonic::Response<Text>, Status>>;

    fn call(&mut self, request: tonic::Request<Text>) -> Self::Future {
        ready(Ok(tonic::Response::new(request.into_inner())))
    }
}

impl Service<Request<Body>> for Echo {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(async move {
            match request.uri().path() {
                "/example.Echo/Say" => Ok(Grpc::new(ProstCodec::default()).unary(Echo, request).await),
                _ => Ok(Status::unimplemented("there is only Say").into_http()),
            }
        })
    }
}

/// Serves for as long as connections come in.
pub(crate) async fn serve(tollgate: Tollgate, listener: TcpListener) -> Result<(), tonic::transport::Error> {
    let layer = tollgate.layer("echo").peer(|known| Some(known.get::<TcpConnectInfo>()?.remote_addr()?.ip()));
    let server: Router<_> = Server::builder().layer(layer).add_service(Echo);
    server.serve_with_incoming(TcpIncoming::from(listener)).await
}

/// Asks the service on this channel to say something.
pub(crate) async fn say(channel: Channel, text: &str, key: &'static str) -> Result<String, Status> {
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let mut request = tonic::Request::new(Text { text: text.to_owned() });
    request.metadata_mut().insert("x-api-key", AsciiMetadataValue::from_static(key));
    let codec: ProstCodec<Text, Text> = ProstCodec::default();
    let answer = grpc.unary(request, PathAndQuery::from_static("/example.Echo/Say"), codec).await?;
    Ok(answer.into_inner().text)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(serve(Tollgate::from_yaml(RULES)?, listener));
    let channel = Channel::from_shared(format!("http://{address}"))?.connect().await?;
    for _ in 0..6 {
        match say(channel.clone(), "hello", "k-17").await {
            Ok(text) => println!("{text}"),
            Err(status) => println!("{:?}: {}", status.code(), status.message()),
        }
    }
    Ok(())
}
