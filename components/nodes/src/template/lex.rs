//! Splits a template into text and actions, and actions into tokens.

/// A part of a template: text or an action.
#[derive(Debug, PartialEq)]
pub enum Piece<'a> {
    Text(&'a str),
    Action(&'a str),
}

/// Splits a template at `{{` and `}}`. Trims the text beside `{{-` and `-}}`, and drops comments.
pub fn pieces(source: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut pieces = Vec::new();
    let (mut rest, mut trim) = (source, false);
    loop {
        let start = rest.find("{{").unwrap_or(rest.len());
        let (mut text, after) = rest.split_at(start);
        if trim {
            text = text.trim_start();
        }
        let Some(mut action) = after.strip_prefix("{{") else {
            pieces.push(Piece::Text(text));
            return Ok(pieces);
        };
        if action.starts_with("- ") || action.starts_with("-\n") || action.starts_with("-\t") {
            action = &action[1..];
            text = text.trim_end();
        }
        pieces.push(Piece::Text(text));
        let end = end_of_action(action).ok_or("an action of the template is not closed")?;
        rest = &action[end + 2..];
        action = &action[..end];
        trim = action.ends_with('-') && action.trim_end_matches('-').ends_with(char::is_whitespace);
        if trim {
            action = action.trim_end_matches('-');
        }
        let action = action.trim();
        if !(action.starts_with("/*") && action.ends_with("*/")) {
            pieces.push(Piece::Action(action));
        }
    }
}

/// The position of the first `}}` that is not in a string or a comment.
fn end_of_action(action: &str) -> Option<usize> {
    let bytes = action.as_bytes();
    if action.trim_start().starts_with("/*") {
        let comment = action.find("*/")?;
        return action[comment..].find("}}").map(|end| comment + end);
    }
    let (mut place, mut quote) = (0, None);
    while place < bytes.len() {
        match (bytes[place], quote) {
            (b'\\', Some(b'"' | b'\'')) => place += 1,
            (byte, Some(open)) if byte == open => quote = None,
            (_, Some(_)) => {}
            (byte @ (b'"' | b'`' | b'\''), None) => quote = Some(byte),
            (b'}', None) if bytes.get(place + 1) == Some(&b'}') => return Some(place),
            _ => {}
        }
        place += 1;
    }
    None
}

#[derive(Debug, Clone, PartialEq)]
pub enum Token {
    /// A field such as `.a`. The flag says whether a space precedes the field, so that the field starts an operand.
    Field(String, bool),
    /// A `.` that no name follows.
    Dot,
    /// `$` or `$name`
    Variable(String),
    Word(String),
    Text(String),
    Number(serde_json::Number),
    /// `(`.
    Open,
    /// `)`.
    Close,
    Bar,
    Comma,
    /// `:=`
    Declare,
    /// `=`
    Assign,
}

pub fn tokens(action: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = action;
    let mut spaced = true;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            c if c.is_whitespace() => {
                spaced = true;
                rest = &rest[c.len_utf8()..];
                continue;
            }
            '(' => push(&mut tokens, Token::Open, 1),
            ')' => push(&mut tokens, Token::Close, 1),
            '|' => push(&mut tokens, Token::Bar, 1),
            ',' => push(&mut tokens, Token::Comma, 1),
            ':' if rest.starts_with(":=") => push(&mut tokens, Token::Declare, 2),
            '=' => push(&mut tokens, Token::Assign, 1),
            '.' => {
                let name = name(&rest[1..]);
                let token = if name.is_empty() { Token::Dot } else { Token::Field(name.to_owned(), spaced) };
                push(&mut tokens, token, 1 + name.len())
            }
            '$' => {
                let name = name(&rest[1..]);
                push(&mut tokens, Token::Variable(name.to_owned()), 1 + name.len())
            }
            '"' => {
                let (text, length) = quoted(rest)?;
                push(&mut tokens, Token::Text(text), length)
            }
            '`' => {
                let end = rest[1..].find('`').ok_or("a text is not closed")?;
                push(&mut tokens, Token::Text(rest[1..=end].to_owned()), end + 2)
            }
            c if c.is_ascii_digit() || (c == '-' && rest[1..].starts_with(|c: char| c.is_ascii_digit())) => {
                let length = rest[1..]
                    .find(|c: char| !(c.is_ascii_alphanumeric() || c == '.'))
                    .map_or(rest.len(), |end| end + 1);
                let number = rest[..length].parse().map_err(|_| format!("{:?} is not a number", &rest[..length]))?;
                push(&mut tokens, Token::Number(number), length)
            }
            _ => {
                let name = name(rest);
                if name.is_empty() {
                    return Err(format!("{first:?} is not supported in a template's action"));
                }
                push(&mut tokens, Token::Word(name.to_owned()), name.len())
            }
        };
        spaced = false;
        rest = &rest[length..];
    }
    Ok(tokens)
}

fn push(tokens: &mut Vec<Token>, token: Token, length: usize) -> usize {
    tokens.push(token);
    length
}

fn name(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    &text[..end]
}

/// The value of a string in double quotes, and the string's length in the source. Go has the escapes of JSON and a few
/// more.
fn quoted(text: &str) -> Result<(String, usize), String> {
    let mut found = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((place, c)) = chars.next() {
        match c {
            '"' => return Ok((found, place + 1)),
            '\\' => found.push(match chars.next().map(|(_, escaped)| escaped) {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('r') => '\r',
                Some(c @ ('"' | '\\' | '\'')) => c,
                Some('u') => {
                    let digits: String = chars.by_ref().take(4).map(|(_, digit)| digit).collect();
                    u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32).ok_or("a text has a wrong escape")?
                }
                _ => return Err("a text has an escape that is not supported".into()),
            }),
            c => found.push(c),
        }
    }
    Err("a text is not closed".into())
}
