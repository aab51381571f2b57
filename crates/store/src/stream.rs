//! What bytes are sent over, encrypted or not.

use crate::config::Config;
use std::io;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A connection of either kind.
pub(crate) type Stream = Box<dyn Duplex>;

/// Both directions of one.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Connects to a host and port, as the configuration wants it.
pub(crate) async fn connect(address: &str, config: &Config) -> io::Result<Stream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    encrypt(stream, address, config).await
}

#[cfg(not(feature = "tls"))]
#[expect(clippy::unused_async, reason = "it waits with the feature `tls`")]
async fn encrypt(stream: TcpStream, _address: &str, _config: &Config) -> io::Result<Stream> {
    Ok(Box::new(stream))
}

#[cfg(feature = "tls")]
async fn encrypt(stream: TcpStream, address: &str, config: &Config) -> io::Result<Stream> {
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::pki_types::ServerName;

    let Some(tls) = &config.tls else { return Ok(Box::new(stream)) };
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    // An IPv6 address stands in brackets before a port.
    let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned()).map_err(io::Error::other)?;
    Ok(Box::new(TlsConnector::from(std::sync::Arc::clone(&tls.0)).connect(name, stream).await?))
}
