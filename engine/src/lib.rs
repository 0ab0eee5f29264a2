//! Runs the core: one writer, group commit, snapshots by pointer swap, and the watch hub.
//!
//! Start at [`Engine`]. The order of a commit is written once, in [`writer`]. What is deliberately absent:
//! the engine knows neither HTTP nor any storage product; it owns the trait [`EventLog`] and nothing behind it.

pub mod bootstrap;
mod engine;
pub mod hub;
mod janitor;
pub mod log;
pub mod memory;
pub mod moment;
mod past;
mod pins;
pub mod planted;
pub mod registrar;
pub mod retention;
pub mod wakes;
mod watch;
pub mod writer;

pub use engine::{Clock, Converter, Engine, Options, Reply, load};
pub use hub::{ChangeType, Delivery, Hub};
pub use log::{EventLog, Fault, Size};
pub use past::View;
pub use watch::{Watch, WatchStart};
