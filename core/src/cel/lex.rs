//! The lexer of CEL.

use super::names::RESERVED;

#[derive(Debug, Clone, PartialEq)]
pub enum Token {
    /// An operator or a bracket, or `in`, `true`, `false`, `null`.
    Sign(&'static str),
    Identifier,
    /// A name in backticks, which may contain characters that other names may not.
    Escaped,
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

/// An error message, and the byte offset in the source at which the error is.
pub type Complaint = (String, usize);
/// The offset in a message about the whole source.
pub const NOWHERE: usize = usize::MAX;

// Two-character signs come first, because the lexer takes the first sign that matches.
const SIGNS: &[&str] = &[
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "!", "[", "]", "{", "}", "(", ")", ".", ",", "-", "?", ":", "+", "*",
    "/", "%",
];
const WORDS: &[&str] = &["in", "true", "false", "null"];

pub struct Lexer<'s> {
    source: &'s str,
    at: usize,
    /// The errors for unknown characters, which were skipped, and for invalid literals.
    pub complaints: Vec<Complaint>,
}

impl<'s> Lexer<'s> {
    pub fn new(source: &'s str) -> Self {
        Lexer { source, at: 0, complaints: Vec::new() }
    }

    pub fn next(&mut self) -> Spanned {
        loop {
            self.skip_blanks();
            let start = self.at;
            let rest = &self.source[start..];
            let Some(first) = rest.chars().next() else { return Spanned { token: Token::End, start, end: start } };
            if let Some(token) = self.token(start, first) {
                return Spanned { token, start, end: self.at };
            }
        }
    }

    /// Reads the token at `start`. If no token starts there, skips the unknown characters and returns `None`.
    fn token(&mut self, start: usize, first: char) -> Option<Token> {
        let rest = &self.source[start..];
        if let Some(token) = self.string(start) {
            return token;
        }
        if first.is_ascii_digit() || (first == '.' && rest[1..].starts_with(|c: char| c.is_ascii_digit())) {
            return Some(self.number(start));
        }
        if first.is_ascii_alphabetic() || first == '_' {
            let length = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
            self.at += length;
            return Some(match WORDS.iter().find(|word| **word == &rest[..length]) {
                Some(word) => Token::Sign(word),
                None => Token::Identifier,
            });
        }
        if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            self.at += sign.len();
            return Some(Token::Sign(sign));
        }
        let quoted = |c: char| c.is_ascii_alphanumeric() || "_.-/ ".contains(c);
        if first == '`'
            && let Some(end) = rest[1..].find(|c| !quoted(c)).filter(|end| *end > 0 && rest[1 + end..].starts_with('`'))
        {
            self.at += end + 2;
            return Some(Token::Escaped);
        }
        // This may be the first character of an incomplete operator. As in cel-go, the next character is then skipped
        // with it.
        let begins = matches!(first, '=' | '&' | '|');
        let next = rest[first.len_utf8()..].chars().next().filter(|_| begins);
        self.pass_over(start, start + first.len_utf8() + next.map_or(0, char::len_utf8));
        None
    }

    /// Skips characters that belong to no token, and reports them.
    fn pass_over(&mut self, start: usize, end: usize) {
        let text = self.source[start..end].replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t");
        self.complaints.push((format!("Syntax error: token recognition error at: '{text}'"), start));
        self.at = end;
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

    fn number(&mut self, start: usize) -> Token {
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
            Ok(number) if number.is_finite() => Token::Double(number),
            _ => {
                self.complaints.push(("invalid double literal".to_owned(), start));
                Token::Double(0.0)
            }
        }
    }

    fn integer(&mut self, start: usize, end: usize, number: Option<u64>) -> Token {
        let unsigned = self.source[end..].starts_with(['u', 'U']);
        self.at = end + usize::from(unsigned);
        match (number, unsigned) {
            (Some(number), true) => Token::Uint(number),
            // A minus may precede the literal, and the smallest integer has a larger absolute value than the largest
            // integer. So the number may be one larger than the largest integer.
            (Some(number), false) if number <= 1 << 63 => Token::Int(number),
            (_, unsigned) => {
                let what = if unsigned { "uint" } else { "int" };
                self.complaints.push((format!("invalid {what} literal"), start));
                Token::Int(0)
            }
        }
    }

    /// A string or bytes literal, if one starts here. Returns `Some(None)` if it is not terminated and was skipped.
    fn string(&mut self, start: usize) -> Option<Option<Token>> {
        let rest = &self.source[start..];
        let prefix = rest.find(|c: char| !matches!(c, 'r' | 'R' | 'b' | 'B')).unwrap_or(rest.len());
        let (is_raw, is_bytes) = match rest[..prefix].to_ascii_lowercase().as_str() {
            "" => (false, false),
            "r" => (true, false),
            "b" => (false, true),
            "br" => (true, true),
            _ => return None,
        };
        let quoted = &rest[prefix..];
        let mark = ["'''", "\"\"\"", "'", "\""].into_iter().find(|mark| quoted.starts_with(mark))?;
        let body = start + prefix + mark.len();
        let end = match self.closing(body, mark, is_raw) {
            Ok(end) => end,
            // Without a closing quote, the prefix is an identifier, and the first two of three quotes are an empty
            // string.
            Err(_) if prefix > 0 => return None,
            Err(_) if mark.len() == 3 => {
                self.at = start + 2;
                return Some(Some(Token::String(String::new())));
            }
            Err(end) => {
                self.pass_over(start, end);
                return Some(None);
            }
        };
        self.at = end + mark.len();
        let text = &self.source[body..end];
        let bytes = if is_raw { Ok(text.as_bytes().to_vec()) } else { unescape(text, is_bytes) };
        let bytes = bytes.unwrap_or_else(|why| {
            self.complaints.push((why.to_owned(), start));
            Vec::new()
        });
        Some(Some(if is_bytes {
            Token::Bytes(bytes)
        } else {
            Token::String(String::from_utf8(bytes).unwrap_or_default())
        }))
    }

    /// The offset of the quotes that end a string. If there are none, the error is the end of the characters to skip.
    fn closing(&self, body: usize, mark: &str, is_raw: bool) -> Result<usize, usize> {
        let mut at = body;
        loop {
            let rest = &self.source[at..];
            if rest.starts_with(mark) {
                return Ok(at);
            }
            let Some(first) = rest.chars().next() else { return Err(at) };
            let next = at + first.len_utf8();
            at = match first {
                '\n' | '\r' if mark.len() == 1 => return Err(next),
                '\\' if !is_raw => self.escape(next)?,
                _ => next,
            };
        }
    }

    /// The offset after an escape sequence. If the sequence is invalid, the error is the offset after the invalid
    /// characters.
    fn escape(&self, at: usize) -> Result<usize, usize> {
        let rest = &self.source[at..];
        let Some(first) = rest.chars().next() else { return Err(at) };
        let (digits, radix) = match first {
            'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`' => (0, 8),
            'x' | 'X' => (2, 16),
            'u' => (4, 16),
            'U' => (8, 16),
            '0'..='3' => (2, 8),
            other => return Err(at + other.len_utf8()),
        };
        let mut end = at + 1;
        for _ in 0..digits {
            match self.source[end..].chars().next() {
                Some(digit) if digit.is_digit(radix) => end += 1,
                Some(other) => return Err(end + other.len_utf8()),
                None => return Err(end),
            }
        }
        Ok(end)
    }
}

/// The bytes that a quoted text means. An escape by `\x` or octal digits is a byte in a bytes literal, and a character
/// in a string literal.
fn unescape(text: &str, is_bytes: bool) -> Result<Vec<u8>, &'static str> {
    let mut out = Vec::with_capacity(text.len());
    let mut characters = text.chars();
    let mut buffer = [0; 4];
    let invalid = "unable to unescape string";
    while let Some(character) = characters.next() {
        if character != '\\' {
            out.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
            continue;
        }
        let escape = characters.next().ok_or(invalid)?;
        let mut number = |digits: usize, radix: u32, first: &str| {
            let text: String = first.chars().chain(characters.by_ref().take(digits)).collect();
            u32::from_str_radix(&text, radix).map_err(|_| invalid)
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
            _ => return Err(invalid),
        };
        if is_bytes && is_byte {
            out.push(u8::try_from(code).map_err(|_| invalid)?);
        } else {
            let character = char::from_u32(code).ok_or("invalid unicode code point")?;
            out.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
        }
    }
    Ok(out)
}

pub fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}
