//! The embedded log: [`EventLog`](holdfast_engine::EventLog) on RocksDB.
//!
//! Start at [`RocksLog`]. This crate knows keys, records and bytes; it does not know what a Pod is.

mod fault;
mod forget;
mod import;
mod key;
mod lock;
mod log;
mod past;
mod reader;
mod repair;

pub use import::{Import, check_whole};
pub use log::RocksLog;
pub use reader::LogReader;
pub use repair::{Repair, repair};
