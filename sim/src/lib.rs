//! Deterministic simulation: the engine and the core under racing clients, crashes and failing disks.
//!
//! One thread, one seed. Start at [`World`](world::World): it draws one small step after the other (a client
//! asks, the writer commits a batch, a watcher reads a little, the server crashes) and lets the oracles look at
//! what came of it. Everything random comes from [`Dice`](random::Dice), so a seed that fails fails again.
//!
//! What is deliberately absent: threads, sleeps and real time. The engine is assembled without its writer
//! thread, and its futures are polled by hand.

mod clock;
pub mod disk;
mod follower;
mod lister;
pub mod oracle;
mod random;
pub mod shape;
mod twin;
mod workload;
pub mod world;

pub use disk::Sabotage;
pub use world::{Plan, Report, run};
