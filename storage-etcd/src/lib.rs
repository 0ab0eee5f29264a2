//! The log on etcd, which many servers share with each other and with kube-apiserver: its pure parts.
//!
//! [`Prefix`] says under which key of etcd an object is; [`Transaction`] is what one decision becomes. What is absent so
//! far: a client, and therefore a log. This crate knows keys, records and bytes; a kind tells its place in storage as
//! data, and its values are made elsewhere.

mod key;
mod transaction;

pub use key::{Prefix, Unfit, WHO};
pub use transaction::{Compare, OPERATIONS_MAX, Operation, Transaction, Unplannable};
