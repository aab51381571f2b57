//! What systemd offers: sockets that it has opened already, and a word when all is ready.

use listenfd::ListenFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use tokio::net::TcpListener;

/// TCP sockets that were handed over, in the order in which the unit file names them: RESP, gRPC, HTTP.
pub(crate) struct Sockets(ListenFd);

impl Sockets {
    /// Those of this process. They are there once.
    pub(crate) fn take() -> Sockets {
        Sockets(ListenFd::from_env())
    }

    /// The one at a position, if there is one.
    pub(crate) fn tcp(&mut self, position: usize) -> std::io::Result<Option<TcpListener>> {
        let Some(listener) = self.0.take_tcp_listener(position).ok().flatten() else { return Ok(None) };
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener).map(Some)
    }
}

/// Tells systemd, if it is there and wants to know, that the daemon is `READY=1` or `STOPPING=1`.
pub(crate) fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let bytes = path.as_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    // Nobody is worse off if systemd does not hear of it but systemd.
    if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
        let _ = socket.send_to_addr(state.as_bytes(), &address);
    }
}
