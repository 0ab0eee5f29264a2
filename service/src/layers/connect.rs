//! Ways to a node: admission looks at them before anybody finds out whether they lead anywhere.

use super::{Layer, Next, Outcome, Passage};
use crate::lookup::Found;
use futures_util::future::BoxFuture;
use holdfast_core::admission::Told;
use holdfast_core::kinds::leads_to_node;

pub struct Connect;

impl Layer for Connect {
    fn call<'a>(&'a self, passage: &'a mut Passage, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        if !passage.found.as_deref().is_some_and(is_way) {
            return next.call(passage);
        }
        Box::pin(async move {
            let engine = next.service().engine();
            if let Some(found) = passage.found.take() {
                let mut told = Told::default();
                let state = found.admitting(engine).await?;
                let admitted = engine.admit(&state, &found.request, &mut told).await;
                passage.found = Some(found);
                passage.tell(told);
                admitted?;
            }
            next.call(passage).await
        })
    }
}

/// Whether the kind has this way, and takes it by this verb.
fn is_way(found: &Found) -> bool {
    let target = &found.request.target;
    let Some(name) = target.subresource.as_deref().filter(|name| leads_to_node(name)) else { return false };
    let first = name.split_once('/').map_or(name, |(first, _)| first);
    let served = found.kind.subresource(target.version, first);
    served.is_some_and(|served| served.verbs.contains(&found.request.verb.as_str()))
}
