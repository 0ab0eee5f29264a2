//! Reads stored text, which is canonical JSON: it has no white space between tokens.

use super::scan::{nested_end, text_end};
use holdfast_value::CompactString;

/// A position in a text. Every method that reads returns `None` if the text is not canonical.
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    /// A cursor at the beginning of the text; `None` if the bytes are not UTF-8.
    pub fn of(json: &'a [u8]) -> Option<Self> {
        Some(Self { text: std::str::from_utf8(json).ok()?, at: 0 })
    }

    pub fn at(&self) -> usize {
        self.at
    }

    fn rest(&self) -> &'a [u8] {
        &self.text.as_bytes()[self.at..]
    }

    pub fn peek(&self) -> Option<u8> {
        self.rest().first().copied()
    }

    pub fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    pub fn take(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    /// Skips the next byte if it equals `byte`. Returns whether it did.
    pub fn passes(&mut self, byte: u8) -> bool {
        let is_here = self.peek() == Some(byte);
        self.at += usize::from(is_here);
        is_here
    }

    /// Reads a key and its colon.
    pub fn key(&mut self) -> Option<Quoted<'a>> {
        let text = self.quoted()?;
        self.take(b':')?;
        Some(text)
    }

    /// Reads a string, and returns the content between the quotes.
    pub fn quoted(&mut self) -> Option<Quoted<'a>> {
        self.take(b'"')?;
        let begin = self.at;
        let (length, has_escapes) = text_end(self.rest())?;
        self.at = begin + length;
        let text = self.text.get(begin..self.at)?;
        self.at += 1;
        Some(Quoted { text, has_escapes })
    }

    /// Reads a number, boolean or null, and returns its text.
    pub fn scalar(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        let length = rest.iter().position(|byte| matches!(byte, b',' | b'}' | b']' | b'\n')).unwrap_or(rest.len());
        let text = self.text.get(self.at..self.at + length)?;
        self.at += length;
        Some(text)
    }

    /// Skips a value and returns its text.
    pub fn skip(&mut self) -> Option<&'a str> {
        let begin = self.at;
        match self.peek()? {
            b'"' => _ = self.quoted()?,
            b'{' | b'[' => {
                self.at += 1;
                self.at += nested_end(self.rest())?;
            }
            _ => _ = self.scalar()?,
        }
        self.text.get(begin..self.at)
    }
}

/// The content of a JSON string as it is written, with its escapes.
#[derive(Clone, Copy)]
pub(super) struct Quoted<'a> {
    text: &'a str,
    has_escapes: bool,
}

impl<'a> Quoted<'a> {
    /// The content as it is written: escapes are not resolved.
    pub fn as_written(self) -> &'a str {
        self.text
    }

    /// The content, if it has no escapes; otherwise `None`.
    pub fn plain(self) -> Option<&'a str> {
        (!self.has_escapes).then_some(self.text)
    }

    pub fn unescaped(self) -> Option<CompactString> {
        match self.has_escapes {
            true => serde_json::from_str(&format!("\"{}\"", self.text)).ok(),
            false => Some(self.text.into()),
        }
    }
}
