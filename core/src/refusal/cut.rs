//! Shortens texts. Without it, a refusal could repeat a body of megabytes for each fault in the body.

use holdfast_value::Value;
use std::io::{self, Write};

/// A text that is cut after `bytes_max` bytes, with a mark at the end.
pub(crate) struct Cut {
    pub text: String,
    bytes_max: usize,
    pub is_cut: bool,
}

impl Cut {
    pub fn at(bytes_max: usize) -> Cut {
        Cut { text: String::new(), bytes_max, is_cut: false }
    }

    /// Writes a value as JSON and stops at the limit, so that a huge value costs no more than its shown part.
    pub fn json(value: &Value, bytes_max: usize) -> Cut {
        let mut cut = Cut::at(bytes_max);
        // At the limit this writer returns an error, which ends the writing.
        let _ = serde_json::to_writer(&mut cut, value);
        cut
    }

    /// Appends a text, or the part of it for which there is room. Returns false if no room is left.
    pub fn add(&mut self, text: &str) -> bool {
        if self.is_cut {
            return false;
        }
        let room = self.bytes_max - self.text.len();
        if text.len() <= room {
            self.text.push_str(text);
            return true;
        }
        self.text.push_str(&text[..text.floor_char_boundary(room)]);
        self.text.push('…');
        self.is_cut = true;
        false
    }
}

impl Write for Cut {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = str::from_utf8(bytes).map_err(io::Error::other)?;
        if self.add(text) { Ok(bytes.len()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The text, cut if it is longer than `bytes_max`.
pub(crate) fn cut(text: String, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text;
    }
    let mut cut = Cut::at(bytes_max);
    cut.add(&text);
    cut.text
}

/// The number of bytes that a text takes inside JSON, including escapes.
pub(super) fn json_bytes(text: &str) -> usize {
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 2,
        0..=0x1f => 6,
        _ => 1,
    };
    text.bytes().map(escaped).sum()
}
