//! Many connections at once.

use crate::http::{Client, serve_hello};
use crate::service::Setting;
use std::net::SocketAddr;

/// How many requests got through of 50 on each of 64 connections, by the key that each eighth of them sends.
pub(crate) async fn admitted(address: SocketAddr) -> [usize; 8] {
    let connections: Vec<_> = (0..64).map(|number| tokio::spawn(ask_often(address, number % 8))).collect();
    let mut admitted = [0; 8];
    for (number, connection) in connections.into_iter().enumerate() {
        *admitted.get_mut(number % 8).unwrap() += connection.await.unwrap();
    }
    admitted
}

async fn ask_often(address: SocketAddr, key: usize) -> usize {
    let mut client = Client::connect(address).await;
    let mut admitted = 0;
    for _ in 0..50 {
        match client.status(&[("x-api-key", &format!("key-{key}"))]).await {
            200 => admitted += 1,
            429 => {}
            status => panic!("{status}"),
        }
    }
    admitted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn h1_many_connections_get_one_limit_for_all_of_them_to_the_token() {
    let setting = Setting::new("rules: [{ name: all, key: [], limits: [1000 per hour] }]");
    let address = serve_hello(&setting).await;
    assert_eq!(admitted(address).await.iter().sum::<usize>(), 1000);
    assert_eq!(setting.decisions(), 64 * 50);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn h1_many_connections_of_several_clients_get_each_ones_limit_to_the_token() {
    let setting = Setting::new("rules: [{ name: clients, key: [api_key], limits: [123 per hour] }]");
    let address = serve_hello(&setting).await;
    assert_eq!(admitted(address).await, [123; 8]);
}
