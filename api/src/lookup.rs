//! Finds the kind for the path of a resource, and checks whether the kind has the verb.

use crate::namespace_starts::NamespaceStarts;
use crate::scene::Scene;
use crate::{RequestId, ResourcePath, ResourceRequest};
use holdfast_core::Refusal;
use holdfast_core::authz::User;
use holdfast_core::kinds::Kind;
use holdfast_core::refusal::{BadRequest, Cause, MethodNotAllowed, Subject};
use holdfast_core::request::{Request, Target, Verb};
use holdfast_core::state::State;
use holdfast_engine::planted::{Bug, planted};
use holdfast_engine::{Engine, Reader, Wanted};
use std::sync::Arc;

/// A request on a kind, and the state that the request is about.
pub(crate) struct Found {
    pub scene: Scene,
    pub kind: Arc<Kind>,
    pub request: Request,
    /// The versions at which namespaces were created; reads of the past go back no further.
    pub starts: Arc<NamespaceStarts>,
}

impl Found {
    /// The kind that a path names, if the path is valid for an object or the collection of that kind.
    pub(crate) fn kind(state: &State, path: &ResourcePath, verb: Verb) -> Result<(Arc<Kind>, Target), Refusal> {
        let found = state.registry.find(&path.group, &path.version, &path.resource);
        let offered = found.filter(|(id, version)| state.registry.offers(*id, *version));
        let (id, version) = offered.ok_or(Refusal::NoSuchPath)?;
        let kind = state.registry.share(id);
        check(path, &kind, version, verb)?;
        let optional = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let namespace = if kind.is_namespaced() { optional(&path.namespace) } else { None };
        let subresource = match path.rest.is_empty() {
            true => optional(&path.subresource),
            false => Some(format!("{}/{}", path.subresource, path.rest)),
        };
        Ok((kind, Target { kind: id, version, namespace, name: optional(&path.name), subresource }))
    }

    /// Makes the request of a call, for the kind that was found.
    pub(crate) fn request(named: ResourceRequest, target: Target, user: Arc<User>, id: &RequestId) -> Request {
        let ResourceRequest { verb, options, body, .. } = named;
        Request { user, verb, target, options, body, id: id.as_str().to_owned() }
    }
}

impl Found {
    /// The state on which admission judges a request that writes nothing, at the moment that the call names.
    pub(crate) async fn admitting(&self, engine: &Arc<Engine>) -> Result<Arc<State>, Refusal> {
        let Found { scene, kind, request, .. } = self;
        let reader = Reader::of(&request.user);
        let namespace = request.namespace().unwrap_or_default().to_owned();
        let object = kind.stored.then(|| (kind.storage.path.clone(), request.key()));
        let state = scene.part(engine, Wanted::Admission { namespace, object }, &reader).await?;
        // Policies may have parameters of any kind, so the whole state is needed.
        match scene.is_past() && state.registered.has_policies_on(&kind.resource) {
            true => scene.whole(engine, &reader).await,
            false => Ok(state),
        }
    }
}

/// Checks that the path and the kind allow the verb.
fn check(path: &ResourcePath, kind: &Kind, version: usize, verb: Verb) -> Result<(), Refusal> {
    let not_allowed = || Refusal::MethodNotAllowed(MethodNotAllowed::OnResource);
    // No cluster-scoped object has a path within a namespace.
    if path.within && !kind.is_namespaced() && !planted(Bug::AuthorizedElsewhere) {
        return Err(Refusal::NoSuchPath);
    }
    if !path.subresource.is_empty() {
        let is_known = kind.subresource(version, &path.subresource).is_some();
        if !is_known && kind.custom.is_some() {
            // Kubernetes accepts such a path for a custom kind, and answers later that the subresource was not found,
            // so the refusal is NotFound and not NoSuchPath.
            return Err(Refusal::NotFound(Subject::new(&kind.versions[version].group, &kind.resource, &path.name)));
        }
        if path.name.is_empty() {
            return Err(if is_known { Refusal::BadRequest(BadRequest::NoNameInPath) } else { Refusal::NoSuchPath });
        }
    }
    let anywhere = matches!(verb, Verb::List | Verb::Watch);
    if path.within && path.namespace.is_empty() && !anywhere {
        return Err(match verb {
            Verb::Create => {
                let subject = Subject::new(&kind.versions[version].group, &kind.kind, &path.name);
                Refusal::Invalid { subject, causes: Cause::required("metadata.namespace", "").into() }
            }
            _ => Refusal::BadRequest(BadRequest::NoNamespaceParameter),
        });
    }
    let in_none = !path.within || path.namespace.is_empty();
    if kind.is_namespaced() && in_none && !path.name.is_empty() && anywhere {
        return Err(Refusal::NoSuchPath);
    }
    if path.subresource.is_empty() {
        if !kind.verbs.contains(&verb.as_str()) {
            return Err(not_allowed());
        }
        let on_collection = matches!(verb, Verb::Create | Verb::List | Verb::DeleteCollection);
        if on_collection != path.name.is_empty() && verb != Verb::Watch {
            return Err(not_allowed());
        }
    }
    if kind.is_namespaced() && !path.within && !anywhere {
        return Err(if path.name.is_empty() { not_allowed() } else { Refusal::NoSuchPath });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_core::kinds::registry;

    #[test]
    fn a_path_without_a_namespace_or_a_name_leads_to_lists_alone() {
        let state = State::new(Arc::new(registry().clone()));
        let told = |verb: Verb, within: bool, [resource, name, subresource]: [&str; 3]| {
            let path = ResourcePath {
                version: "v1".into(),
                within,
                resource: resource.into(),
                name: name.into(),
                subresource: subresource.into(),
                ..ResourcePath::default()
            };
            Found::kind(&state, &path, verb).err().map(|refusal| (refusal.reason().to_owned(), refusal.message()))
        };
        let missing = ("NotFound", "the server could not find the requested resource");
        let unnamed = ("BadRequest", "name must be provided");
        let nowhere = ("BadRequest", "Namespace parameter required.");
        for (verb, within, path, expected) in [
            (Verb::List, true, ["pods", "", ""], None),
            (Verb::Watch, true, ["pods", "", ""], None),
            (Verb::Watch, true, ["pods", "a", ""], Some(missing)),
            (Verb::Watch, false, ["pods", "a", ""], Some(missing)),
            (Verb::Get, true, ["pods", "a", ""], Some(nowhere)),
            (Verb::Delete, true, ["pods", "a", ""], Some(nowhere)),
            (Verb::DeleteCollection, true, ["pods", "", ""], Some(nowhere)),
            (
                Verb::Create,
                true,
                ["pods", "", ""],
                Some(("Invalid", "Pod \"\" is invalid: metadata.namespace: Required value")),
            ),
            (Verb::List, true, ["pods", "", "log"], Some(unnamed)),
            (Verb::List, true, ["pods", "", "bogus"], Some(missing)),
            (Verb::List, true, ["nodes", "", ""], Some(missing)),
            (Verb::List, false, ["namespaces", "", "status"], Some(unnamed)),
        ] {
            let expected = expected.map(|(reason, message): (&str, &str)| (reason.to_owned(), message.to_owned()));
            assert_eq!(told(verb, within, path), expected, "{verb:?} {within} {path:?}");
        }
    }
}
