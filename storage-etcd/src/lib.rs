//! The log on etcd, which many servers share with each other and with kube-apiserver.
//!
//! [`client`] is what is asked of etcd, and [`grpc`] asks it; [`Prefix`] says under which key of etcd an object is;
//! [`Transaction`] is what one decision becomes. This crate knows keys, records and bytes; a kind tells its place in
//! storage as data, and its values are made elsewhere.

pub mod client;
pub mod grpc;
mod key;
mod transaction;
mod wire;

pub use key::{Prefix, Unfit, WHO};
pub use transaction::{Compare, OPERATIONS_MAX, Operation, Transaction, Unplannable};
