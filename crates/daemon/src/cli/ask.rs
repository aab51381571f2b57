//! Commands that ask a daemon, over RESP.

use super::{Failure, print};
use clap::{Arg, ArgMatches, Command, value_parser};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// How long a daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest text that a daemon answers with.
const LONGEST: usize = 16 << 20;

/// The commands.
pub(crate) fn commands() -> [Command; 4] {
    [
        ("check", "Ask a daemon whether a request may go ahead, and pay for it. Exits with 1 if it may not"),
        ("peek", "Ask the same without paying"),
        ("reset", "Forget what the client of a request has spent"),
        ("explain", "Say which rules apply to a request, and why"),
    ]
    .map(|(name, about)| Command::new(name).about(about).args(arguments()))
}

fn arguments() -> [Arg; 5] {
    [
        Arg::new("namespace").value_name("NAMESPACE").required(true).help("Whose rules to go by"),
        Arg::new("attributes")
            .value_name("NAME=VALUE")
            .num_args(0..)
            .help("What is known of the request, such as ip=192.0.2.1 path=/login"),
        Arg::new("cost")
            .long("cost")
            .value_name("NUMBER")
            .default_value("1")
            .value_parser(value_parser!(u64))
            .help("What it costs"),
        Arg::new("server")
            .long("server")
            .short('s')
            .value_name("ADDRESS")
            .env("TOLLGATE_SERVER")
            .default_value("127.0.0.1:6380")
            .help("Where the daemon answers Redis clients"),
        Arg::new("token")
            .long("token")
            .value_name("TOKEN")
            .env("TOLLGATE_TOKEN")
            .hide_env_values(true)
            .help("The token, if it needs one; better given by the environment, as others can see flags"),
    ]
}

/// Asks.
pub(crate) fn run(name: &str, matches: &ArgMatches) -> Result<(), Failure> {
    let text = |name: &str| matches.get_one::<String>(name).map(String::as_str).unwrap_or_default();
    let mut connection = Connection::open(text("server"))?;
    if let Some(token) = matches.get_one::<String>("token") {
        connection.ask(&["AUTH", token])?;
    }
    let cost = matches.get_one::<u64>("cost").copied().unwrap_or(1).to_string();
    let command = if name == "reset" { "RESET.CLIENT".to_owned() } else { name.to_ascii_uppercase() };
    let mut words = vec![command.as_str(), text("namespace"), &cost];
    for attribute in matches.get_many::<String>("attributes").into_iter().flatten() {
        let (name, value) = attribute.split_once('=').ok_or_else(|| format!("`{attribute}` should be NAME=VALUE"))?;
        words.extend([name, value]);
    }
    match connection.ask(&words)? {
        Reply::List(items) => tell(&items),
        Reply::Text(text) => print(&format!("{}\n", text.trim_end())),
        Reply::Number(buckets) => print(&format!("{buckets} buckets are full again\n")),
    }
}

/// Names and values, a line each.
fn tell(items: &[Reply]) -> Result<(), Failure> {
    let (pairs, _) = items.as_chunks::<2>();
    let mut is_allowed = true;
    for [name, value] in pairs {
        let (name, value) = (name.to_string(), value.to_string());
        is_allowed &= (name.as_str(), value.as_str()) != ("allowed", "0");
        if value != "-1" && !value.is_empty() {
            print(&format!("{:<14} {value}\n", name.replace('_', " ")))?;
        }
    }
    if is_allowed { Ok(()) } else { Err("refused".into()) }
}

/// What a daemon answers.
enum Reply {
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

struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    fn open(server: &str) -> Result<Connection, Failure> {
        let stream = TcpStream::connect(server).map_err(|error| {
            format!("no daemon at {server}: {error}; start one with `tollgate serve`, or name another with --server")
        })?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Connection { stream: BufReader::new(stream) })
    }

    fn ask(&mut self, words: &[&str]) -> Result<Reply, Failure> {
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
            "*" => Reply::List((0..length(1000)?).map(|_| self.reply()).collect::<Result<_, _>>()?),
            _ => return Err("this is no daemon of ours; is the address that of its RESP listener?".into()),
        })
    }
}
