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

    /// A key and its colon.
    pub fn key(&mut self) -> Option<Quoted<'a>> {
        let text = self.quoted()?;
        self.take(b':')?;
        Some(text)
    }

    /// What stands between quotes.
    pub fn quoted(&mut self) -> Option<Quoted<'a>> {
        self.take(b'"')?;
        let begin = self.at;
        let (length, has_escapes) = text_end(self.rest())?;
        self.at = begin + length;
        let text = self.text.get(begin..self.at)?;
        self.at += 1;
        Some(Quoted { text, has_escapes })
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

/// A text as it is written between quotes.
#[derive(Clone, Copy)]
pub(super) struct Quoted<'a> {
    text: &'a str,
    has_escapes: bool,
}

impl<'a> Quoted<'a> {
    /// Escapes stay as they are.
    pub fn as_written(self) -> &'a str {
        self.text
    }

    /// The text itself, where nothing in it is escaped.
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
