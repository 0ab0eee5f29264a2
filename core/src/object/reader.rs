//! Reads documents strictly: records every fault with the path of its field. A key that was not read is a fault, too.

use super::yaml;
use holdfast_value::{CompactString, Map, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

/// What is wrong with the field at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub path: String,
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() { f.write_str(&self.message) } else { write!(f, "{}: {}", self.path, self.message) }
    }
}

pub type Faults = RefCell<Vec<Fault>>;

/// Returns the result of `read` on a document, or all faults that `read` recorded.
pub fn read<T>(document: &Value, read: impl FnOnce(&Reader) -> T) -> Result<T, Vec<String>> {
    let faults = Faults::default();
    let found = Reader::new(document, "", &faults).map(|reader| read(&reader));
    let faults: Vec<String> = faults.into_inner().iter().map(ToString::to_string).collect();
    match found {
        Some(found) if faults.is_empty() => Ok(found),
        _ => Err(faults),
    }
}

/// Returns the result of `read` on a document in YAML or JSON, or all faults.
pub fn read_text<T>(text: &str, read: impl FnOnce(&Reader) -> T) -> Result<T, Vec<String>> {
    let document: Value = yaml::read(text).map_err(|error| vec![error.to_string()])?;
    self::read(&document, read)
}

/// Reads one object of a document. When the reader is dropped, it records the keys that were not read as unknown.
pub struct Reader<'a> {
    fields: &'a Map,
    path: String,
    faults: &'a Faults,
    asked: RefCell<BTreeSet<CompactString>>,
    strict: bool,
}

impl<'a> Reader<'a> {
    /// A reader of an object. If the value is not an object, records a fault and returns `None`.
    pub fn new(value: &'a Value, path: &str, faults: &'a Faults) -> Option<Self> {
        let Some(fields) = value.as_object() else {
            let message = format!("Invalid value: {value}: must be an object");
            faults.borrow_mut().push(Fault { path: path.into(), message });
            return None;
        };
        Some(Reader { fields, path: path.into(), faults, asked: RefCell::default(), strict: true })
    }

    /// Makes the reader accept keys that are not read.
    pub fn lenient(mut self) -> Self {
        self.strict = false;
        self
    }

    /// Marks all keys of the object as read, so that none of them is unknown.
    pub fn ask_for_all(&self) {
        self.asked.borrow_mut().extend(self.fields.keys().cloned());
    }

    pub fn path(&self, field: &str) -> String {
        match (self.path.is_empty(), field.is_empty()) {
            (true, _) => field.into(),
            (_, true) => self.path.clone(),
            _ => format!("{}.{field}", self.path),
        }
    }

    pub fn fault(&self, field: &str, message: impl Into<String>) {
        self.faults.borrow_mut().push(Fault { path: self.path(field), message: message.into() });
    }

    pub fn invalid(&self, field: &str, value: impl fmt::Display, message: &str) {
        self.fault(field, format!("Invalid value: {value}: {message}"));
    }

    pub fn required(&self, field: &str, message: &str) {
        let colon = if message.is_empty() { "" } else { ": " };
        self.fault(field, format!("Required value{colon}{message}"));
    }

    pub fn get(&self, field: &str) -> Option<&'a Value> {
        self.asked.borrow_mut().insert(field.into());
        self.fields.get(field).filter(|value| !value.is_null())
    }

    fn typed<T>(&self, field: &str, of: &str, read: impl Fn(&'a Value) -> Option<T>) -> Option<T> {
        let value = self.get(field)?;
        let typed = read(value);
        if typed.is_none() {
            self.invalid(field, value, &format!("must be {of}"));
        }
        typed
    }

    pub fn text(&self, field: &str) -> Option<&'a str> {
        self.typed(field, "a string", Value::as_str)
    }

    pub fn int(&self, field: &str) -> Option<i64> {
        self.typed(field, "an integer", Value::as_i64)
    }

    pub fn bool(&self, field: &str) -> Option<bool> {
        self.typed(field, "a boolean", Value::as_bool)
    }

    /// The integer in a field. A number outside the bounds is a fault.
    pub fn int_within(&self, field: &str, least: i64, most: i64) -> Option<i64> {
        let number = self.int(field)?;
        if !(least..=most).contains(&number) {
            self.invalid(
                field,
                number,
                &match most {
                    i64::MAX => format!("must be at least {least}"),
                    _ => format!("not in valid range [{least}, {most}]"),
                },
            );
        }
        Some(number)
    }

    /// The duration in a field, such as `1m30s`, in seconds.
    pub fn seconds(&self, field: &str) -> Option<f64> {
        self.typed(field, "a duration", |value| seconds(value.as_str()?))
    }

    /// The reader of the object in a field.
    pub fn child(&self, field: &str) -> Option<Reader<'a>> {
        let mut child = Reader::new(self.get(field)?, &self.path(field), self.faults)?;
        child.strict = self.strict;
        Some(child)
    }

    pub fn values(&self, field: &str) -> Option<&'a [Value]> {
        self.typed(field, "a list", |value| value.as_array().map(Vec::as_slice))
    }

    /// The readers of the objects in a field that is a list. The path of each reader contains the object's index.
    pub fn list(&self, field: &str) -> Option<Vec<Reader<'a>>> {
        let values = self.values(field)?;
        let reader = |(at, value)| {
            let mut item = Reader::new(value, &format!("{}[{at}]", self.path(field)), self.faults)?;
            item.strict = self.strict;
            Some(item)
        };
        Some(values.iter().enumerate().filter_map(reader).collect())
    }

    pub fn texts(&self, field: &str) -> Option<Vec<&'a str>> {
        let values = self.values(field)?;
        let mut texts = Vec::new();
        for (at, value) in values.iter().enumerate() {
            match value.as_str() {
                Some(text) => texts.push(text),
                None => self.invalid(&format!("{field}[{at}]"), value, "must be a string"),
            }
        }
        Some(texts)
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        let asked = self.asked.borrow();
        for key in self.fields.keys().filter(|key| self.strict && !asked.contains(*key)) {
            let path = self.path(key);
            let message = format!("strict decoding error: unknown field \"{path}\"");
            self.faults.borrow_mut().push(Fault { path: String::new(), message });
        }
    }
}

/// The number of seconds in a duration in Go's format.
pub fn seconds(text: &str) -> Option<f64> {
    super::duration::nanos(text).ok().map(|nanoseconds| nanoseconds as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        assert_eq!(seconds("1m30s"), Some(90.0));
        assert_eq!(seconds("1.5h"), Some(5400.0));
        assert_eq!(seconds("250ms"), Some(0.25));
        assert_eq!(seconds("-2s"), Some(-2.0));
        assert_eq!(seconds("1m34.474s"), Some(94.474));
        assert_eq!([seconds("5"), seconds(""), seconds("5 s"), seconds("x")], [None; 4]);
    }

    #[test]
    fn all_faults_are_told_with_their_paths() {
        let document = json!({"a": {"n": "x", "more": 1}, "list": [{"n": 5, "b": true}], "typo": 0});
        let faults = Faults::default();
        {
            let reader = Reader::new(&document, "", &faults).unwrap();
            reader.child("a").unwrap().int("n");
            reader.list("list").unwrap()[0].int_within("n", 1, 3);
        }
        let told: Vec<_> = faults.into_inner().iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "a.n: Invalid value: \"x\": must be an integer",
                "strict decoding error: unknown field \"a.more\"",
                "list[0].n: Invalid value: 5: not in valid range [1, 3]",
                "strict decoding error: unknown field \"list[0].b\"",
                "strict decoding error: unknown field \"typo\"",
            ]
        );
    }
}
