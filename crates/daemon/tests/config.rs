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
fn the_store_is_named_by_a_url_and_its_password_is_not_shown() {
    let layers = |file: &str| {
        let mut layers = Layers::default();
        layers.add_file(Path::new("t.toml"), file).unwrap();
        layers
    };
    assert!(Config::new(&Layers::default()).unwrap().store.is_none());
    let named =
        layers("store = \"redis://toll:h0rse@redis.internal\"\nstore_budget = \"10 ms\"\nstore_prefix = \"shop:\"");
    let config = Config::new(&named).unwrap();
    let store = config.store.as_ref().unwrap();
    assert_eq!((store.user.as_deref(), store.password.as_deref()), (Some("toll"), Some("h0rse")));
    assert_eq!((store.budget, store.prefix.as_str()), (Duration::from_millis(10), "shop:"));
    assert!(!format!("{config:?}").contains("h0rse"));
    assert!(named.to_toml().contains("store = \"redis://***@redis.internal\""), "{}", named.to_toml());

    let mut apart = layers("store = \"redis://redis.internal\"");
    apart.add_environment([("TOLLGATE_STORE_PASSWORD".to_owned(), "h0rse".to_owned())].into_iter()).unwrap();
    assert_eq!(Config::new(&apart).unwrap().store.unwrap().password.as_deref(), Some("h0rse"));
    assert!(!apart.to_toml().contains("h0rse"));
    let file = std::env::temp_dir().join(format!("tollgate-password-{}", std::process::id()));
    std::fs::write(&file, "battery\n").unwrap();
    let by_file = format!("store = \"redis://redis.internal\"\nstore_password_file = {file:?}");
    assert_eq!(Config::new(&layers(&by_file)).unwrap().store.unwrap().password.as_deref(), Some("battery"));
    assert!(mistakes(&format!("{by_file}\nstore_password = \"h0rse\"")).contains("given twice"));
    std::fs::remove_file(&file).unwrap();
    assert!(mistakes(&by_file).contains("cannot read `store-password-file`"));
}

#[test]
fn what_is_wrong_with_a_store_is_said_without_its_password() {
    for (file, fix) in [
        ("store = \"toll:h0rse@redis.internal\"", "`redis://127.0.0.1:6379`"),
        ("store = \"redis://toll:h0rse@redis.internal/3\"", "`store-prefix`"),
        ("store = \"redis://toll:h0rse%@redis.internal\"", "`%25`"),
        ("store = \"redis://toll:h0rse@redis.internal\"\nstore_budget = \"soon\"", "a duration such as"),
        ("store = \"rediss://toll:h0rse@redis.internal\"\nstore_tls_ca = \"/no/such/file\"", "by `store-tls-ca`"),
    ] {
        let said = mistakes(file);
        assert!(said.starts_with("tollgate.toml:") && said.contains(fix) && !said.contains("h0rse"), "{file}: {said}");
    }
}

#[test]
fn the_page_about_settings_is_up_to_date() {
    let page = include_str!("../../../docs/configuration.md");
    assert_eq!(page, reference(), "write it anew: cargo run -- config --reference > docs/configuration.md");
    assert!(SETTINGS.iter().all(|setting| setting.help.ends_with('.')));
}
