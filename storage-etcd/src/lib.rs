//! The log on etcd. Many servers share one etcd with each other and with kube-apiserver.
//!
//! Start at [`EtcdLog`]. [`client`] defines the requests to etcd, and [`grpc`] sends them; [`local`] is each server's
//! own log of etcd's events. [`compaction`], [`leases`] and [`servers`] are tasks that all servers on one etcd share.
//! [`health`] checks whether etcd answers, and [`releases`] lists the bugs of etcd's releases. [`migrate`] moves
//! objects between data folders and etcd. This crate handles keys, records and bytes. A kind gives its storage path as
//! data, and `holdfast_core::etcd` converts the values.

mod claiming;
pub mod claims;
pub mod client;
pub mod compaction;
pub mod first;
mod follow;
pub mod grpc;
pub mod health;
mod key_space;
pub mod leases;
pub mod local;
mod log;
pub mod measured;
pub mod migrate;
#[cfg(any(test, feature = "model"))]
pub mod model;
pub mod option_comparison;
mod pending_writes;
pub mod planted;
mod probe;
mod raise;
pub mod releases;
mod restored;
pub mod servers;
mod shared;
pub mod strays;
mod transaction;
mod unread;
mod unread_deletion;
mod wire;

// `tests/world` is also compiled as a test of its own, with planted bugs, and names this crate.
#[cfg(test)]
extern crate self as holdfast_storage_etcd;
#[cfg(test)]
mod simulated;
#[cfg(test)]
#[path = "../tests/world/mod.rs"]
mod world;

pub use client::Transactions;
pub use key_space::Kinds;
pub use log::{EtcdLog, Parts};
pub use shared::Storing;
pub use transaction::OPERATIONS_MAX;
