//! Mutations: the one place from which the engine is asked to write.

use super::{Layer, Next, Outcome, Passage, refused, token_request};
use crate::lookup::{Found, retarget};
use crate::reply::Shown;
use crate::scene::Scene;
use crate::{Reply, Service};
use futures_util::future::BoxFuture;
use holdfast_core::Refusal;
use holdfast_core::kinds::Kind;
use holdfast_core::object::meta;
use holdfast_core::pipeline::{View, decode_body};
use holdfast_core::request::{Request, Verb};
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;

/// How often a request is carried out again because its kind was redefined meanwhile.
const REDEFINITIONS_MAX: usize = 8;

pub struct Mutations;

impl Layer for Mutations {
    fn call<'a>(&'a self, passage: &'a mut Passage, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        let Some(found) = passage.found.take() else { return refused(Refusal::NoSuchPath) };
        Box::pin(async move {
            let (reply, warnings) = carry_out(next.service(), found).await?;
            passage.warnings.extend(warnings);
            Ok(reply)
        })
    }
}

type Done = Result<(Reply, Vec<String>), Refusal>;

async fn carry_out(service: &Arc<Service>, mut found: Found) -> Done {
    let engine = service.engine();
    if !found.kind.stored {
        found = bind(found)?;
    }
    let subresource = found.subresource()?;
    if subresource == "token" {
        found.scene.writable(engine)?;
        return Ok((token_request::answer(service, &found.request)?, Vec::new()));
    }
    if found.request.verb == Verb::DeleteCollection {
        found.scene.writable(engine)?;
        engine.delete_collection(&found.request).await?;
        return Ok((Reply::Success, Vec::new()));
    }
    let Found { scene, kind, request, .. } = &found;
    if let Scene::Past(_) = scene {
        // What is only tried out may be tried out in the past.
        if !request.options.dry_run {
            scene.writable(engine)?;
        }
        let reply = engine.rehearse(&*scene.whole(engine)?, request).await?;
        return shown(service, kind, request.target.version, reply).await;
    }
    mutate(service, kind, request).await
}

/// A Binding names its pod in its body.
fn bind(found: Found) -> Result<Found, Refusal> {
    let Found { scene, mut request, starts, .. } = found;
    let registry = &scene.state().registry;
    let binding = decode_body(scene.state(), &request)?;
    let (pods, version) = registry.find("", "v1", "pods").ok_or(Refusal::NoSuchPath)?;
    request.target.kind = pods;
    request.target.version = version;
    request.target.name = Some(meta::name(&binding).to_owned());
    request.target.subresource = Some("binding".into());
    let kind = registry.share(pods);
    Ok(Found { scene, kind, request, starts })
}

async fn mutate(service: &Arc<Service>, kind: &Arc<Kind>, request: &Request) -> Done {
    let engine = service.engine();
    let mut found = engine.snapshot();
    let mut request = Cow::Borrowed(request);
    for _ in 0..REDEFINITIONS_MAX {
        if !found.registry.serves(request.target.kind) {
            request = Cow::Owned(retarget(&found, kind, &request)?.into_owned());
        }
        match engine.mutate(&request).await {
            Err(Refusal::Redefined) => found = engine.snapshot(),
            reply => {
                let kind = found.registry.share(request.target.kind);
                return shown(service, &kind, request.target.version, reply?).await;
            }
        }
    }
    Err(Refusal::Redefined)
}

/// What a mutation came to, in the version that was asked for.
async fn shown(service: &Arc<Service>, kind: &Arc<Kind>, version: usize, reply: holdfast_engine::Reply) -> Done {
    use holdfast_engine::Reply as Done;
    Ok(match reply {
        Done::Object { entry, code, view, warnings } => {
            service.prepare(kind, version, &entry).await?;
            let created = code == 201;
            let reply = match view {
                View::Object => Reply::Object(Shown { kind: kind.clone(), version, entry, created }),
                View::Scale => Reply::Document { document: super::reads::scale(kind, version, &entry)?, created },
            };
            (reply, warnings)
        }
        Done::Document { mut document, code, warnings } => {
            if document.get("kind").and_then(Value::as_str) == Some(&kind.kind) {
                document = service.engine().prepare_document(kind, version, document).await?;
            }
            (Reply::Document { document, created: code == 201 }, warnings)
        }
        Done::Deleted { subject, uid, warnings } => (Reply::Deleted { subject, uid }, warnings),
    })
}
