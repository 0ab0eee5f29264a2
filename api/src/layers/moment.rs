//! Determines the state (past or present) that a call is about, the call's kind in that state, and how far into the
//! past the user may look.
//!
//! A call that is not about a resource ends here: it is granted, and the transport answers it.

use super::stages::{Authorized, CallParts, Resolved};
use super::{Layer, Next, Outcome, RequestContext, at_once, refused};
use crate::lookup::Found;
use crate::namespace_starts::NamespaceStarts;
use crate::scene::Scene;
use crate::{CallSubject, Granted, Reply, RequestId, ResourceRequest, Service};
use futures_util::future::BoxFuture;
use holdfast_core::Refusal;
use holdfast_core::authz::User;
use holdfast_core::request::Request;
use holdfast_engine::Reader;
use std::sync::Arc;

#[derive(Default)]
pub struct PastOrPresent {
    starts: Arc<NamespaceStarts>,
}

impl Layer for PastOrPresent {
    type Takes = Authorized;
    type Gives = Resolved;

    fn call<'a>(
        &'a self,
        context: &'a mut RequestContext,
        Authorized { parts }: Authorized,
        next: Next<'a, Resolved>,
    ) -> BoxFuture<'a, Outcome> {
        let CallParts { user, at, subject, flaw } = *parts;
        let service = next.service();
        // A call about the present needs no read of the log, so this layer does not wait.
        let present = match &subject {
            CallSubject::Named(named) => at.is_none() && named.at.as_deref().is_none_or(str::is_empty),
            CallSubject::Found(_) => true,
            CallSubject::Elsewhere { .. } | CallSubject::Path { .. } | CallSubject::Everything { .. } => at.is_none(),
        };
        let lookup = Lookup { starts: &self.starts, user, flaw };
        if !present {
            return Box::pin(async move {
                let reader = Reader::of(&lookup.user);
                let scene = Scene::of(service.engine(), at.as_deref(), &reader).await?;
                match subject {
                    CallSubject::Named(named) => {
                        let found = lookup.of_past(service, context, *named, scene).await?;
                        next.call(context, Box::new(found)).await
                    }
                    _ => lookup.granted(scene),
                }
            });
        }
        let scene = Scene::Present(service.engine().snapshot());
        let found = match subject {
            CallSubject::Named(named) => lookup.of_path(context, *named, scene),
            CallSubject::Found(request) => lookup.of_found(&context.id, *request, scene),
            CallSubject::Elsewhere { .. } | CallSubject::Path { .. } | CallSubject::Everything { .. } => {
                return at_once(lookup.granted(scene));
            }
        };
        match found {
            Ok(found) => next.call(context, Box::new(found)),
            Err(refusal) => refused(refusal),
        }
    }
}

/// Finds the kind and the state of one call.
struct Lookup<'a> {
    starts: &'a Arc<NamespaceStarts>,
    user: Arc<User>,
    flaw: Option<Refusal>,
}

impl Lookup<'_> {
    /// Grants a call that the transport answers itself.
    fn granted(self, scene: Scene) -> Outcome {
        let Lookup { user, flaw, .. } = self;
        flaw.map_or(Ok(Reply::Granted(Granted { user, scene })), Err)
    }

    /// Finds the past state that the call is about, if this user may look that far into the past.
    async fn of_past(
        self,
        service: &Arc<Service>,
        context: &mut RequestContext,
        mut named: ResourceRequest,
        scene: Scene,
    ) -> Result<Found, Refusal> {
        let at = named.at.take();
        let (verb, options) = (named.verb, named.options.clone());
        let reader = Reader::of(&self.user);
        let mut found = self.of_path(context, named, scene)?;
        let engine = service.engine().of(found.request.target.kind);
        if !Arc::ptr_eq(engine, service.engine()) {
            found.scene = found.scene.in_part(service.engine(), engine, &reader).await?;
        }
        found.scene = found.scene.named(engine, &reader, at.as_deref(), verb, &options).await?;
        if let Some(view) = found.scene.past() {
            found.visible(service, view.offset()).await?;
        }
        Ok(found)
    }

    /// Finds the kind that a path names, and makes the request.
    fn of_path(self, context: &mut RequestContext, named: ResourceRequest, scene: Scene) -> Result<Found, Refusal> {
        let (kind, target) = Found::kind(scene.state(), &named.path, named.verb)?;
        // The warning about a deprecated version is sent even if the call is refused.
        context.warnings.extend(scene.state().registry.warning(&kind, target.version));
        if let Some(flaw) = self.flaw {
            return Err(flaw);
        }
        let request = Found::request(named, target, self.user, &context.id);
        Ok(Found { scene, kind, request, starts: self.starts.clone() })
    }

    /// Makes the request whose kind is already found, if the kind is still served.
    fn of_found(self, id: &RequestId, mut request: Request, scene: Scene) -> Result<Found, Refusal> {
        let state = scene.state();
        if !state.registry.serves(request.target.kind) {
            return Err(Refusal::NoSuchPath);
        }
        // The request acts as the user that was authorized, and has the id that the service made.
        request.user = self.user;
        id.as_str().clone_into(&mut request.id);
        let kind = state.registry.share(request.target.kind);
        Ok(Found { scene, kind, request, starts: self.starts.clone() })
    }
}
