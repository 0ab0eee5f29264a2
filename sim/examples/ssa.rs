use holdfast_core::{authz::User, decide::{Settings}, kinds::registry, request::*, stamp::Stamp};
use holdfast_engine::{memory::MemoryLog, *};
use std::{sync::Arc, task::*, pin::pin, future::Future};
struct C; impl Clock for C { fn stamp(&self) -> Stamp { Stamp { time: jiff::Timestamp::UNIX_EPOCH, seed: 1 } } }
fn main() {
    let (engine, mut writer, queue) = Engine::assemble(Arc::new(MemoryLog::default()), Arc::new(registry().clone()), holdfast_engine::Options { settings: Settings::default(), clock: Arc::new(C) }, Hub::default()).unwrap();
    let mut go = |group: &str, version: &str, resource: &str, ns: Option<&str>, name: Option<&str>, verb, format, body: &str| {
        let state = engine.snapshot();
        let (kind, version) = state.registry.find(group, version, resource).unwrap();
        let options = holdfast_core::request::Options { field_manager: Some("operator".into()), ..Default::default() };
        let request = Request { user: Arc::new(User::new("x", &[])), verb, target: Target { kind, version, namespace: ns.map(Into::into), name: name.map(Into::into), subresource: None }, options, body: Body { bytes: body.to_owned().into(), format }, id: "x".into() };
        let mut f = pin!(engine.mutate(&request));
        let mut cx = Context::from_waker(Waker::noop());
        let mut p = f.as_mut().poll(&mut cx);
        while p.is_pending() { let mut b: Vec<_> = queue.try_iter().filter_map(|i| match i { writer::Input::Commit(c) => Some(c), _ => None }).collect(); writer.commit(&mut b); p = f.as_mut().poll(&mut cx); }
        match p { Poll::Ready(Ok(Reply::Object { entry, .. })) => println!("ok {}", String::from_utf8_lossy(&entry.json)), Poll::Ready(Err(e)) => println!("ERR {e:?}"), _ => println!("other") }
    };
    go("", "v1", "namespaces", None, None, Verb::Create, Format::Json, r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n"}}"#);
    for versions in [r#"[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}}}}}}}]"#] {
        go("apiextensions.k8s.io", "v1", "customresourcedefinitions", None, None, Verb::Create, Format::Json, &format!(r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{{"name":"widgets.sim.dev"}},"spec":{{"group":"sim.dev","scope":"Namespaced","names":{{"plural":"widgets","singular":"widget","kind":"Widget","listKind":"WidgetList"}},"versions":{versions}}}}}"#));
    }
    println!("--- configmap");
    go("", "v1", "configmaps", Some("n"), Some("a"), Verb::Patch, Format::ApplyPatch, r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"n","labels":{"app":"red"}},"data":{"x":"1"}}"#);
    go("", "v1", "configmaps", Some("n"), Some("a"), Verb::Patch, Format::ApplyPatch, r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"n"},"data":{"y":"1"}}"#);
    println!("--- widget");
    go("sim.dev", "v1", "widgets", Some("n"), Some("a"), Verb::Patch, Format::ApplyPatch, r#"{"apiVersion":"sim.dev/v1","kind":"Widget","metadata":{"name":"a","namespace":"n","labels":{"app":"red"}},"spec":{"a":"1"}}"#);
    go("sim.dev", "v1", "widgets", Some("n"), Some("a"), Verb::Patch, Format::ApplyPatch, r#"{"apiVersion":"sim.dev/v1","kind":"Widget","metadata":{"name":"a","namespace":"n"},"spec":{"b":1}}"#);
    println!("--- widget 2");
    go("sim.dev", "v1", "widgets", Some("n"), Some("c"), Verb::Patch, Format::ApplyPatch, r#"{"apiVersion":"sim.dev/v1","kind":"Widget","metadata":{"name":"c","namespace":"n","labels":{"app":"red"}},"spec":{"a":"1","b":1}}"#);
    go("sim.dev", "v1", "widgets", Some("n"), Some("c"), Verb::Patch, Format::ApplyPatch, r#"{"apiVersion":"sim.dev/v1","kind":"Widget","metadata":{"name":"c","namespace":"n"},"spec":{"a":"1"}}"#);
}
