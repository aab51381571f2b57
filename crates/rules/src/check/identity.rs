//! How clients are told apart.

use super::fields::{Fields, named, number, text, texts, truth};
use crate::identity::{EncodedSlash, ForwardedHeader, Grouping, Network, PathForm, Trust};
use crate::mistake::{Place, Report};
use crate::model::Identity;
use crate::yaml::Node;

pub(crate) const FIELDS: [&str; 8] =
    ["trusted_proxies", "hops", "forwarded", "ipv4_prefix", "ipv6_prefix", "path", "api_key", "login"];
/// The most trusted proxies in a row.
pub(crate) const MOST_HOPS: u8 = 32;
pub(crate) const PATH_FIELDS: [&str; 5] =
    ["fold_case", "suffixes", "encoded_slash", "keep_trailing_slash", "drop_parameters"];

pub(super) fn read(node: &Node, report: &mut Report<'_>) -> Option<Identity> {
    let fields = Fields::new(node, "an identity", &FIELDS, report)?;
    let path = fields.get("path", report).and_then(|node| path_form(node, report));
    Some(Identity {
        trust: trust(&fields, report),
        grouping: grouping(&fields, report),
        path: path.unwrap_or_default(),
        api_key: fields.get("api_key", report).and_then(|node| header(node, report)),
        login: fields.get("login", report).and_then(|node| header(node, report)),
    })
}

fn trust(fields: &Fields<'_>, report: &mut Report<'_>) -> Trust {
    let proxies = fields.get("trusted_proxies", report).map(|node| texts(node, "a trusted proxy", report));
    let proxies = proxies.unwrap_or_default().into_iter().filter_map(|(text, place)| network(text, place, report));
    let proxies: Vec<Network> = proxies.collect();
    let hops = fields.get("hops", report).and_then(|node| number(node, 0..=MOST_HOPS, report)).unwrap_or(0);
    let header = fields.get("forwarded", report).and_then(|node| named(node, &ForwardedHeader::NAMES, report));
    Trust::default().with_proxies(proxies).with_hops(hops).with_header(header.unwrap_or_default())
}

fn grouping(fields: &Fields<'_>, report: &mut Report<'_>) -> Grouping {
    let v4 = fields.get("ipv4_prefix", report).and_then(|node| number(node, 1..=32, report)).unwrap_or(32);
    let v6 = fields.get("ipv6_prefix", report).and_then(|node| number(node, 1..=128, report)).unwrap_or(64);
    Grouping::new(v4, v6).unwrap_or_default()
}

fn path_form(node: &Node, report: &mut Report<'_>) -> Option<PathForm> {
    let fields = Fields::new(node, "how paths are written", &PATH_FIELDS, report)?;
    let mut flag = |name| fields.get(name, report).and_then(|node| truth(node, report)).unwrap_or(false);
    let form = PathForm::default()
        .fold_case(flag("fold_case"))
        .keep_trailing_slash(flag("keep_trailing_slash"))
        .drop_parameters(flag("drop_parameters"));
    let encoded_slash = fields.get("encoded_slash", report).and_then(|node| named(node, &EncodedSlash::NAMES, report));
    let form = form.encoded_slash(encoded_slash.unwrap_or_default());
    let Some(node) = fields.get("suffixes", report) else { return Some(form) };
    let mut suffixes = Vec::new();
    for (text, place) in texts(node, "a suffix", report) {
        match form.clone().suffixes([text]) {
            Ok(_) => suffixes.push(text),
            Err(_) => report.wrong(place, "this is no suffix", "write a dot and letters, as in `.json`"),
        }
    }
    form.suffixes(suffixes).ok()
}

/// The name of a header, in the lower case that HTTP/2 has.
fn header(node: &Node, report: &mut Report<'_>) -> Option<Box<str>> {
    let name = text(node, "the name of a header", report)?.to_ascii_lowercase();
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        report.wrong(node.place, "this is not the name of a header", "write it as in `x-api-key`");
        return None;
    }
    Some(name.into())
}

pub(super) fn network(text: &str, place: Place, report: &mut Report<'_>) -> Option<Network> {
    match text.parse() {
        Ok(network) => Some(network),
        Err(error) => {
            report.wrong(place, "this is no network", format!("{error}"));
            None
        }
    }
}
