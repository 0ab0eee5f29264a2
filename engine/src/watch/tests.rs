//! Watches of kinds that change at the worst moment.

use super::*;
use crate::engine::{Clock, Options};
use crate::memory::MemoryLog;
use holdfast_core::kinds::registry;
use holdfast_core::request::{Body, Format, Request, Target, Verb};
use holdfast_core::select::{FieldSelector, LabelSelector};
use holdfast_core::stamp::Stamp;
use serde_json::{Value, json};

struct Noon;

impl Clock for Noon {
    fn stamp(&self) -> Stamp {
        Stamp { time: jiff::Timestamp::UNIX_EPOCH, seed: 1 }
    }
}

/// The definition of a kind `Thing`, which has a field of this name.
fn definition(field: &str) -> Value {
    let properties = json!({"spec": {"type": "object", "properties": {field: {"type": "string"}}}});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": properties}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    })
}

async fn write(engine: &Arc<Engine>, verb: Verb, document: Value) {
    let (kind, version) = engine
        .snapshot()
        .registry
        .find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        .expect("a built-in kind");
    let name = (verb != Verb::Create).then(|| "things.example.com".to_owned());
    let format = if verb == Verb::Patch { Format::MergePatch } else { Format::Json };
    let request = Request {
        user: Default::default(),
        verb,
        target: Target { kind, version, namespace: None, name, subresource: None },
        options: Default::default(),
        body: Body { bytes: document.to_string().into(), format },
        id: String::new(),
    };
    if let Err(refusal) = engine.mutate(&request).await {
        panic!("{refusal:?}");
    }
}

#[tokio::test]
async fn a_kind_that_was_redefined_before_the_watch_joined_ends_it() {
    let options = Options { settings: Default::default(), clock: Arc::new(Noon) };
    let log = Arc::new(MemoryLog::default());
    let engine = Engine::open(log, Arc::new(registry().clone()), options).expect("an engine");
    write(&engine, Verb::Create, definition("one")).await;
    let before = engine.snapshot();
    let (kind, version) = before.registry.find("example.com", "v1", "things").expect("the kind that was defined");
    write(&engine, Verb::Patch, definition("other")).await;

    let (labels, fields) = (LabelSelector::default(), FieldSelector::default());
    let selection = Selection { kind, version, prefix: String::new(), key: None, labels, fields };
    let newest = engine.snapshot().offset;
    for start in [WatchStart::Now, WatchStart::After(newest)] {
        // Redefined before the watch was asked for, and between its first look at the kind and its joining.
        let late = Watch::new(engine.clone(), selection.clone(), start);
        let racing = Watch::join(engine.clone(), selection.clone(), start, &before);
        for mut watch in [late, racing] {
            let next = watch.next_ready();
            assert!(matches!(next, Err(Fault::Redefined)), "it would wait for ever");
        }
    }
    assert_eq!(engine.hub().watchers(), 0);
    engine.close();
}
