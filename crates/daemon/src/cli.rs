//! The command line: what there is to say, and who does it.

mod ask;
mod connection;
mod settings;
mod top;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use clap_complete::Shell;
use std::path::{Path, PathBuf};
use tollgate_daemon::config::{Config, reference};
use tollgate_daemon::serve;

pub(crate) type Failure = Box<dyn std::error::Error>;

/// Everything that can be said.
pub(crate) fn command() -> Command {
    Command::new("tollgate")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A rate limiter that any language can ask")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(settings::add(Command::new("serve").about("Answer whoever asks, until interrupted")))
        .subcommand(
            settings::add(
                Command::new("config").about("Print the configuration in force, and where each value is from"),
            )
            .arg(
                Arg::new("reference")
                    .long("reference")
                    .action(ArgAction::SetTrue)
                    .help("Print the page about all settings instead"),
            ),
        )
        .subcommands(ask::commands())
        .subcommand(top::command())
        .subcommand(
            Command::new("rules")
                .about("Check rules, or translate them")
                .subcommand_required(true)
                .arg_required_else_help(true)
                .subcommand(Command::new("lint").about("Check rules without loading them").arg(rules_path()))
                .subcommand(
                    Command::new("import")
                        .about("Write rules, such as those of envoyproxy/ratelimit, in our own format")
                        .arg(rules_path()),
                ),
        )
        .subcommand(
            Command::new("completions")
                .about("Print what a shell needs to complete commands")
                .arg(Arg::new("shell").required(true).value_parser(value_parser!(Shell))),
        )
        .subcommand(Command::new("man").about("Print the manual page"))
}

fn rules_path() -> Arg {
    Arg::new("path")
        .value_name("PATH")
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .help("A file, or a directory of files")
}

/// Does what was said.
pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand() {
        Some(("serve", flags)) => start(&Config::new(&settings::layers(flags)?)?),
        Some(("config", flags)) if flags.get_flag("reference") => print(&reference()),
        Some(("config", flags)) => {
            let layers = settings::layers(flags)?;
            print(&layers.to_toml())?;
            Config::new(&layers)?;
            Ok(())
        }
        Some(("rules", matches)) => match matches.subcommand() {
            Some(("lint", matches)) => lint(path_of(matches)),
            Some(("import", matches)) => print(&tollgate::read_rules(path_of(matches))?.to_yaml()),
            _ => Ok(()),
        },
        Some(("completions", matches)) => {
            let shell = matches.get_one::<Shell>("shell").copied().unwrap_or(Shell::Bash);
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command(), "tollgate", &mut script);
            print(&String::from_utf8_lossy(&script))
        }
        Some(("man", _)) => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command()).render(&mut page)?;
            print(&String::from_utf8_lossy(&page))
        }
        Some(("top", matches)) => top::run(matches),
        Some((name, matches)) => ask::run(name, matches),
        None => Ok(()),
    }
}

fn path_of(matches: &ArgMatches) -> &Path {
    matches.get_one::<PathBuf>("path").map_or(Path::new("."), PathBuf::as_path)
}

fn start(config: &Config) -> Result<(), Failure> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(serve(config.clone()))
}

fn lint(path: &Path) -> Result<(), Failure> {
    let rules = tollgate::read_rules(path)?;
    let count: usize = rules.namespaces.iter().map(|namespace| namespace.rules.len()).sum();
    print(&format!("all is well: {count} rules in {} namespaces\n", rules.namespaces.len()))
}

/// Whether anybody reads it makes no difference.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    use std::io::Write;
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
