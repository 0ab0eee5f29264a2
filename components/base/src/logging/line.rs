//! The format of one line: `I1121 03:44:54.123456   12345 engine.rs:42] message key="value"`, or a JSON object.

use super::Origin;
use super::choices::{Format, Severity, base_name};
use holdfast_core::visible;
use jiff::Zoned;
use std::error::Error;
use std::fmt::{Debug, Write};
use tracing::field::{Field, Visit};

pub struct LineFormat {
    pub format: Format,
    pub headers: bool,
    pub directory: bool,
}

impl LineFormat {
    /// The text of one log line, with the newline at its end.
    pub fn render(&self, origin: &Origin, now: &Zoned, fields: &LineContent, backtrace: Option<&str>) -> String {
        let mut out = match self.format {
            Format::Text => self.text(origin, now, fields),
            Format::Json => return json(origin, now, fields, backtrace),
        };
        out.push('\n');
        if let Some(backtrace) = backtrace {
            out.push_str(backtrace.trim_end());
            out.push('\n');
        }
        out
    }

    fn text(&self, origin: &Origin, now: &Zoned, fields: &LineContent) -> String {
        let mut out = String::with_capacity(128);
        if self.headers {
            let letter = &Severity::of(origin.level).name()[..1];
            let at = now.datetime();
            let (month, day, hour, minute, second) = (at.month(), at.day(), at.hour(), at.minute(), at.second());
            let microsecond = at.subsec_nanosecond() / 1000;
            let place = if self.directory { with_directory(origin.file) } else { base_name(origin.file) };
            _ = write!(
                out,
                "{letter}{month:02}{day:02} {hour:02}:{minute:02}:{second:02}.{microsecond:06} {:7} {place}:{}] ",
                std::process::id(),
                origin.line
            );
        }
        out.push_str(&visible::line(fields.message.trim_end_matches('\n')));
        for (name, value) in &fields.rest {
            _ = write!(out, " {name}=");
            value.text(&mut out);
        }
        out
    }
}

/// One line of JSON: milliseconds since 1970, place in the source, message and values, in the order of Kubernetes' API
/// server. Lines of errors have no field `v`, which distinguishes errors from information.
fn json(origin: &Origin, now: &Zoned, fields: &LineContent, backtrace: Option<&str>) -> String {
    let mut out = String::with_capacity(192);
    let microseconds = now.timestamp().as_microsecond();
    let (milliseconds, rest) = (microseconds.div_euclid(1000), microseconds.rem_euclid(1000));
    _ = write!(out, "{{\"ts\":{milliseconds}.{rest:03},\"caller\":");
    push_json(&mut out, &format!("{}:{}", with_directory(origin.file), origin.line));
    out.push_str(",\"msg\":");
    push_json(&mut out, &fields.message);
    if Severity::of(origin.level) < Severity::Error {
        _ = write!(out, ",\"v\":{}", origin.verbosity().unwrap_or(0));
    }
    for (name, value) in &fields.rest {
        out.push(',');
        push_json(&mut out, name);
        out.push(':');
        value.json(&mut out);
    }
    if let Some(backtrace) = backtrace {
        out.push_str(",\"stacktrace\":");
        push_json(&mut out, backtrace);
    }
    out.push_str("}\n");
    out
}

/// The name of a source file, preceded by the name of its folder.
fn with_directory(path: &str) -> &str {
    let mut slashes = path.rmatch_indices('/');
    slashes.next();
    slashes.next().map_or(path, |(at, _)| &path[at + 1..])
}

fn push_json(out: &mut String, text: &str) {
    out.push_str(&visible::json(&holdfast_value::Value::from(text).to_string()));
}

/// The content of one line.
#[derive(Default)]
pub struct LineContent {
    message: String,
    rest: Vec<(&'static str, FieldValue)>,
}

enum FieldValue {
    Text(String),
    /// A number or a boolean, which is written without quotes in the text format and in JSON.
    Plain(String),
    /// Infinity or NaN, for which JSON has no number.
    OddNumber(f64),
}

impl LineContent {
    pub fn of_message(message: &std::fmt::Arguments) -> LineContent {
        LineContent { message: message.to_string(), rest: Vec::new() }
    }

    fn push(&mut self, field: &Field, value: FieldValue) {
        match (field.name(), value) {
            ("message", FieldValue::Text(text) | FieldValue::Plain(text)) => self.message = text,
            (name, value) => self.rest.push((name, value)),
        }
    }
}

impl Visit for LineContent {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.push(field, FieldValue::Text(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.push(field, FieldValue::Text(value.to_owned()));
    }

    /// Records an error with its causes, because most errors leave the causes out of their own text.
    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        let mut text = value.to_string();
        let mut cause = value.source();
        while let Some(error) = cause {
            _ = write!(text, ": {error}");
            cause = error.source();
        }
        self.push(field, FieldValue::Text(text));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.push(field, FieldValue::Plain(value.to_string()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.push(field, FieldValue::Plain(value.to_string()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.push(field, FieldValue::Plain(value.to_string()));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.push(
            field,
            if value.is_finite() { FieldValue::Plain(value.to_string()) } else { FieldValue::OddNumber(value) },
        );
    }
}

impl FieldValue {
    /// Writes a text value. A text of several lines is indented, so that none of its lines can look like a log line.
    fn text(&self, out: &mut String) {
        match self {
            FieldValue::Plain(text) => out.push_str(text),
            FieldValue::OddNumber(number) => _ = write!(out, "{number}"),
            FieldValue::Text(text) if text.contains('\n') => {
                out.push_str("<\n");
                for line in text.split('\n') {
                    _ = writeln!(out, "\t{}", visible::line(line));
                }
                out.push_str(" >");
            }
            FieldValue::Text(text) => push_quoted(out, text),
        }
    }

    fn json(&self, out: &mut String) {
        match self {
            FieldValue::Plain(text) => out.push_str(text),
            FieldValue::OddNumber(number) => push_json(out, &number.to_string()),
            FieldValue::Text(text) => push_json(out, text),
        }
    }
}

fn push_quoted(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\0'..' ' | '\u{7f}' => _ = write!(out, "\\x{:02x}", u32::from(c)),
            _ if visible::is_hidden(c) => out.extend(c.escape_default()),
            _ => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    const PLACE: &str = "engine/src/engine.rs";

    fn noon() -> Zoned {
        "2026-11-21T03:44:54.123456789+00:00[UTC]".parse().unwrap()
    }

    fn fields() -> LineContent {
        let rest = vec![
            ("name", FieldValue::Text("a \"b\"\u{1b}".into())),
            ("count", FieldValue::Plain("3".into())),
            ("ratio", FieldValue::OddNumber(f64::INFINITY)),
        ];
        LineContent { message: "took it".into(), rest }
    }

    fn shape(format: Format) -> LineFormat {
        LineFormat { format, headers: true, directory: false }
    }

    #[test]
    fn text_lines_have_severity_time_process_place_message_and_values() {
        let pid = std::process::id();
        let values = "took it name=\"a \\\"b\\\"\\x1b\" count=3 ratio=inf";
        for (level, letter) in [(Level::INFO, 'I'), (Level::WARN, 'W'), (Level::ERROR, 'E'), (Level::TRACE, 'I')] {
            let origin = Origin::new(level, "holdfast", Some(PLACE), Some(42));
            let line = shape(Format::Text).render(&origin, &noon(), &fields(), None);
            assert_eq!(line, format!("{letter}1121 03:44:54.123456 {pid:7} engine.rs:42] {values}\n"));
        }
        let origin = Origin::new(Level::INFO, "holdfast", Some(PLACE), Some(42));
        let bare = LineFormat { headers: false, ..shape(Format::Text) };
        assert_eq!(bare.render(&origin, &noon(), &fields(), None), format!("{values}\n"));
        let directory = LineFormat { directory: true, ..shape(Format::Text) };
        assert!(directory.render(&origin, &noon(), &fields(), None).contains(" src/engine.rs:42] took it"));
    }

    #[test]
    fn a_value_of_several_lines_cannot_pass_for_a_line() {
        let origin = Origin::new(Level::INFO, "holdfast", None, None);
        let fields =
            LineContent { message: "m".into(), rest: vec![("key", FieldValue::Text("one\nE1121 two".into()))] };
        let line = shape(Format::Text).render(&origin, &noon(), &fields, Some("stack\n\n"));
        assert_eq!(line.split_once("] ").unwrap().1, "m key=<\n\tone\n\tE1121 two\n >\nstack\n");
    }

    #[test]
    fn no_line_holds_what_a_terminal_obeys() {
        let texts = ["\x1b[2J\u{9b}\u{202e}", "a\n\x1b[2J\u{9b}\u{202e}"];
        let rest = texts.map(|text| ("key", FieldValue::Text(text.into()))).into();
        let fields = LineContent { message: "m\nE1121\x1b[2J\u{9b}".into(), rest };
        let origin = Origin::new(Level::INFO, "holdfast", Some(PLACE), Some(42));
        for (format, lines) in [(Format::Text, 4), (Format::Json, 1)] {
            let line = shape(format).render(&origin, &noon(), &fields, None);
            assert_eq!(visible::lines(&line), line);
            assert_eq!(line.lines().count(), lines, "{line}");
        }
    }

    #[test]
    fn json_lines_parse_and_say_the_same() {
        for (level, v) in
            [(Level::INFO, Some(0)), (Level::DEBUG, Some(4)), (Level::TRACE, Some(6)), (Level::ERROR, None)]
        {
            let origin = Origin::new(level, "holdfast", Some(PLACE), Some(42));
            let line = shape(Format::Json).render(&origin, &noon(), &fields(), Some("stack"));
            let mut expected = holdfast_value::json!({
                "ts": 1795232694123.456, "caller": "src/engine.rs:42", "msg": "took it",
                "name": "a \"b\"\u{1b}", "count": 3, "ratio": "inf", "stacktrace": "stack",
            });
            if let Some(v) = v {
                expected["v"] = v.into();
            }
            assert_eq!(serde_json::from_str::<holdfast_value::Value>(&line).unwrap(), expected);
            assert!(line.ends_with("}\n"));
        }
    }

    #[test]
    fn a_place_shows_one_directory() {
        for (path, expected) in [("a/b/c.rs", "b/c.rs"), ("b/c.rs", "b/c.rs"), ("c.rs", "c.rs"), ("???", "???")] {
            assert_eq!(with_directory(path), expected);
        }
    }
}
