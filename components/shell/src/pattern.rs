//! File name patterns: `*`, `?` and `[…]`, with `\` before literal characters.

/// The maximum number of steps of one comparison.
const WORK_MAX: usize = 200_000;

/// Whether a pattern matches a whole text. If a comparison needs too many steps, the pattern counts as not matching.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // The position of the last `*` in the pattern, and the position in the text up to which the `*` matches so far.
    let mut star: Option<(usize, usize)> = None;
    for _ in 0..WORK_MAX {
        if t == text.len() {
            return pattern[p..].iter().all(|c| *c == '*');
        }
        match one(&pattern[p..], text[t]) {
            Some(0) => {
                star = Some((p, t));
                p += 1;
            }
            Some(length) => {
                p += length;
                t += 1;
            }
            None => match &mut star {
                Some((at, taken)) => {
                    *taken += 1;
                    (p, t) = (*at + 1, *taken);
                }
                None => return false,
            },
        }
    }
    false
}

/// The length of the first part of the pattern if this part matches the character; 0 if the part is a `*`, and `None`
/// if it does not match.
fn one(pattern: &[char], c: char) -> Option<usize> {
    match pattern.first()? {
        '*' => Some(0),
        '?' => Some(1),
        '\\' if pattern.len() > 1 => (pattern[1] == c).then_some(2),
        '[' => {
            let negated = matches!(pattern.get(1), Some('!' | '^'));
            let begin = 1 + usize::from(negated);
            let end = begin + 1 + pattern.get(begin + 1..)?.iter().position(|c| *c == ']')?;
            let (mut at, mut found) = (begin, false);
            while at < end {
                match (pattern.get(at + 1), pattern.get(at + 2)) {
                    (Some('-'), Some(last)) if at + 2 < end => {
                        found |= (pattern[at]..=*last).contains(&c);
                        at += 3;
                    }
                    _ => {
                        found |= pattern[at] == c;
                        at += 1;
                    }
                }
            }
            (found != negated).then_some(end + 1)
        }
        other => (*other == c).then_some(1),
    }
}

/// Whether the text has characters that are special in patterns.
pub fn is_pattern(text: &str) -> bool {
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => _ = chars.next(),
            '*' | '?' | '[' => return true,
            _ => {}
        }
    }
    false
}

/// Escapes a text, so that the result is a pattern that matches only this text.
pub fn literal(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

/// The text that a pattern without special characters matches: the pattern without its escapes.
pub fn plain(pattern: &str) -> String {
    let mut text = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => text.extend(chars.next()),
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stand_for_texts() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abb", false),
            ("?b", "ab", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]x", "[]x", false),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("*.txt", "a.txt.txt", true),
            ("a", "ab", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
        assert!(!matches(&"*a".repeat(300), &"b".repeat(100_000)));
    }
}
