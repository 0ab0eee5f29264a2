//! Writes YAML as Kubernetes' library does: in block style, with keys in natural order, with quotes only around texts
//! that would otherwise be read as another type, and with long lines folded.

use crate::visible::is_hidden;
use holdfast_value::{Map, Value};
use std::cmp::Ordering;

/// The number of characters after which a line is folded, at the next space.
const WIDTH: usize = 80;
/// The maximum number of characters of a key that is written on the line of its value. A longer key has a line of its
/// own.
const KEY_MAX: usize = 128;

/// Writes a document as YAML.
pub fn yaml(value: &Value) -> String {
    write(value, false)
}

/// Writes a document as YAML for a terminal: control characters and invisible characters are escaped.
pub fn visible(value: &Value) -> String {
    write(value, true)
}

fn write(value: &Value, visible: bool) -> String {
    let mut writer = Writer { out: String::new(), column: 0, visible };
    writer.node(value, 0, Place::Root);
    writer.out
}

struct Writer {
    out: String,
    /// The number of characters since the start of the line.
    column: usize,
    /// Whether control characters and invisible characters are escaped.
    visible: bool,
}

/// The text before a value on its line.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Root,
    /// The value follows its key: `key:`.
    Key,
    /// The value is an item of a list and follows the mark of the item: `-`.
    Item,
}

impl Writer {
    fn put(&mut self, text: &str) {
        self.out.push_str(text);
        self.column += text.chars().count();
    }

    fn line(&mut self, indent: usize) {
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        self.out.extend(std::iter::repeat_n(' ', indent));
        self.column = indent;
    }

    fn node(&mut self, value: &Value, indent: usize, place: Place) {
        let space = if place == Place::Root { "" } else { " " };
        match value {
            Value::Object(fields) if !fields.is_empty() => self.mapping(fields, indent, place),
            Value::Array(items) if !items.is_empty() => self.sequence(items, indent, place),
            Value::Object(_) => self.put(&format!("{space}{{}}")),
            Value::Array(_) => self.put(&format!("{space}[]")),
            Value::Null => self.put(&format!("{space}null")),
            Value::Bool(flag) => self.put(&format!("{space}{flag}")),
            Value::Number(number) => self.put(&format!("{space}{}", shown(number))),
            Value::String(text) => {
                self.put(space);
                self.scalar(text, indent, true);
            }
        }
        if place == Place::Root {
            self.out.push('\n');
        }
    }

    fn mapping(&mut self, fields: &Map, indent: usize, place: Place) {
        let mut fields: Vec<_> = fields.iter().collect();
        fields.sort_by(|(one, _), (other, _)| natural(one, other));
        for (index, (key, value)) in fields.into_iter().enumerate() {
            match (index, place) {
                (0, Place::Root) => {}
                (0, Place::Item) => self.put(" "),
                _ => self.line(indent),
            }
            let long = key.chars().count() > KEY_MAX || key.contains('\n');
            if long {
                self.put("? ");
            }
            self.scalar(key, indent, long);
            if long {
                self.line(indent);
            }
            self.put(":");
            // The items of a list are indented as much as the key of the list.
            let within = if value.is_array() { indent } else { indent + 2 };
            self.node(value, within, Place::Key);
        }
    }

    fn sequence(&mut self, items: &[Value], indent: usize, place: Place) {
        for (index, item) in items.iter().enumerate() {
            match (index, place) {
                (0, Place::Root) => {}
                (0, Place::Item) => self.put(" "),
                _ => self.line(indent),
            }
            self.put("-");
            self.node(item, indent + 2, Place::Item);
        }
    }

    /// Writes a string. The lines after the first are indented by `indent`. `breaks` is false for a key, which is not
    /// folded.
    fn scalar(&mut self, text: &str, indent: usize, breaks: bool) {
        let look = if self.visible && text.chars().any(|c| c != '\n' && is_hidden(c)) {
            Look { plain: false, quotable: false, literal: false }
        } else {
            Look::at(text)
        };
        if text.contains('\n') && breaks && look.literal {
            return self.literal(text, indent);
        }
        let indent = breaks.then_some(indent.max(2));
        match () {
            () if is_other_type(text) || text.contains('\n') || !look.quotable => self.double_quoted(text, indent),
            () if look.plain => self.folded(text, indent, None),
            () => self.folded(text, indent, Some('\'')),
        }
    }

    /// Writes a string without quotes or in single quotes. A line longer than [`WIDTH`] is folded at the next single
    /// space.
    fn folded(&mut self, text: &str, indent: Option<usize>, quote: Option<char>) {
        let quoted = quote.is_some();
        self.put(if quoted { "'" } else { "" });
        let characters: Vec<char> = text.chars().collect();
        for (index, &character) in characters.iter().enumerate() {
            let single = character == ' ' && lone(&characters, index) && index > 0 && index + 1 < characters.len();
            match indent {
                Some(indent) if single && self.column > WIDTH => self.line(indent),
                _ if quoted && character == '\'' => self.put("''"),
                _ => self.put(character.encode_utf8(&mut [0; 4])),
            }
        }
        self.put(if quoted { "'" } else { "" });
    }

    fn double_quoted(&mut self, text: &str, indent: Option<usize>) {
        self.put("\"");
        let characters: Vec<char> = text.chars().collect();
        let mut spaces = false;
        for (index, &character) in characters.iter().enumerate() {
            let inside = index > 0 && index + 1 < characters.len();
            match (character, indent) {
                (' ', Some(indent)) if !spaces && inside && self.column > WIDTH => {
                    self.line(indent);
                    if characters.get(index + 1) == Some(&' ') {
                        self.put("\\");
                    }
                }
                _ => self.put(&escaped(character, self.visible)),
            }
            spaces = character == ' ';
        }
        self.put("\"");
    }

    fn literal(&mut self, text: &str, indent: usize) {
        self.put("|");
        if text.starts_with([' ', '\n']) {
            self.put("2");
        }
        match text {
            text if !text.ends_with('\n') => self.put("-"),
            text if text.ends_with("\n\n") || text == "\n" => self.put("+"),
            _ => {}
        }
        let indent = indent.max(2);
        for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
            if line.is_empty() {
                self.out.push('\n');
                self.column = 0;
            } else {
                self.line(indent);
                self.put(line);
            }
        }
    }
}

/// Whether the space at this index has no other space next to it.
fn lone(characters: &[char], index: usize) -> bool {
    let space = |at: Option<usize>| at.and_then(|at| characters.get(at)) == Some(&' ');
    !space(index.checked_sub(1)) && !space(index.checked_add(1))
}

fn escaped(character: char, visible: bool) -> String {
    let code = u32::from(character);
    match character {
        '"' => "\\\"".into(),
        '\\' => "\\\\".into(),
        '\0' => "\\0".into(),
        '\u{7}' => "\\a".into(),
        '\u{8}' => "\\b".into(),
        '\t' => "\\t".into(),
        '\n' => "\\n".into(),
        '\u{b}' => "\\v".into(),
        '\u{c}' => "\\f".into(),
        '\r' => "\\r".into(),
        '\u{1b}' => "\\e".into(),
        '\u{85}' => "\\N".into(),
        '\u{a0}' => "\\_".into(),
        '\u{2028}' => "\\L".into(),
        '\u{2029}' => "\\P".into(),
        plain if is_printable(plain) && !(visible && is_hidden(plain)) => plain.to_string(),
        _ if code <= 0xff => format!("\\x{code:02X}"),
        _ if code <= 0xffff => format!("\\u{code:04X}"),
        _ => format!("\\U{code:08X}"),
    }
}

fn is_printable(character: char) -> bool {
    matches!(character, '\n' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
        && character != '\u{feff}'
}

/// The styles in which a text can be written so that it is read back unchanged.
struct Look {
    plain: bool,
    quotable: bool,
    literal: bool,
}

impl Look {
    fn at(text: &str) -> Look {
        let characters: Vec<char> = text.chars().collect();
        let blank = |at: usize| characters.get(at).is_none_or(|c| matches!(c, ' ' | '\t' | '\n' | '\r'));
        let is_break = |c: &char| matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}');
        let starts_document = text.starts_with("---") || text.starts_with("...");
        let mut indicators = starts_document;
        for (index, character) in characters.iter().enumerate() {
            let at_start = index == 0
                && (matches!(
                    character,
                    '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`'
                ) || matches!(character, '-' | '?' | ':') && blank(1));
            let inside = *character == ':' && blank(index + 1) || *character == '#' && index > 0 && blank(index - 1);
            indicators |= at_start || inside;
        }
        let breaks = characters.iter().any(is_break);
        let special = characters.iter().any(|character| !is_printable(*character) && !is_break(character))
            || characters.contains(&'\r');
        let space_then_break = characters.windows(2).any(|pair| pair[0] == ' ' && is_break(&pair[1]));
        let break_then_space = characters.windows(2).any(|pair| is_break(&pair[0]) && pair[1] == ' ');
        let edge = |c: Option<&char>| c.is_some_and(|c| *c == ' ' || is_break(c));
        let edges = edge(characters.first()) || edge(characters.last());
        Look {
            plain: !indicators && !breaks && !special && !edges && !text.is_empty(),
            quotable: !special && !space_then_break && !break_then_space,
            literal: !special && !space_then_break && characters.last() != Some(&' '),
        }
    }
}

/// Whether the text would be read as another type than string if it had no quotes.
fn is_other_type(text: &str) -> bool {
    const WORDS: [&str; 27] = [
        "", "~", "null", "Null", "NULL", "y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON", "n",
        "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF",
    ];
    const SIGNS: [&str; 12] =
        ["<<", ".nan", ".NaN", ".NAN", ".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF", "-.inf", "-.Inf"];
    if WORDS.contains(&text) || SIGNS.contains(&text) || text == "-.INF" {
        return true;
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    match text.chars().next() {
        Some('.') => is_float(text),
        Some('+' | '-' | '0'..='9') => {
            is_integer(&unsigned.replace('_', ""))
                || is_float(&text.replace('_', ""))
                || is_sexagesimal(text)
                || is_time(text)
        }
        _ => false,
    }
}

fn is_integer(text: &str) -> bool {
    let of = |digits: &str, radix: u32| !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix));
    match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => of(&text[2..], 16),
        [b'0', b'b' | b'B', ..] => of(&text[2..], 2),
        [b'0', b'o' | b'O', ..] => of(&text[2..], 8),
        _ => of(text, 10) && text.len() <= 20,
    }
}

fn is_float(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let digits = |text: &str| text.chars().all(|digit| digit.is_ascii_digit());
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    exponent && digits(whole) && digits(part) && !(whole.is_empty() && part.is_empty())
}

/// Whether YAML 1.1 reads the text as a number in base 60, such as `1:30`.
fn is_sexagesimal(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let mut parts = unsigned.split(':');
    let first = parts.next().unwrap_or_default();
    let rest: Vec<&str> = parts.collect();
    let digits = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == '_');
    let last = |text: &str| {
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        matches!(whole.len(), 1 | 2) && digits(whole) && part.chars().all(|c| c.is_ascii_digit() || c == '_')
    };
    !rest.is_empty()
        && digits(first)
        && rest.iter().all(|part| last(part))
        && rest[..rest.len() - 1].iter().all(|p| digits(p))
}

/// Whether YAML reads the text as a date, with or without a time.
fn is_time(text: &str) -> bool {
    let mut numbers = text.splitn(3, '-');
    let year = numbers.next().unwrap_or_default();
    let (Some(month), Some(rest)) = (numbers.next(), numbers.next()) else { return false };
    let number = |text: &str| matches!(text.len(), 1 | 2) && text.chars().all(|digit| digit.is_ascii_digit());
    if year.len() != 4 || !year.chars().all(|digit| digit.is_ascii_digit()) || !number(month) {
        return false;
    }
    let (day, time) = rest.split_at(rest.find(['T', 't', ' ']).unwrap_or(rest.len()));
    let date = format!("{year}-{month:0>2}-{day:0>2}");
    if !number(day) || date.parse::<jiff::civil::Date>().is_err() {
        return false;
    }
    let Some(separator) = time.chars().next() else { return true };
    let (clock, zone) = match time[1..].find(['Z', '+', '-']) {
        Some(at) => time[1..].split_at(at),
        None => (&time[1..], ""),
    };
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let clock = clock.split(':').collect::<Vec<_>>();
    let zoned = match zone {
        "Z" => true,
        zone => zone.len() == 6 && zone.as_bytes()[3] == b':',
    };
    let fraction = !fraction.is_empty() && fraction.chars().all(|digit| digit.is_ascii_digit());
    clock.len() == 3
        && clock.iter().all(|part| number(part))
        && fraction
        && if separator == ' ' { zone.is_empty() } else { zoned }
}

fn shown(number: &serde_json::Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => {
            let size = float.abs();
            if size == 0.0 || (1e-4..1e21).contains(&size) {
                return float.to_string();
            }
            let text = format!("{float:e}");
            let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
            format!("{digits}e{sign}{exponent:0>2}")
        }
        _ => number.to_string(),
    }
}

/// The natural order of keys: letters come after all other characters, and numbers are compared by value.
fn natural(one: &str, other: &str) -> Ordering {
    let (a, b): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let Some(at) = a.iter().zip(&b).position(|(x, y)| x != y) else { return a.len().cmp(&b.len()) };
    match (a[at].is_alphabetic(), b[at].is_alphabetic()) {
        (true, true) => return a[at].cmp(&b[at]),
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    let digits = |text: &[char]| text[at..].iter().take_while(|c| c.is_ascii_digit()).collect::<String>();
    let (x, y) = (digits(&a), digits(&b));
    let before = a[..at].iter().rev().take_while(|c| c.is_ascii_digit()).any(|c| *c != '0');
    let leading = before && (a[at] == '0' || b[at] == '0');
    let value = |text: &str| {
        let text = text.trim_start_matches('0');
        if leading { (text.len().max(1), format!("1{text}")) } else { (text.len(), text.to_owned()) }
    };
    let by_length = if leading { x.len().cmp(&y.len()) } else { Ordering::Equal };
    by_length
        .then_with(|| value(&x).cmp(&value(&y)))
        .then_with(|| x.len().cmp(&y.len()))
        .then_with(|| a[at].cmp(&b[at]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn documents() {
        let value = json!({
            "metadata": {"name": "n", "labels": {}, "list": [], "time": "2026-01-02T03:04:05Z", "date": "2026-01-02",
                "v10": 1, "v9": 2, ".": {}, "k:{\"name\":\"c\"}": {".": {}}},
            "items": [{"a": 1, "b": [true, null]}, ["x", ["y"]], "z"],
            "text": "a\nb\n", "cut": "a\n\n b", "star": "*", "colon": "a: b", "empty": "", "no": "no", "ip": "10.0.0.1",
            "version": "1", "float": 0.5, "quote": "it's", "dash": "- a", "tab": "a\tb", "both": "'a: b'",
        });
        let text = yaml(&value);
        let lines = [
            "both: '''a: b'''",
            "colon: 'a: b'",
            "cut: |-\n  a\n\n   b",
            "dash: '- a'",
            "empty: \"\"",
            "float: 0.5",
            "ip: 10.0.0.1",
            "items:\n- a: 1\n  b:\n  - true\n  - null\n- - x\n  - - \"y\"\n- z",
            "metadata:\n  .: {}\n  date: \"2026-01-02\"\n  k:{\"name\":\"c\"}:\n    .: {}\n  labels: {}\n  list: []\n  name: \"n\"\n  \
             time: \"2026-01-02T03:04:05Z\"\n  v9: 2\n  v10: 1",
            "\"no\": \"no\"",
            "quote: it's",
            "star: '*'",
            "tab: \"a\\tb\"",
            "text: |\n  a\n  b",
            "version: \"1\"",
        ];
        assert_eq!(text, lines.join("\n") + "\n");
        let read: Value = serde_yaml_ng::from_str(&text).unwrap();
        assert_eq!(read, value);
    }

    #[test]
    fn what_is_hidden_is_escaped_for_a_terminal_and_stays_the_same() {
        let value = json!({
            "a\u{9b}": "\x1b\u{85}\u{a0}", "\u{202e}\n": ["\u{e0041}x", "two\nlines\u{2028}\n", "ü"], "soft\u{ad}": "y\tz",
        });
        let text = visible(&value);
        assert!(!text.chars().any(|c| c != '\n' && is_hidden(c)), "{text:?}");
        let read: Value = serde_yaml_ng::from_str(&text).unwrap();
        assert_eq!(read, value);
    }

    #[test]
    fn long_lines_are_folded() {
        let words = "word ".repeat(30);
        let text = yaml(&json!({"a": {"plain": words.trim(), "quoted": format!("{}: x", words.trim())}}));
        assert!(text.lines().all(|line| line.len() <= 90), "{text}");
        assert!(text.contains("\n    word"), "{text}");
        let read: Value = serde_yaml_ng::from_str(&text).unwrap();
        assert_eq!(read["a"]["plain"], words.trim());
    }

    #[test]
    fn what_is_read_as_no_text_is_quoted() {
        for text in
            ["1", "-1", "+1", "0x1f", "1_000", "1e3", ".5", "1.", "y", "Off", "~", "2001-1-1", "1:30", "0b11", "<<"]
        {
            assert!(is_other_type(text), "{text}");
        }
        for text in ["1a", "-", ".", "a1", "10.0.0.1", "2001-13-01", "500m", "1Gi", "0x", "v1", "1:x", "e3", "-a"] {
            assert!(!is_other_type(text), "{text}");
        }
    }
}
