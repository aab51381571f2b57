//! Who the client of a request is.
//!
//! A limit counts by key, so whoever can spell a key in two ways, or borrow somebody else's, has no limit. The
//! parts of this module give each thing that a key is made of exactly one spelling:
//!
//! - addresses are compared by their bits, never by their text ([`parse_address`], [`Network`]), and addresses
//!   that one client has plenty of count as one ([`Grouping`]);
//! - what proxies say about the client counts only as far as they are trusted ([`Trust`]);
//! - paths have one normal form ([`PathForm`]);
//! - secrets are replaced by their [`fingerprint`] before they go anywhere;
//! - and the parts of a key are length-prefixed ([`Key`]), so that none can pose as two.
//!
//! ```
//! use std::net::IpAddr;
//! use tollgate_rules::identity::{Grouping, Key, Part, PathForm, Trust, fingerprint};
//!
//! let trust = Trust::default().with_proxies(["10.0.0.0/8".parse()?]);
//! let peer: IpAddr = "10.1.2.3".parse()?;
//! let client = trust.client(peer, [b"6.6.6.6, 2001:DB8::0:1".as_slice()].into_iter());
//! let client = Grouping::default().group(client);
//! let path = PathForm::default();
//! let path = path.normalise("/api//v1/%6Cogin/?next=/");
//! let api_key = fingerprint(b"a secret");
//!
//! let parts = [Part::Address(client), Part::Text(&path), Part::Text(&api_key), Part::Absent];
//! let printed = Key::new(&parts).to_string();
//! assert_eq!(printed, "2001:db8::, /api/v1/login, sha256:984ca5162200734c592148f1820b7105, -");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address;
mod fingerprint;
mod forwarded;
mod key;
mod path;

pub use address::{Grouping, Network, NetworkError, canonical, parse_address};
pub use fingerprint::{Fingerprint, fingerprint};
pub use forwarded::{ForwardedHeader, Trust};
pub use key::{DecodeKeyError, Key, LONGEST_KEY, MOST_PARTS, Part};
pub use path::{EncodedSlash, PathForm, SuffixError};
