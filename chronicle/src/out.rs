//! What commands print. All of it goes through here, so that nothing that a tenant wrote is more than text to a terminal.

use anyhow::Result;
use holdfast_core::visible;
use holdfast_core::wire::yaml;
use holdfast_value::Value;
use std::io::{ErrorKind, Write};

/// A text of several lines.
pub fn text(text: &str) -> Result<()> {
    seen(&visible::lines(text))
}

/// One line, whatever it holds.
pub fn line(text: &str) -> Result<()> {
    seen(&format!("{}\n", visible::line(text)))
}

pub fn json(value: &Value) -> Result<()> {
    seen(&visible::json(&format!("{value:#}\n")))
}

pub fn yaml(value: &Value) -> Result<()> {
    seen(&yaml::visible(value))
}

/// Prints a text whose hidden characters have been made visible already.
pub fn seen(text: &str) -> Result<()> {
    quietly(std::io::stdout().lock().write_all(text.as_bytes()))
}

/// Writes a line to standard error. A failure to write is ignored: there is nowhere left to report it.
pub fn tell(text: &str) {
    _ = writeln!(std::io::stderr(), "{}", visible::line(text));
}

/// Takes a closed pipe for success: `head` and the like stop reading when they have enough.
pub fn quietly(written: std::io::Result<()>) -> Result<()> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}
