//! Commands that ask a daemon, over RESP.

use super::connection::{Connection, Reply, server, token};
use super::{Failure, print};
use clap::{Arg, ArgMatches, Command, value_parser};

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
        server(),
        token(),
    ]
}

/// Asks.
pub(crate) fn run(name: &str, matches: &ArgMatches) -> Result<(), Failure> {
    let text = |name: &str| matches.get_one::<String>(name).map(String::as_str).unwrap_or_default();
    let mut connection = Connection::open(matches)?;
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
