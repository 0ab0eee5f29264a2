//! Compares two runs of a script.

use super::Script;
use super::mask::settle;
use serde_json::Value;
use std::collections::BTreeSet;

/// Whether all answers of a script agree, by part.
#[derive(Clone, Copy)]
pub struct Agreement {
    pub codes: bool,
    /// Whether the reasons, messages, causes, details, warnings, types and texts agree.
    pub words: bool,
    pub objects: bool,
}

impl Agreement {
    /// The names of the parts that differ.
    pub fn differing(self) -> BTreeSet<String> {
        let parts = [("codes", self.codes), ("words", self.words), ("objects", self.objects)];
        parts.into_iter().filter(|(_, agrees)| !agrees).map(|(name, _)| name.to_owned()).collect()
    }
}

/// Compares answers with the expected answers of the script.
pub fn compare(script: &Script, got: &[Value]) -> Agreement {
    let want: Vec<Value> = script.answers.iter().cloned().map(settle).collect();
    let all = |same: fn(&Value, &Value) -> bool| want.iter().zip(got).all(|(want, got)| same(want, got));
    let codes = want.len() == got.len() && all(|want, got| want["code"] == got["code"]);
    Agreement {
        codes,
        words: codes && all(|want, got| words(want) == words(got)),
        objects: codes && all(|want, got| want.get("object") == got.get("object")),
    }
}

fn words(answer: &Value) -> Vec<Value> {
    let part = |name: &str| answer.get(name).cloned().unwrap_or_default();
    let message = match part("message") {
        // A server may report several faults in any order, so only the letters of the message are compared.
        Value::String(text) if answer["causes"].as_array().is_some_and(|causes| causes.len() > 1) => {
            let mut letters: Vec<char> = text.chars().collect();
            letters.sort_unstable();
            letters.into_iter().collect::<String>().into()
        }
        other => other,
    };
    let mut words = vec![message];
    words.extend(["reason", "causes", "details", "warnings", "text", "type"].map(part));
    words
}
