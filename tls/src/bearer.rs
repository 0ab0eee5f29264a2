//! The token in an `Authorization` header.

use http::{HeaderMap, header};

/// What such a header holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bearer<'a> {
    Token(&'a str),
    /// Spaces stand where the token should begin: there is none, which few mean.
    Misplaced,
    Nothing,
}

/// What the holder of a misplaced token is told.
pub const MISPLACED: &str =
    "the provided Authorization header contains extra space before the bearer token, and is ignored";

impl<'a> Bearer<'a> {
    pub fn of(headers: &'a HeaderMap) -> Bearer<'a> {
        let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or("");
        let mut words = value.trim().splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some(scheme), ..) if !scheme.eq_ignore_ascii_case("bearer") => Bearer::Nothing,
            (_, Some(""), Some(_)) => Bearer::Misplaced,
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
        assert_eq!(Bearer::of(&HeaderMap::new()), Bearer::Nothing);
    }
}
