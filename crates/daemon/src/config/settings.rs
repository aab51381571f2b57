//! The settings there are. Nothing else names them.

use std::borrow::Cow;
use std::fmt::Write;

/// Something that can be configured: as a flag, in the environment and in the file, by the same name.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// As a flag. In the file hyphens are underscores, and in the environment it is in capitals after `TOLLGATE_`.
    pub name: &'static str,
    /// What its value is called in the help.
    pub value: &'static str,
    /// What it is unless somebody says otherwise.
    pub default: &'static str,
    /// What it is for.
    pub help: &'static str,
}

impl Setting {
    /// In the file.
    pub fn key(&self) -> String {
        self.name.replace('-', "_")
    }

    /// In the environment.
    pub fn variable(&self) -> String {
        format!("TOLLGATE_{}", self.key().to_ascii_uppercase())
    }

    /// Whether nobody is to see it, so that it is no flag: others can see those.
    pub fn is_secret(&self) -> bool {
        self.value == "PASSWORD"
    }

    /// A value as everybody may see it: without passwords, also those in URLs.
    pub fn shown<'v>(&self, value: &'v str) -> Cow<'v, str> {
        match (self.value, value.rsplit_once('@')) {
            _ if self.is_secret() && !value.is_empty() => Cow::Borrowed(HIDDEN),
            ("URL", Some((login, rest))) => {
                let scheme = login.find("://").and_then(|end| login.get(..end + 3)).unwrap_or_default();
                Cow::Owned(format!("{scheme}{HIDDEN}@{rest}"))
            }
            _ => Cow::Borrowed(value),
        }
    }
}

/// Stands for what is not shown.
const HIDDEN: &str = "***";

/// All of them.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "rules",
        value: "PATH",
        default: "",
        help: "The rules: a file, or a directory of files, of ours or of envoyproxy/ratelimit. They are read again when \
               they change. Without any, examples are written to `tollgate-rules.yaml` in the working directory.",
    },
    Setting {
        name: "resp",
        value: "ADDRESS",
        default: "127.0.0.1:6380",
        help: "Where Redis clients connect, or `off`. Port 0 is any free one.",
    },
    Setting {
        name: "grpc",
        value: "ADDRESS",
        default: "127.0.0.1:8081",
        help: "Where Envoy and other gRPC clients connect, or `off`.",
    },
    Setting {
        name: "http",
        value: "ADDRESS",
        default: "127.0.0.1:8080",
        help: "Where HTTP clients connect, and Prometheus, or `off`.",
    },
    Setting {
        name: "resp-socket",
        value: "PATH",
        default: "",
        help: "A Unix socket for Redis clients on this machine, beside the port. Whoever may write to the file may ask.",
    },
    Setting {
        name: "buckets",
        value: "NUMBER",
        default: "1000000",
        help: "Clients of rules that are counted at the same time, 26 bytes each; every limit of a rule counts them once.",
    },
    Setting {
        name: "keys",
        value: "NUMBER",
        default: "1000000",
        help: "Keys of CL.THROTTLE and THROTTLE at the same time, 26 bytes each.",
    },
    Setting {
        name: "unknown-namespaces",
        value: "allow|refuse",
        default: "allow",
        help: "What becomes of requests of namespaces that nobody has rules for.",
    },
    Setting {
        name: "connections",
        value: "NUMBER",
        default: "10000",
        help: "Connections at the same time, per listener; others wait to be accepted.",
    },
    Setting {
        name: "connections-per-peer",
        value: "NUMBER",
        default: "1000",
        help: "Connections of one address at the same time, per listener; more are closed at once.",
    },
    Setting {
        name: "idle-timeout",
        value: "DURATION",
        default: "5 minutes",
        help: "When a connection is closed that says nothing.",
    },
    Setting {
        name: "token-file",
        value: "PATH",
        default: "",
        help: "Tokens that let others in than programs on this machine, one a line: for AUTH over RESP, and as \
               `authorization: Bearer …` elsewhere. Lines that begin with # are comments.",
    },
    Setting {
        name: "allow-anonymous",
        value: "true|false",
        default: "false",
        help: "Whether everybody who can connect may ask without a token. For networks that nobody else can reach.",
    },
    Setting {
        name: "tls-certificate",
        value: "PATH",
        default: "",
        help: "The certificate of all listeners but the Unix socket, with those that vouch for it, in PEM. Read again when it changes.",
    },
    Setting { name: "tls-key", value: "PATH", default: "", help: "The certificate's private key, in PEM." },
    Setting {
        name: "tls-client-ca",
        value: "PATH",
        default: "",
        help: "Whoever has a certificate by one of these authorities may ask without a token, and nobody else may connect.",
    },
    Setting {
        name: "store",
        value: "URL",
        default: "",
        help: "The Redis or Valkey in which daemons count together what rules say is `shared`: `redis://[USER:PASSWORD@]HOST[:PORT]`, \
               `rediss://…` for TLS, `redis-sentinel://HOST,HOST/NAME` or `redis-cluster://HOST,HOST`. Without one such rules do what they say for failures.",
    },
    Setting {
        name: "store-password",
        value: "PASSWORD",
        default: "",
        help: "The store's password, better in a file or in the environment than in the URL. It is never shown.",
    },
    Setting {
        name: "store-password-file",
        value: "PATH",
        default: "",
        help: "A file whose first line is the store's password.",
    },
    Setting {
        name: "store-prefix",
        value: "TEXT",
        default: "tg:",
        help: "What all keys in the store begin with. Daemons that count together have the same, others on that store have another.",
    },
    Setting {
        name: "store-budget",
        value: "DURATION",
        default: "3 milliseconds",
        help: "How long a decision waits for the store at most. After that, rules do what they say for failures.",
    },
    Setting {
        name: "store-interval",
        value: "DURATION",
        default: "100 milliseconds",
        help: "How often daemons tell each other what they have spent by rules with `shared: store`, unless it is urgent.",
    },
    Setting {
        name: "store-connections",
        value: "NUMBER",
        default: "2",
        help: "Connections to the store, which all requests share.",
    },
    Setting {
        name: "store-tls-ca",
        value: "PATH",
        default: "",
        help: "Who may vouch for the store where its URL says `rediss`, in PEM. Without one, the public authorities that this system trusts.",
    },
    Setting {
        name: "log",
        value: "off|error|warn|info|debug",
        default: "info",
        help: "How much is written to standard error. Attributes of requests and tokens never are.",
    },
    Setting {
        name: "log-format",
        value: "text|json",
        default: "text",
        help: "Whether that is for people or for machines.",
    },
    Setting {
        name: "otlp",
        value: "URL",
        default: "",
        help: "An OpenTelemetry collector, such as `http://127.0.0.1:4318`, which is sent metrics and traces: OTLP over HTTP, \
               as JSON, without TLS.",
    },
    Setting { name: "otlp-interval", value: "DURATION", default: "10 seconds", help: "How often it is sent metrics." },
    Setting {
        name: "otlp-share",
        value: "NUMBER",
        default: "0.001",
        help: "Which share of questions over HTTP and gRPC is traced, from 0 to 1. Those are traced, and others are not, whose \
               callers say so by a `traceparent`.",
    },
];

/// The page about all settings, in Markdown.
pub fn reference() -> String {
    let mut page = String::from(
        "# Configuration\n\n\
         Written by `tollgate config --reference`. A flag wins over the environment, which wins over the file; `tollgate config` \
         prints what is in force and where each value is from.\n\n\
         The file is TOML: the one given by `--config` or `TOLLGATE_CONFIG`, or else `tollgate.toml` in the working directory, or \
         else `/etc/tollgate/tollgate.toml`. On SIGHUP the daemon reads its rules and certificates again; a change of the settings \
         themselves takes a restart.\n\n\
         | flag | file | environment | unless told otherwise | |\n|---|---|---|---|---|\n",
    );
    for setting in SETTINGS {
        let default = if setting.default.is_empty() { String::new() } else { format!("`{}`", setting.default) };
        let flag = if setting.is_secret() { String::new() } else { format!("`--{}`", setting.name) };
        let (key, variable, help) = (setting.key(), setting.variable(), setting.help);
        // Writing to memory cannot fail.
        let _ = writeln!(page, "| {flag} | `{key}` | `{variable}` | {default} | {help} |");
    }
    page
}
