//! The log on etcd, which many servers share with each other and with kube-apiserver.
//!
//! Start at [`EtcdLog`]. [`client`] is what is asked of etcd, and [`grpc`] asks it; [`local`] is the log that each server
//! keeps of etcd's events. [`compaction`], [`leases`] and [`servers`] are what all servers on one etcd do alike,
//! [`health`] asks whether it answers, and [`releases`] knows what is wrong with which release of it. This crate knows
//! keys, records and bytes; a kind tells its place in storage as data, and values are made by `holdfast_core::etcd`.

pub mod client;
pub mod compaction;
mod follow;
pub mod grpc;
pub mod health;
pub mod leases;
pub mod local;
mod log;
pub mod measured;
#[cfg(any(test, feature = "model"))]
pub mod model;
mod places;
pub mod planted;
pub mod releases;
pub mod servers;
mod shared;
mod transaction;
mod wire;

// What judges servers on the model is compiled with the deliberate bugs, too, and names this crate.
#[cfg(test)]
extern crate self as holdfast_storage_etcd;
#[cfg(test)]
mod simulated;
#[cfg(test)]
#[path = "../tests/world/mod.rs"]
mod world;

pub use log::{EtcdLog, Parts};
pub use shared::Storing;
pub use transaction::OPERATIONS_MAX;
