//! Deterministic simulation: the engine and the core with clients that compete, with crashes, and with failing disks.
//!
//! A simulation runs on one thread, and everything in it follows from one seed. Start at [`simulate`]: a world draws
//! one small step after another (a client sends a request, the writer commits a batch, a watcher reads a little, the
//! server crashes), and the oracles check the results. All randomness comes from [`Dice`](random::Dice), so a seed that
//! fails once fails every time. Each step has a seed of its own, so that single steps can be omitted to find the steps
//! that a failure needs.
//!
//! Users with different roles send the requests through the service, as in a server. A simulation deliberately has no
//! threads, no sleeps and no real time: the engine is made without its writer thread, and the simulation polls the
//! futures of the service.

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
mod run;
mod scheduling;
mod server;
mod shape;
mod shrink;
mod simulate;
mod twin;
mod workload;
mod world;

pub use command::{SimulationArgs, account, run};
pub use coverage::{Coverage, Mark};
pub use disk::Sabotage;
pub use run::{Report, RunPlan, SimulatedPart, SimulationFailure};
pub use shrink::shrink;
pub use simulate::simulate;
