//! Describes a JSON syntax error in the words of Go's scanner. This scanner runs only after the parser has refused the
//! text.

use std::borrow::Cow;

/// The first syntax error; `None` if the syntax is right.
pub fn complaint(bytes: &[u8]) -> Option<String> {
    let mut scanner = Scanner { bytes, at: 0 };
    scanner.document().err().map(|fault| match (fault, bytes.get(scanner.at)) {
        (context, Some(byte)) => format!("invalid character {} {context}", quoted(*byte)),
        (_, None) => "unexpected end of JSON input".to_string(),
    })
}

/// The result of scanning a part. The error is the context that Go's message names; the scanner is then at the wrong
/// byte or at the end.
type Result<T> = std::result::Result<T, String>;

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// The type of container in which the scanner is.
#[derive(Clone, Copy, PartialEq)]
enum Inside {
    Object,
    Array,
}

impl Scanner<'_> {
    /// Scans a document. The function has a stack of its own instead of recursion, so that any depth is possible.
    fn document(&mut self) -> Result<()> {
        let mut stack = Vec::new();
        'value: loop {
            match self.next_after_space() {
                Some(b'{') => {
                    self.at += 1;
                    if self.next_after_space() == Some(b'}') {
                        self.at += 1;
                    } else {
                        stack.push(Inside::Object);
                        self.key()?;
                        continue 'value;
                    }
                }
                Some(b'[') => {
                    self.at += 1;
                    if self.next_after_space() == Some(b']') {
                        self.at += 1;
                    } else {
                        stack.push(Inside::Array);
                        continue 'value;
                    }
                }
                Some(b'"') => self.string()?,
                Some(b'-' | b'0'..=b'9') => self.number()?,
                Some(b't') => self.literal("true")?,
                Some(b'f') => self.literal("false")?,
                Some(b'n') => self.literal("null")?,
                _ => return fault("looking for beginning of value"),
            }
            // A value ends here, and the lists and objects that contain it may end here too.
            loop {
                let next = self.next_after_space();
                match (stack.last(), next) {
                    (None, None) => return Ok(()),
                    (None, Some(_)) => return fault("after top-level value"),
                    (Some(Inside::Object), Some(b'}')) | (Some(Inside::Array), Some(b']')) => {
                        self.at += 1;
                        stack.pop();
                    }
                    (Some(inside), Some(b',')) => {
                        self.at += 1;
                        if *inside == Inside::Object {
                            self.key()?;
                        }
                        continue 'value;
                    }
                    (Some(Inside::Object), _) => return fault("after object key:value pair"),
                    (Some(Inside::Array), _) => return fault("after array element"),
                }
            }
        }
    }

    /// Scans a key and its colon.
    fn key(&mut self) -> Result<()> {
        if self.next_after_space() != Some(b'"') {
            return fault("looking for beginning of object key string");
        }
        self.string()?;
        if self.next_after_space() != Some(b':') {
            return fault("after object key");
        }
        self.at += 1;
        Ok(())
    }

    fn string(&mut self) -> Result<()> {
        self.at += 1;
        loop {
            match self.bytes.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                Some(byte) if *byte >= b' ' => self.at += 1,
                _ => return fault("in string literal"),
            }
        }
    }

    fn escape(&mut self) -> Result<()> {
        self.at += 1;
        match self.bytes.get(self.at) {
            Some(b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"') => self.at += 1,
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    self.expect(|byte| byte.is_ascii_hexdigit(), "in \\u hexadecimal character escape")?;
                }
            }
            _ => return fault("in string escape code"),
        }
        Ok(())
    }

    fn number(&mut self) -> Result<()> {
        if self.bytes.get(self.at) == Some(&b'-') {
            self.at += 1;
        }
        match self.bytes.get(self.at) {
            // A zero ends the integer part. A digit after it is an error in the surrounding text and not in the number.
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return fault("in numeric literal"),
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.expect(|byte| byte.is_ascii_digit(), "after decimal point in numeric literal")?;
            self.digits();
        }
        if matches!(self.bytes.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.bytes.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.expect(|byte| byte.is_ascii_digit(), "in exponent of numeric literal")?;
            self.digits();
        }
        Ok(())
    }

    fn digits(&mut self) {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
    }

    fn literal(&mut self, literal: &str) -> Result<()> {
        for expected in literal.bytes() {
            let context = || format!("in literal {literal} (expecting {})", quoted(expected));
            if self.bytes.get(self.at) != Some(&expected) {
                return Err(context());
            }
            self.at += 1;
        }
        Ok(())
    }

    fn expect(&mut self, fits: impl Fn(&u8) -> bool, context: &str) -> Result<()> {
        if !self.bytes.get(self.at).is_some_and(fits) {
            return fault(context);
        }
        self.at += 1;
        Ok(())
    }

    fn next_after_space(&mut self) -> Option<u8> {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }
}

fn fault<T>(context: &str) -> Result<T> {
    Err(context.to_string())
}

/// The byte as Go quotes it in an error message.
fn quoted(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_string(),
        b'\\' => r"'\\'".to_string(),
        0x07 => r"'\a'".to_string(),
        0x08 => r"'\b'".to_string(),
        0x0b => r"'\v'".to_string(),
        0x0c => r"'\f'".to_string(),
        b'\n' => r"'\n'".to_string(),
        b'\r' => r"'\r'".to_string(),
        b'\t' => r"'\t'".to_string(),
        0..0x20 | 0x7f => format!("'\\x{byte:02x}'"),
        0x80..0xa1 | 0xad => format!("'\\u{:04x}'", u32::from(byte)),
        _ => format!("'{}'", char::from(byte)),
    }
}

/// Replaces escapes of lone surrogates (`\ud800`), as Go does. The parser refuses such escapes.
pub fn without_lone_surrogates(text: &str) -> Cow<'_, str> {
    let mut replaced = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(backslash) = text[at..].find('\\').map(|found| at + found) {
        let first = code_unit(text, backslash);
        let second = code_unit(text, backslash + 6);
        at = match (first, second) {
            (Some(0xd800..0xdc00), Some(0xdc00..0xe000)) => backslash + 12,
            (Some(0xd800..0xe000), _) => {
                replaced.push_str(&text[copied..backslash]);
                replaced.push_str("\\ufffd");
                copied = backslash + 6;
                copied
            }
            // The character after a backslash never begins another escape.
            _ => backslash + 1 + text[backslash + 1..].chars().next().map_or(0, char::len_utf8),
        };
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    replaced.push_str(&text[copied..]);
    Cow::Owned(replaced)
}

/// The code unit of an escape such as `\u00e9` at this position; `None` if there is no such escape.
fn code_unit(text: &str, at: usize) -> Option<u32> {
    let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints() {
        let cases = [
            ("", "unexpected end of JSON input"),
            ("  ", "unexpected end of JSON input"),
            ("{\"a\": 1", "unexpected end of JSON input"),
            ("\"abc", "unexpected end of JSON input"),
            ("tru", "unexpected end of JSON input"),
            ("x", "invalid character 'x' looking for beginning of value"),
            ("{a: 1}", "invalid character 'a' looking for beginning of object key string"),
            ("{\"a\": 1,}", "invalid character '}' looking for beginning of object key string"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\": 1 \"b\"}", "invalid character '\"' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("{} {}", "invalid character '{' after top-level value"),
            ("01", "invalid character '1' after top-level value"),
            ("-x", "invalid character 'x' in numeric literal"),
            ("1.x", "invalid character 'x' after decimal point in numeric literal"),
            ("1ex", "invalid character 'x' in exponent of numeric literal"),
            ("trux", "invalid character 'x' in literal true (expecting 'e')"),
            ("\"\n\"", "invalid character '\\n' in string literal"),
            ("\"\\x\"", "invalid character 'x' in string escape code"),
            ("\"\\u00g0\"", "invalid character 'g' in \\u hexadecimal character escape"),
            ("'", "invalid character '\\'' looking for beginning of value"),
            ("\u{e9}", "invalid character '\u{c3}' looking for beginning of value"),
        ];
        for (text, expected) in cases {
            assert_eq!(complaint(text.as_bytes()).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(complaint(b" {\"a\": [{}, [], -0.5e+3, \"\\u00e9\"], \"b\": null} "), None);
    }
}
