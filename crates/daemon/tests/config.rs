//! Settings: where they come from, what wins, and what is said about mistakes.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::path::Path;
use std::time::Duration;
use tollgate_daemon::config::{Config, ConfigMistakes, Layers, Origin, SETTINGS, reference};

fn mistakes(file: &str) -> String {
    let mut layers = Layers::default();
    match layers.add_file(Path::new("tollgate.toml"), file) {
        Err(mistakes) => mistakes.to_string(),
        Ok(()) => Config::new(&layers).map(|_| ()).unwrap_err().to_string(),
    }
}

#[test]
fn everything_has_a_default_that_makes_sense() {
    let config = Config::new(&Layers::default()).unwrap();
    assert_eq!(config.resp.unwrap().to_string(), "127.0.0.1:6380");
    assert_eq!(config.idle_timeout, Duration::from_secs(300));
    assert!(config.access.is_empty() && !config.allow_anonymous && config.tls.is_none());
    for address in [config.resp, config.grpc, config.http] {
        assert!(address.unwrap().ip().is_loopback(), "nothing is open to others unless somebody says so");
    }
}

#[test]
fn a_flag_wins_over_the_environment_and_that_over_the_file() {
    let mut layers = Layers::default();
    let file = "# ours\nkeys = 1_000\nbuckets = 2000\n\nconnections = 3\nallow_anonymous = true\nresp = \"off\"\n";
    layers.add_file(Path::new("t.toml"), file).unwrap();
    let variables = [("TOLLGATE_BUCKETS", "5"), ("TOLLGATE_CONNECTIONS", "6"), ("TOLLGATE_CONFIG", "x"), ("HOME", "/")];
    layers.add_environment(variables.iter().map(|(name, value)| ((*name).into(), (*value).into()))).unwrap();
    layers.set("connections", "7".to_owned(), Origin::Flag("connections"));
    let config = Config::new(&layers).unwrap();
    assert_eq!((config.keys, config.buckets, config.connections), (1000, 5, 7));
    assert!(config.allow_anonymous && config.resp.is_none());
    let shown = layers.to_toml();
    for line in [
        ("keys = 1000", "t.toml:2"),
        ("buckets = 5", "environment, TOLLGATE_BUCKETS"),
        ("connections = 7", "command line, --connections"),
        ("log = \"info\"", "default"),
    ] {
        assert!(
            shown.lines().any(|shown| shown.starts_with(line.0) && shown.ends_with(line.1)),
            "{line:?} in\n{shown}"
        );
    }
    let mut again = Layers::default();
    again.add_file(Path::new("again.toml"), &shown).unwrap();
    assert_eq!(
        again.iter().map(|(_, value, _)| value).collect::<Vec<_>>(),
        layers.iter().map(|(_, value, _)| value).collect::<Vec<_>>()
    );
}

#[test]
fn mistakes_name_the_line_and_the_fix_all_at_once() {
    let expected = "tollgate.toml:2: `keys` is `0`; it should be a whole number from 1\n\
                    tollgate.toml:1: `log` is `loud`; it should be `off` or `error` or `warn` or `info` or `debug`";
    assert_eq!(mistakes("log = \"loud\"\nkeys = 0\n"), expected);
    assert_eq!(
        mistakes("\nhtpt = \"x\"\nidle_timeout = 5.5"),
        "tollgate.toml:2: there is no setting `htpt`; did you mean `http`?\n\
         tollgate.toml:3: `idle_timeout` takes a text, a number or a yes or no"
    );
    assert!(mistakes("keys = [").starts_with("tollgate.toml:1: "));
    assert!(mistakes("resp = \"localhost\"").contains("an address and a port such as `127.0.0.1:6380`, or `off`"));
    assert!(mistakes("idle_timeout = \"soon\"").contains("a duration such as `5 minutes`"));
    assert!(mistakes("tls_key = \"key.pem\"").contains("TLS needs both"));
    assert!(
        mistakes("token_file = \"/no/such/file\"")
            .starts_with("tollgate.toml:1: cannot read `token-file` /no/such/file")
    );
    let unknown = Layers::default().add_environment([("TOLLGATE_RSEP".to_owned(), String::new())].into_iter());
    assert_eq!(unknown, Err(ConfigMistakes(vec!["environment, TOLLGATE_RSEP: there is no such setting".to_owned()])));
}

#[test]
fn who_listens_to_the_world_says_whom_to_let_in() {
    let open = "http = \"0.0.0.0:80\"\n";
    assert!(mistakes(open).contains("`http` at 0.0.0.0:80 can be reached from elsewhere"), "{}", mistakes(open));
    let config = |file: &str| {
        let mut layers = Layers::default();
        layers.add_file(Path::new("t.toml"), file).unwrap();
        Config::new(&layers)
    };
    assert!(config(&format!("{open}allow_anonymous = true")).is_ok());
    let tokens = std::env::temp_dir().join(format!("tollgate-tokens-{}", std::process::id()));
    std::fs::write(&tokens, "# ours\n\n  0123456789abcdef  \n").unwrap();
    let config = config(&format!("{open}token_file = {tokens:?}")).unwrap();
    assert!(config.access.check(b"0123456789abcdef").is_ok() && config.access.check(b"# ours").is_err());
    assert!(!format!("{config:?}").contains("0123456789abcdef"), "tokens are in no log");
    std::fs::write(&tokens, "short").unwrap();
    assert!(mistakes(&format!("token_file = {tokens:?}")).contains("a token of 5 characters can be guessed"));
    std::fs::remove_file(&tokens).unwrap();
}

#[test]
fn the_page_about_settings_is_up_to_date() {
    let page = include_str!("../../../docs/configuration.md");
    assert_eq!(page, reference(), "write it anew: cargo run -- config --reference > docs/configuration.md");
    assert!(SETTINGS.iter().all(|setting| setting.help.ends_with('.')));
}
