//! The embedded log: [`Log`](holdfast_engine::Log) on RocksDB.
//!
//! Start at [`RocksLog`]. This crate handles keys, records and bytes, and does not depend on kinds such as Pod.

// The crate has no items, but using it links the RocksDB library for `rocksdb`.
use holdfast_rocksdb_library as _;

mod fault;
pub mod folder;
mod forget;
mod fork;
mod identity;
mod import;
mod key;
mod lock;
mod log;
mod making;
mod migration;
mod past;
mod reader;
mod repair;
mod room;
mod store;
mod whole;

pub use fault::{FolderDamage, FolderFault};
pub use fork::{Fork, Forked};
pub use import::Import;
pub use lock::FolderInUse;
pub use log::{Durability, RocksLog};
pub use making::Making;
pub use migration::Migration;
pub use reader::LogReader;
pub use repair::{Repair, repair};
pub use room::{Reserve, Standing};
pub use whole::{check_new, check_whole};
