//! Compares a played scenario with its recording.

use super::Scenario;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Serialize)]
pub struct Difference {
    pub part: &'static str,
    /// The object, Event or life (the words for an object's changes) that differs.
    pub of: String,
    pub field: String,
    pub want: Value,
    pub have: Value,
}

/// All differences in values that were the same in all recordings of Kubernetes.
pub fn compare(scenario: &Scenario, have: &Value) -> Vec<Difference> {
    let mut comparison = Comparison { scenario, differences: Vec::new() };
    let want = &scenario.seen;
    if !comparison.is_unstable("all", "answers", "") && want["answers"] != have["answers"] {
        comparison.differ("answers", "requests", "", &want["answers"], &have["answers"]);
    }
    comparison.objects(&want["objects"], &have["objects"]);
    comparison.told("events", "count", want, have, |event| {
        format!(
            "{}/{} {} {}",
            text(&event["kind"]),
            text(&event["name"]),
            text(&event["reason"]),
            text(&event["message"])
        )
    });
    comparison.told("lives", "objects", want, have, |life| {
        let changes: Vec<&str> = life["changes"].as_array().into_iter().flatten().map(text).collect();
        format!("{}/{}: {}", text(&life["kind"]), text(&life["name"]), changes.join("; "))
    });
    let sequence = &want["sequence"];
    if !sequence.is_null() && !comparison.is_unstable("sequence", "", "") && *sequence != have["sequence"] {
        comparison.differ("sequence", "", "", sequence, &have["sequence"]);
    }
    comparison.differences
}

struct Comparison<'a> {
    scenario: &'a Scenario,
    differences: Vec<Difference>,
}

impl Comparison<'_> {
    fn is_unstable(&self, part: &str, name: &str, field: &str) -> bool {
        self.scenario.unstable.iter().any(|known| known.0 == part && known.1 == name && known.2 == field)
    }

    /// Whether the field, or a part of the object that contains it, differed between recordings.
    fn is_unstable_below(&self, name: &str, field: &str) -> bool {
        self.scenario.unstable.iter().filter(|known| known.0 == "objects" && known.1 == name).any(|known| {
            let rest = field.strip_prefix(known.2.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        })
    }

    fn differ(&mut self, part: &'static str, of: &str, field: &str, want: &Value, have: &Value) {
        let (of, field) = (of.to_owned(), field.to_owned());
        self.differences.push(Difference { part, of, field, want: want.clone(), have: have.clone() });
    }

    fn objects(&mut self, want: &Value, have: &Value) {
        let (want, have) = (by_name(want), by_name(have));
        let names: BTreeSet<&String> = want.keys().chain(have.keys()).collect();
        for name in names {
            if self.is_unstable("objects", name, "") {
                continue;
            }
            let (Some(wanted), Some(had)) = (want.get(name), have.get(name)) else {
                let there = |map: &BTreeMap<String, _>| json!(if map.contains_key(name) { "exists" } else { "absent" });
                self.differ("objects", name, "", &there(&want), &there(&have));
                continue;
            };
            let fields: BTreeSet<&String> = wanted.keys().chain(had.keys()).collect();
            for field in fields {
                let (wanted, had) = (wanted.get(field), had.get(field));
                if wanted != had && !self.is_unstable_below(name, field) {
                    let absent = json!("(absent)");
                    self.differ("objects", name, field, wanted.unwrap_or(&absent), had.unwrap_or(&absent));
                }
            }
        }
    }

    /// Compares Events or lives by their names.
    fn told(&mut self, part: &'static str, count: &str, want: &Value, have: &Value, name: fn(&Value) -> String) {
        if self.is_unstable(part, "", "") {
            return;
        }
        let by = |list: &Value| -> BTreeMap<String, Value> {
            list[part].as_array().into_iter().flatten().map(|entry| (name(entry), entry.clone())).collect()
        };
        let (want, have) = (by(want), by(have));
        let names: BTreeSet<&String> = want.keys().chain(have.keys()).collect();
        for name in names {
            let short = name.split(':').next().unwrap_or_default();
            if self.is_unstable(part, name, "") || self.is_unstable(part, short, "") {
                continue;
            }
            match (want.get(name), have.get(name)) {
                (Some(wanted), Some(had)) => {
                    for (field, value) in wanted.as_object().into_iter().flatten() {
                        if *value != had[field]
                            && !(field == count && self.is_unstable(part, name, count))
                            && !self.is_unstable(part, name, field)
                        {
                            self.differ(part, name, field, value, &had[field]);
                        }
                    }
                }
                (wanted, had) => {
                    let seen = |entry: Option<&Value>| json!(if entry.is_some() { "seen" } else { "not seen" });
                    self.differ(part, name, "", &seen(wanted), &seen(had));
                }
            }
        }
    }
}

fn by_name(objects: &Value) -> BTreeMap<String, BTreeMap<String, Value>> {
    let objects = objects.as_array().into_iter().flatten();
    let entry = |object: &Value| {
        let mut fields = BTreeMap::new();
        flatten(object, String::new(), &mut fields);
        (format!("{}/{}", text(&object["kind"]), text(&object["metadata"]["name"])), fields)
    };
    objects.map(entry).collect()
}

/// All scalars by their paths; list items by their type, name or key if that is unique.
fn flatten(value: &Value, path: String, fields: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(inner) if !inner.is_empty() => {
            for (name, value) in inner {
                flatten(value, if path.is_empty() { name.clone() } else { format!("{path}.{name}") }, fields);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let key = ["type", "name", "key"].into_iter().find(|key| {
                let names: BTreeSet<&str> = items.iter().filter_map(|item| item[key].as_str()).collect();
                names.len() == items.len()
            });
            for (place, item) in items.iter().enumerate() {
                let name = key.map_or_else(|| place.to_string(), |key| text(&item[key]).to_owned());
                flatten(item, format!("{path}[{name}]"), fields);
            }
        }
        leaf => _ = fields.insert(path, leaf.clone()),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
