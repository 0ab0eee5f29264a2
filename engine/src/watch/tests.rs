//! Tests watches of kinds that are redefined while a watch begins, and the memory of a watch that does not read.

use super::*;
use crate::engine::{Clock, Options};
use crate::memory::MemoryLog;
use holdfast_core::kinds::registry;
use holdfast_core::request::{Body, Format, Request, Target, Verb};
use holdfast_core::select::{FieldSelector, LabelSelector};
use holdfast_core::stamp::Stamp;
use holdfast_value::{Value, json};

struct Noon;

impl Clock for Noon {
    fn stamp(&self) -> Stamp {
        Stamp { time: jiff::Timestamp::UNIX_EPOCH, seed: 1 }
    }
}

/// The definition of a kind `Thing` with one field, which has this name.
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
    let kind = document["kind"].as_str().expect("a kind");
    let (group, version) = document["apiVersion"].as_str().and_then(|text| text.split_once('/')).unwrap_or(("", "v1"));
    let (kind, version) = engine.snapshot().registry.find_kind(group, version, kind).expect("a built-in kind");
    let name = (verb != Verb::Create).then(|| "things.example.com".to_owned());
    let format = if verb == Verb::Patch { Format::MergePatch } else { Format::Json };
    let request = Request {
        user: Default::default(),
        verb,
        target: Target { kind, version, namespace: None, name, subresource: None },
        options: Default::default(),
        body: Body { content: document.to_string().into(), format },
        id: String::new(),
    };
    if let Err(refusal) = engine.mutate(&request).await {
        panic!("{refusal:?}");
    }
}

fn open() -> Arc<Engine> {
    let options = Options::new(Default::default(), Arc::new(Noon));
    Engine::open(Arc::new(MemoryLog::default()), Arc::new(registry().clone()), options).expect("an engine")
}

fn select(kind: KindId, version: usize, key: Option<&str>) -> Selection {
    let (labels, fields) = (LabelSelector::default(), FieldSelector::default());
    Selection { kind, version, prefix: String::new(), key: key.map(str::to_owned), labels, fields }
}

#[tokio::test]
async fn the_first_events_are_made_when_they_are_read() {
    const COUNT: usize = 3 * BEGINNING_EVENTS_MAX;
    let engine = open();
    let names: Vec<String> = (0..COUNT).map(|number| format!("n{number:03}")).collect();
    for name in &names {
        write(&engine, Verb::Create, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
            .await;
    }
    let (kind, version) = engine.snapshot().registry.find("", "v1", "namespaces").expect("a built-in kind");
    let mut watch = Watch::new(engine.clone(), select(kind, version, None), WatchStart::Now);
    let late = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a-late-one"}});
    write(&engine, Verb::Create, late).await;
    let mut seen = Vec::new();
    while seen.len() < COUNT {
        assert!(watch.pending.len() <= BEGINNING_EVENTS_MAX);
        assert_eq!(watch.initial_events_ended(), None);
        let delivery = watch.next_ready().expect("no fault").expect("an event");
        // An event that was put back must be returned again.
        watch.put_back(delivery);
        seen.extend(watch.next_ready().expect("no fault").map(|delivery| delivery.event.change.key.to_string()));
    }
    assert_eq!(seen, names);
    assert!(watch.initial_events_ended().is_some());
    assert_eq!(&*watch.next().await.expect("no fault").event.change.key, "a-late-one");

    let mut watch = Watch::new(engine.clone(), select(kind, version, Some("n100")), WatchStart::Now);
    assert_eq!(&*watch.next_ready().expect("no fault").expect("an event").event.change.key, "n100");
    assert!(watch.next_ready().expect("no fault").is_none() && watch.initial_events_ended().is_some());
    drop(watch);
    engine.close();
}

#[tokio::test]
async fn a_kind_that_was_redefined_before_the_watch_joined_ends_it() {
    let engine = open();
    write(&engine, Verb::Create, definition("one")).await;
    let before = engine.snapshot();
    let (kind, version) = before.registry.find("example.com", "v1", "things").expect("the kind that was defined");
    write(&engine, Verb::Patch, definition("other")).await;

    let selection = select(kind, version, None);
    let newest = engine.snapshot().offset;
    for start in [WatchStart::Now, WatchStart::After(newest)] {
        // The kind is redefined before the first watch is made. For the second watch it is redefined between the lookup
        // of the kind and the join.
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
