//! The log on etcd, which many servers share with each other and with kube-apiserver.
//!
//! [`client`] is what is asked of etcd, and [`grpc`] asks it; [`Prefix`] says under which key of etcd an object is;
//! [`Transaction`] is what one decision becomes. [`compaction`] and [`leases`] are what all servers on one etcd do alike,
//! [`health`] asks whether it answers, and [`releases`] knows what is wrong with which release of it. This crate knows keys, records and bytes; a kind tells its place in
//! storage as data, and its values are made elsewhere.

pub mod client;
pub mod compaction;
pub mod grpc;
pub mod health;
mod key;
pub mod leases;
pub mod measured;
#[cfg(any(test, feature = "model"))]
pub mod model;
pub mod releases;
pub mod servers;
mod transaction;
mod wire;

pub use key::{Prefix, Unfit, WHO};
pub use transaction::{Compare, OPERATIONS_MAX, Operation, Transaction, Unplannable};
