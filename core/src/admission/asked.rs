//! Shows a write to webhooks and policies: as attributes for their rules, as documents, and as variables of
//! expressions.

use super::expressions::Scope;
use super::rules::{Asked, Matching, Rule};
use super::{Attributes, Body, Operation};
use crate::authz::{self, Authorizer, Chain, Consulted, NodeGraph, RbacIndex, ResourceTarget, Selected, User};
use crate::cel::Value as CelValue;
use crate::cel::functions::kubernetes::authorizer::{self as asking, Authority, Decision, Question};
use crate::kinds::custom::{Conversion, relabelled};
use crate::kinds::known::NAMESPACE;
use crate::merge::managed;
use crate::object::meta;
use crate::pipeline::effect::{Effect, Stop};
use crate::refusal::{BadRequest, Refusal};
use crate::request::{IGNORES_READ_ERRORS, Verb};
use bytes::Bytes;
use holdfast_value::{Map, Value, json};
use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

/// The version in which a webhook or policy sees the write, as an index into the versions of the kind.
pub(super) type Seen = usize;

impl<'a> Attributes<'a> {
    fn asked(&self, version: usize) -> Asked<'_> {
        let shown = &self.kind.versions[version];
        Asked {
            operation: self.operation.as_str(),
            group: &shown.group,
            version: &shown.version,
            resource: &self.kind.resource,
            subresource: self.subresource(),
            // A request for a Namespace object has the object's name as its namespace, although the object is
            // cluster-scoped.
            is_namespaced: !self.namespace().is_empty(),
            name: self.shown_name(),
        }
    }

    /// The object's name; empty for a new object whose name is generated later.
    pub(super) fn shown_name(&self) -> &str {
        match self.asked_name() {
            "" if self.operation == Operation::Create => self.object["metadata"]["name"].as_str().unwrap_or(""),
            name => name,
        }
    }

    /// The request's namespace in reviews. For a Namespace object it is the object's name.
    pub(super) fn told_namespace(&self) -> &str {
        if self.is_on(NAMESPACE) { self.shown_name() } else { self.namespace() }
    }

    /// The version of the kind in which the webhook or policy sees the write; `None` if the write does not match.
    pub(super) fn matches(&self, matching: &Matching) -> Option<Seen> {
        if !self.is_in(matching) || !self.is_selected(matching) {
            return None;
        }
        let own = self.request.target.version;
        // The body of a subresource, such as a Scale, is the same in all versions that have the subresource. A rule may
        // therefore match any of these versions.
        let is_served = |version: usize| match self.body {
            Body::Object { .. } => true,
            Body::Part(_) => self.kind.subresource(version, self.subresource()).is_some(),
        };
        let others = (0..self.kind.versions.len()).filter(|version| *version != own && is_served(*version));
        let others: Vec<usize> = others.filter(|_| matching.is_equivalent).collect();
        // Rules that match the version of the request have precedence over rules that match another version.
        let first = |rules: &[Rule]| {
            let of = |rule: &Rule, version: usize| rule.matches(&self.asked(version)).then_some(version);
            let another = |rule: &Rule| others.iter().find_map(|version| of(rule, *version));
            rules.iter().find_map(|rule| of(rule, own)).or_else(|| rules.iter().find_map(another))
        };
        if first(&matching.excluded).is_some() {
            return None;
        }
        if matching.rules.is_empty() { Some(own) } else { first(&matching.rules) }
    }

    /// Whether the namespace selector matches. A Namespace object is matched by its own labels; other cluster-scoped
    /// objects always match.
    fn is_in(&self, matching: &Matching) -> bool {
        if matching.namespaces.is_everything() {
            return true;
        }
        if self.is_on(NAMESPACE) {
            let own = &self.object["metadata"]["labels"];
            let shown = match self.operation {
                Operation::Create | Operation::Update if self.object.is_object() => own,
                _ => &self.old["metadata"]["labels"],
            };
            return matching.namespaces.matches(shown.as_object().unwrap_or(&Map::new()));
        }
        if self.namespace().is_empty() {
            return true;
        }
        match self.namespace_entry() {
            Some(entry) => matching.namespaces.matches_by(|key| entry.index.label(key)),
            None => false,
        }
    }

    /// Whether the object selector matches the new or the old object. The options of a connect have no labels and match
    /// no selector, not even one for an absent label.
    fn is_selected(&self, matching: &Matching) -> bool {
        if matching.objects.is_everything() {
            return true;
        }
        if self.operation == Operation::Connect {
            return false;
        }
        let none = Map::new();
        let is_selected = |object: &Value| {
            object.is_object() && matching.objects.matches(object["metadata"]["labels"].as_object().unwrap_or(&none))
        };
        is_selected(&self.object) || is_selected(self.old)
    }

    /// Converts a document of the write to a version of its kind.
    pub(super) fn shown(&self, document: &Value, version: Seen) -> Result<Value, Stop> {
        let Body::Object { version: own } = self.body else { return Ok(document.clone()) };
        if document.is_null() {
            return Ok(Value::Null);
        }
        let mut shown = document.clone();
        if version == own {
            name_kind(&mut shown, &self.kind.versions[version].api_version(), &self.kind.kind);
            return Ok(shown);
        }
        let api_version = self.kind.versions[version].api_version();
        match &self.kind.custom {
            None => {
                self.kind.from_hub(version, meta::fields_mut(&mut shown));
                name_kind(&mut shown, &api_version, &self.kind.kind);
                Ok(shown)
            }
            Some(custom) if custom.webhook.is_some() => self.by_webhook(shown, api_version),
            Some(_) => Ok(relabelled(self.kind, own, version, shown)),
        }
    }

    /// The new object with the resourceVersion that Kubernetes shows. Validating admission and a patch show the stored
    /// version, because they start from the stored object. Otherwise the client's resourceVersion is shown.
    pub(super) fn shown_object(&self, version: Seen) -> Result<Value, Stop> {
        let shown = self.shown(&self.object, version)?;
        let is_versioned = self.is_validating || self.request.verb == Verb::Patch;
        Ok(if is_versioned { self.versioned(shown) } else { shown })
    }

    /// The old object in a version of its kind, with the resourceVersion of the stored object.
    fn shown_old(&self, version: Seen) -> Result<Value, Stop> {
        Ok(self.versioned(self.shown(self.old, version)?))
    }

    fn versioned(&self, mut shown: Value) -> Value {
        if let (Some(version), Value::Object(document)) = (self.old_version, &mut shown) {
            meta::metadata_mut(document).insert("resourceVersion", version.to_string().into());
        }
        shown
    }

    /// Converts a document, which is in the version that the webhook or policy received, to the version of the request;
    /// for a built-in kind, to the hub version.
    pub(super) fn brought_back(&self, document: Value, version: Seen) -> Result<Value, Stop> {
        let Body::Object { version: own } = self.body else { return Ok(document) };
        let mut document = document;
        match &self.kind.custom {
            // An object that is not stored (a review such as SubjectAccessReview) stays in the version in which it was
            // posted.
            None if !self.kind.stored => {
                crate::kinds::default(crate::kinds::layout(self.kind, version)?, &mut document)?;
                Ok(document)
            }
            None => {
                self.kind.default_to_hub(version, &mut document, None)?;
                Ok(document)
            }
            Some(custom) => {
                crate::kinds::default(crate::kinds::layout(self.kind, version)?, &mut document)?;
                match &custom.webhook {
                    _ if version == own => Ok(document),
                    Some(_) => self.by_webhook(document, self.kind.versions[own].api_version()),
                    None => Ok(relabelled(self.kind, version, own, document)),
                }
            }
        }
    }

    /// Replaces the object by the object that a webhook or policy returned. A returned object must not change the
    /// namespace. If its managed fields cannot be parsed, the object keeps its old managed fields.
    pub(super) fn take_back(&mut self, changed: Value, shown: &Value, version: Seen) -> Result<(), Stop> {
        let mut changed = changed;
        let owners = &shown["metadata"]["managedFields"];
        if changed["metadata"]["managedFields"] != *owners
            && let Some(why) = managed::fault(&changed["metadata"]["managedFields"])
        {
            changed["metadata"]["managedFields"] = owners.clone();
            self.warn(format!(
                ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated \
                 mutating admission controller; please fix your requests: {why}"
            ));
        }
        let namespace = shown["metadata"]["namespace"].as_str().unwrap_or_default();
        match changed["metadata"]["namespace"].as_str().unwrap_or_default() {
            same if same == namespace => {}
            // A webhook may replace the whole object and omit the namespace.
            "" => changed["metadata"]["namespace"] = namespace.into(),
            _ if namespace.is_empty() => _ = meta::metadata_mut(meta::fields_mut(&mut changed)).remove("namespace"),
            _ => return Err(Refusal::BadRequest(BadRequest::OtherNamespace).into()),
        }
        self.object = self.brought_back(changed, version)?;
        Ok(())
    }

    fn by_webhook(&self, object: Value, to: String) -> Result<Value, Stop> {
        let conversion = Conversion { to, object };
        match self.answers.conversion(&conversion) {
            Some(converted) => Ok(Value::Object(converted.map_err(Refusal::clone)?.clone())),
            None => Err(Stop::Needs(Effect::Convert(Box::new(conversion)))),
        }
    }

    /// The `request` of an AdmissionReview, which is also the variable `request` of expressions, without the objects.
    pub(super) fn request_document(&self, version: Seen) -> Value {
        let own = self.request.target.version;
        let resource = |version: usize| {
            let shown = &self.kind.versions[version];
            json!({"group": shown.group, "version": shown.version, "resource": self.kind.resource})
        };
        let kind = |version: usize| match self.body {
            Body::Part(part) => json!({"group": part.group, "version": part.version, "kind": part.kind}),
            Body::Object { .. } => {
                let shown = &self.kind.versions[version];
                json!({"group": shown.group, "version": shown.version, "kind": self.kind.kind})
            }
        };
        let mut request = json!({
            "kind": kind(version), "resource": resource(version),
            "requestKind": kind(own), "requestResource": resource(own),
            "operation": self.operation.as_str(), "userInfo": user_document(self.user()),
            "dryRun": self.is_dry_run(), "options": self.options_document(),
        });
        for (field, value) in [
            ("subResource", self.subresource()),
            ("requestSubResource", self.subresource()),
            ("name", self.shown_name()),
            ("namespace", self.told_namespace()),
        ] {
            if !value.is_empty() {
                request[field] = value.into();
            }
        }
        request
    }

    fn options_document(&self) -> Value {
        let options = &self.request.options;
        // A patch has the options of the update or create that it results in.
        let kind = match self.operation {
            Operation::Connect => return Value::Null,
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
            Operation::Delete => "DeleteOptions",
        };
        let mut document = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
        if options.dry_run {
            document["dryRun"] = json!(["All"]);
        }
        if self.operation == Operation::Delete {
            self.show_deletion(&mut document);
            return document;
        }
        // Only options that the client itself has set are included.
        if let Some(manager) = options.field_manager.as_deref().filter(|_| options.names_manager) {
            document["fieldManager"] = manager.into();
        }
        if options.names_validation {
            document["fieldValidation"] = options.field_validation.as_str().into();
        }
        document
    }

    fn show_deletion(&self, document: &mut Value) {
        let delete = &self.request.options.delete;
        let uid = delete.precondition_uid.clone().map(Value::from);
        // If the client sets no UID precondition for the delete of a kind with a terminating phase, the UID of the old
        // object is the precondition.
        let own = self.kind.deletion.has_terminating_phase().then(|| self.old["metadata"]["uid"].clone());
        let preconditions =
            [("uid", uid.or(own)), ("resourceVersion", delete.precondition_resource_version.clone().map(Value::from))];
        let preconditions: Map =
            preconditions.into_iter().filter_map(|(field, value)| Some((field.to_owned(), value?))).collect();
        let preconditions = (!preconditions.is_empty()).then_some(Value::Object(preconditions));
        for (field, value) in [
            ("gracePeriodSeconds", delete.grace_period_seconds.map(Value::from)),
            ("preconditions", preconditions),
            ("orphanDependents", delete.orphan_dependents.map(Value::from)),
            ("propagationPolicy", delete.propagation_policy.clone().map(Value::from)),
            (IGNORES_READ_ERRORS, delete.ignores_read_errors.then_some(Value::Bool(true))),
        ] {
            if let Some(value) = value {
                document[field] = value;
            }
        }
    }

    /// The values of the variables of expressions. The values borrow from `documents`.
    pub(super) fn scope<'v>(&self, documents: &'v Documents) -> Scope<'v> {
        let json = |document: &'v Value, ty| CelValue::json(document, ty).unwrap_or(CelValue::Null);
        let roles = Roles {
            chain: self.authorizer.chain.clone(),
            rbac: self.authorizer.rbac.clone(),
            nodes: self.authorizer.nodes.cloned(),
            consulted: self.authorizer.consulted.clone(),
            user: self.request.user.clone(),
        };
        let authorizer = asking::Authorizer::new(Rc::new(roles));
        let shown = &self.kind.versions[self.request.target.version];
        let check = authorizer.resource(asking::Resource {
            group: shown.group.clone(),
            resource: self.kind.resource.clone(),
            subresource: self.subresource().to_owned(),
            namespace: self.told_namespace().to_owned(),
            name: self.shown_name().to_owned(),
            ..asking::Resource::default()
        });
        Scope {
            fixed: [
                json(&documents.object.value, &super::expressions::ANY),
                json(&documents.old.value, &super::expressions::ANY),
                json(&documents.request, &super::expressions::REQUEST),
                json(&documents.namespace, &super::expressions::NAMESPACE),
                CelValue::opaque(authorizer),
                check,
            ],
            parameters: None,
            variables: None,
        }
    }

    /// The documents that expressions and webhooks see, in a version of the kind.
    pub(super) fn documents(&self, version: Seen) -> Result<Documents, Stop> {
        Ok(Documents {
            object: Document::new(self.shown_object(version)?),
            old: Document::new(self.shown_old(version)?),
            request: self.request_document(version),
            namespace: self.namespace_document(),
        })
    }

    fn namespace_document(&self) -> Value {
        if self.is_on(NAMESPACE) {
            return Value::Null;
        }
        self.namespace_entry().map(|entry| entry.document()).unwrap_or_default()
    }
}

/// The documents of one write that expressions and webhooks see, all in one version of the kind.
pub(super) struct Documents {
    pub object: Document,
    pub old: Document,
    pub request: Value,
    pub namespace: Value,
}

/// A document and its JSON, which is made when a webhook first needs it.
pub(super) struct Document {
    pub value: Value,
    json: OnceCell<Bytes>,
}

impl Document {
    fn new(value: Value) -> Document {
        Document { value, json: OnceCell::new() }
    }

    pub fn json(&self) -> Bytes {
        self.json.get_or_init(|| self.value.to_string().into()).clone()
    }
}

/// Caches the documents of a write for all webhooks and policies that get the write, because there may be many of them
/// and objects may be large. The documents are rebuilt if the object changes or another version is needed.
#[derive(Default)]
pub(super) struct Shown(Option<(Seen, Rc<Documents>)>);

impl Shown {
    pub fn of(&mut self, attributes: &Attributes, version: Seen) -> Result<Rc<Documents>, Stop> {
        if let Some((seen, documents)) = &self.0
            && *seen == version
        {
            return Ok(documents.clone());
        }
        let documents = Rc::new(attributes.documents(version)?);
        self.0 = Some((version, documents.clone()));
        Ok(documents)
    }

    /// Drops the cached documents: the object may have changed.
    pub fn forget(&mut self) {
        self.0 = None;
    }
}

fn name_kind(document: &mut Value, api_version: &str, kind: &str) {
    let fields = meta::fields_mut(document);
    fields.insert("apiVersion", api_version.into());
    fields.insert("kind", kind.into());
}

fn user_document(user: &User) -> Value {
    let mut document = json!({"username": user.name});
    if !user.uid.is_empty() {
        document["uid"] = user.uid.as_str().into();
    }
    if !user.groups.is_empty() {
        document["groups"] = user.groups.clone().into();
    }
    if !user.extra.is_empty() {
        document["extra"] = json!(user.extra);
    }
    document
}

/// The authorizer that expressions query through the variable `authorizer`.
struct Roles {
    chain: Arc<Chain>,
    rbac: RbacIndex,
    nodes: Option<NodeGraph>,
    consulted: Consulted,
    user: Arc<User>,
}

impl Authority for Roles {
    fn judge(&self, account: Option<(&str, &str)>, question: &Question, verb: &str) -> Decision {
        let Self { chain, rbac, consulted, .. } = self;
        let authorizer = Authorizer { chain, rbac, nodes: self.nodes.as_ref(), consulted };
        let selected = match question {
            Question::Resource(resource) => Selected::parse(&resource.fields, &resource.labels),
            Question::Path(_) => Selected::default(),
        };
        let attributes = match question {
            Question::Path(path) => authz::Attributes::path(verb, path),
            Question::Resource(resource) => authz::Attributes::resource(
                verb,
                ResourceTarget {
                    group: &resource.group,
                    version: "*",
                    resource: &resource.resource,
                    subresource: &resource.subresource,
                    namespace: &resource.namespace,
                    name: &resource.name,
                    selected: (!selected.is_everything()).then_some(&selected),
                },
            ),
        };
        let judged = match account {
            None => authorizer.authorize(&self.user, &attributes),
            Some((namespace, name)) => authorizer.authorize(&User::service_account(namespace, name, ""), &attributes),
        };
        Decision { is_allowed: judged.is_allowed(), reason: judged.reason().to_owned(), error: judged.error() }
    }
}
