//! Tokens of CEL.

use super::names::RESERVED;

#[derive(Debug, Clone, PartialEq)]
pub enum Token {
    /// An operator or a bracket, or `in`, `true`, `false`, `null`.
    Sign(&'static str),
    Identifier,
    Int(u64),
    Uint(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
    End,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Spanned {
    pub token: Token,
    pub start: usize,
    pub end: usize,
}

/// A complaint and where it belongs.
pub type Complaint = (String, usize);

// Longer signs first.
const SIGNS: &[&str] = &[
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "!", "[", "]", "{", "}", "(", ")", ".", ",", "-", "?", ":", "+", "*",
    "/", "%",
];
const WORDS: &[&str] = &["in", "true", "false", "null"];

pub struct Lexer<'s> {
    source: &'s str,
    at: usize,
}

impl<'s> Lexer<'s> {
    pub fn new(source: &'s str) -> Self {
        Lexer { source, at: 0 }
    }

    pub fn next(&mut self) -> Result<Spanned, Complaint> {
        self.skip_blanks();
        let start = self.at;
        let rest = &self.source[start..];
        let Some(first) = rest.chars().next() else {
            return Ok(Spanned { token: Token::End, start, end: start });
        };
        let token = if let Some(token) = self.string(start)? {
            token
        } else if first.is_ascii_digit() || (first == '.' && rest[1..].starts_with(|c: char| c.is_ascii_digit())) {
            self.number(start)?
        } else if first.is_ascii_alphabetic() || first == '_' {
            let length = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
            self.at += length;
            match WORDS.iter().find(|word| **word == &rest[..length]) {
                Some(word) => Token::Sign(word),
                None => Token::Identifier,
            }
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            self.at += sign.len();
            Token::Sign(sign)
        } else if first == '`' {
            return Err(("unsupported syntax: '`'".to_owned(), start));
        } else {
            return Err((format!("Syntax error: token recognition error at: '{first}'"), start));
        };
        Ok(Spanned { token, start, end: self.at })
    }

    fn skip_blanks(&mut self) {
        loop {
            let rest = &self.source[self.at..];
            let blanks = rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r', '\x0c']).len();
            self.at += blanks;
            let rest = &self.source[self.at..];
            if !rest.starts_with("//") {
                return;
            }
            self.at += rest.find('\n').unwrap_or(rest.len());
        }
    }

    fn number(&mut self, start: usize) -> Result<Token, Complaint> {
        let bytes = self.source.as_bytes();
        let digits = |mut at: usize| {
            while bytes.get(at).is_some_and(u8::is_ascii_digit) {
                at += 1;
            }
            at
        };
        let is = |at: usize, among: &[u8]| bytes.get(at).is_some_and(|byte| among.contains(byte));
        if bytes[start] == b'0' && is(start + 1, b"x") && bytes.get(start + 2).is_some_and(u8::is_ascii_hexdigit) {
            let mut end = start + 2;
            while bytes.get(end).is_some_and(u8::is_ascii_hexdigit) {
                end += 1;
            }
            return self.integer(start, end, u64::from_str_radix(&self.source[start + 2..end], 16).ok());
        }
        let whole = digits(start);
        let mut end = whole;
        if is(end, b".") && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
            end = digits(end + 1);
        }
        if is(end, b"eE") {
            let exponent = if is(end + 1, b"+-") { end + 2 } else { end + 1 };
            if bytes.get(exponent).is_some_and(u8::is_ascii_digit) {
                end = digits(exponent);
            }
        }
        if end == whole {
            return self.integer(start, end, self.source[start..end].parse().ok());
        }
        self.at = end;
        match self.source[start..end].parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Token::Double(number)),
            _ => Err(("invalid double literal".to_owned(), start)),
        }
    }

    fn integer(&mut self, start: usize, end: usize, number: Option<u64>) -> Result<Token, Complaint> {
        let unsigned = self.source[end..].starts_with(['u', 'U']);
        self.at = end + usize::from(unsigned);
        match (number, unsigned) {
            (Some(number), true) => Ok(Token::Uint(number)),
            // One more than the largest: a minus may come before it.
            (Some(number), false) if number <= 1 << 63 => Ok(Token::Int(number)),
            (_, true) => Err(("invalid uint literal".to_owned(), start)),
            (_, false) => Err(("invalid int literal".to_owned(), start)),
        }
    }

    /// A string or bytes, when one starts here.
    fn string(&mut self, start: usize) -> Result<Option<Token>, Complaint> {
        let rest = &self.source[start..];
        let prefix = rest.find(|c: char| !matches!(c, 'r' | 'R' | 'b' | 'B')).unwrap_or(rest.len());
        let (is_raw, is_bytes) = match rest[..prefix].to_ascii_lowercase().as_str() {
            "" => (false, false),
            "r" => (true, false),
            "b" => (false, true),
            "rb" | "br" => (true, true),
            _ => return Ok(None),
        };
        let quoted = &rest[prefix..];
        let Some(mark) = ["'''", "\"\"\"", "'", "\""].into_iter().find(|mark| quoted.starts_with(mark)) else {
            return Ok(None);
        };
        let body = start + prefix + mark.len();
        let end = self.closing(body, mark, is_raw).ok_or_else(|| {
            let line = self.source[start..].lines().next().unwrap_or_default();
            (format!("Syntax error: token recognition error at: '{line}'"), start)
        })?;
        self.at = end + mark.len();
        let text = &self.source[body..end];
        let invalid = |what: &str| (format!("invalid {what} literal"), start);
        Ok(Some(match (is_bytes, is_raw) {
            (true, true) => Token::Bytes(text.as_bytes().to_vec()),
            (true, false) => Token::Bytes(unescape(text, true).ok_or_else(|| invalid("bytes"))?),
            (false, true) => Token::String(text.to_owned()),
            (false, false) => {
                let bytes = unescape(text, false).ok_or_else(|| invalid("string"))?;
                Token::String(String::from_utf8(bytes).map_err(|_| invalid("string"))?)
            }
        }))
    }

    /// Where the mark that closes a string starts.
    fn closing(&self, body: usize, mark: &str, is_raw: bool) -> Option<usize> {
        let bytes = self.source.as_bytes();
        let mut at = body;
        loop {
            if self.source.as_bytes()[at..].starts_with(mark.as_bytes()) {
                return Some(at);
            }
            match bytes.get(at)? {
                b'\\' if !is_raw => at += 1,
                b'\n' | b'\r' if mark.len() == 1 => return None,
                _ => {}
            }
            at += 1;
            if at > bytes.len() {
                return None;
            }
        }
    }
}

/// The bytes that a quoted text stands for. In bytes `\x` and octal digits are bytes, in strings they are characters.
fn unescape(text: &str, is_bytes: bool) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut characters = text.chars();
    let mut buffer = [0; 4];
    while let Some(character) = characters.next() {
        if character != '\\' {
            out.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
            continue;
        }
        let escape = characters.next()?;
        let mut number = |digits: usize, radix: u32, first: &str| -> Option<u32> {
            let mut text = first.to_owned();
            for _ in 0..digits {
                text.push(characters.next().filter(|c| c.is_digit(radix))?);
            }
            u32::from_str_radix(&text, radix).ok()
        };
        let (code, is_byte) = match escape {
            'a' => (7, true),
            'b' => (8, true),
            'f' => (12, true),
            'n' => (10, true),
            'r' => (13, true),
            't' => (9, true),
            'v' => (11, true),
            '\\' | '?' | '"' | '\'' | '`' => (escape as u32, true),
            'x' | 'X' => (number(2, 16, "")?, true),
            'u' if !is_bytes => (number(4, 16, "")?, false),
            'U' if !is_bytes => (number(8, 16, "")?, false),
            '0'..='3' => (number(2, 8, &escape.to_string())?, true),
            _ => return None,
        };
        if is_bytes && is_byte {
            out.push(u8::try_from(code).ok()?);
        } else {
            out.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut buffer).as_bytes());
        }
    }
    Some(out)
}

pub fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}
