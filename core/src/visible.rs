//! Makes untrusted text safe to show to people: replaces control characters of terminals, characters that change the
//! text direction, and invisible characters by their code points. Everything that `holdfast` prints passes through this
//! module.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a character does more than show a glyph: control characters including line breaks, direction marks, and
/// zero-width characters except the joiners that scripts and emoji need.
pub fn is_hidden(c: char) -> bool {
    // Fast path: most text is plain ASCII.
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

/// Makes text safe for a table cell: tabs and line breaks are replaced too.
pub fn cell(text: &str) -> Cow<'_, str> {
    without(text, &[])
}

/// Makes text safe to print as one line on a terminal. Tabs are kept, and line breaks are escaped.
pub fn line(text: &str) -> Cow<'_, str> {
    without(text, &['\t'])
}

/// Makes text safe to print as several lines on a terminal. Tabs and line breaks are kept.
pub fn lines(text: &str) -> Cow<'_, str> {
    without(text, &['\t', '\n'])
}

fn without<'t>(text: &'t str, kept: &[char]) -> Cow<'t, str> {
    shown(text, |c| is_hidden(c) && !kept.contains(&c), |c, out| out.extend(c.escape_default()))
}

/// JSON text, escaped so that it still means the same document. Characters below a space stay, because they cannot
/// occur inside JSON strings.
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
