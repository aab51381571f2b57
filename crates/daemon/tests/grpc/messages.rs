//! The messages of all services, written down once more: what a client has that was made from the proto files.

#![allow(dead_code, reason = "not every test needs every message")]

pub(crate) mod rls {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct RateLimitRequest {
        #[prost(string, tag = "1")]
        pub(crate) domain: String,
        #[prost(message, repeated, tag = "2")]
        pub(crate) descriptors: Vec<Descriptor>,
        #[prost(uint32, tag = "3")]
        pub(crate) hits_addend: u32,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Descriptor {
        #[prost(message, repeated, tag = "1")]
        pub(crate) entries: Vec<Entry>,
        #[prost(message, optional, tag = "2")]
        pub(crate) limit: Option<Override>,
        #[prost(message, optional, tag = "3")]
        pub(crate) hits_addend: Option<u64>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Entry {
        #[prost(string, tag = "1")]
        pub(crate) key: String,
        #[prost(string, tag = "2")]
        pub(crate) value: String,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(crate) struct Override {
        #[prost(uint32, tag = "1")]
        pub(crate) requests_per_unit: u32,
        #[prost(int32, tag = "2")]
        pub(crate) unit: i32,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct RateLimitResponse {
        #[prost(int32, tag = "1")]
        pub(crate) overall_code: i32,
        #[prost(message, repeated, tag = "2")]
        pub(crate) statuses: Vec<Status>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Status {
        #[prost(int32, tag = "1")]
        pub(crate) code: i32,
        #[prost(message, optional, tag = "2")]
        pub(crate) current_limit: Option<Limit>,
        #[prost(uint32, tag = "3")]
        pub(crate) limit_remaining: u32,
        #[prost(message, optional, tag = "4")]
        pub(crate) duration_until_reset: Option<prost_types::Duration>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Limit {
        #[prost(uint32, tag = "1")]
        pub(crate) requests_per_unit: u32,
        #[prost(int32, tag = "2")]
        pub(crate) unit: i32,
        #[prost(string, tag = "3")]
        pub(crate) name: String,
    }
}

pub(crate) mod native {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Attribute {
        #[prost(string, tag = "1")]
        pub(crate) name: String,
        #[prost(string, tag = "2")]
        pub(crate) value: String,
    }

    /// `CheckRequest` and `ReserveRequest`.
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct CheckRequest {
        #[prost(string, tag = "1")]
        pub(crate) namespace: String,
        #[prost(message, repeated, tag = "2")]
        pub(crate) attributes: Vec<Attribute>,
        #[prost(uint64, optional, tag = "3")]
        pub(crate) cost: Option<u64>,
        #[prost(uint64, optional, tag = "4")]
        pub(crate) expires_ms: Option<u64>,
        #[prost(bool, tag = "5")]
        pub(crate) headers: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct CheckManyRequest {
        #[prost(message, repeated, tag = "1")]
        pub(crate) requests: Vec<CheckRequest>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct CheckManyResponse {
        #[prost(message, repeated, tag = "1")]
        pub(crate) answers: Vec<Answer>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Answer {
        #[prost(bool, tag = "1")]
        pub(crate) allowed: bool,
        #[prost(uint32, tag = "2")]
        pub(crate) status: u32,
        #[prost(uint64, optional, tag = "3")]
        pub(crate) limit: Option<u64>,
        #[prost(uint64, optional, tag = "4")]
        pub(crate) remaining: Option<u64>,
        #[prost(uint64, tag = "5")]
        pub(crate) wait_ms: u64,
        #[prost(uint64, optional, tag = "6")]
        pub(crate) retry_after_ms: Option<u64>,
        #[prost(uint64, optional, tag = "7")]
        pub(crate) reset_after_ms: Option<u64>,
        #[prost(string, optional, tag = "8")]
        pub(crate) rule: Option<String>,
        #[prost(string, tag = "9")]
        pub(crate) reason: String,
        #[prost(string, optional, tag = "10")]
        pub(crate) reservation: Option<String>,
        #[prost(message, repeated, tag = "11")]
        pub(crate) headers: Vec<Attribute>,
        #[prost(bool, tag = "12")]
        pub(crate) degraded: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct ExplainResponse {
        #[prost(string, tag = "1")]
        pub(crate) text: String,
        #[prost(message, optional, tag = "2")]
        pub(crate) answer: Option<Answer>,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(crate) struct ResetResponse {
        #[prost(uint64, tag = "1")]
        pub(crate) buckets: u64,
    }

    /// `SettleRequest` and `RefundRequest`.
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct SettleRequest {
        #[prost(string, tag = "1")]
        pub(crate) reservation: String,
        #[prost(uint64, tag = "2")]
        pub(crate) actual: u64,
    }
}

pub(crate) mod health {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Request {
        #[prost(string, tag = "1")]
        pub(crate) service: String,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(crate) struct Response {
        #[prost(int32, tag = "1")]
        pub(crate) status: i32,
    }
}
