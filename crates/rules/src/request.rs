//! What a request says about itself.

use std::net::IpAddr;

/// Something that asks leave: a namespace, and attributes in any order. Nothing of it is stored.
///
/// Three attributes are understood: `ip` is an address, grouped as the namespace says; `path` is brought to its normal
/// form; and `api_key` is a secret, of which only a fingerprint goes any further. All others are texts to be compared. Of several with the same name the first counts.
///
/// ```
/// use tollgate_rules::{Request, Value};
///
/// let attributes = [("operation", "login".into()), ("ip", Value::Address([192, 0, 2, 1].into()))];
/// let request = Request::new("payments", &attributes).with_cost(5);
/// assert_eq!(request.cost, 5);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Whose rules apply.
    pub namespace: &'a str,
    /// Names and values.
    pub attributes: &'a [(&'a str, Value<'a>)],
    /// What it costs, unless a rule knows better.
    pub cost: u64,
}

impl<'a> Request<'a> {
    /// A request that costs 1.
    pub fn new(namespace: &'a str, attributes: &'a [(&'a str, Value<'a>)]) -> Request<'a> {
        Request { namespace, attributes, cost: 1 }
    }

    /// The same at another cost; 0 only asks.
    pub fn with_cost(self, cost: u64) -> Request<'a> {
        Request { cost, ..self }
    }
}

/// The value of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// As it was sent.
    Text(&'a str),
    /// An address that was understood already, for `ip`. Under other names only networks match it.
    Address(IpAddr),
    /// A number, such as a cost. It is the same as its decimal digits.
    Number(u64),
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Value<'a> {
        Value::Text(text)
    }
}

impl From<IpAddr> for Value<'_> {
    fn from(address: IpAddr) -> Self {
        Value::Address(address)
    }
}

impl From<u64> for Value<'_> {
    fn from(number: u64) -> Self {
        Value::Number(number)
    }
}
