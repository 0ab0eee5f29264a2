//! Plays recorded scenarios of Kubernetes' API server, setup by setup, against a server with the same options.
//!
//! Start at [`Recording`]. A [`RecordedSetup`] is the server of one setup, with the servers that it calls: webhooks, an
//! OpenID Connect issuer, and authorities. The module `answer` decides which parts of an answer are compared, and how.

mod answer;
mod issuer;
mod play;
mod stage;

pub use issuer::Issuer;
pub use stage::{RecordedSetup, prepare};

use crate::facts;
use serde_json::Value;

/// The recording, in the order of its file.
pub struct Recording {
    /// The options that all setups have in common.
    base: Vec<String>,
    setups: Value,
    scenarios: Vec<Value>,
}

impl Recording {
    pub fn open() -> Recording {
        let mut lines = facts::lines::<Value>("admission").into_iter();
        let head = lines.next().expect("the set-ups");
        let base = texts(&head["base"]).map(str::to_owned).collect();
        Recording { base, setups: head["setups"].clone(), scenarios: lines.collect() }
    }

    /// The names of the setups.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.setups.as_object().expect("set-ups").keys().map(String::as_str)
    }

    pub fn scenarios<'a>(&'a self, setup: &'a str) -> impl Iterator<Item = &'a Value> {
        self.scenarios.iter().filter(move |scenario| scenario["setup"] == setup)
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn texts(value: &Value) -> impl Iterator<Item = &str> {
    list(value).filter_map(Value::as_str)
}

fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// Replaces names in a text by their values.
fn filled(text: &str, names: &[(String, String)]) -> String {
    names.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name.as_str(), value))
}
