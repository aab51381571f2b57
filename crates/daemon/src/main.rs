//! The program `tollgate`.

use clap::{Parser, Subcommand};
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tollgate::{RuleSet, Tollgate};
use tollgate_daemon::State;
use tollgate_daemon::access::Access;
use tollgate_daemon::listen::{Door, Listener, Stop, listen};
use tollgate_daemon::resp::RespServer;

/// A rate limiter that any language can ask.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer whoever asks, until interrupted.
    Serve(Serve),
    /// Check rules without loading them.
    Lint {
        /// A file, or a directory of files.
        rules: PathBuf,
    },
    /// Write rules, such as those of envoyproxy/ratelimit, in our own format.
    Import {
        /// A file, or a directory of files.
        rules: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
struct Serve {
    /// The rules: a file, or a directory of files. They are read again when they change. Without any, only
    /// CL.THROTTLE and THROTTLE limit anything.
    #[arg(long, env = "TOLLGATE_RULES")]
    rules: Option<PathBuf>,
    /// Where Redis clients connect. Whoever can reach it can use it: there is no password yet.
    #[arg(long, env = "TOLLGATE_RESP", default_value = "127.0.0.1:6380")]
    resp: SocketAddr,
    /// Keys of CL.THROTTLE and THROTTLE at the same time, at 26 bytes each.
    #[arg(long, env = "TOLLGATE_KEYS", default_value_t = 1_000_000)]
    keys: usize,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Serve(options) => serve(&options),
        Command::Lint { rules } => Tollgate::open(rules).map(|_| println!("all is well")).map_err(Into::into),
        Command::Import { rules } => import(&rules),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn import(path: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
    print!("{}", tollgate::read_rules(path)?.to_yaml());
    Ok(())
}

fn serve(options: &Serve) -> Result<(), Box<dyn std::error::Error>> {
    let tollgate = match &options.rules {
        Some(path) => Tollgate::open(path)?,
        None => Tollgate::builder().build(RuleSet::default()),
    };
    let _watching = options.rules.as_ref().map(|_| tollgate.watch());
    let state = Arc::new(State::new(tollgate, options.keys, Access::default()));
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(run(options.resp, state))
}

async fn run(address: SocketAddr, state: Arc<State>) -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind(address).await.map_err(|error| format!("cannot listen on {address}: {error}"))?;
    let address = listener.local_addr()?;
    greet(address);
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let (stopper, stop) = Stop::new();
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        stopper.stop();
    });
    let server = Arc::new(RespServer::new(state, std::time::Duration::from_secs(300)));
    listen(Listener::Tcp(listener), Door::default(), server, stop).await;
    Ok(())
}

/// Says what to try. Whether anybody reads it makes no difference.
fn greet(address: SocketAddr) {
    let port = address.port();
    let _ = writeln!(
        std::io::stdout(),
        "Tollgate answers Redis clients on {address}. Try:\n  redis-cli -p {port} CL.THROTTLE alice 4 5 60"
    );
}
