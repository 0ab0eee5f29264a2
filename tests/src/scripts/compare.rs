//! Compares two runs of a script.

use super::Script;
use super::mask::settle;
use serde_json::Value;
use std::fmt;

/// Whether all answers of a script agree, by part.
#[derive(Clone, Copy)]
pub struct Agreement {
    pub codes: bool,
    /// Reasons, messages, causes, details, warnings, types and texts.
    pub words: bool,
    pub objects: bool,
}

/// How many scripts agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgreementCounts {
    pub codes: usize,
    pub words: usize,
    pub objects: usize,
    /// Scripts that agree in both words and objects.
    pub wholly: usize,
}

impl AgreementCounts {
    pub fn add(&mut self, agreement: Agreement) {
        self.codes += usize::from(agreement.codes);
        self.words += usize::from(agreement.words);
        self.objects += usize::from(agreement.objects);
        self.wholly += usize::from(agreement.words && agreement.objects);
    }

    /// Whether each count is at least that of `other`.
    pub fn reach(&self, other: &AgreementCounts) -> bool {
        self.codes >= other.codes
            && self.words >= other.words
            && self.objects >= other.objects
            && self.wholly >= other.wholly
    }
}

impl fmt::Display for AgreementCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AgreementCounts { codes, words, objects, wholly } = self;
        write!(f, "Counts {{ codes: {codes}, words: {words}, objects: {objects}, wholly: {wholly} }}")
    }
}

/// Compares answers with the expected ones of the script.
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
        // Several faults may come in any order.
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
