//! Deterministic simulation: the engine and the core under racing clients, crashes and failing disks.
//!
//! One thread, one seed. Start at [`simulate`]: a world draws one small step after the other (a client asks, the writer
//! commits a batch, a watcher reads a little, the server crashes) and lets the oracles look at what came of it.
//! Everything random comes from [`Dice`](random::Dice), so a seed that fails fails again; each step draws from a seed of
//! its own, so that steps can be left out to find those that matter.
//!
//! Requests come through the door, as they do in a server, by users whom roles let do more or less. What is
//! deliberately absent: threads, sleeps and real time. The engine is assembled without its writer thread, and the door's
//! futures are polled by hand.

mod act;
mod admission;
mod clock;
mod command;
mod controllers;
mod coverage;
mod custom;
mod disk;
mod door;
mod file;
mod follower;
mod fuse;
mod oracle;
mod owners;
mod past;
mod pick;
mod random;
mod reader;
mod rights;
mod scheduling;
mod server;
mod shape;
mod shrink;
mod twin;
mod workload;
mod world;

pub use command::{Args, account, run};
pub use coverage::{Coverage, Mark};
pub use disk::Sabotage;
pub use shrink::shrink;
pub use world::{Failure, Plan, Report, Scene, simulate};
