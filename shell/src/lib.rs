//! A small shell with a made-up file system: what simulated containers run. No program of the machine is begun, no file
//! of it is read, and no clock is looked at: whoever holds a [`Machine`] brings the time and the input, lets it go some
//! steps, and takes the output.
//!
//! Every step is counted, and all that a script can hold is bounded; see the constants of each module.

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
mod terminal;
mod time;
mod tree;

pub use commands::sleep_millis;
pub use machine::{MAIN, Machine, Pid, Setup, Signal, Stream, Turn};
pub use pipe::PIPE_BYTES_MAX;

/// Whether a program of this name, or path, is known.
pub fn knows(program: &str) -> bool {
    commands::is_known(commands::name_of(program))
}
