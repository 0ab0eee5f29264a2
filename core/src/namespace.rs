//! What is left to do for namespaces that are going away: their content first, then they.

use crate::authz::User;
use crate::kinds::KindId;
use crate::object::meta::{self, Document, metadata, object_mut, text};
use crate::request::{Body, Format, Options, Request, Target, Verb};
use crate::stamp::Stamp;
use crate::state::{State, prefix};
use serde_json::{Value, json};
use std::sync::Arc;

/// One request that the server makes in its own name.
#[derive(Debug, Clone)]
pub struct Step {
    pub request: Request,
}

/// In whose name namespaces are emptied: this account in kube-system.
const ACCOUNT: &str = "namespace-controller";
/// The finalizer that every namespace is made with.
const FINALIZER: &str = "kubernetes";
const TERMINATING: &str = "Terminating";
/// How many deletions are planned at a time.
const STEPS_MAX: usize = 512;

/// The next steps; none when every terminating namespace waits for others' finalizers, or none is terminating.
pub fn plan(state: &State, stamp: Stamp) -> Vec<Step> {
    let mut steps = Vec::new();
    let namespaces = state.registry.namespaces();
    let phase = state.kind(namespaces).selectable.iter().position(|field| field.field == "status.phase");
    for (name, entry) in state.scan(namespaces, "", None) {
        // Most are not going away, and need not be read to know it.
        if phase.is_some_and(|phase| &*entry.index.fields[phase] != TERMINATING) {
            continue;
        }
        let Value::Object(namespace) = entry.document() else { continue };
        if meta::is_deleting(&namespace) {
            plan_one(state, stamp, name, &namespace, &mut steps);
        }
        if steps.len() >= STEPS_MAX {
            break;
        }
    }
    steps
}

fn plan_one(state: &State, stamp: Stamp, name: &str, namespace: &Document, steps: &mut Vec<Step>) {
    let content = Content::of(state, name);
    if !content.deletable.is_empty() {
        let deletions = content.deletable.into_iter().take(STEPS_MAX);
        steps.extend(deletions.map(|(kind, object)| Step { request: deletion(kind, name, object) }));
        return;
    }
    if content.remaining.is_empty() {
        let held = namespace.get("spec").and_then(|spec| spec["finalizers"].as_array());
        let held: Vec<&str> = held.into_iter().flatten().filter_map(Value::as_str).collect();
        if held.contains(&FINALIZER) {
            let rest: Vec<&str> = held.into_iter().filter(|finalizer| *finalizer != FINALIZER).collect();
            let mut released = namespace.clone();
            object_mut(&mut released, "spec").insert("finalizers".into(), rest.into());
            steps.push(update(state, name, "finalize", released));
        }
        return;
    }
    let wanted = content.conditions(namespace, stamp);
    let status = namespace.get("status").and_then(|status| status.get("conditions"));
    if status != Some(&wanted) {
        let mut told = namespace.clone();
        object_mut(&mut told, "status").insert("conditions".into(), wanted);
        steps.push(update(state, name, "status", told));
    }
}

/// What a namespace still holds.
struct Content {
    deletable: Vec<(KindId, String)>,
    /// Being deleted, and held back: by kind, how many, and by which finalizers.
    remaining: Vec<(String, usize)>,
    finalizers: std::collections::BTreeMap<String, usize>,
}

impl Content {
    fn of(state: &State, namespace: &str) -> Content {
        let mut content = Content { deletable: Vec::new(), remaining: Vec::new(), finalizers: Default::default() };
        let prefix = prefix(Some(namespace));
        for (id, kind) in state.registry.iter().filter(|(_, kind)| kind.stored && kind.is_namespaced()) {
            let mut held = 0;
            for (key, entry) in state.scan(id, &prefix, None) {
                let Value::Object(document) = entry.document() else { continue };
                if !meta::is_deleting(&document) {
                    let (_, name) = meta::split_key(key);
                    content.deletable.push((id, name.to_owned()));
                    continue;
                }
                held += 1;
                for finalizer in meta::finalizers(&document) {
                    *content.finalizers.entry(finalizer.to_owned()).or_default() += 1;
                }
            }
            if held > 0 {
                content.remaining.push((qualified(&kind.resource, &kind.versions[0].group), held));
            }
        }
        content
    }

    /// The conditions that tell why a namespace does not go.
    fn conditions(&self, namespace: &Document, stamp: Stamp) -> Value {
        let each = |items: Vec<(String, usize)>, verb: &str| {
            items
                .iter()
                .map(|(what, count)| format!("{what} {verb} {count} resource instances"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let content = format!("Some resources are remaining: {}", each(self.remaining.clone(), "has"));
        let finalizers: Vec<_> = self.finalizers.iter().map(|(k, v)| (k.clone(), *v)).collect();
        let finalizing =
            format!("Some content in the namespace has finalizers remaining: {}", each(finalizers.clone(), "in"));
        let wanted = [
            (
                "NamespaceDeletionDiscoveryFailure",
                false,
                "ResourcesDiscovered",
                "All resources successfully discovered".to_owned(),
            ),
            (
                "NamespaceDeletionGroupVersionParsingFailure",
                false,
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed".to_owned(),
            ),
            (
                "NamespaceDeletionContentFailure",
                false,
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization".to_owned(),
            ),
            ("NamespaceContentRemaining", true, "SomeResourcesRemain", content),
            ("NamespaceFinalizersRemaining", !finalizers.is_empty(), "SomeFinalizersRemain", finalizing),
        ];
        let before = namespace.get("status").and_then(|status| status["conditions"].as_array());
        let conditions = wanted.into_iter().map(|(kind, holds, reason, message)| {
            let status = if holds { "True" } else { "False" };
            let same = before.into_iter().flatten().find(|c| c["type"] == kind && c["status"] == status);
            let since = same.and_then(|c| c["lastTransitionTime"].as_str().map(str::to_owned));
            let since = since.unwrap_or_else(|| stamp.rfc3339());
            json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since})
        });
        Value::Array(conditions.collect())
    }
}

fn qualified(resource: &str, group: &str) -> String {
    if group.is_empty() { format!("{resource}.") } else { format!("{resource}.{group}") }
}

fn deletion(kind: KindId, namespace: &str, name: String) -> Request {
    request(kind, Verb::Delete, Some(namespace.to_owned()), name, None, Body::default())
}

fn update(state: &State, name: &str, subresource: &str, document: Document) -> Step {
    debug_assert_eq!(text(metadata(&document), "name"), name);
    let bytes = crate::object::encode::document(&document).into();
    let body = Body { bytes, format: Format::Json };
    let kind = state.registry.namespaces();
    Step { request: request(kind, Verb::Update, None, name.to_owned(), Some(subresource.to_owned()), body) }
}

fn request(
    kind: KindId,
    verb: Verb,
    namespace: Option<String>,
    name: String,
    subresource: Option<String>,
    body: Body,
) -> Request {
    let user = User::service_account("kube-system", ACCOUNT, "");
    let options = Options { field_manager: Some(ACCOUNT.into()), ..Options::default() };
    let target = Target { kind, version: 0, namespace, name: Some(name), subresource };
    Request { user: Arc::new(user), verb, target, options, body, id: ACCOUNT.into() }
}
