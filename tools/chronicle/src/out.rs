//! All output of commands goes through this module, so that no text of a tenant can control the terminal.

use anyhow::Result;
use holdfast_core::visible;
use holdfast_core::wire::yaml;
use holdfast_value::Value;
use std::io::{ErrorKind, Write};

/// Prints a text of several lines.
pub fn text(text: &str) -> Result<()> {
    seen(&visible::lines(text))
}

/// Prints one line, even if the text has newlines.
pub fn line(text: &str) -> Result<()> {
    seen(&format!("{}\n", visible::line(text)))
}

pub fn json(value: &Value) -> Result<()> {
    seen(&visible::json(&format!("{value:#}\n")))
}

pub fn yaml(value: &Value) -> Result<()> {
    seen(&yaml::visible(value))
}

/// Prints a text whose hidden characters are already made visible.
pub fn seen(text: &str) -> Result<()> {
    quietly(std::io::stdout().lock().write_all(text.as_bytes()))
}

/// Writes a line to standard error. A failure to write is ignored: there is nowhere left to report it.
pub fn print_error(text: &str) {
    _ = writeln!(std::io::stderr(), "{}", visible::line(text));
}

/// Treats a closed pipe as success: `head` and similar programs stop reading early.
pub fn quietly(written: std::io::Result<()>) -> Result<()> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}
