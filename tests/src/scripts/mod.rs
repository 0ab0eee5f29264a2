//! Plays scripts of requests against a server, and compares the answers with Kubernetes' answers.
//!
//! Values that differ from run to run are masked on both sides: `$RV` for versions, `$UUID`, `$TIME`, `$GEN` for
//! generated suffixes, `$IP`, `$PORT`, `$TOKEN`, `$CONTINUE`, `$AGE`, `$HOST`. The syntax of scripts is described at
//! [`ExpectedCall`].

mod client;
mod compare;
mod mask;
mod play;

pub use client::{Received, ScriptClient, Sent};
pub use compare::{Agreement, compare};
pub use play::play;

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Deserialize)]
pub struct Script {
    pub name: String,
    pub requests: Vec<ExpectedCall>,
    pub answers: Vec<Value>,
    /// The first release of Kubernetes that gives these answers, if it is newer than the release that Holdfast follows.
    pub since: Option<String>,
}

/// One request. In its path and body `$U` stands for a word that only this script has, `$NS` for an existing namespace,
/// `$O1.$O2` for two octets that only this script uses, and `$RVn`, `$UIDn`, `$NAMEn` and `$CONTn` for values of the
/// n-th answer.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExpectedCall {
    pub method: String,
    pub path: String,
    /// More headers; `null` removes a default header.
    #[serde(default)]
    pub headers: BTreeMap<String, Option<String>>,
    pub body: Option<String>,
    /// Sends the body of the n-th answer.
    pub body_from: Option<usize>,
    /// The number of events of a watch that are read.
    pub events: Option<usize>,
    /// JSON pointers to the compared parts of the answer.
    pub pick: Option<Vec<String>>,
    /// Whether only the names of a list's items are compared.
    #[serde(default)]
    pub names: bool,
}

/// When a script is played.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The script reads shared objects, before other scripts change them.
    First,
    Among,
    /// The script changes shared objects, after all other scripts have read them.
    Last,
}

impl Script {
    pub fn phase(&self) -> Phase {
        let mut paths = self.requests.iter().map(|asked| asked.path.as_str());
        if paths.clone().any(|path| path.contains("/servicecidrs")) {
            Phase::Last
        } else if paths.any(|path| matches!(path, "/" | "/apis" | "/apis/" | "/openapi/v3")) {
            Phase::First
        } else {
            Phase::Among
        }
    }

    fn says(&self, word: &str) -> bool {
        let said = |asked: &ExpectedCall| {
            asked.path.contains(word)
                || asked.body.as_ref().is_some_and(|body| body.contains(word))
                || asked.headers.values().flatten().any(|value| value.contains(word))
        };
        self.requests.iter().any(said)
    }
}
