//! Prints differences like a unified diff, with one hunk for each changed part of the document.

use super::difference::{FieldChange, What};
use super::path::{Path, Step};
use crate::visible;
use holdfast_value::{Map, Value};

/// The number of unchanged lines that are shown around the changed lines of a long text.
const CONTEXT_LINES: usize = 3;

/// Whether text is coloured with terminal escapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paint(pub bool);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    Bold,
    Red,
    Green,
    Yellow,
    Cyan,
}

/// All escape sequences that `Paint` uses.
const CODES: [&str; 6] = ["\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[36m", "\x1b[0m"];

impl Paint {
    /// Colours a text of one line, in which hidden characters are escaped.
    pub fn paint(self, colour: Colour, text: &str) -> String {
        let text = visible::line(text);
        if self.0 { format!("{}{text}{}", CODES[colour as usize], CODES[5]) } else { text.into_owned() }
    }

    /// Escapes all hidden characters in the complete output, except `Paint`'s own sequences.
    pub fn finish(self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('\x1b').filter(|_| self.0) {
            let (before, painted) = rest.split_at(at);
            out.push_str(&visible::lines(before));
            let code = CODES.into_iter().find(|code| painted.starts_with(code));
            out.push_str(code.unwrap_or("\\u{1b}"));
            rest = &painted[code.map_or(1, str::len)..];
        }
        out + &visible::lines(rest)
    }
}

/// The hunks of a difference; `titles` name the old and the new document.
pub fn unified(titles: (&str, &str), changes: &[FieldChange], paint: Paint) -> String {
    let mut out = String::new();
    line(&mut out, paint, Colour::Bold, &format!("--- {}", titles.0));
    line(&mut out, paint, Colour::Bold, &format!("+++ {}", titles.1));
    let mut place = None;
    for change in changes {
        let (parent, step) = match change.path.split() {
            Some((parent, step)) => (parent, Some(step)),
            None => (Path::default(), None),
        };
        if let What::Changed { old: Value::String(old), new: Value::String(new) } = &change.what
            && is_long(old)
            && is_long(new)
        {
            lines(&mut out, paint, &change.path, old, new);
            place = None;
            continue;
        }
        if place.as_ref() != Some(&parent) {
            line(&mut out, paint, Colour::Cyan, &format!("@@ {parent} @@"));
        }
        place = Some(parent);
        match &change.what {
            What::Added(value) => signed(&mut out, paint, '+', &yaml(&below(step, value))),
            What::Removed(value) => signed(&mut out, paint, '-', &yaml(&below(step, value))),
            What::Changed { old, new } => {
                signed(&mut out, paint, '-', &yaml(&below(step, old)));
                signed(&mut out, paint, '+', &yaml(&below(step, new)));
            }
            What::Reordered { old, new } => {
                let order = |keys: &[String]| {
                    let shown = |key: &String| Path(vec![Step::Key(key.clone())]).to_string();
                    let keys: Vec<String> = keys.iter().map(shown).collect();
                    let name = change.path.to_string();
                    format!("# order of {name}: {}", keys.join(" "))
                };
                signed(&mut out, paint, '-', &order(old));
                signed(&mut out, paint, '+', &order(new));
            }
        }
    }
    out
}

/// The YAML of a value for a hunk. It ends with a newline.
fn yaml(value: &Value) -> String {
    // Values from JSON have string keys, so they can always be written.
    crate::object::yaml::write(value).unwrap_or_else(|never| format!("{never}\n"))
}

/// Wraps the value in its field's name, or in a list if it is a list item.
fn below(step: Option<&Step>, value: &Value) -> Value {
    match step {
        None => value.clone(),
        Some(Step::Field(name)) => Value::Object(Map::from_iter([(name.clone(), value.clone())])),
        Some(Step::Key(_) | Step::Index(_)) => Value::Array(vec![value.clone()]),
    }
}

fn is_long(text: &str) -> bool {
    text.contains('\n')
}

/// Prints the changed lines of a long text, with a few unchanged lines around them.
fn lines(out: &mut String, paint: Paint, path: &Path, old: &str, new: &str) {
    let (olds, news): (Vec<&str>, Vec<&str>) = (old.split('\n').collect(), new.split('\n').collect());
    let same = olds.iter().zip(&news).take_while(|(old, new)| old == new).count();
    let rest = olds.len().min(news.len()) - same;
    let tail = olds.iter().rev().zip(news.iter().rev()).take(rest).take_while(|(old, new)| old == new).count();
    line(out, paint, Colour::Cyan, &format!("@@ {path}, line {} @@", same + 1));
    for text in &olds[same.saturating_sub(CONTEXT_LINES)..same] {
        plain(out, &format!(" {text}"));
    }
    for text in &olds[same..olds.len() - tail] {
        line(out, paint, Colour::Red, &format!("-{text}"));
    }
    for text in &news[same..news.len() - tail] {
        line(out, paint, Colour::Green, &format!("+{text}"));
    }
    let after = olds.len() - tail;
    for text in &olds[after..olds.len().min(after + CONTEXT_LINES)] {
        plain(out, &format!(" {text}"));
    }
}

fn signed(out: &mut String, paint: Paint, sign: char, text: &str) {
    let colour = if sign == '+' { Colour::Green } else { Colour::Red };
    for text in text.lines() {
        line(out, paint, colour, &format!("{sign}{text}"));
    }
}

fn line(out: &mut String, paint: Paint, colour: Colour, text: &str) {
    out.push_str(&paint.paint(colour, text));
    out.push('\n');
}

fn plain(out: &mut String, text: &str) {
    out.push_str(&visible::line(text));
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::super::difference::difference;
    use super::super::difference::tests::with_kind;
    use super::*;
    use expect_test::expect;
    use holdfast_value::json;

    fn shown(old: Value, new: Value, paint: bool) -> String {
        let changes = with_kind("", "v1", "pods", |shape| difference(shape, &old, &new));
        unified(("a", "b"), &changes, Paint(paint))
    }

    #[test]
    fn changes_are_gathered_by_place() {
        let old = json!({
            "metadata": {"labels": {"a": "1", "b": "2"}, "finalizers": ["x/y"]},
            "spec": {"containers": [{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}], "hostname": "h"},
        });
        let new = json!({
            "metadata": {"labels": {"a": "2", "c": "3"}},
            "spec": {"containers": [{"name": "b", "image": "b:1"}, {"name": "a", "image": "a:2"}, {"name": "c"}]},
        });
        expect![[r#"
            --- a
            +++ b
            @@ metadata @@
            -finalizers:
            -- x/y
            @@ metadata.labels @@
            -a: '1'
            +a: '2'
            -b: '2'
            +c: '3'
            @@ spec @@
            -# order of spec.containers: [name=a] [name=b]
            +# order of spec.containers: [name=b] [name=a]
            @@ spec.containers[name=a] @@
            -image: a:1
            +image: a:2
            @@ spec.containers @@
            +- name: c
            @@ spec @@
            -hostname: h
        "#]]
        .assert_eq(&shown(old, new, false));
    }

    #[test]
    fn of_long_texts_the_lines_that_differ_are_shown() {
        let text = |middle: &str| json!({"data": {"file": format!("1\n2\n3\n4\n{middle}6\n7\n8\n9\n")}});
        expect![[r#"
            --- a
            +++ b
            @@ data.file, line 5 @@
             2
             3
             4
            -5
            +five
            +and more
             6
             7
             8
        "#]]
        .assert_eq(&shown(text("5\n"), text("five\nand more\n"), false));
        expect![[r#"
            --- a
            +++ b
            @@ data.file, line 5 @@
             2
             3
             4
            -5
             6
             7
             8
        "#]]
        .assert_eq(&shown(text("5\n"), text(""), false));
    }

    #[test]
    fn colours_are_the_terminals_and_nothing_else_gets_through() {
        let shown = shown(json!({"a": "x\n\u{1b}[2J"}), json!({"a": "x\n\u{7}"}), true);
        assert!(shown.contains("\x1b[31m-\\u{1b}[2J\x1b[0m\n\x1b[32m+\\u{7}\x1b[0m\n"), "{shown:?}");
        assert_eq!(Paint(true).finish(&shown), shown);
        assert_eq!(Paint(true).finish("\x1b[2J\x1b[31ma\u{9b}\x1b[0m\x1b"), "\\u{1b}[2J\x1b[31ma\\u{9b}\x1b[0m\\u{1b}");
        assert_eq!(Paint(false).finish("\x1b[31ma\n"), "\\u{1b}[31ma\n");
    }
}
