//! The token in an `Authorization` header.

use http::{HeaderMap, HeaderValue, header};

/// What an `Authorization` header contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bearer<'a> {
    Token(&'a str),
    /// Extra spaces precede the token, so the token is ignored. Few clients intend this.
    Misplaced,
    Nothing,
}

/// The warning for a client with a misplaced token.
pub const MISPLACED: &str =
    "the provided Authorization header contains extra space before the bearer token, and is ignored";

/// The token that stands for a header that is not valid text. This token is invalid, but it is a credential, so the
/// request does not count as anonymous.
const NO_TEXT: &str = "\u{fffd}";

impl<'a> Bearer<'a> {
    pub fn of(headers: &'a HeaderMap) -> Bearer<'a> {
        let value = headers.get(header::AUTHORIZATION).map_or(&[][..], HeaderValue::as_bytes);
        let (value, is_text) = match std::str::from_utf8(value) {
            Ok(value) => (value, true),
            Err(fault) => (std::str::from_utf8(&value[..fault.valid_up_to()]).unwrap_or(""), false),
        };
        let mut words = value.trim().splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some(scheme), ..) if !scheme.eq_ignore_ascii_case("bearer") => Bearer::Nothing,
            (_, Some(""), Some(_)) => Bearer::Misplaced,
            (_, Some(_), _) if !is_text => Bearer::Token(NO_TEXT),
            (_, Some(token), _) if !token.is_empty() => Bearer::Token(token),
            _ => Bearer::Nothing,
        }
    }

    pub fn token(self) -> Option<&'a str> {
        match self {
            Bearer::Token(token) => Some(token),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_word_is_the_token() {
        for (value, expected) in [
            ("Bearer t", Bearer::Token("t")),
            ("  bearer t  ", Bearer::Token("t")),
            ("BEARER t u v", Bearer::Token("t")),
            ("Bearer  t", Bearer::Misplaced),
            ("Bearer ", Bearer::Nothing),
            ("Bearer", Bearer::Nothing),
            ("Basic dXNlcg==", Bearer::Nothing),
            ("Bearer\tt", Bearer::Nothing),
            ("", Bearer::Nothing),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("authorization", value.parse().expect("a header"));
            assert_eq!(Bearer::of(&headers), expected, "{value:?}");
        }
        for (value, expected) in [
            (&b"Bearer t\xc3\xbcr"[..], Bearer::Token("tür")),
            (b"Bearer t\xff", Bearer::Token(NO_TEXT)),
            (b"Basic \xff", Bearer::Nothing),
            (b"\xff", Bearer::Nothing),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("authorization", HeaderValue::from_bytes(value).expect("a header"));
            assert_eq!(Bearer::of(&headers), expected, "{value:?}");
        }
        assert_eq!(Bearer::of(&HeaderMap::new()), Bearer::Nothing);
    }
}
