use std::hint::black_box; use tollgate::*;
#[inline(never)] fn hot(tb:&Table,k:&str,lim:&Limit,now:Time)->bool{ tb.allow(k,lim,1,now) }
fn main(){ let lim=Limit::token_bucket("1 per second burst 500000000".parse().unwrap()); let k=String::from("client-0000000000001");
 let tb=Table::new(Capacity::Keys(1000),&std::hash::RandomState::new()); let now=Time::from_nanos(1<<60); let n:u64=std::env::args().nth(1).unwrap().parse().unwrap(); 
 for _ in 0..n { black_box(hot(&tb,black_box(k.as_str()),black_box(&lim),black_box(now))); } }
