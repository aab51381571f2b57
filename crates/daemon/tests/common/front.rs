//! Real proxies and balancers on free ports, in front of daemons.

#![allow(dead_code, reason = "no test uses all of it")]

use super::common::{Folder, eventually};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

/// A program that passes requests on, ended when this is dropped.
pub(crate) struct Front {
    child: Child,
    pub(crate) address: SocketAddr,
    _folder: Folder,
}

pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

impl Front {
    /// nginx with this within `http`: one process alone, so that nothing of it stays when it is ended.
    pub(crate) fn nginx(address: SocketAddr, http: &str) -> Front {
        let configuration = format!(
            "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr;\nevents {{}}\nhttp {{\n\
             access_log off;\nclient_body_temp_path body;\nproxy_temp_path proxy;\nfastcgi_temp_path fastcgi;\n\
             uwsgi_temp_path uwsgi;\nscgi_temp_path scgi;\n{http}\n}}\n"
        );
        let folder = Folder::new();
        std::fs::write(folder.path().join("nginx.conf"), configuration).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-p").arg(folder.path()).args(["-c", "nginx.conf"]);
        Front::start(command, address, folder)
    }

    pub(crate) fn haproxy(address: SocketAddr, configuration: &str) -> Front {
        let folder = Folder::new();
        let file = folder.path().join("haproxy.cfg");
        std::fs::write(&file, configuration).unwrap();
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-f").arg(file);
        Front::start(command, address, folder)
    }

    fn start(mut command: Command, address: SocketAddr, folder: Folder) -> Front {
        let program = command.get_program().to_string_lossy().into_owned();
        command.stdout(Stdio::null()).stderr(Stdio::null());
        // It is not on every user's path.
        command.env("PATH", format!("{}:/usr/sbin", std::env::var("PATH").unwrap()));
        let child = command.spawn();
        let child = child.unwrap_or_else(|error| panic!("{program}: {error}; install the package `{program}`"));
        let front = Front { child, address, _folder: folder };
        assert!(eventually(|| TcpStream::connect(address).is_ok()), "{program} does not answer");
        front
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
