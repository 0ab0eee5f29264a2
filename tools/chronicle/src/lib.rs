//! The tools over a log: `holdfast` commands that report on a cluster's history, verify it, restore from it, export it
//! and fork it.
//!
//! A subcommand is a module here, with its options as a `clap` struct: [`history`] (`history`, `blame`, `diff`,
//! `restore`, `undo`), [`at`], [`bisect`], [`log`] (one file per subcommand), [`replay`], [`fork`] and [`run`]. The
//! subcommands read any log through the engine's trait: [`remote`] opens a data folder, or a running server's log over
//! its API. Nothing here starts a server: the binary passes a server to [`run`]. All output goes through `out`.

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

/// The runtime in which a subcommand waits for servers.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}
