//! A small shell with a simulated file system, which simulated containers run. It starts no program of the machine on
//! which it runs, reads no file of that machine, and uses no clock. The owner of a [`Machine`] passes the time and the
//! input, lets the machine run some steps, and reads the output.
//!
//! Every step is counted, and everything that a script can allocate is limited. The constants at the beginning of each
//! module are the limits.

pub mod arithmetic;
pub mod commands;
mod expand;
pub mod files;
mod machine;
mod parse;
pub mod pattern;
mod pipe;
mod shell;
mod syntax;
mod system;
mod terminal;
mod time;
mod tree;

pub use commands::sleep_millis;
pub use machine::{Machine, OutputStream, RunResult};
pub use pipe::PIPE_BYTES_MAX;
pub use system::{MAIN, Pid, Setup, Signal};

/// Whether the shell has a command of this name or path.
pub fn knows(program: &str) -> bool {
    commands::is_known(commands::name_of(program))
}
