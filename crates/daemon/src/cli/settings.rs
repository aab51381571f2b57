//! Settings as flags.

use super::Failure;
use clap::{Arg, ArgMatches, Command, value_parser};
use std::path::{Path, PathBuf};
use tollgate_daemon::config::{Layers, Origin, SETTINGS};

/// Where a file is looked for that nobody has named.
const PLACES: [&str; 2] = ["tollgate.toml", "/etc/tollgate/tollgate.toml"];

/// Adds a flag for every setting.
pub(crate) fn add(command: Command) -> Command {
    let config = Arg::new("config")
        .long("config")
        .short('c')
        .value_name("PATH")
        .env("TOLLGATE_CONFIG")
        .value_parser(value_parser!(PathBuf))
        .help("The file with settings; otherwise tollgate.toml here, or /etc/tollgate/tollgate.toml");
    let flags = SETTINGS.iter().filter(|setting| !setting.is_secret()).map(|setting| {
        let help = match setting.default {
            "" => format!("{} [env: {}]", setting.help, setting.variable()),
            default => format!("{} [default: {default}] [env: {}]", setting.help, setting.variable()),
        };
        Arg::new(setting.name).long(setting.name).value_name(setting.value).help(help)
    });
    command.arg(config).args(flags)
}

/// What default, file, environment and flags say.
pub(crate) fn layers(flags: &ArgMatches) -> Result<Layers, Failure> {
    let mut layers = Layers::default();
    let named = flags.get_one::<PathBuf>("config").map(PathBuf::as_path);
    let place = || PLACES.iter().map(Path::new).find(|path| path.exists());
    if let Some(path) = named.or_else(place) {
        let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        layers.add_file(path, &text)?;
    }
    layers.add_environment(std::env::vars())?;
    for setting in SETTINGS.iter().filter(|setting| !setting.is_secret()) {
        if let Some(value) = flags.get_one::<String>(setting.name) {
            layers.set(setting.name, value.clone(), Origin::Flag(setting.name));
        }
    }
    Ok(layers)
}
