//! Rules to begin with.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

/// Where they are written.
pub(crate) const FILE: &str = "tollgate-rules.yaml";

/// What they say.
pub(crate) const RULES: &str = include_str!("example-rules.yaml");

/// Writes them where they can be edited, unless there is something already.
///
/// # Errors
/// Why not.
pub(crate) fn write(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(mut file) => file.write_all(RULES.as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Lines that show a 200 turn into a 429.
pub(crate) fn curl(address: SocketAddr) -> String {
    format!(
        "\nSix requests where five are allowed:\n  \
         for i in 1 2 3 4 5 6; do curl -s -o /dev/null -w '%{{http_code}}\\n' 'http://{address}/v1/check?status=verdict' \
         -d '{{\"namespace\":\"demo\",\"attributes\":{{\"operation\":\"hello\",\"user\":\"you\"}}}}'; done\n"
    )
}
