use std::num::NonZeroU32; use std::time::Instant; use std::hint::black_box;
use governor::{Quota as GQ, RateLimiter as G};
use tollgate::*;
fn rng(s:&mut u64)->u64{*s=s.wrapping_add(0x9E3779B97F4A7C15);let mut z=*s;z=(z^(z>>30)).wrapping_mul(0xBF58476D1CE4E5B9);z=(z^(z>>27)).wrapping_mul(0x94D049BB133111EB);z^(z>>31)}
fn time(name:&str,n:usize,mut f:impl FnMut())->f64{let t=Instant::now();f();let ns=t.elapsed().as_nanos() as f64/n as f64;println!("  {name}: {ns:.1} ns");ns}
fn main(){
  let nz=|n|NonZeroU32::new(n).unwrap();
  let q:Quota="1 per minute burst 100000".parse().unwrap();
  let uq:Quota="1000000000 per second burst 1000000000".parse().unwrap();
  for clk in ["fast","system"] {
  let l=RateLimiter::builder(uq).clock(if clk=="fast"{Clock::fast()}else{Clock::system()}).build();
  let n=20_000_000;
  for _ in 0..2 {
  if clk=="fast" { let g=G::direct(GQ::per_second(nz(1_000_000_000)).allow_burst(nz(1_000_000_000))); time("gov unkeyed fast",n,||for _ in 0..n{black_box(g.check().is_ok());}); }
  else { let g=G::direct_with_clock(GQ::per_second(nz(1_000_000_000)).allow_burst(nz(1_000_000_000)), governor::clock::MonotonicClock); time("gov unkeyed sys",n,||for _ in 0..n{black_box(g.check().is_ok());}); }
  time(&format!("our unkeyed {clk}"),n,||for _ in 0..n{black_box(l.allow());});
  }}
  { let g=G::direct(GQ::per_hour(nz(1))); let l=RateLimiter::new("1 per hour".parse().unwrap()); let n=20_000_000; g.check().is_ok(); l.allow();
  for _ in 0..2 { time("gov unkeyed refuse",n,||for _ in 0..n{black_box(g.check().is_ok());}); time("our unkeyed refuse",n,||for _ in 0..n{black_box(l.allow());}); } }
  for keys in [1usize,10_000,1_000_000,5_000_000]{
    println!("keys {keys}");
    let g:G<String,_,_>=G::keyed(GQ::per_minute(nz(1)).allow_burst(nz(100_000)));
    let l=KeyedRateLimiter::builder(q).capacity(Capacity::Keys(keys.max(1000))).build();
    let mut s=7; let n=4_000_000;
    let seq:Vec<String>=(0..n).map(|_|format!("client-{:013}",rng(&mut s)%keys as u64)).collect();
    for i in 0..keys{let k=format!("client-{:013}",i); g.check_key(&k).is_ok(); l.allow(k.as_str());}
    for _ in 0..3{
      let a=time("gov",n,||for k in &seq{black_box(g.check_key(k).is_ok());});
      let b=time("our",n,||for k in &seq{black_box(l.allow(k.as_str()));});
      let c=time("our batch16",n,||for ks in seq.chunks(16){l.allow_many(ks,|_,d|{black_box(d);});});
      println!("ratio {:.2} batch {:.2}",a/b,a/c);
    }
    println!("forgotten {:?} occ {}",l.table().forgotten(), l.table().occupied(Clock::system().now()));
  }
}
