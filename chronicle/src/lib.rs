//! The tools over a log: what `holdfast` can tell of a cluster's history, prove, put back, carry elsewhere and begin
//! anew from.
//!
//! A subcommand is a module here, with its options as a `clap` struct beside the work: [`history`] (`history`, `blame`,
//! `diff`, `restore`, `undo`), [`at`], [`bisect`], [`log`] (a file a subcommand), [`replay`], [`fork`] and [`run`].
//! They read through the engine's trait for logs, whichever log it is: [`remote`] opens a data folder, or a running
//! server's log over its API. Nothing here starts a server: [`run`] is handed one by the binary.
//! What they print goes through `out`.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod at;
pub mod bisect;
pub mod clock;
pub mod encryption;
pub mod fork;
pub mod history;
pub mod log;
mod out;
pub mod remote;
pub mod replay;
pub mod run;

pub use holdfast_component::{files, values};

/// The runtime on which a subcommand waits for servers.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}
