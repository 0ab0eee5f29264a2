//! Runs the core: one writer, group commit, snapshots by pointer swap, and the watch hub.
//!
//! Start at [`Engine`]. The order of a commit is described in [`writer`]. The engine depends neither on HTTP nor on a
//! storage product: it defines the trait [`Log`] and contains no implementation for a disk.

mod awaited;
pub mod commit;
mod engine;
mod fill;
pub mod forked;
pub mod gather;
pub mod hub;
mod large;
mod limits;
mod load;
pub mod log;
pub mod memory;
mod missed;
pub mod moment;
mod mutate;
mod newest;
pub mod numbering;
mod past;
mod past_cache;
mod pins;
pub mod planted;
mod queue;
pub mod read_memory;
mod reads;
pub mod retention;
mod tap;
mod turns;
pub mod volatile;
pub mod wakes;
mod watch;
pub mod writer;

pub use engine::{Apart, Clock, Engine, Options, Outside};
pub use hub::{ChangeType, Delivery, Hub, TapOutput};
pub use load::load;
pub use log::sealing::Sealing;
pub use log::{Append, AsOf, Changed, Changes, Fault, Log, LogRead, Proposal, Size};
pub use mutate::{Collection, Reply};
pub use past::{View, Wanted};
pub use pins::{Cut, Kept};
pub use queue::Health;
pub use read_memory::{Charge, Loss, ReadMemory, Reader};
pub use reads::{Length, Reads};
pub use tap::Tap;
pub use watch::{Watch, WatchStart};
