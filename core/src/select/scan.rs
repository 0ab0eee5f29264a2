//! Splits a label selector's text into tokens.

/// A piece of a label selector. `in` and `notin` are ordinary words here: the parser decides their meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'a> {
    End,
    /// One of `( ) , ! = == != < >`.
    Symbol(&'a str),
    Word(&'a str),
}

impl<'a> Token<'a> {
    /// The text of the token as error messages show it.
    pub(super) fn text(self) -> &'a str {
        match self {
            Self::End => "",
            Self::Symbol(text) | Self::Word(text) => text,
        }
    }
}

/// Splits a text into tokens. The last token, and no other, is [`Token::End`].
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut at = 0;
    loop {
        while at < bytes.len() && is_blank(bytes[at]) {
            at += 1;
        }
        // Wherever a token could begin, Kubernetes' scanner takes a NUL for the end of the text.
        if at >= bytes.len() || bytes[at] == 0 {
            tokens.push(Token::End);
            return tokens;
        }
        let start = at;
        if is_symbol(bytes[at]) {
            at += if matches!(bytes.get(at..at + 2), Some(b"==" | b"!=")) { 2 } else { 1 };
            tokens.push(Token::Symbol(&text[start..at]));
        } else {
            while at < bytes.len() && bytes[at] != 0 && !is_symbol(bytes[at]) && !is_blank(bytes[at]) {
                at += 1;
            }
            tokens.push(Token::Word(&text[start..at]));
            // A NUL directly after a word only ends the word.
            if bytes.get(at) == Some(&0) {
                at += 1;
            }
        }
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn is_symbol(byte: u8) -> bool {
    matches!(byte, b'=' | b'!' | b'(' | b')' | b',' | b'>' | b'<')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_symbol_wins() {
        let shown: Vec<&str> = tokens(" a!==b in(x,é)\t!c\0d").into_iter().map(Token::text).collect();
        assert_eq!(shown, ["a", "!=", "=", "b", "in", "(", "x", ",", "é", ")", "!", "c", "d", ""]);
    }
}
