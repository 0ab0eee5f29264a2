//! The embedded log: [`EventLog`](holdfast_engine::EventLog) on RocksDB.
//!
//! Start at [`RocksLog`]. This crate knows keys, records and bytes; it does not know what a Pod is.

mod fault;
mod forget;
mod key;
mod lock;
mod log;
mod reader;
mod repair;

pub use log::RocksLog;
pub use reader::LogReader;
pub use repair::{Repair, repair};
