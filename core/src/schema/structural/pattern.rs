//! Patterns: Go's regular expressions, run by the `regex` crate.
//!
//! Some patterns have different meanings in the two dialects, without an error: Go's `\d` means ASCII digits only, and
//! `[` inside a class is an ordinary character. Each pattern is rewritten once. A pattern that Go refuses is refused
//! with Go's message.

use regex::Regex;
use regex_syntax::ast::{Ast, RepetitionKind, RepetitionRange};
use regex_syntax::hir::{Class, Hir, HirKind};
use std::sync::OnceLock;

#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    pub source: Box<str>,
    /// The compiled expression. It is compiled on first use, because a pattern may be large, and most patterns are
    /// never used.
    compiled: OnceLock<Result<Regex, String>>,
}

impl Pattern {
    pub fn new(source: &str) -> Self {
        Self { source: source.into(), compiled: OnceLock::new() }
    }

    /// Whether the pattern matches a part of `text`. The error says why the pattern cannot be compiled.
    pub fn is_match(&self, text: &str) -> Result<bool, &str> {
        self.compiled
            .get_or_init(|| compile(&self.source))
            .as_ref()
            .map(|regex| regex.is_match(text))
            .map_err(String::as_str)
    }
}

/// Compiles a pattern in Go's dialect. The error has the text of Go's error.
pub(crate) fn compile(source: &str) -> Result<Regex, String> {
    Regex::new(&check(source)?).map_err(|error| error.to_string())
}

/// Rewrites a pattern into the syntax of the `regex` crate. The error has the text of Go's error.
pub(crate) fn check(source: &str) -> Result<String, String> {
    let fail = |text: String| format!("error parsing regexp: {text}");
    let rewritten = rewrite(source).map_err(fail)?;
    let wrong = |error: &regex_syntax::Error| fail(format!("{}: `{source}`", go_words(error)));
    let tree = regex_syntax::ast::parse::Parser::new().parse(&rewritten).map_err(|error| wrong(&error.into()))?;
    repeats(&tree, &rewritten).map_err(|repetition| fail(format!("invalid repeat count: `{repetition}`")))?;
    let translated = regex_syntax::hir::translate::Translator::new().translate(&rewritten, &tree);
    translated.map_err(|error| wrong(&error.into()))?;
    Ok(rewritten)
}

fn rewrite(source: &str) -> Result<String, String> {
    let posix_ends = source.rfind(":]").map_or(0, |at| source.len() - at);
    Rewriter { rest: source, out: String::with_capacity(source.len()), posix_ends }.run()
}

/// The cost of compiling a pattern, roughly its number of automaton states. An invalid pattern costs zero.
pub(crate) fn weight(source: &str) -> u64 {
    let Ok(rewritten) = rewrite(source) else { return 0 };
    regex_syntax::Parser::new().parse(&rewritten).map_or(0, |tree| states(&tree))
}

fn states(tree: &Hir) -> u64 {
    /// A range of characters becomes a few ranges of bytes, one after another.
    const RANGE_STATES: u64 = 4;
    let sum = |trees: &[Hir]| trees.iter().map(states).fold(trees.len() as u64, u64::saturating_add);
    match tree.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len() as u64,
        HirKind::Class(Class::Unicode(class)) => class.ranges().len() as u64 * RANGE_STATES,
        HirKind::Class(Class::Bytes(class)) => class.ranges().len() as u64,
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min).max(1);
            states(&repetition.sub).saturating_mul(times.into())
        }
        HirKind::Capture(capture) => states(&capture.sub).saturating_add(2),
        HirKind::Concat(trees) | HirKind::Alternation(trees) => sum(trees),
    }
}

fn go_words(error: &regex_syntax::Error) -> String {
    use regex_syntax::ast::ErrorKind;
    match error {
        regex_syntax::Error::Parse(error) => match error.kind() {
            ErrorKind::GroupUnclosed => "missing closing )".into(),
            ErrorKind::GroupUnopened => "unexpected )".into(),
            ErrorKind::RepetitionMissing => "missing argument to repetition operator".into(),
            ErrorKind::NestLimitExceeded(_) => "expression nests too deeply".into(),
            kind => kind.to_string(),
        },
        regex_syntax::Error::Translate(error) => error.kind().to_string(),
        _ => "invalid regular expression".into(),
    }
}

/// Go's limit for the number of repetitions. For nested repetitions, the product of their numbers counts.
const REPEAT_MAX: u64 = 1000;

/// The class names that are allowed in `[:alpha:]`.
const POSIX_CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit",
];

/// The largest product of the numbers of nested repetitions in the tree. If a repetition exceeds Go's limit, the error
/// is the text of the first such repetition.
fn repeats(tree: &Ast, source: &str) -> Result<u64, String> {
    let most = |trees: &[Ast]| trees.iter().try_fold(1, |most, tree| Ok(repeats(tree, source)?.max(most)));
    match tree {
        Ast::Repetition(repetition) => {
            let inner = repeats(&repetition.ast, source)?;
            let RepetitionKind::Range(range) = &repetition.op.kind else { return Ok(inner) };
            let (min, max) = match *range {
                RepetitionRange::Exactly(times) => (times, times),
                RepetitionRange::AtLeast(min) => (min, min),
                RepetitionRange::Bounded(min, max) => (min, max),
            };
            let times = match (range, max) {
                (RepetitionRange::Exactly(_) | RepetitionRange::Bounded(..), 0) => return Ok(1),
                _ => u64::from(max.max(1)).saturating_mul(inner),
            };
            if min.max(max) >= 2 && times > REPEAT_MAX {
                let span = &repetition.op.span;
                return Err(source.get(span.start.offset..span.end.offset).unwrap_or_default().to_owned());
            }
            Ok(times)
        }
        Ast::Group(group) => repeats(&group.ast, source),
        Ast::Concat(concat) => most(&concat.asts),
        Ast::Alternation(alternation) => most(&alternation.asts),
        _ => Ok(1),
    }
}

struct Rewriter<'a> {
    rest: &'a str,
    out: String,
    /// The number of remaining bytes at the last `:]` of the pattern. After that point a `[:` is an ordinary text, and
    /// is not searched for its end, because each search would go through the whole rest.
    posix_ends: usize,
}

impl<'a> Rewriter<'a> {
    fn run(mut self) -> Result<String, String> {
        // The remaining text at the last operator, if nothing has followed the operator.
        let mut last: Option<&'a str> = None;
        let mut repeatable = false;
        while let Some(c) = self.rest.chars().next() {
            let before = self.rest;
            let operator = match c {
                '*' | '+' | '?' => Some(1),
                '{' => self.repetition()?,
                _ => None,
            };
            if let Some(length) = operator {
                let after = &before[length..];
                let after = after.strip_prefix('?').unwrap_or(after);
                if let Some(last) = last {
                    return Err(format!("invalid nested repetition operator: `{}`", up_to(last, after)));
                }
                if !repeatable {
                    return Err(format!("missing argument to repetition operator: `{}`", up_to(before, after)));
                }
                self.out.push_str(up_to(before, after));
                self.rest = after;
                last = Some(before);
                continue;
            }
            last = None;
            repeatable = match c {
                '\\' => self.escape()? || repeatable,
                '[' => self.class().map(|()| true)?,
                '(' => self.group().map(|()| false)?,
                _ => {
                    self.rest = &self.rest[c.len_utf8()..];
                    self.out.push_str(if c == '{' { "\\{" } else { up_to(before, self.rest) });
                    c != '|'
                }
            };
        }
        Ok(self.out)
    }

    /// The length of `{2}`, `{2,}` or `{2,3}` at the beginning of the rest; `None` if Go reads the braces as ordinary
    /// text.
    fn repetition(&self) -> Result<Option<usize>, String> {
        let Some((min, after)) = number(&self.rest[1..]) else { return Ok(None) };
        let (max, after) = match after.strip_prefix(',') {
            Some(after) if after.starts_with('}') => (min, after),
            Some(after) => match number(after) {
                Some(read) => read,
                None => return Ok(None),
            },
            None => (min, after),
        };
        let Some(after) = after.strip_prefix('}') else { return Ok(None) };
        let text = up_to(self.rest, after);
        if min > REPEAT_MAX || max > REPEAT_MAX || min > max {
            return Err(format!("invalid repeat count: `{text}`"));
        }
        Ok(Some(text.len()))
    }

    fn take(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    /// Rewrites an escape outside classes. Returns whether the result can be repeated: an empty `\Q\E` cannot.
    fn escape(&mut self) -> Result<bool, String> {
        let after = &self.rest[1..];
        match after.chars().next() {
            Some('Q') => {
                let (text, after) = after[1..].split_once("\\E").unwrap_or((&after[1..], ""));
                text.chars().for_each(|c| self.literal(c.into()));
                self.rest = after;
                return Ok(!text.is_empty());
            }
            Some(c @ ('A' | 'z')) => self.out.extend(['\\', c]),
            Some('b') => self.out.push_str("(?-u:\\b)"),
            Some('B') => self.out.push_str("(?-u:\\B)"),
            Some(c) => match perl_class(c) {
                Some((class, negated)) => self.out.extend([if negated { "[^" } else { "[" }, class, "]"]),
                None => {
                    if !self.unicode_class()? {
                        let c = self.character_escape()?;
                        self.literal(c);
                    }
                    return Ok(true);
                }
            },
            None => return Err(TRAILING.into()),
        }
        self.rest = &after[1..];
        Ok(true)
    }

    /// Rewrites a Unicode class, `\pL` or `\p{Greek}`. Returns whether the rest begins with one.
    fn unicode_class(&mut self) -> Result<bool, String> {
        let whole = self.rest;
        let Some(after) = whole.strip_prefix("\\p").or_else(|| whole.strip_prefix("\\P")) else { return Ok(false) };
        let (name, after) = match after.strip_prefix('{') {
            Some(inner) => match inner.split_once('}') {
                Some(split) => split,
                None => return Err(range_error(whole)),
            },
            None => after.split_at(after.chars().next().map_or(0, char::len_utf8)),
        };
        let plain = name.strip_prefix('^').unwrap_or(name);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ' ');
        let is_known = |of: &str| regex_syntax::parse(&format!("\\p{{{of}={plain}}}")).is_ok();
        if !plain.chars().all(is_plain) || !(is_known("gc") || is_known("sc")) {
            return Err(range_error(up_to(whole, after)));
        }
        let negated = whole.starts_with("\\P") != name.starts_with('^');
        self.out.extend([if negated { "\\P{" } else { "\\p{" }, plain, "}"]);
        self.rest = after;
        Ok(true)
    }

    /// Reads an escape that means a single character, and returns the character.
    fn character_escape(&mut self) -> Result<u32, String> {
        let whole = self.rest;
        self.take();
        let Some(c) = self.take() else { return Err(TRAILING.into()) };
        let is_octal = |rest: &str| rest.starts_with(|c| matches!(c, '0'..='7'));
        let read = match c {
            'a' => Some(7),
            'f' => Some(12),
            'n' => Some(10),
            'r' => Some(13),
            't' => Some(9),
            'v' => Some(11),
            'x' => self.hexadecimal(),
            // A single digit would be a back-reference, which Go does not have.
            '1'..='7' if !is_octal(self.rest) => None,
            '0'..='7' => {
                let mut value = c.to_digit(8).unwrap_or_default();
                for _ in 0..2 {
                    let Some(digit) = self.rest.chars().next().and_then(|c| c.to_digit(8)) else { break };
                    self.take();
                    value = value * 8 + digit;
                }
                Some(value)
            }
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => Some(c.into()),
            _ => None,
        };
        read.ok_or_else(|| format!("invalid escape sequence: `{}`", up_to(whole, self.rest)))
    }

    /// Reads the digits after `\x`: two digits, or any number of digits in braces.
    fn hexadecimal(&mut self) -> Option<u32> {
        let first = self.take()?;
        if first != '{' {
            let second = self.take();
            return Some(first.to_digit(16)? * 16 + second?.to_digit(16)?);
        }
        let mut value = None;
        loop {
            let c = self.take()?;
            if c == '}' {
                return value;
            }
            value = Some(value.unwrap_or(0) * 16 + c.to_digit(16)?).filter(|value| *value <= u32::from(char::MAX));
            value?;
        }
    }

    fn literal(&mut self, c: u32) {
        match char::from_u32(c) {
            Some(c) if regex_syntax::is_meta_character(c) => self.out.extend(['\\', c]),
            Some(c) => self.out.push(c),
            None => self.out.push_str(&format!("\\x{{{c:x}}}")),
        }
    }

    fn group(&mut self) -> Result<(), String> {
        let whole = self.rest;
        let Some(after) = whole.strip_prefix("(?") else {
            self.take();
            self.out.push('(');
            return Ok(());
        };
        let named = after.strip_prefix("P<").or_else(|| after.strip_prefix('<'));
        if let Some(named) = named.filter(|_| whole.len() > 3) {
            let fail = |shown: &str| Err(format!("invalid named capture: `{shown}`"));
            let Some((name, after)) = named.split_once('>') else { return fail(whole) };
            if name.is_empty() || !name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric()) {
                return fail(up_to(whole, after));
            }
            // The name of a group is left out, because nothing uses it.
            self.out.push('(');
            self.rest = after;
            return Ok(());
        }
        self.rest = after;
        let (mut negated, mut flagged) = (false, false);
        while let Some(c) = self.take() {
            match c {
                'i' | 'm' | 's' | 'U' => flagged = true,
                '-' if !negated => (negated, flagged) = (true, false),
                ':' | ')' if flagged || !negated => {
                    let text = up_to(whole, self.rest);
                    if text != "(?)" {
                        self.out.push_str(text);
                    }
                    return Ok(());
                }
                _ => break,
            }
        }
        Err(format!("invalid or unsupported Perl syntax: `{}`", up_to(whole, self.rest)))
    }

    /// Rewrites a class in brackets. Rust's set operators are escaped, because Go reads them as ordinary characters.
    fn class(&mut self) -> Result<(), String> {
        let whole = self.rest;
        self.take();
        self.out.push('[');
        if let Some(after) = self.rest.strip_prefix('^') {
            self.rest = after;
            self.out.push('^');
        }
        let mut first = true;
        while first || !self.rest.starts_with(']') {
            first = false;
            if self.posix_class()? || self.unicode_class()? {
                continue;
            }
            if let Some(letter) = self.rest.strip_prefix('\\').and_then(|after| after.chars().next())
                && let Some((class, negated)) = perl_class(letter)
            {
                self.out.extend(if negated { ["[^", class, "]"] } else { ["", class, ""] });
                self.rest = &self.rest[2..];
                continue;
            }
            let range = self.rest;
            let from = self.class_character(whole)?;
            self.literal(from);
            if let Some(after) = self.rest.strip_prefix('-')
                && !after.is_empty()
                && !after.starts_with(']')
            {
                self.rest = after;
                let to = self.class_character(whole)?;
                if to < from {
                    return Err(range_error(up_to(range, self.rest)));
                }
                self.out.push('-');
                self.literal(to);
            }
        }
        self.take();
        self.out.push(']');
        Ok(())
    }

    fn class_character(&mut self, class: &str) -> Result<u32, String> {
        if self.rest.starts_with('\\') {
            return self.character_escape();
        }
        self.take().map(u32::from).ok_or_else(|| format!("missing closing ]: `{class}`"))
    }

    /// Rewrites `[:alpha:]` inside a class. Returns whether the rest begins with such a class.
    fn posix_class(&mut self) -> Result<bool, String> {
        let whole = self.rest;
        if whole.len() < self.posix_ends || self.posix_ends == 0 {
            return Ok(false);
        }
        let Some((name, after)) = whole.strip_prefix("[:").and_then(|inner| inner.split_once(":]")) else {
            return Ok(false);
        };
        if !POSIX_CLASSES.contains(&name.strip_prefix('^').unwrap_or(name)) {
            return Err(range_error(up_to(whole, after)));
        }
        self.out.push_str(up_to(whole, after));
        self.rest = after;
        Ok(true)
    }
}

const TRAILING: &str = "trailing backslash at end of expression: ``";

fn range_error(shown: &str) -> String {
    format!("invalid character class range: `{shown}`")
}

/// The part of `text` before its suffix `rest`.
fn up_to<'a>(text: &'a str, rest: &str) -> &'a str {
    &text[..text.len() - rest.len()]
}

/// A number without leading zeros, and the text after it. A number with more digits than Go allows counts as too large.
fn number(text: &str) -> Option<(u64, &str)> {
    let (digits, after) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    if digits.is_empty() || (digits.len() > 1 && digits.starts_with('0')) {
        return None;
    }
    Some((digits.parse().unwrap_or(u64::MAX), after))
}

/// The content of a Perl class such as `\d`, and whether the class is negated.
fn perl_class(letter: char) -> Option<(&'static str, bool)> {
    let class = match letter.to_ascii_lowercase() {
        'd' => "0-9",
        'w' => "0-9A-Za-z_",
        's' => r"\t\n\f\r\x20",
        _ => return None,
    };
    Some((class, letter.is_ascii_uppercase()))
}

#[cfg(test)]
mod tests {
    use super::{Pattern, check, weight};

    #[test]
    fn many_classes_that_never_end_are_read_once() {
        let pattern = format!("[{}]", "[:x".repeat(700_000));
        assert!(super::rewrite(&pattern).is_ok());
        let late = format!("[[:alpha:]{}]", "[:x".repeat(700_000));
        assert!(super::rewrite(&late).is_ok());
    }

    #[test]
    fn patterns_weigh_as_much_as_their_repetitions() {
        for (pattern, least, most) in [
            ("", 0, 1),
            ("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", 10, 100),
            ("a{1000}", 1_000, 1_000),
            ("((a{30}){30}){30}", 27_000, 60_000),
            ("\\pL{1000}", 500_000, 5_000_000),
            ("(a*)*b", 1, 20),
            ("(", 0, 0),
        ] {
            let weight = weight(pattern);
            assert!((least..=most).contains(&weight), "{pattern}: {weight}");
        }
    }

    #[test]
    fn matches_as_go_does() {
        for (pattern, text, expected) in [
            ("^a+$", "aaa", true),
            ("^a+$", "b", false),
            (r"^\d+$", "٣", false),
            (r"^\w+$", "é", false),
            (r"^[\w-.]+$", "a-b.c", true),
            ("^[a-zA-Z0-9-_]+$", "a-b_c", true),
            ("^[[]$", "[", true),
            ("^[]a]+$", "]a", true),
            ("^[^]]$", "]", false),
            ("^[a&&b]+$", "a&b", true),
            ("^[+--]$", ",", true),
            (r"^[\D]$", "x", true),
            (r"^[\D]$", "1", false),
            ("^[[:alpha:]]+$", "ab", true),
            (r"^a{,2}$", "a{,2}", true),
            (r"^{$", "{", true),
            (r"^x{2}$", "xx", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            (r"^\_\<\/$", "_</", true),
            (r"^\ *a\ $", "  a ", true),
            (r"^\101$", "A", true),
            (r"^\x{41}\x41$", "AA", true),
            (r"^\p{Greek}\pL$", "αa", true),
            (r"\bfoo\b", "a foo b", true),
            (r"\Boo", "foo", true),
            ("^(?i)AbC$", "aBc", true),
            ("^(?P<n>a)(?:b)$", "ab", true),
            ("^(?P<n>a)(?<n>b)(?<1>c)$", "abc", true),
            ("^a{01}$", "a{01}", true),
            ("^(?)a(?i-s:B)$", "ab", true),
            ("^(a{10}){0}b$", "b", true),
            ("^((a{10}){10}){10}$", "a", false),
            (r"^[\x{61}-\x63]\Q\E+$", "abc", true),
            (r"^\p{greek}\P{^Lu}$", "α", false),
            ("^[[:^digit:][:alpha:]]$", "x", true),
            ("^[[:x]$", "x", true),
            ("^a??b*?$", "abb", true),
            (r"^[^\s]+$", "a b", false),
        ] {
            assert_eq!(Pattern::new(pattern).is_match(text), Ok(expected), "{pattern} {text}");
        }
    }

    #[test]
    fn refuses_what_go_refuses() {
        for (pattern, expected) in [
            ("(", "missing closing ): `(`"),
            (")", "unexpected ): `)`"),
            ("[a", "missing closing ]: `[a`"),
            ("*a", "missing argument to repetition operator: `*`"),
            ("b|+?a", "missing argument to repetition operator: `+?`"),
            ("(?:{2})", "missing argument to repetition operator: `{2}`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("ab*+?c", "invalid nested repetition operator: `*+?`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("a{2,1}", "invalid repeat count: `{2,1}`"),
            ("a{1,99999999999999999999}", "invalid repeat count: `{1,99999999999999999999}`"),
            ("(a{100}){11}b", "invalid repeat count: `{11}`"),
            ("((a{30}){30}|b){2,}?", "invalid repeat count: `{2,}?`"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("(?<!a)", "invalid named capture: `(?<!a)`"),
            ("b(?P<x y>a)", "invalid named capture: `(?P<x y>`"),
            ("(?x)a", "invalid or unsupported Perl syntax: `(?x`"),
            ("(?is", "invalid or unsupported Perl syntax: `(?is`"),
            ("(?i-)a", "invalid or unsupported Perl syntax: `(?i-)`"),
            ("[a[:foo:]]", "invalid character class range: `[:foo:]`"),
            (r"\p{Foo}a", r"invalid character class range: `\p{Foo}`"),
            (r"\p{sc=Greek}", r"invalid character class range: `\p{sc=Greek}`"),
            (r"[\pYa]", r"invalid character class range: `\pY`"),
            (r"a\p{L", r"invalid character class range: `\p{L`"),
            (r"[a-\d]", r"invalid escape sequence: `\d`"),
            (r"\xfga", r"invalid escape sequence: `\xfg`"),
            (r"\x{110000}a", r"invalid escape sequence: `\x{110000`"),
            (r"[\", "trailing backslash at end of expression: ``"),
            (r"\1", r"invalid escape sequence: `\1`"),
            (r"\y", r"invalid escape sequence: `\y`"),
            (r"\Z", r"invalid escape sequence: `\Z`"),
            (r"a\", "trailing backslash at end of expression: ``"),
            (r"[bz-\x61]", r"invalid character class range: `z-\x61`"),
        ] {
            let error = check(pattern).expect_err(pattern);
            assert_eq!(error, format!("error parsing regexp: {expected}"), "{pattern}");
        }
    }
}
