//! Runs the simulation of servers on the model of etcd with many seeds.

use crate::Transactions;
use crate::world;

#[test]
fn two_servers_on_one_etcd_tell_what_is_so() {
    for seed in 1..=30 {
        if let Err(why) = world::run(seed, Transactions::Full) {
            panic!("seed {seed}: {why}");
        }
    }
}

#[test]
fn two_servers_on_a_store_for_kubernetes_alone_tell_what_is_so() {
    for seed in 1..=30 {
        if let Err(why) = world::run(seed, Transactions::Plain) {
            panic!("seed {seed}: {why}");
        }
    }
}
