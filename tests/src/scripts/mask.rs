//! Replaces values that differ from run to run by placeholders.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use regex::{Captures, Regex};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// Managers of fields that a server's own controllers write a moment later.
const BACKGROUND: [&str; 2] = ["kube-apiserver", "api-priority-and-fairness-config-consumer-v1"];
/// Kinds whose status the server's own controllers write.
const BACKGROUND_STATUS: [&str; 3] = ["APIService", "FlowSchema", "CustomResourceDefinition"];
/// The maximum distance, in seconds, between now and a time that the server took from its clock.
const NEAR: i64 = 200_000;
/// The letters of which generated name suffixes consist.
const GENERATED: &str = "bcdfghjklmnpqrstvwxz2456789";

struct Patterns {
    prefix: Regex,
    record: Regex,
    uuid: Regex,
    stamp: Regex,
    quoted_version: Regex,
    port: Regex,
    address: Regex,
    cluster_address: Regex,
    host: Regex,
    go_time: Regex,
    age: Regex,
    cell_port: Regex,
    yaml_version: Regex,
    yaml_address: Regex,
}

static PATTERNS: LazyLock<Patterns> = LazyLock::new(|| {
    let regex = |pattern: &str| Regex::new(pattern).expect("a pattern");
    Patterns {
        prefix: regex(r#""generateName": ?"([^"]+)""#),
        record: regex(r"(ResourceVersion in record \()\d+"),
        uuid: regex(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"),
        stamp: regex(r"\b(20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)"),
        quoted_version: regex(r#"(resourceVersion\\*": ?\\*")\d+"#),
        port: regex(r#"((?:nodePort|healthCheckNodePort)\\*": ?)(3[012]\d\d\d)\b"#),
        address: regex(r"\b(?:10\.0|198\.18)\.\d+\.\d+\b"),
        cluster_address: regex(r"\b10\.0\.\d+\.\d+\b"),
        host: regex(r"\b127\.0\.0\.1:\d{4,5}\b"),
        go_time: regex(r"\b20\d\d-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? [+-]\d{4} \w+( m=\+[\d.]+)?"),
        age: regex(r"^((\d+[smhdy])+|<invalid>)$"),
        cell_port: regex(r":3[012]\d\d\d/"),
        yaml_version: regex(r#"resourceVersion: "\d+""#),
        yaml_address: regex(r"clusterIPs?: ?10\.0\.\d+\.\d+"),
    }
});

/// The values that one script has sent and received. They determine the masks of its answers.
pub struct Mask {
    pub word: String,
    pub namespace: String,
    pub octets: (String, String),
    /// Everything that the script sent. The server did not choose the values in this text.
    sent: String,
    prefixes: BTreeSet<String>,
    generated: BTreeMap<String, String>,
    versions: BTreeSet<String>,
}

impl Mask {
    /// Makes the mask for the script with this number.
    pub fn new(number: usize) -> Mask {
        let word = format!("wzkv{number:04}");
        Mask {
            namespace: format!("ns-{word}"),
            word,
            octets: ((number / 250 % 250 + 1).to_string(), (number % 250 + 1).to_string()),
            sent: String::new(),
            prefixes: BTreeSet::new(),
            generated: BTreeMap::new(),
            versions: BTreeSet::new(),
        }
    }

    pub fn sent(&mut self, text: &str) {
        self.sent.push_str(text);
        self.prefixes.extend(PATTERNS.prefix.captures_iter(text).map(|found| found[1].to_owned()));
    }

    /// Records the generated names and the versions in an answer.
    pub fn see(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                let text = |name: &str| fields.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
                if let (Some(name), Some(prefix)) = (text("name"), text("generateName"))
                    && name.starts_with(prefix)
                    && name != prefix
                    && !self.sent.contains(name)
                {
                    self.generated.insert(name.to_owned(), format!("{prefix}$GEN"));
                }
                if let Some(version) = text("resourceVersion").filter(|version| !self.sent.contains(*version)) {
                    self.versions.insert(version.to_owned());
                }
                fields.values().for_each(|value| self.see(value));
            }
            Value::Array(items) => items.iter().for_each(|item| self.see(item)),
            _ => {}
        }
    }

    pub fn text(&self, text: &str) -> String {
        let p = &*PATTERNS;
        let mut text = text.to_owned();
        for (name, masked) in &self.generated {
            text = text.replace(name, masked);
        }
        let (first, second) = &self.octets;
        text = text.replace(&self.namespace, "$NS").replace(&self.word, "$U");
        text = text.replace(&format!("198.18.{first}.{second}"), "198.18.$O1.$O2");
        text = text.replace(&format!("198.18.{first}.0"), "198.18.$O1.0");
        for prefix in &self.prefixes {
            text = mask_suffixes(&text, prefix);
        }
        text = p.record.replace_all(&text, "${1}$$RV").into_owned();
        text = p.uuid.replace_all(&text, "$$UUID").into_owned();
        text = p.stamp.replace_all(&text, near).into_owned();
        for version in self.versions.iter().filter(|version| version.len() > 2) {
            let inside = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
            text = replace_whole(&text, version, "$RV", inside);
        }
        text = p.quoted_version.replace_all(&text, "${1}$$RV").into_owned();
        text = p
            .port
            .replace_all(&text, |found: &Captures| {
                if self.sent.contains(&found[2]) { found[0].to_owned() } else { format!("{}$PORT", &found[1]) }
            })
            .into_owned();
        text = self.addresses(&text, &p.address);
        text = p.host.replace_all(&text, "$$HOST").into_owned();
        p.go_time.replace_all(&text, "$$TIME").into_owned()
    }

    /// Masks a body that is not JSON, and cuts it off after 8,000 characters.
    pub fn document(&self, text: &str) -> String {
        let text = self.text(text);
        let text = PATTERNS.yaml_version.replace_all(&text, "resourceVersion: $$RV");
        let text = PATTERNS.yaml_address.replace_all(&text, "clusterIP: $$IP");
        text.chars().take(8000).collect()
    }

    /// Masks addresses that the server has allocated; an address followed by a slash is a range.
    fn addresses(&self, text: &str, pattern: &Regex) -> String {
        let masked = |found: regex::Match| {
            let range = text[found.end()..].starts_with('/');
            if range || self.sent.contains(found.as_str()) { found.as_str().to_owned() } else { "$IP".to_owned() }
        };
        let (mut out, mut done) = (String::new(), 0);
        for found in pattern.find_iter(text) {
            out.push_str(&text[done..found.start()]);
            out.push_str(&masked(found));
            done = found.end();
        }
        out + &text[done..]
    }

    pub fn value(&self, value: &Value) -> Value {
        settle(self.masked(value, ""))
    }

    fn masked(&self, value: &Value, key: &str) -> Value {
        match value {
            Value::Object(fields) => Value::Object(self.fields(fields)),
            Value::Array(items) if key == "managedFields" => {
                let foreign = |item: &&Value| !BACKGROUND.iter().any(|name| item["manager"] == *name);
                items.iter().filter(foreign).map(|item| self.masked(item, "")).collect()
            }
            Value::Array(items) => items.iter().map(|item| self.masked(item, key)).collect(),
            Value::String(text) => self.string(text, key).into(),
            other => other.clone(),
        }
    }

    fn fields(&self, fields: &Map<String, Value>) -> Map<String, Value> {
        let kind = fields.get("kind").and_then(Value::as_str).unwrap_or("");
        let without_status = BACKGROUND_STATUS.contains(&kind) && fields.get("status").is_some_and(Value::is_object);
        let fields = fields.iter().filter(|(key, _)| !(without_status && *key == "status"));
        fields.map(|(key, value)| self.field(key, value)).collect()
    }

    fn field(&self, key: &str, value: &Value) -> (String, Value) {
        let made_up = |number: &i64| *number >= 30_000 && !self.sent.contains(&number.to_string());
        let masked = match (key, value) {
            ("resourceVersion", Value::String(version)) if !matches!(version.as_str(), "" | "0") => "$RV",
            ("continue", Value::String(token)) if !token.is_empty() => "$CONTINUE",
            ("token", Value::String(token)) if token.matches('.').count() == 2 => "$TOKEN",
            ("nodePort" | "healthCheckNodePort", port) if port.as_i64().as_ref().is_some_and(made_up) => "$PORT",
            ("managedFields", list) => return (key.to_owned(), self.masked(list, key)),
            _ => return (self.text(key), self.masked(value, key)),
        };
        (key.to_owned(), masked.into())
    }

    fn string(&self, text: &str, key: &str) -> String {
        let p = &*PATTERNS;
        let handed_out = |text: &str| text.starts_with("10.0.") || text.starts_with("198.18.");
        match key {
            "clusterIP" | "clusterIPs" if handed_out(text) && !self.sent.contains(text) => "$IP".into(),
            "cells" if p.address.find(text).is_some_and(|found| found.as_str() == text) => "$IP".into(),
            "cells" => self.text(&p.cell_port.replace_all(text, ":$$PORT/")),
            "message" => self.text(&self.addresses(text, &p.cluster_address)),
            _ => self.text(text),
        }
    }
}

/// The value in a normal form: lists without order are sorted, whole numbers are integers, and ages in years are masked
/// like other ages, because recorded tables show them as of the day of the recording.
pub fn settle(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .map(|(key, value)| match (key.as_str(), settle(value)) {
                ("managedFields" | "causes" | "warnings", Value::Array(mut items)) => {
                    items.sort_by_cached_key(Value::to_string);
                    (key, items.into())
                }
                ("cells", Value::Array(cells)) => {
                    let age = |cell: &Value| cell.as_str().is_some_and(|text| PATTERNS.age.is_match(text));
                    (key, cells.into_iter().map(|cell| if age(&cell) { "$AGE".into() } else { cell }).collect())
                }
                (_, value) => (key, value),
            })
            .collect(),
        Value::Array(items) => items.into_iter().map(settle).collect(),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15 => (float as i64).into(),
            _ => number.into(),
        },
        other => other,
    }
}

/// Masks times near now, which the server has set.
fn near(found: &Captures) -> String {
    let time = found[1].parse::<DateTime>().ok().and_then(|time| time.to_zoned(TimeZone::UTC).ok());
    match time {
        Some(time) if (time.timestamp().as_second() - Timestamp::now().as_second()).abs() < NEAR => {
            if found.get(2).is_some() { "$TIME.$MICRO".into() } else { "$TIME".into() }
        }
        _ => found[0].to_owned(),
    }
}

/// Masks names that consist of the prefix and five generated letters.
fn mask_suffixes(text: &str, prefix: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(prefix) {
        let (before, after) = (&rest[..at], &rest[at + prefix.len()..]);
        let free = !out.chars().chain(before.chars()).next_back().is_some_and(|c| c.is_ascii_alphanumeric());
        let suffix = after.chars().take_while(char::is_ascii_alphanumeric).count();
        out.push_str(before);
        out.push_str(prefix);
        rest = after;
        if free && suffix == 5 && after[..5].chars().all(|c| GENERATED.contains(c)) {
            out.push_str("$GEN");
            rest = &after[5..];
        }
    }
    out + rest
}

/// Replaces a word, unless it is part of a longer word.
fn replace_whole(text: &str, word: &str, by: &str, inside: impl Fn(char) -> bool) -> String {
    let (mut out, mut done) = (String::new(), 0);
    for (at, _) in text.match_indices(word) {
        let end = at + word.len();
        let part = text[..at].ends_with(&inside) || text[end..].starts_with(&inside);
        out.push_str(&text[done..at]);
        out.push_str(if part { word } else { by });
        done = end;
    }
    out + &text[done..]
}
