//! The layer of mutations. Only this layer lets the engine write.

use super::stages::Resolved;
use super::{Layer, Next, Outcome, RequestContext, unread, unread_deletion};
use crate::lookup::Found;
use crate::reply::{Draft, Listed, Shown};
use crate::scene::Scene;
use crate::{Reply, Service};
use futures_util::future::BoxFuture;
use holdfast_core::Refusal;
use holdfast_core::admission::Told;
use holdfast_core::kinds::{Deprecation, known};
use holdfast_core::list::Selection;
use holdfast_core::object::meta;
use holdfast_core::pipeline::{Representation, decode_body, delete_warning, validate_options_of_many};
use holdfast_core::request::Verb;
use holdfast_core::stamp::Stamp;
use holdfast_engine::{Collection, Reader, Reply as Written};
use std::convert::Infallible;
use std::sync::Arc;

pub struct Mutations;

impl Layer for Mutations {
    type Takes = Resolved;
    type Gives = Infallible;

    fn call<'a>(
        &'a self,
        context: &'a mut RequestContext,
        mut found: Resolved,
        next: Next<'a, Infallible>,
    ) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let service = next.service();
            if unread_deletion::is_asked_for(service.engine(), &mut found.request) {
                let written = unread_deletion::carry_out(service, &found, context).await?;
                return Ok(shown(service, written).await?.0);
            }
            if found.request.verb == Verb::DeleteCollection {
                let Found { kind, request, .. } = &*found;
                let version = &kind.versions[request.target.version];
                context.warnings.extend(delete_warning(kind, version, &request.options.delete));
                return delete_collection(service, &found).await;
            }
            let mut told = Told::default();
            let written = carry_out(service, *found, &mut told).await;
            context.tell(told);
            let (reply, warnings) = shown(service, written?).await?;
            context.warnings.extend(warnings);
            Ok(reply)
        })
    }
}

async fn carry_out(service: &Arc<Service>, mut found: Found, told: &mut Told) -> Result<Written, Refusal> {
    if !found.kind.stored {
        let engine = service.engine();
        let (user, bytes) = (found.request.user.name.clone(), found.request.body.content.len());
        found = engine.by_size(&user, bytes, || bind(found, engine.stamp())).await?;
    }
    let engine = service.engine().of(found.request.target.kind);
    found.subresource().await?;
    let Found { scene, request, .. } = &found;
    if let Scene::Past(_) = scene {
        // A dry run is allowed in a view of the past, if all objects that it depends on are in one log.
        if !request.options.dry_run || !Arc::ptr_eq(engine, service.engine()) {
            scene.writable(engine)?;
        }
        let state = scene.whole(engine, &Reader::of(&request.user)).await?;
        return engine.rehearse(&state, request, told).await;
    }
    unread::write(engine, &found.kind, request)?;
    engine.mutate_telling(request, told).await
}

/// Deletes the objects that the options select, and replies with the deleted objects.
async fn delete_collection(service: &Arc<Service>, found: &Found) -> Outcome {
    let engine = service.engine().of(found.request.target.kind);
    let Found { scene, request, .. } = found;
    found.subresource().await?;
    if let Scene::Past(_) = scene {
        scene.writable(engine)?;
    }
    let state = scene.state();
    validate_options_of_many(&request.options.delete, request.options.dry_run)?;
    let selection = Selection::new(state, request)?;
    unread::selection(engine, state.kind(request.target.kind), &selection, None, |_| true)?;
    let Collection { kind, version, page } = engine.delete_collection(request).await?;
    if kind.versions[version].deprecation.is_some_and(Deprecation::is_over) {
        return Ok(Reply::Success { created: false });
    }
    engine.prepare(&kind, version, &page.entries).await?;
    let continue_token = page.next.as_ref().map(|next| next.seal(engine.token_key())).unwrap_or_default();
    let namespace = request.namespace().unwrap_or("").to_owned();
    Ok(Reply::List(Listed { kind, version, page, continue_token, namespace, charge: None }))
}

/// Turns a Binding into a write of the pod that its body names.
fn bind(found: Found, stamp: Stamp) -> Result<Found, Refusal> {
    let Found { scene, mut request, starts, .. } = found;
    let registry = &scene.state().registry;
    let binding = decode_body(scene.state(), &request, stamp)?;
    let (pods, version) = registry.known(known::POD).ok_or(Refusal::NoSuchPath)?;
    request.target.kind = pods;
    request.target.version = version;
    request.target.name = Some(meta::name(&binding).to_owned());
    request.target.subresource = Some("binding".into());
    let kind = registry.share(pods);
    Ok(Found { scene, kind, request, starts })
}

/// The result of a mutation, in the requested version of its kind.
async fn shown(service: &Arc<Service>, written: Written) -> Result<(Reply, Vec<String>), Refusal> {
    Ok(match written {
        Written::Object { entry, kind, version, created, representation, warnings } => {
            service.prepare(&kind, version, &entry).await?;
            let reply = match representation {
                Representation::Object => Reply::Object(Shown { kind, version, entry, created }),
                Representation::Scale => {
                    Reply::Document { document: super::reads::scale(&kind, version, &entry)?, created }
                }
            };
            (reply, warnings)
        }
        Written::Rehearsed { document, kind, version, created, warnings } => {
            let hub = document.clone();
            let document = service.engine().prepare_document(&kind, version, document).await?;
            (Reply::Draft(Box::new(Draft { kind, version, hub, document, created })), warnings)
        }
        Written::Document { document, warnings } => (Reply::Document { document, created: true }, warnings),
        Written::Success { warnings } => (Reply::Success { created: true }, warnings),
        Written::Deleted { subject, uid, warnings } => (Reply::Deleted { subject, uid }, warnings),
    })
}
