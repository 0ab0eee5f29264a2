//! Past or present: the state that a call is about, the kind in it, and how far back this user may look.
//!
//! What is no resource goes no further: the transport answers it, and learns here that it may.

use super::namespace_start::NamespaceStarts;
use super::{Layer, Next, Outcome, Passage};
use crate::lookup::Found;
use crate::scene::Scene;
use crate::{Asked, Granted, Named, Reply, RequestId, Service};
use futures_util::future::BoxFuture;
use holdfast_core::Refusal;
use std::sync::Arc;

#[derive(Default)]
pub struct PastOrPresent {
    starts: Arc<NamespaceStarts>,
}

impl Layer for PastOrPresent {
    fn call<'a>(&'a self, passage: &'a mut Passage, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let service = next.service();
            let at = passage.at.take();
            match std::mem::replace(&mut passage.asked, Asked::Path { verb: "", path: String::new() }) {
                Asked::Named(named) => self.find(service, passage, *named, at.as_deref()).await?,
                Asked::Found(mut request) => {
                    let state = service.engine().snapshot();
                    if !state.registry.serves(request.target.kind) {
                        return Err(Refusal::NoSuchPath);
                    }
                    // Whoever was judged is who acts, and under the name that the door knows.
                    request.user = passage.user.clone();
                    request.id = passage.id.as_ref().map(RequestId::as_str).unwrap_or_default().to_owned();
                    let kind = state.registry.share(request.target.kind);
                    let (scene, starts) = (Scene::Present(state), self.starts.clone());
                    passage.found = Some(Found { scene, kind, request: *request, starts });
                }
                Asked::Elsewhere { .. } | Asked::Path { .. } | Asked::Everything { .. } => {
                    let scene = Scene::of(service.engine(), at.as_deref()).await?;
                    let granted = Granted { user: passage.user.clone(), scene };
                    return passage.flaw.take().map_or(Ok(Reply::Granted(granted)), Err);
                }
            }
            next.call(passage).await
        })
    }
}

impl PastOrPresent {
    async fn find(
        &self,
        service: &Arc<Service>,
        passage: &mut Passage,
        named: Named,
        at: Option<&str>,
    ) -> Result<(), Refusal> {
        let scene = Scene::of(service.engine(), at).await?;
        let (kind, target) = Found::kind(scene.state(), &named.path, named.verb)?;
        // Who uses an old version is told in any case.
        passage.warnings.extend(scene.state().registry.warning(&kind, target.version));
        if let Some(flaw) = passage.flaw.take() {
            return Err(flaw);
        }
        let scene = scene.named(service.engine(), named.at.as_deref(), named.verb, &named.options).await?;
        let request = Found::request(named, target, passage);
        let found = Found { scene, kind, request, starts: self.starts.clone() };
        if let Some(view) = found.scene.past() {
            found.visible(service, view.offset()).await?;
        }
        passage.found = Some(found);
        Ok(())
    }
}
