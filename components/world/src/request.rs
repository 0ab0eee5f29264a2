//! Converts an action to a request to an API server in the same process.

use crate::plan::{Action, Propagation, Refusal, Verb};
use crate::{Controller, Key, Resource, Served};
use holdfast_core::authz::User;
use holdfast_core::kinds::{Kind, KindId, Registry};
use holdfast_core::object::meta;
use holdfast_core::refusal::{GivenCode, RulingKind};
use holdfast_core::request::Verb as Asked;
use holdfast_core::request::{Body, Content, DeleteOptions, FieldValidation, Format, Options, Request, Target};
use holdfast_core::state::{Entry, State};
use holdfast_value::Value;
use std::sync::Arc;

/// The user that the server authorizes, and the field manager of the user's writes.
#[derive(Debug, Clone)]
pub struct Actor {
    pub user: Arc<User>,
    pub field_manager: &'static str,
}

impl Actor {
    /// The actor of a controller. As in Kubernetes, its user is a service account in `kube-system` if the controller
    /// names no user.
    pub fn of(controller: &dyn Controller) -> Actor {
        let user = match controller.user() {
            Some(name) => User::new(name, &["system:authenticated"]),
            None => User::service_account("kube-system", controller.account(), ""),
        };
        Actor { user: Arc::new(user), field_manager: controller.manager() }
    }

    /// Whether the actor's user is a service account, and not a user that several controllers share.
    pub fn has_account(&self) -> bool {
        self.user.name.starts_with("system:serviceaccount:")
    }

    /// The name of the actor's service account in `kube-system`. If the actor has no service account, its user name.
    pub fn account(&self) -> &str {
        self.user.name.rsplit(':').next().unwrap_or_default()
    }
}

/// The request that carries out an action; `None` if the server does not serve the action's resource or subresource.
pub fn of(action: &Action, registry: &Registry, actor: &Actor, id: String) -> Option<Request> {
    let resource = &action.resource;
    let (kind, version) = registry.find(resource.group(), resource.version(), resource.plural())?;
    if !action.subresource.is_empty() {
        registry.get(kind).subresource(version, action.subresource)?;
    }
    let (verb, format) = match &action.verb {
        Verb::Create(_) => (Asked::Create, Format::Json),
        Verb::Update(_) | Verb::UpdateStatus(_) => (Asked::Update, Format::Json),
        Verb::MergePatch(_) => (Asked::Patch, Format::MergePatch),
        Verb::StrategicPatch(_) => (Asked::Patch, Format::StrategicMergePatch),
        Verb::JsonPatch(_) => (Asked::Patch, Format::JsonPatch),
        Verb::Apply(_) => (Asked::Patch, Format::ApplyPatch),
        Verb::Delete { .. } => (Asked::Delete, Format::Json),
    };
    let named = verb != Asked::Create || !action.subresource.is_empty();
    let target = Target {
        kind,
        version,
        namespace: resource.namespaced().then(|| action.key.namespace.to_string()),
        name: named.then(|| action.key.name.to_string()),
        subresource: (!action.subresource.is_empty()).then(|| action.subresource.to_owned()),
    };
    let options = Options {
        field_manager: Some(action.manager.unwrap_or(actor.field_manager).to_owned()),
        field_validation: FieldValidation::Ignore,
        force: (format == Format::ApplyPatch).then_some(true),
        delete: delete_options(&action.verb),
        ..Options::default()
    };
    let body = action.verb.document();
    let content = body.map(|body| Content::Document(Arc::new(body))).unwrap_or_default();
    Some(Request { user: actor.user.clone(), verb, target, options, body: Body { content, format }, id })
}

/// The GET request for an object, for a subresource, or for all objects of a namespace, by its path; `None` if the
/// server does not serve the path.
pub fn get(registry: &Registry, path: &str, actor: &Actor) -> Option<Request> {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", version, rest),
        ["apis", group, version, rest @ ..] => (*group, version, rest),
        _ => return None,
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, resource, rest @ ..] => (Some(*namespace), [&[*resource][..], rest].concat()),
        rest => (None, rest.to_vec()),
    };
    let (resource, name, subresource) = match rest.as_slice() {
        [resource] => (resource, None, None),
        [resource, name] => (resource, Some(*name), None),
        [resource, name, subresource] => (resource, Some(*name), Some(*subresource)),
        _ => return None,
    };
    let (kind, version) = registry.find(group, version, resource)?;
    if let Some(subresource) = subresource {
        registry.get(kind).subresource(version, subresource)?;
    }
    let verb = if name.is_some() { Asked::Get } else { Asked::List };
    let [namespace, name, subresource] = [namespace, name, subresource].map(|part| part.map(str::to_owned));
    let target = Target { kind, version, namespace, name, subresource };
    let (user, options) = (actor.user.clone(), Options::default());
    Some(Request { user, verb, target, options, body: Body::default(), id: String::new() })
}

fn delete_options(verb: &Verb) -> DeleteOptions {
    let Verb::Delete { uid, version, propagation, grace_seconds } = verb else { return DeleteOptions::default() };
    DeleteOptions {
        grace_period_seconds: *grace_seconds,
        propagation_policy: propagation.map(|propagation| propagation.as_str().to_owned()),
        precondition_uid: uid.as_ref().map(ToString::to_string),
        precondition_resource_version: version.as_ref().map(ToString::to_string),
        ..DeleteOptions::default()
    }
}

impl Propagation {
    pub fn as_str(self) -> &'static str {
        match self {
            Propagation::Background => "Background",
            Propagation::Foreground => "Foreground",
            Propagation::Orphan => "Orphan",
        }
    }
}

impl From<&holdfast_core::Refusal> for Refusal {
    fn from(refusal: &holdfast_core::Refusal) -> Refusal {
        let causes = refusal.causes().iter().map(|cause| cause.reason.as_str().to_owned()).collect();
        // A webhook (`Given`) may answer with a reason that Kubernetes' API does not have; `of_status` handles such
        // reasons.
        let reason = match refusal {
            holdfast_core::Refusal::Ruled(ruling) => match ruling.kind {
                RulingKind::Given(GivenCode(code)) => {
                    return Refusal::of_status(&ruling.reason, code, refusal.message(), causes);
                }
                RulingKind::BadRequest => "BadRequest",
                RulingKind::Unauthorized => "Unauthorized",
                RulingKind::Forbidden => "Forbidden",
                RulingKind::TooLarge => "RequestEntityTooLarge",
                RulingKind::Invalid => "Invalid",
                RulingKind::TooManyRequests => "TooManyRequests",
                RulingKind::Internal => "InternalError",
                RulingKind::Unavailable => "ServiceUnavailable",
            },
            holdfast_core::Refusal::Unreasoned(_) => "InternalError",
            refusal => refusal.reason(),
        };
        Refusal { reason: reason.to_owned(), message: refusal.message(), causes }
    }
}

/// The version in the metadata of an object, as a number; 0 if the object has no version.
pub fn version_of(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok()).unwrap_or_default()
}

/// The stored object of a resource that has this key, and its kind.
pub fn find<'a>(state: &'a State, resource: &Resource, key: &Key) -> Option<(KindId, &'a Arc<Entry>)> {
    let (kind, _) = state.registry.find(resource.group(), resource.version(), resource.plural())?;
    let namespace = Some(&*key.namespace).filter(|_| resource.namespaced());
    Some((kind, state.get(kind, &meta::key(namespace, &key.name))?))
}

/// The kinds that a registry serves, and their versions.
pub fn served(registry: &Registry) -> Served {
    let versions = registry.iter().flat_map(|(_, kind)| kind.versions.iter().map(move |version| (kind, version)));
    let is_served = |(kind, version): &(&Kind, &holdfast_core::kinds::Version)| {
        registry.find_kind(&version.group, &version.version, &kind.kind).is_some()
    };
    let names = |(kind, version): (&Kind, &holdfast_core::kinds::Version)| {
        (version.group.as_str().into(), version.version.as_str().into(), kind.kind.as_str().into())
    };
    versions.filter(is_served).map(names).collect()
}

/// The resource of a kind in the version in which its objects are stored. It has no view, so a world decodes only the
/// metadata of the resource's objects.
pub fn resource_of(kind: &Kind) -> Resource {
    let hub = kind.hub();
    Resource::new(&hub.group, &hub.version, &kind.resource, &kind.kind, kind.is_namespaced())
}
