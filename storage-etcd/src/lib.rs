//! The log on etcd, which many servers share with each other and with kube-apiserver.
//!
//! Start at [`EtcdLog`]. [`client`] is what is asked of etcd, and [`grpc`] asks it; [`local`] is the log that each server
//! keeps of etcd's events. This crate knows keys, records and bytes; a kind tells its place in storage as data, and
//! values are made by `holdfast_core::etcd`.

pub mod client;
mod follow;
pub mod grpc;
pub mod local;
mod log;
mod places;
mod shared;
mod transaction;
mod wire;

pub use log::{EtcdLog, Parts};
pub use shared::Storing;
pub use transaction::OPERATIONS_MAX;
