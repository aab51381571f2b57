use std::hint::black_box; use tollgate::*;
fn main(){ let l=RateLimiter::new("1000000000 per second".parse().unwrap()); let _=l.allow(); for _ in 0..100_000_000u64 { black_box(l.allow()); } }
