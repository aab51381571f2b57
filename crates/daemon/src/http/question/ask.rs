//! What is asked. Texts stay where they are in the body unless something in them is escaped.

use crate::fault::Fault;
use crate::http::number::{Whole, whole};
use serde::de::{Error, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use tollgate::{Request, Value};

/// As many as can be asked at once.
const MOST_ASKS: usize = 1000;

/// As many as a request can have: the rules of a namespace seldom mention ten.
const MOST_ATTRIBUTES: usize = 64;

/// Reads a question.
pub(super) fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Fault> {
    serde_json::from_slice(body).map_err(|error| Fault::Malformed(format!("the body: {error}").into()))
}

/// `{"namespace": "shop", "attributes": {"ip": "192.0.2.1"}, "cost": 1}`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ask<'a> {
    #[serde(borrow)]
    namespace: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) attributes: Attributes<'a>,
    #[serde(default = "one")]
    cost: Whole,
}

/// The same, with a time to settle it within.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reserve<'a> {
    #[serde(borrow)]
    namespace: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) attributes: Attributes<'a>,
    #[serde(default = "one")]
    cost: Whole,
    pub(super) expires_ms: Option<Whole>,
}

/// `{"reservation": "0123456789abcdef", "actual": 3}`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Settle<'a> {
    #[serde(borrow)]
    pub(super) reservation: Cow<'a, str>,
    pub(super) actual: Whole,
}

/// `{"reservation": "0123456789abcdef"}`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Refund<'a> {
    #[serde(borrow)]
    pub(super) reservation: Cow<'a, str>,
}

/// What a request costs unless somebody knows better.
fn one() -> Whole {
    Whole(1)
}

impl Ask<'_> {
    pub(super) fn request<'b>(&'b self, attributes: &'b [(&'b str, Value<'b>)]) -> Request<'b> {
        Request::new(&self.namespace, attributes).with_cost(self.cost.0)
    }
}

impl Reserve<'_> {
    pub(super) fn request<'b>(&'b self, attributes: &'b [(&'b str, Value<'b>)]) -> Request<'b> {
        Request::new(&self.namespace, attributes).with_cost(self.cost.0)
    }
}

/// Attributes as the engine takes them.
pub(super) type Borrowed<'a> = SmallVec<[(&'a str, Value<'a>); 8]>;

/// The attributes of a request, each with a name of its own.
#[derive(Debug, Default)]
pub(super) struct Attributes<'a>(SmallVec<[(Text<'a>, Given<'a>); 8]>);

impl Attributes<'_> {
    pub(super) fn borrow(&self) -> Borrowed<'_> {
        self.0.iter().map(|(name, value)| (&*name.0, value.borrow())).collect()
    }
}

/// A text that is borrowed where it can be.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Debug)]
enum Given<'a> {
    Text(Cow<'a, str>),
    Number(u64),
}

impl Given<'_> {
    fn borrow(&self) -> Value<'_> {
        match self {
            Given::Text(text) => Value::Text(text),
            Given::Number(number) => Value::Number(*number),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Attributes<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(AttributesVisitor(PhantomData))
    }
}

struct AttributesVisitor<'a>(PhantomData<&'a ()>);

impl<'de: 'a, 'a> Visitor<'de> for AttributesVisitor<'a> {
    type Value = Attributes<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("attributes by their names")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut attributes = Attributes::default();
        while let Some(name) = map.next_key::<Text<'a>>()? {
            if attributes.0.iter().any(|(known, _)| known.0 == name.0) {
                return Err(A::Error::custom(format_args!("the attribute `{}` is there twice", name.0)));
            }
            if attributes.0.len() == MOST_ATTRIBUTES {
                return Err(A::Error::custom(format_args!("there are more than {MOST_ATTRIBUTES} attributes")));
            }
            attributes.0.push((name, map.next_value()?));
        }
        Ok(attributes)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Given<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(GivenVisitor(PhantomData))
    }
}

struct GivenVisitor<'a>(PhantomData<&'a ()>);

impl<'de: 'a, 'a> Visitor<'de> for GivenVisitor<'a> {
    type Value = Given<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value of an attribute, which is a text or a whole number from 0")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Given::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Given::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Given::Number(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        whole(number).map(Given::Number).ok_or_else(|| E::invalid_value(Unexpected::Float(number), &self))
    }
}

/// Several questions, each to be decided by itself.
#[derive(Debug)]
pub(super) struct Asks<'a>(pub(super) Vec<Ask<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for Asks<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(AsksVisitor(PhantomData))
    }
}

struct AsksVisitor<'a>(PhantomData<&'a ()>);

impl<'de: 'a, 'a> Visitor<'de> for AsksVisitor<'a> {
    type Value = Asks<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of questions")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut asks = Asks(Vec::new());
        while let Some(ask) = list.next_element()? {
            if asks.0.len() == MOST_ASKS {
                return Err(A::Error::custom(format_args!("there are more than {MOST_ASKS} questions")));
            }
            asks.0.push(ask);
        }
        Ok(asks)
    }
}
