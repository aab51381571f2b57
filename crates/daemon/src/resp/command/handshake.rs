//! What clients of Redis say to get acquainted, answered in Redis's words: many of them look for those.

use super::{COMMANDS, Done, Rate, wrong_arity};
use crate::fault::Fault;
use crate::resp::reply::Replies;
use crate::state::State;
use std::sync::atomic::{AtomicI64, Ordering};

/// What one connection has said about itself.
#[derive(Debug)]
pub struct Session {
    /// Tells it from all others, as `CLIENT ID` does.
    id: i64,
    name: Vec<u8>,
    /// Whether it was let in without a token.
    is_trusted: bool,
    /// Whether it has shown a token.
    is_known: bool,
    /// What it has throttled at last.
    pub(super) rate: Option<Rate>,
    /// Whether it has said goodbye.
    pub is_over: bool,
}

impl Session {
    /// Of a peer that needs a token unless it is trusted.
    pub fn new(is_trusted: bool) -> Session {
        static LAST: AtomicI64 = AtomicI64::new(0);
        let id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        Session { id, name: Vec::new(), is_trusted, is_known: false, rate: None, is_over: false }
    }

    /// Whether it may ask for more than to be let in.
    pub(super) fn may_ask(&self) -> bool {
        self.is_trusted || self.is_known
    }
}

/// `AUTH [user] token`. Users are not told apart.
pub(super) fn auth(state: &State, session: &mut Session, arguments: &[&[u8]], replies: &mut Replies) -> Done {
    match *arguments {
        [token] => log_in(state, session, None, token)?,
        [user, token] => log_in(state, session, Some(user), token)?,
        _ => return Err(wrong_arity("AUTH", "AUTH [user] token")),
    }
    replies.simple("OK");
    Ok(())
}

/// Where there are no tokens, the user `default` has any password, as in Redis: clients that are configured with one
/// for another server work unchanged. It lets nobody in who is not in already.
fn log_in(state: &State, session: &mut Session, user: Option<&[u8]>, token: &[u8]) -> Done {
    if !state.access().is_empty() {
        state.access().check(token)?;
        session.is_known = true;
        return Ok(());
    }
    match user {
        Some(b"default") => Ok(()),
        Some(_) => Err(Fault::WrongToken),
        None => Err(Fault::Malformed(
            "AUTH <password> called without any password configured for the default user. Are you sure your \
             configuration is correct?"
                .into(),
        )),
    }
}

/// `HELLO [2|3 [AUTH user token] [SETNAME name]]`
pub(super) fn hello(state: &State, session: &mut Session, arguments: &[&[u8]], replies: &mut Replies) -> Done {
    let (version, options) = match arguments {
        [] => (None, arguments),
        [version, options @ ..] => (Some(*version), options),
    };
    let is_resp3 = match version {
        None => replies.is_resp3,
        Some(b"2") => false,
        Some(b"3") => true,
        Some(other) => return no_such_version(other, replies),
    };
    let Options { login, name } = Options::parse(options)?;
    if let Some((user, token)) = login {
        log_in(state, session, Some(user), token)?;
    }
    if !session.may_ask() {
        return Err(Fault::NoToken);
    }
    if let Some(name) = name {
        session.name = name.to_vec();
    }
    replies.is_resp3 = is_resp3;
    introduce(session, replies);
    Ok(())
}

fn no_such_version(version: &[u8], replies: &mut Replies) -> Done {
    if std::str::from_utf8(version).is_ok_and(|version| version.parse::<i64>().is_ok()) {
        replies.error("NOPROTO unsupported protocol version");
        return Ok(());
    }
    Err(Fault::Malformed("Protocol version is not an integer or out of range".into()))
}

/// What else `HELLO` says.
#[derive(Default)]
struct Options<'a> {
    login: Option<(&'a [u8], &'a [u8])>,
    name: Option<&'a [u8]>,
}

impl<'a> Options<'a> {
    fn parse(mut words: &[&'a [u8]]) -> Result<Options<'a>, Fault> {
        let mut options = Options::default();
        while let [option, rest @ ..] = words {
            words = match rest {
                [user, token, rest @ ..] if option.eq_ignore_ascii_case(b"AUTH") => {
                    options.login = Some((user, token));
                    rest
                }
                [name, rest @ ..] if option.eq_ignore_ascii_case(b"SETNAME") => {
                    options.name = Some(proper_name(name)?);
                    rest
                }
                _ => {
                    let text = format!("Syntax error in HELLO option '{}'", shown(option));
                    return Err(Fault::Malformed(text.into()));
                }
            };
        }
        Ok(options)
    }
}

/// The fields and their order are Redis's: some clients go by the order.
fn introduce(session: &Session, replies: &mut Replies) {
    let text = |replies: &mut Replies, name: &str, value: &str| {
        replies.bulk(name.as_bytes());
        replies.bulk(value.as_bytes());
    };
    replies.map(7);
    text(replies, "server", "tollgate");
    text(replies, "version", env!("CARGO_PKG_VERSION"));
    replies.pair("proto", if replies.is_resp3 { 3 } else { 2 });
    replies.pair("id", session.id);
    text(replies, "mode", "standalone");
    text(replies, "role", "master");
    replies.bulk(b"modules");
    replies.array(0);
}

fn proper_name(name: &[u8]) -> Result<&[u8], Fault> {
    if name.iter().all(u8::is_ascii_graphic) {
        return Ok(name);
    }
    Err(Fault::Malformed("Client names cannot contain spaces, newlines or special characters.".into()))
}

/// What somebody sent, so that it can be told back to them.
fn shown(word: &[u8]) -> String {
    word.get(..word.len().min(64)).unwrap_or_default().escape_ascii().to_string()
}

/// What clients say about themselves when they connect.
pub(super) fn client(session: &mut Session, arguments: &[&[u8]], replies: &mut Replies) -> Done {
    let [subcommand, arguments @ ..] = arguments else {
        return Err(wrong_arity("CLIENT", "CLIENT SETNAME|GETNAME|ID|SETINFO ..."));
    };
    match (subcommand.to_ascii_uppercase().as_slice(), arguments) {
        (b"SETNAME", [name]) => {
            session.name = proper_name(name)?.to_vec();
            replies.simple("OK");
        }
        (b"GETNAME", []) if session.name.is_empty() => replies.null(),
        (b"GETNAME", []) => replies.bulk(&session.name),
        (b"ID", []) => replies.integer(session.id),
        // Nothing here depends on them.
        (b"SETINFO", [_, _]) | (b"NO-EVICT" | b"NO-TOUCH", [_]) => replies.simple("OK"),
        _ => {
            let text = format!("unknown subcommand '{}'. Try CLIENT SETNAME, GETNAME, ID, SETINFO.", shown(subcommand));
            return Err(Fault::Unknown(text.into()));
        }
    }
    Ok(())
}

/// `COMMAND [COUNT|LIST|DOCS|INFO ...]`. What the commands take is in the documentation, not in this reply.
pub(super) fn command(arguments: &[&[u8]], replies: &mut Replies) {
    match arguments {
        [option] if option.eq_ignore_ascii_case(b"COUNT") => replies.count(COMMANDS.len()),
        [option] if option.eq_ignore_ascii_case(b"LIST") => {
            replies.array(COMMANDS.len());
            COMMANDS.iter().for_each(|name| replies.bulk(name.to_ascii_lowercase().as_bytes()));
        }
        [option, ..] if option.eq_ignore_ascii_case(b"DOCS") => replies.map(0),
        _ => replies.array(0),
    }
}

/// There is one database.
pub(super) fn select(arguments: &[&[u8]], replies: &mut Replies) -> Done {
    let [index] = arguments else { return Err(wrong_arity("SELECT", "SELECT 0")) };
    match std::str::from_utf8(index).ok().and_then(|index| index.parse::<i32>().ok()) {
        Some(0) => replies.simple("OK"),
        Some(_) => return Err(Fault::Malformed("DB index is out of range; there is only 0".into())),
        None => return Err(Fault::Malformed("value is not an integer or out of range".into())),
    }
    Ok(())
}

/// Some clients ask which Redis this is, and whether it is still loading.
pub(super) fn info(state: &State, replies: &mut Replies) {
    let text = format!(
        "# Server\r\nredis_version:7.4.0\r\nredis_mode:standalone\r\ntollgate_version:{}\r\n\r\n\
         # Persistence\r\nloading:0\r\n\r\n# Replication\r\nrole:master\r\n\r\n\
         # Rules\r\nrules_version:{}\r\nforgotten_clients:{}\r\nopen_reservations:{}\r\n\r\n\
         # Store\r\n{}",
        env!("CARGO_PKG_VERSION"),
        state.engine().version(),
        state.engine().forgotten().clients,
        state.open_reservations(),
        store_info(state),
    );
    replies.bulk(text.as_bytes());
}

/// Whether limits are shared, with how many daemons, and why not.
fn store_info(state: &State) -> String {
    let Some(sharing) = state.sharing() else { return "store:none\r\n".to_owned() };
    let (store, hosts) = (sharing.store(), state.engine().ledger().hosts());
    if store.is_connected() {
        return format!("store:connected\r\nstore_hosts:{hosts}\r\n");
    }
    let trouble = store.trouble().map_or_else(String::new, |trouble| trouble.to_string());
    format!("store:lost\r\nstore_hosts:{hosts}\r\nstore_trouble:{}\r\n", trouble.replace(['\r', '\n'], " "))
}

pub(super) fn ping(arguments: &[&[u8]], replies: &mut Replies) -> Done {
    match arguments {
        [] => replies.simple("PONG"),
        [message] => replies.bulk(message),
        _ => return Err(wrong_arity("PING", "PING [message]")),
    }
    Ok(())
}

pub(super) fn echo(arguments: &[&[u8]], replies: &mut Replies) -> Done {
    let [message] = arguments else { return Err(wrong_arity("ECHO", "ECHO message")) };
    replies.bulk(message);
    Ok(())
}

/// Everything as it was when the connection began, but for its number.
pub(super) fn reset(session: &mut Session, replies: &mut Replies) {
    session.name.clear();
    session.is_known = false;
    replies.is_resp3 = false;
    replies.simple("RESET");
}

pub(super) fn quit(session: &mut Session, replies: &mut Replies) -> Done {
    session.is_over = true;
    replies.simple("OK");
    Ok(())
}
