//! Runs the simulation of servers on the model of etcd for many seeds.

use crate::world;

#[test]
fn two_servers_on_one_etcd_tell_what_is_so() {
    for seed in 1..=30 {
        if let Err(why) = world::run(seed) {
            panic!("seed {seed}: {why}");
        }
    }
}
