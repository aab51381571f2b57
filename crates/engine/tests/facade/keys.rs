//! Who counts as the same client.

use crate::each_client;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether what one has used up is missing to the other.
fn are_one_client<A: Hash + ?Sized, B: Hash + ?Sized>(one: &A, other: &B) -> bool {
    let (limiter, _) = each_client("1 per minute");
    assert!(limiter.allow(one));
    !limiter.allow(other)
}

#[test]
fn the_same_key_borrowed_or_owned_is_the_same_client() {
    assert!(are_one_client("alice", &String::from("alice")));
    assert!(are_one_client("alice", &"alice"));
    assert!(are_one_client("alice", &Box::<str>::from("alice")));
    assert!(are_one_client(&b"alice"[..], &b"alice".to_vec()));
    assert!(are_one_client(&b"alice"[..], b"alice"));
    assert!(are_one_client(&("tenant", 7_u64), &(String::from("tenant"), 7_u64)));
    assert!(are_one_client(&("tenant", 7_u64), &(&"tenant", &7_u64)));
    assert!(are_one_client(&42_u64, &&42_u64));
}

#[test]
fn addresses_are_one_client_however_they_were_written() {
    let written: IpAddr = "2001:0db8:0:0::1".parse().unwrap();
    assert!(are_one_client(&written, &IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))));
    assert!(are_one_client(&"10.0.0.1".parse::<IpAddr>().unwrap(), &IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))));
}

#[test]
fn another_address_is_another_client() {
    let v4 = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    assert!(!are_one_client(&v4, &IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2))));
    // Whether a mapped address is the same client is for whoever builds the key to say.
    assert!(!are_one_client(&v4, &IpAddr::V6(Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped())));
}

#[test]
fn keys_that_only_look_alike_are_different_clients() {
    assert!(!are_one_client("", "\0"));
    assert!(!are_one_client("a", "a\0"));
    assert!(!are_one_client("alice", "Alice"));
    assert!(!are_one_client(&("ab", "c"), &("a", "bc")));
    assert!(!are_one_client(&("", "abc"), &("abc", "")));
    assert!(!are_one_client(&(1_u32, 2_u32), &(2_u32, 1_u32)));
    assert!(!are_one_client(&[1_u8, 2][..], &[2_u8, 1][..]));
    assert!(!are_one_client(&-1_i64, &1_i64));
}

#[test]
fn every_byte_of_a_key_of_any_length_counts() {
    for length in [1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 247, 248, 249, 1_000] {
        let key = vec![b'x'; length];
        for changed in [0, length / 2, length - 1] {
            let mut other = key.clone();
            other[changed] ^= 1;
            assert!(!are_one_client(&key, &other), "byte {changed} of {length}");
        }
        assert!(!are_one_client(&key, &key[1..]), "{length} bytes or one fewer");
    }
}

#[test]
fn integers_of_every_size_are_keys() {
    let (limiter, _) = each_client("1 per minute");
    for key in 0..1_000_u64 {
        assert!(limiter.allow(&key), "{key} has not asked before");
    }
    assert!(limiter.allow(&u64::MAX) && limiter.allow(&u128::MAX) && limiter.allow(&i128::MIN));
    assert!(!limiter.allow(&u64::MAX) && !limiter.allow(&u128::MAX) && !limiter.allow(&i128::MIN));
    assert!(are_one_client(&7_u8, &7_u8) && are_one_client(&'x', &'x') && are_one_client(&true, &true));
}

#[test]
fn clients_of_two_limiters_have_nothing_to_do_with_each_other() {
    let (ours, _) = each_client("1 per minute");
    let (theirs, _) = each_client("1 per minute");
    assert!(ours.allow("alice"));
    assert!(theirs.allow("alice"));
}
