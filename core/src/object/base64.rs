//! Base64 in documents, as Go reads it: the standard alphabet is used, padding is required, line breaks are ignored.

use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

/// The decoder. Like Go's, it ignores the bits of the last letter that belong to no byte.
const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// Checks a base64 text. Returns the canonical spelling of its bytes if it differs from the text.
pub fn check(text: &str) -> Result<Option<String>, String> {
    if let Some(at) = first_fault(text.as_bytes()) {
        return Err(format!("illegal base64 data at input byte {at}"));
    }
    let broken = text.contains(['\r', '\n']);
    let tail = text.len().saturating_sub(4);
    // Only the letter before padding has bits that belong to no byte. This cheap test saves decoding long texts.
    if !broken && !text.ends_with('=') {
        return Ok(None);
    }
    let compact;
    let source = if broken {
        compact = text.replace(['\r', '\n'], "");
        compact.as_str()
    } else {
        &text[tail..]
    };
    let bytes = ENGINE.decode(source).map_err(|_| "illegal base64 data at input byte 0".to_string())?;
    let spelled = ENGINE.encode(bytes);
    if !broken && spelled == source {
        return Ok(None);
    }
    Ok(Some(if broken { spelled } else { format!("{}{spelled}", &text[..tail]) }))
}

/// Decodes a text. The error has Go's text.
pub fn decode(text: &str) -> Result<Vec<u8>, String> {
    if let Some(at) = first_fault(text.as_bytes()) {
        return Err(format!("illegal base64 data at input byte {at}"));
    }
    let compact = text.replace(['\r', '\n'], "");
    ENGINE.decode(compact).map_err(|_| "illegal base64 data at input byte 0".to_string())
}

/// The index of the byte at which Go's decoder reports an error; `None` if the text is valid.
fn first_fault(text: &[u8]) -> Option<usize> {
    // The number of letters in the current group of four, and the number of padding characters.
    let mut letters = 0;
    let mut padding = 0;
    let mut last_padding = 0;
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'\r' | b'\n' => {}
            _ if letters + padding == 4 && padding > 0 => return Some(at),
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' if padding == 0 => {
                letters = letters % 4 + 1;
            }
            b'=' if padding > 0 || letters == 2 || letters == 3 => {
                padding += 1;
                last_padding = at;
            }
            // The second padding character is missing. Go reports the index of the first padding character or the index
            // before this byte, whichever is greater.
            _ if padding > 0 => return Some(last_padding.max(at - 1)),
            _ => return Some(at),
        }
    }
    if letters % 4 == 0 || letters + padding == 4 {
        return None;
    }
    // The text ends inside a group. Go reports the end of the text if there is padding. Otherwise Go counts back from
    // the end by the letters of the group, as if no line breaks were among them.
    Some(if padding > 0 { text.len() } else { text.len() - letters })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_where_go_sees_them() {
        let cases = [
            ("", None),
            ("YQ==", None),
            ("YWI=", None),
            ("YWJj", None),
            ("YW\nJj\n", None),
            ("!!!!", Some(0)),
            ("YWJ", Some(0)),
            ("YWJjY", Some(4)),
            ("YWJjYQ", Some(4)),
            ("YQ=", Some(3)),
            ("YQ==YQ==", Some(4)),
            ("YQ=a", Some(2)),
            ("=", Some(0)),
            ("Y=", Some(1)),
            ("YWJj=", Some(4)),
            ("YWJjYQ==x", Some(8)),
            ("YWJ-", Some(3)),
        ];
        for (text, fault) in cases {
            assert_eq!(first_fault(text.as_bytes()), fault, "{text}");
        }
    }

    #[test]
    fn better_spellings() {
        assert_eq!(check("YQ=="), Ok(None));
        assert_eq!(check("YR=="), Ok(Some("YQ==".to_string())));
        assert_eq!(check("YWJjYR=="), Ok(Some("YWJjYQ==".to_string())));
        assert_eq!(check("YWJj\nYQ==\n"), Ok(Some("YWJjYQ==".to_string())));
        assert_eq!(check("YQ"), Err("illegal base64 data at input byte 0".to_string()));
    }

    proptest::proptest! {
        #[test]
        fn agrees_with_the_engine(text in "[AQZaz09+/=\\-]{0,12}") {
            proptest::prop_assert_eq!(first_fault(text.as_bytes()).is_none(), ENGINE.decode(&text).is_ok());
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let _ = check(&text);
        }
    }
}
