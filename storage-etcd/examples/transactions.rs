//! Measures how many transactions per second one client makes, each creating one key: `transactions URL COUNT BYTES`.
//! 32 transactions are in flight. `scripts/bench-etcd.py` compares the result with the rate that servers reach.

use bytes::Bytes;
use holdfast_storage_etcd::client::{Compare, Etcd, Expected, Operation, Txn};
use holdfast_storage_etcd::grpc::{Address, Cluster};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

const IN_FLIGHT: usize = 32;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, count, bytes] = &*arguments else { panic!("usage: transactions URL COUNT BYTES") };
    let (count, bytes): (usize, usize) = (count.parse().expect("a count"), bytes.parse().expect("a size"));
    let client = Cluster::new(vec![Address::parse(url).expect("an address")], None).expect("a client");
    let (next, value) = (AtomicUsize::new(0), Bytes::from(vec![b'x'; bytes]));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..IN_FLIGHT {
            scope.spawn(|| {
                while let nth = next.fetch_add(1, Ordering::Relaxed)
                    && nth < count
                {
                    let key = Bytes::from(format!("/raw/{nth:09}"));
                    let put = Operation::Put { key: key.clone(), value: value.clone(), lease: 0 };
                    let compares = vec![Compare { key, is: Expected::ModRevision(0) }];
                    for answer in client.transact(vec![Txn { compares, operations: vec![put], otherwise: None }]) {
                        assert!(answer.expect("an answer").held, "the key is new");
                    }
                }
            });
        }
    });
    println!("{:.1}", count as f64 / began.elapsed().as_secs_f64());
}
