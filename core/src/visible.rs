//! Text that others wrote, for the eyes of people: what a terminal obeys, what turns the order of letters around and
//! what nobody sees is shown by its number. Everything that `holdfast` prints goes through here.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a character does something else than to show itself: control characters with line breaks, marks of direction,
/// and those without width, but for the joiners that letters and pictures are made with.
pub fn is_hidden(c: char) -> bool {
    // Nearly everything is plain.
    if (' '..='~').contains(&c) {
        return false;
    }
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'
                | '\u{200e}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// A text that is to stay in its column.
pub fn cell(text: &str) -> Cow<'_, str> {
    without(text, &[])
}

/// A text that is to stay on its line.
pub fn line(text: &str) -> Cow<'_, str> {
    without(text, &['\t'])
}

/// A text of several lines.
pub fn lines(text: &str) -> Cow<'_, str> {
    without(text, &['\t', '\n'])
}

fn without<'t>(text: &'t str, kept: &[char]) -> Cow<'t, str> {
    shown(text, |c| is_hidden(c) && !kept.contains(&c), |c, out| out.extend(c.escape_default()))
}

/// A document of JSON, which stays the same: characters below a space stand in no string of one.
pub fn json(text: &str) -> Cow<'_, str> {
    let escape = |c: char, out: &mut String| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a String cannot fail.
            _ = write!(out, "\\u{unit:04x}");
        }
    };
    shown(text, |c| c >= ' ' && is_hidden(c), escape)
}

fn shown(text: &str, is_meant: impl Fn(char) -> bool, show: impl Fn(char, &mut String)) -> Cow<'_, str> {
    let Some(first) = text.find(&is_meant) else { return Cow::Borrowed(text) };
    let (begin, rest) = text.split_at(first);
    let mut out = String::with_capacity(text.len() + 16);
    out.push_str(begin);
    for c in rest.chars() {
        match is_meant(c) {
            true => show(c, &mut out),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::{Value, json as value};

    #[test]
    fn what_a_terminal_obeys_is_shown() {
        for (text, on_line, on_lines) in [
            ("plain — ünïcode 日本 👩‍🚀", "plain — ünïcode 日本 👩‍🚀", "plain — ünïcode 日本 👩‍🚀"),
            ("a\x1b[2J", "a\\u{1b}[2J", "a\\u{1b}[2J"),
            ("a\n\tb\r", "a\\n\tb\\r", "a\n\tb\\r"),
            ("\u{9b}31m\u{85}", "\\u{9b}31m\\u{85}", "\\u{9b}31m\\u{85}"),
            ("\u{202e}x\u{2066}", "\\u{202e}x\\u{2066}", "\\u{202e}x\\u{2066}"),
            ("\u{2028}\u{feff}\u{e0041}", "\\u{2028}\\u{feff}\\u{e0041}", "\\u{2028}\\u{feff}\\u{e0041}"),
        ] {
            assert_eq!((&*line(text), &*lines(text)), (on_line, on_lines), "{text:?}");
        }
        assert_eq!(cell("a\tb\n"), "a\\tb\\n");
    }

    #[test]
    fn documents_stay_the_same() {
        let document = value!({"a\u{9b}": "\x1b\n\u{7f}\u{85}", "\u{202e}": ["\u{e0041}", "ü"]});
        for text in [document.to_string(), format!("{document:#}\n")] {
            let shown = json(&text);
            assert!(!shown.chars().any(|c| c != '\n' && is_hidden(c)), "{shown:?}");
            assert_eq!(serde_json::from_str::<Value>(&shown).expect("JSON"), document);
        }
    }
}
