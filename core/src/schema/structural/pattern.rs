//! Patterns: Go's regular expressions, run by the `regex` crate.
//!
//! The two dialects differ in little that patterns use, but in silence: a `\d` of Go knows ASCII digits alone, and a
//! `[` in a class is just a character to it. Each pattern is rewritten once, and what Go refuses is refused in its words.

use regex::Regex;
use regex_syntax::hir::{Class, Hir, HirKind};
use std::iter::Peekable;
use std::str::Chars;
use std::sync::OnceLock;

#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    pub source: Box<str>,
    /// Made when first needed: a pattern may be large, and most are read far more often than they are used.
    compiled: OnceLock<Result<Regex, String>>,
}

impl Pattern {
    pub fn new(source: &str) -> Self {
        Self { source: source.into(), compiled: OnceLock::new() }
    }

    /// Whether the pattern is found in `text`; an error for a pattern that cannot be used.
    pub fn is_match(&self, text: &str) -> Result<bool, &str> {
        self.compiled
            .get_or_init(|| compile(&self.source))
            .as_ref()
            .map(|regex| regex.is_match(text))
            .map_err(String::as_str)
    }
}

/// The pattern ready for use, or what Go would say to it.
pub(crate) fn compile(source: &str) -> Result<Regex, String> {
    Regex::new(&check(source)?).map_err(|error| error.to_string())
}

/// The pattern as the `regex` crate writes it, or what Go would say to it.
pub(crate) fn check(source: &str) -> Result<String, String> {
    let fail = |text: String| format!("error parsing regexp: {text}");
    let rewritten = Rewriter { rest: source.chars().peekable(), out: String::new() }.run().map_err(fail)?;
    match regex_syntax::Parser::new().parse(&rewritten) {
        Ok(_) => Ok(rewritten),
        Err(error) => Err(fail(format!("{}: `{source}`", go_words(&error)))),
    }
}

/// How much there is to do to make a pattern ready: about the number of states that its machine has. Nothing for a
/// pattern that cannot be used.
pub(crate) fn weight(source: &str) -> u64 {
    let Ok(rewritten) = Rewriter { rest: source.chars().peekable(), out: String::new() }.run() else { return 0 };
    regex_syntax::Parser::new().parse(&rewritten).map_or(0, |tree| states(&tree))
}

fn states(tree: &Hir) -> u64 {
    /// A range of characters is a few ranges of bytes, one behind the other.
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
            ErrorKind::RepetitionCountInvalid => "invalid repeat count".into(),
            ErrorKind::ClassRangeInvalid | ErrorKind::ClassRangeLiteral => "invalid character class range".into(),
            ErrorKind::GroupNameDuplicate { .. } => "duplicate capture group name".into(),
            ErrorKind::NestLimitExceeded(_) => "expression nests too deeply".into(),
            kind => kind.to_string(),
        },
        regex_syntax::Error::Translate(error) => error.kind().to_string(),
        _ => "invalid regular expression".into(),
    }
}

/// Go lets nothing be repeated more often.
const REPEAT_MAX: u32 = 1000;

const UNCLOSED: &str = "missing closing ]";

struct Rewriter<'a> {
    rest: Peekable<Chars<'a>>,
    out: String,
}

impl Rewriter<'_> {
    fn run(mut self) -> Result<String, String> {
        // The operator that was read last, if nothing stands behind it.
        let mut operator = String::new();
        while let Some(c) = self.rest.next() {
            let repetition = match c {
                '*' | '+' | '?' => Some(c.to_string()),
                '{' => self.repetition()?,
                _ => None,
            };
            if let Some(repetition) = repetition {
                let lazy = repetition == "?" && !operator.is_empty() && !operator.ends_with('?');
                let lazy = lazy || (repetition == "?" && operator == "?");
                if !operator.is_empty() && !lazy {
                    return Err(format!("invalid nested repetition operator: `{operator}{repetition}`"));
                }
                self.out.push_str(&repetition);
                operator = if lazy { format!("{operator}{repetition}") } else { repetition };
                continue;
            }
            operator.clear();
            match c {
                '\\' => self.escape()?,
                '[' => self.class()?,
                '(' => self.group()?,
                '{' => self.out.push_str("\\{"),
                _ => self.out.push(c),
            }
        }
        Ok(self.out)
    }

    /// `{2}`, `{2,}` or `{2,3}` behind an opening brace; anything else is text to Go.
    fn repetition(&mut self) -> Result<Option<String>, String> {
        let Some((inner, _)) = self.ahead().split_once('}').map(|(inner, rest)| (inner.to_owned(), rest.len())) else {
            return Ok(None);
        };
        let (min, max) = inner.split_once(',').unwrap_or((&inner, &inner));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(min) || !(digits(max) || max.is_empty()) {
            return Ok(None);
        }
        let count = |text: &str| if text.is_empty() { Ok(REPEAT_MAX) } else { text.parse::<u32>() };
        match (count(min), count(max)) {
            (Ok(min), Ok(max)) if min <= max && max <= REPEAT_MAX => {}
            _ => return Err(format!("invalid repeat count: `{{{inner}}}`")),
        }
        self.rest.by_ref().take(inner.len() + 1).for_each(drop);
        Ok(Some(format!("{{{inner}}}")))
    }

    /// What is left, as far as a repetition could be long.
    fn ahead(&self) -> String {
        self.rest.clone().take(16).collect()
    }

    fn escape(&mut self) -> Result<(), String> {
        let Some(c) = self.rest.next() else { return Err("trailing backslash at end of expression: ``".into()) };
        match c {
            'Q' => {
                while let Some(c) = self.rest.next() {
                    if c == '\\' && self.rest.next_if_eq(&'E').is_some() {
                        break;
                    }
                    self.literal(c);
                }
            }
            'A' | 'z' => self.out.extend(['\\', c]),
            'b' | 'B' => self.out.extend(["(?-u:\\", &c.to_string(), ")"]),
            _ => match perl_class(c) {
                Some((class, negated)) => self.out.extend([if negated { "[^" } else { "[" }, class, "]"]),
                None => self.character_escape(c)?,
            },
        }
        Ok(())
    }

    /// An escape that means one character, or a class by its Unicode name.
    fn character_escape(&mut self, c: char) -> Result<(), String> {
        match c {
            'a' | 'f' | 'n' | 'r' | 't' | 'v' => self.out.extend(['\\', c]),
            'x' | 'p' | 'P' => {
                self.out.extend(['\\', c]);
                // What is in braces must not be taken for a repetition.
                if self.rest.next_if_eq(&'{').is_some() {
                    self.out.push('{');
                    for c in self.rest.by_ref() {
                        self.out.push(c);
                        if c == '}' {
                            break;
                        }
                    }
                }
            }
            '0' | '1'..='7' => {
                let mut value = c.to_digit(8).unwrap_or_default();
                let is_octal = |c: &char| ('0'..='7').contains(c);
                if c != '0' && !self.rest.peek().is_some_and(is_octal) {
                    return Err(format!("invalid escape sequence: `\\{c}`"));
                }
                for _ in 0..2 {
                    let Some(digit) = self.rest.next_if(is_octal) else { break };
                    value = value * 8 + digit.to_digit(8).unwrap_or_default();
                }
                self.out.push_str(&format!("\\x{{{value:x}}}"));
            }
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => self.literal(c),
            c => return Err(format!("invalid escape sequence: `\\{c}`")),
        }
        Ok(())
    }

    fn literal(&mut self, c: char) {
        if regex_syntax::is_meta_character(c) {
            self.out.push('\\');
        }
        self.out.push(c);
    }

    fn group(&mut self) -> Result<(), String> {
        self.out.push('(');
        if self.rest.next_if_eq(&'?').is_none() {
            return Ok(());
        }
        self.out.push('?');
        let ahead = self.ahead();
        let named = ahead.strip_prefix("P<").or_else(|| ahead.strip_prefix('<'));
        let flags = ahead.trim_start_matches(['i', 'm', 's', 'U', '-']);
        let known = match named {
            Some(name) => !name.starts_with(['=', '!']),
            None => flags.starts_with([':', ')']),
        };
        if !known {
            let shown: String = ahead.chars().take(1).collect();
            return Err(format!("invalid or unsupported Perl syntax: `(?{shown}`"));
        }
        let head = if named.is_some() { 1 } else { ahead.len() - flags.len() + 1 };
        self.out.extend(self.rest.by_ref().take(head));
        Ok(())
    }

    /// A class in brackets. Whatever Rust would read as an operation on sets is text.
    fn class(&mut self) -> Result<(), String> {
        let behind = self.rest.clone();
        self.class_until_closed().map_err(|error| match error.as_str() {
            UNCLOSED => format!("{UNCLOSED}: `[{}`", behind.collect::<String>()),
            _ => error,
        })
    }

    fn class_until_closed(&mut self) -> Result<(), String> {
        let unclosed = || UNCLOSED.to_owned();
        self.out.push('[');
        if self.rest.next_if_eq(&'^').is_some() {
            self.out.push('^');
        }
        let mut first = true;
        loop {
            let c = self.rest.next().ok_or_else(unclosed)?;
            if c == ']' && !first {
                break;
            }
            first = false;
            if c == '[' && self.posix_class() {
                continue;
            }
            if c == '\\'
                && let Some((class, negated)) = self.rest.peek().copied().and_then(perl_class)
            {
                self.rest.next();
                if negated {
                    self.out.extend(["[^", class, "]"]);
                } else {
                    self.out.push_str(class);
                }
                continue;
            }
            let is_set = c == '\\' && self.rest.peek().is_some_and(|c| matches!(c, 'p' | 'P'));
            self.class_character(c)?;
            let mut ahead = self.rest.clone();
            if !is_set && ahead.next() == Some('-') && !matches!(ahead.next(), Some(']') | None) {
                self.rest.next();
                self.out.push('-');
                let end = self.rest.next().ok_or_else(unclosed)?;
                if end == '\\' && self.rest.peek().copied().and_then(perl_class).is_some() {
                    return Err(format!("invalid character class range: `{c}-\\`"));
                }
                self.class_character(end)?;
            }
        }
        self.out.push(']');
        Ok(())
    }

    fn class_character(&mut self, c: char) -> Result<(), String> {
        if c != '\\' {
            self.literal(c);
            return Ok(());
        }
        match self.rest.next() {
            Some(c) => self.character_escape(c),
            None => Err(UNCLOSED.into()),
        }
    }

    /// `[:alpha:]` behind its first bracket.
    fn posix_class(&mut self) -> bool {
        let ahead = self.ahead();
        let Some(end) = ahead.strip_prefix(':').and_then(|name| name.find(":]")) else { return false };
        self.out.push('[');
        self.out.extend(self.rest.by_ref().take(end + 3));
        true
    }
}

/// What is in a class that Perl has a letter for, and whether the letter means all others.
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
            ("*a", "missing argument to repetition operator"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("a{2,1}", "invalid repeat count: `{2,1}`"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("(?<!a)", "invalid or unsupported Perl syntax: `(?<`"),
            ("(?x)a", "invalid or unsupported Perl syntax: `(?x`"),
            (r"\1", r"invalid escape sequence: `\1`"),
            (r"\y", r"invalid escape sequence: `\y`"),
            (r"\Z", r"invalid escape sequence: `\Z`"),
            (r"a\", "trailing backslash at end of expression: ``"),
            ("[z-a]", "invalid character class range"),
        ] {
            let error = check(pattern).expect_err(pattern);
            assert!(error.starts_with(&format!("error parsing regexp: {expected}")), "{pattern}: {error}");
        }
    }
}
