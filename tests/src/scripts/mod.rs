//! Scripts of requests with the answers that Kubernetes gave, played against a server and compared.
//!
//! What differs from run to run is masked on both sides: `$RV` for versions, `$UUID`, `$TIME`, `$GEN` for generated
//! suffixes, `$IP`, `$PORT`, `$TOKEN`, `$CONTINUE`, `$AGE`, `$HOST`. What a script may say is told at [`Asked`].

mod client;
mod compare;
mod mask;
mod play;

pub use client::{Client, Received, Sent};
pub use compare::{Agreement, Counts, compare};
pub use play::play;

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Deserialize)]
pub struct Script {
    pub name: String,
    pub requests: Vec<Asked>,
    pub answers: Vec<Value>,
    /// The first Kubernetes that answers so, where it is newer than the one that Holdfast follows.
    pub since: Option<String>,
}

/// One request. In its path and body `$U` is a word of the script's own, `$NS` a namespace that exists, `$O1.$O2` two
/// octets of its own; `$RVn`, `$UIDn`, `$NAMEn` and `$CONTn` come from the n-th answer.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Asked {
    pub method: String,
    pub path: String,
    /// More headers; `null` takes away one that is sent otherwise.
    #[serde(default)]
    pub headers: BTreeMap<String, Option<String>>,
    pub body: Option<String>,
    /// Sends the bytes of the n-th answer.
    pub body_from: Option<usize>,
    /// How many events of a watch to read.
    pub events: Option<usize>,
    /// JSON pointers to all that is compared of the answer.
    pub pick: Option<Vec<String>>,
    /// Only the names of a list's items are compared.
    #[serde(default)]
    pub names: bool,
}

/// Where a script stands among the others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It looks at what all share, before others change that.
    First,
    Among,
    /// It changes what all share.
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
        let said = |asked: &Asked| {
            asked.path.contains(word)
                || asked.body.as_ref().is_some_and(|body| body.contains(word))
                || asked.headers.values().flatten().any(|value| value.contains(word))
        };
        self.requests.iter().any(said)
    }
}
