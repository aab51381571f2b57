//! A daemon, asked over RESP.

use super::Failure;
use clap::{Arg, ArgMatches};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// How long a daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest text that a daemon answers with, and the longest list.
const LONGEST: usize = 16 << 20;
const MOST: usize = 1 << 20;

/// Which daemon.
pub(crate) fn server() -> Arg {
    Arg::new("server")
        .long("server")
        .short('s')
        .value_name("ADDRESS")
        .env("TOLLGATE_SERVER")
        .default_value("127.0.0.1:6380")
        .help("Where the daemon answers Redis clients")
}

/// What lets us in.
pub(crate) fn token() -> Arg {
    Arg::new("token")
        .long("token")
        .value_name("TOKEN")
        .env("TOLLGATE_TOKEN")
        .hide_env_values(true)
        .help("The token, if it needs one; better given by the environment, as others can see flags")
}

/// What a daemon answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Text(String),
    Number(i64),
    List(Vec<Reply>),
}

impl std::fmt::Display for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reply::Text(text) => f.write_str(text),
            Reply::Number(number) => write!(f, "{number}"),
            Reply::List(_) => f.write_str("…"),
        }
    }
}

/// A daemon that answers.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    /// The one that the flags name.
    pub(crate) fn open(matches: &ArgMatches) -> Result<Connection, Failure> {
        let server = matches.get_one::<String>("server").map(String::as_str).unwrap_or_default();
        let stream = TcpStream::connect(server).map_err(|error| {
            format!("no daemon at {server}: {error}; start one with `tollgate serve`, or name another with --server")
        })?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut connection = Connection { stream: BufReader::new(stream) };
        if let Some(token) = matches.get_one::<String>("token") {
            connection.ask(&["AUTH", token])?;
        }
        Ok(connection)
    }

    /// Sends a command and waits for what is answered.
    pub(crate) fn ask(&mut self, words: &[&str]) -> Result<Reply, Failure> {
        let mut bytes = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| bytes += &format!("${}\r\n{word}\r\n", word.len()));
        self.stream.get_mut().write_all(bytes.as_bytes())?;
        self.reply()
    }

    fn reply(&mut self) -> Result<Reply, Failure> {
        let mut line = String::new();
        (&mut self.stream).take(64 * 1024).read_line(&mut line)?;
        let Some((kind, rest)) = line.trim_end().split_at_checked(1) else {
            return Err("the daemon has hung up".into());
        };
        let length = |most: usize| {
            rest.parse::<usize>().ok().filter(|length| *length <= most).ok_or("this is no daemon of ours")
        };
        Ok(match kind {
            "+" => Reply::Text(rest.to_owned()),
            "-" => return Err(rest.into()),
            ":" => Reply::Number(rest.parse()?),
            "$" => {
                let mut text = vec![0; length(LONGEST)? + 2];
                self.stream.read_exact(&mut text)?;
                Reply::Text(String::from_utf8_lossy(&text).trim_end_matches("\r\n").to_owned())
            }
            "*" => Reply::List((0..length(MOST)?).map(|_| self.reply()).collect::<Result<_, _>>()?),
            _ => return Err("this is no daemon of ours; is the address that of its RESP listener?".into()),
        })
    }
}
