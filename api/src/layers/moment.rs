//! Past or present: determines the state that a call is about and its kind in that state, and how far into the past the
//! user may look.
//!
//! A call that is not about a resource ends here: it is granted, and the transport answers it.

use super::{Layer, Next, Outcome, Passage, at_once, refused};
use crate::lookup::Found;
use crate::namespace_starts::NamespaceStarts;
use crate::scene::Scene;
use crate::{CallSubject, Granted, Reply, RequestId, ResourceRequest, Service};
use futures_util::future::BoxFuture;
use holdfast_core::Refusal;
use holdfast_core::request::Request;
use holdfast_engine::Reader;
use std::sync::Arc;

#[derive(Default)]
pub struct PastOrPresent {
    starts: Arc<NamespaceStarts>,
}

impl Layer for PastOrPresent {
    fn call<'a>(&'a self, passage: &'a mut Passage, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        let service = next.service();
        // A call about the present need not wait here.
        let present = match &passage.asked {
            CallSubject::Named(named) => passage.at.is_none() && named.at.as_deref().is_none_or(str::is_empty),
            CallSubject::Found(_) => true,
            CallSubject::Elsewhere { .. } | CallSubject::Path { .. } | CallSubject::Everything { .. } => {
                passage.at.is_none()
            }
        };
        if !present {
            return Box::pin(async move {
                let moment = passage.at.take();
                let reader = Reader::of(&passage.user);
                let scene = Scene::of(next.service().engine(), moment.as_deref(), &reader).await?;
                match passage.take_asked() {
                    CallSubject::Named(named) => self.find(next.service(), passage, *named, scene).await?,
                    _ => return granted(passage, scene),
                }
                next.call(passage).await
            });
        }
        let scene = Scene::Present(service.engine().snapshot());
        let found = match passage.take_asked() {
            CallSubject::Named(named) => self.enter(passage, *named, scene),
            CallSubject::Found(request) => self.go_on(passage, *request, scene),
            CallSubject::Elsewhere { .. } | CallSubject::Path { .. } | CallSubject::Everything { .. } => {
                return at_once(granted(passage, scene));
            }
        };
        match found {
            Ok(found) => {
                passage.found = Some(Box::new(found));
                next.call(passage)
            }
            Err(refusal) => refused(refusal),
        }
    }
}

/// Grants a call that the transport answers itself.
fn granted(passage: &mut Passage, scene: Scene) -> Outcome {
    let granted = Granted { user: passage.user.clone(), scene };
    passage.flaw.take().map_or(Ok(Reply::Granted(granted)), Err)
}

impl PastOrPresent {
    /// Finds the past state that the call is about, if this user may look that far into the past.
    async fn find(
        &self,
        service: &Arc<Service>,
        passage: &mut Passage,
        mut named: ResourceRequest,
        scene: Scene,
    ) -> Result<(), Refusal> {
        let at = named.at.take();
        let (verb, options) = (named.verb, named.options.clone());
        let mut found = self.enter(passage, named, scene)?;
        let reader = Reader::of(&passage.user);
        let engine = service.engine().of(found.request.target.kind);
        if !Arc::ptr_eq(engine, service.engine()) {
            found.scene = found.scene.in_part(service.engine(), engine, &reader).await?;
        }
        found.scene = found.scene.named(engine, &reader, at.as_deref(), verb, &options).await?;
        if let Some(view) = found.scene.past() {
            found.visible(service, view.offset()).await?;
        }
        passage.found = Some(Box::new(found));
        Ok(())
    }

    /// Finds the kind that a path names, and makes the request.
    fn enter(&self, passage: &mut Passage, named: ResourceRequest, scene: Scene) -> Result<Found, Refusal> {
        let (kind, target) = Found::kind(scene.state(), &named.path, named.verb)?;
        // The warning about a deprecated version is sent even if the call is refused.
        passage.warnings.extend(scene.state().registry.warning(&kind, target.version));
        if let Some(flaw) = passage.flaw.take() {
            return Err(flaw);
        }
        let request = Found::request(named, target, passage.user.clone(), passage.id.as_ref());
        Ok(Found { scene, kind, request, starts: self.starts.clone() })
    }

    /// Makes the request whose kind is already found, if the kind is still served.
    fn go_on(&self, passage: &Passage, mut request: Request, scene: Scene) -> Result<Found, Refusal> {
        let state = scene.state();
        if !state.registry.serves(request.target.kind) {
            return Err(Refusal::NoSuchPath);
        }
        // The request acts as the user that was authorized, and has the id that the service made.
        request.user = passage.user.clone();
        request.id = passage.id.as_ref().map(RequestId::as_str).unwrap_or_default().to_owned();
        let kind = state.registry.share(request.target.kind);
        Ok(Found { scene, kind, request, starts: self.starts.clone() })
    }
}
