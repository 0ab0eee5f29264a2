//! Goes through text as it is stored: canonical JSON, with no white space between tokens.

use super::scan::{nested_end, text_end};
use holdfast_value::CompactString;

/// A place in a text. Every step answers `None` where the text is not as stored text is.
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    /// At the beginning; `None` where that is no text.
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

    /// Whether this is here, which is passed then.
    pub fn passes(&mut self, byte: u8) -> bool {
        let is_here = self.peek() == Some(byte);
        self.at += usize::from(is_here);
        is_here
    }

    /// A key and its colon; escapes stay as they are.
    pub fn key(&mut self) -> Option<&'a str> {
        let text = self.quoted()?;
        self.take(b':')?;
        Some(text)
    }

    /// What stands between quotes; escapes stay as they are.
    pub fn quoted(&mut self) -> Option<&'a str> {
        self.take(b'"')?;
        let begin = self.at;
        self.at = begin + text_end(self.rest())?;
        let text = self.text.get(begin..self.at)?;
        self.at += 1;
        Some(text)
    }

    /// A number or a word.
    pub fn scalar(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        let length = rest.iter().position(|byte| matches!(byte, b',' | b'}' | b']' | b'\n')).unwrap_or(rest.len());
        let text = self.text.get(self.at..self.at + length)?;
        self.at += length;
        Some(text)
    }

    /// Passes a value, whose text this is.
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

/// What is written between quotes.
pub(super) fn unescaped(text: &str) -> Option<CompactString> {
    if has_escapes(text) { serde_json::from_str(&format!("\"{text}\"")).ok() } else { Some(text.into()) }
}

pub(super) fn has_escapes(text: &str) -> bool {
    memchr::memchr(b'\\', text.as_bytes()).is_some()
}
