/// Which headers tell clients about their limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// `RateLimit-Policy` and `RateLimit` as structured fields, after the IETF's draft 11 (8 and later).
    #[default]
    Draft11,
    /// `RateLimit: limit=…, remaining=…, reset=…` and `RateLimit-Policy`, after draft 7.
    Draft7,
    /// `RateLimit-Limit`, `-Remaining`, `-Reset` and `-Policy`, after drafts 3 to 6.
    Draft6,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset` in seconds from now, as Envoy writes them.
    XRateLimit,
    /// The same with the reset as a Unix time, as GitHub does.
    XRateLimitEpoch,
    /// No headers but `Retry-After`.
    None,
}

impl Dialect {
    /// The dialects by the names that rules know them by.
    pub const NAMES: [(&'static str, Dialect); 6] = [
        ("draft-11", Dialect::Draft11),
        ("draft-7", Dialect::Draft7),
        ("draft-6", Dialect::Draft6),
        ("x-ratelimit", Dialect::XRateLimit),
        ("x-ratelimit-epoch", Dialect::XRateLimitEpoch),
        ("none", Dialect::None),
    ];
}
