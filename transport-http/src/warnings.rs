//! Warning headers. Each text is sent once, and all texts together fit into a client's buffers.

use crate::respond::Response;
use http::header::{HeaderValue, WARNING};
use std::collections::BTreeSet;

/// If all warnings of a response together have at most this many characters, they are sent in full.
const CHARACTERS_MAX: usize = 4 << 10;
/// If the warnings have more characters, each warning is cut to this many characters, and warnings are sent until
/// [`CHARACTERS_MAX`] is reached.
const CHARACTERS_CUT: usize = 256;

/// Adds the warnings to the response as headers.
pub fn warn(response: &mut Response, warnings: &[String]) {
    for text in told(warnings) {
        let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{escaped}\"").as_bytes()) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

/// The warnings that are sent, cut and limited in number if there are too many.
fn told(warnings: &[String]) -> Vec<&str> {
    let mut known = BTreeSet::new();
    let mut told: Vec<&str> = warnings.iter().map(String::as_str).collect();
    told.retain(|warning| !warning.is_empty() && !warning.contains(char::is_control) && known.insert(*warning));
    if characters(&told) <= CHARACTERS_MAX {
        return told;
    }
    let mut sum = 0;
    let fits = |text: &&str| {
        let fits = sum < CHARACTERS_MAX;
        sum += text.chars().count();
        fits
    };
    let (last, more) = (told.last().copied(), |text: &&str| text.starts_with("and ") && text.ends_with(" more"));
    let mut told: Vec<&str> = told.into_iter().map(cut).take_while(fits).collect();
    // If many warnings were left out, the last warning contains their number. It is always sent.
    told.extend(last.filter(|last| more(last) && !told.contains(last)));
    told
}

fn characters(texts: &[&str]) -> usize {
    texts.iter().map(|text| text.chars().count()).sum()
}

fn cut(text: &str) -> &str {
    text.char_indices().nth(CHARACTERS_CUT).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_warnings_are_cut() {
        let texts = |lengths: &[usize]| -> Vec<String> {
            lengths.iter().enumerate().map(|(n, length)| format!("{n:02}{}", "ä".repeat(length - 2))).collect()
        };
        let cases: [(Vec<usize>, Vec<usize>); 5] = [
            (vec![], vec![]),
            (vec![4096], vec![4096]),
            (vec![4097], vec![256]),
            (vec![300; 13], vec![300; 13]),
            (vec![300; 20], vec![256; 16]),
        ];
        for (sent, expected) in cases {
            let sent = texts(&sent);
            let found: Vec<usize> = told(&sent).iter().map(|text| text.chars().count()).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_warning_is_told_once_and_only_if_a_header_can_hold_it() {
        let warnings = ["a", "b\n", "a", "", "\u{e4} \"c\" \\"].map(String::from);
        let mut response = Response::default();
        warn(&mut response, &warnings);
        let found: Vec<&[u8]> = response.headers().get_all(WARNING).iter().map(HeaderValue::as_bytes).collect();
        let expected = ["299 - \"a\"", "299 - \"\u{e4} \\\"c\\\" \\\\\""].map(str::as_bytes);
        assert_eq!(found, expected);
    }
}
