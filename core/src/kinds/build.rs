//! The builder that keeps the tables of kinds readable: a kind is one expression.
//!
//! Start at [`Kind::namespaced`] and [`Kind::cluster`]. Every other method sets one property of the kind and returns
//! the kind.

use super::lookup::{api_version_is, scalar};
use super::{
    Allocate, Asking, CheckConnect, ClaimRules, Column, Completed, ConnectRules, Convert, DeletionRules, Deprecation,
    FieldPaths, Gated, GatedRule, Generation, Kind, KindInfluence, KindSelectors, KindStorage, Lead, MetadataOnUpdate,
    ObjectContent, ObjectRules, Observe, Question, Read, Registers, ScalePaths, Scope, Selectable, Shown, Subresource,
    Validate, Version, Warnings, WriteRules,
};
use crate::authz::escalation::Authorize;
use crate::authz::nodes::Relation;
use crate::authz::role::RoleKind;
use crate::object::glance::Glance;
use crate::object::meta::Document;
use crate::object::names::NameRule;
use crate::quota::Measure;
use crate::refusal::Causes;
use holdfast_value::Value;
use std::sync::OnceLock;

/// Verbs of an ordinary stored kind, in discovery order.
const ALL_VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// Verbs of a subresource that shows a part of its object.
pub(super) const VIEW: [&str; 3] = ["get", "patch", "update"];

/// Fields that a status write resets, if the status may change metadata as in most kinds.
const STATUS_RESETS: FieldPaths = &[&["spec"]];
/// Fields that a status write resets, if the status may not change metadata.
pub(super) const STATUS_RESETS_METADATA: FieldPaths = &[
    &["spec"],
    &["metadata", "annotations"],
    &["metadata", "finalizers"],
    &["metadata", "labels"],
    &["metadata", "ownerReferences"],
];
/// Fields that a write of a subresource other than `status` and `approval` resets.
pub(super) const PART_RESETS: FieldPaths = &[&["metadata", "labels"], &["metadata", "annotations"]];

impl Kind {
    pub fn namespaced(kind: &str, resource: &str) -> Self {
        Self::new(kind, resource, Scope::Namespaced)
    }

    pub fn cluster(kind: &str, resource: &str) -> Self {
        Self::new(kind, resource, Scope::Cluster)
    }

    pub(super) fn new(kind: &str, resource: &str, scope: Scope) -> Self {
        Self {
            kind: kind.into(),
            resource: resource.into(),
            singular: kind.to_lowercase(),
            short_names: Vec::new(),
            categories: Vec::new(),
            scope,
            versions: Vec::new(),
            verbs: ALL_VERBS.into(),
            subresources: Vec::new(),
            stored: true,
            question: None,
            custom: None,
            storage: KindStorage::at(resource),
            selectors: KindSelectors::default(),
            shown: Shown::default(),
            connect: ConnectRules::default(),
            writes: WriteRules::default(),
            claims: ClaimRules::default(),
            rules: ObjectRules::default(),
            deletion: DeletionRules::default(),
            content: ObjectContent::default(),
            influence: KindInfluence::default(),
        }
    }

    pub fn short<const N: usize>(mut self, names: [&str; N]) -> Self {
        self.short_names.extend(names.map(String::from));
        self
    }

    pub fn category(mut self, name: &str) -> Self {
        self.categories.push(name.into());
        self
    }

    /// Adds versions that differ from the hub only in `apiVersion`. The first version of a kind is its hub. `package`
    /// is the group's name in the schema: `io.k8s.api.apps`.
    pub fn versions<const N: usize>(mut self, group: &str, package: &str, versions: [&str; N]) -> Self {
        for version in versions {
            self.push_version(group, package, version, None);
        }
        self
    }

    /// Adds a version whose documents differ from the hub's documents.
    pub fn converted(mut self, group: &str, package: &str, version: &str, convert: Convert) -> Self {
        self.push_version(group, package, version, Some(convert));
        self
    }

    pub(super) fn push_version(&mut self, group: &str, package: &str, version: &str, convert: Option<Convert>) {
        let message = format!("{package}.{version}.{}", self.kind);
        if self.versions.is_empty() {
            self.shown.message.clone_from(&message);
        }
        self.versions.push(Version {
            group: group.into(),
            version: version.into(),
            message,
            message_id: OnceLock::new(),
            convert,
            validate: None,
            orphans_dependents: false,
            deprecation: Deprecation::find(group, version, &self.kind),
            custom: None,
        });
    }

    /// Sets the storage path below the prefix, if it is not the plural name.
    pub fn storage(mut self, path: &str) -> Self {
        self.storage.path = path.into();
        self
    }

    /// Declares that stores shared with Kubernetes contain the objects in this version, up to the minor release
    /// `until`.
    pub fn stored_in(mut self, version: &'static str, until: u32) -> Self {
        self.storage.stored_in = Some((version, until));
        self
    }

    /// Declares that stores shared with Kubernetes contain the objects in JSON.
    pub fn stored_as_json(mut self) -> Self {
        self.storage.as_json = true;
        self
    }

    pub fn verbs<const N: usize>(mut self, verbs: [&'static str; N]) -> Self {
        self.verbs = verbs.into();
        self
    }

    /// Declares that objects of this kind are only posted and never stored. `verbs` are all verbs of the kind.
    pub fn unstored<const N: usize>(mut self, question: Question, verbs: [&'static str; N]) -> Self {
        self.stored = false;
        self.question = Some(question);
        self.verbs(verbs)
    }

    /// Names API versions that are older than the garbage collector: by default, a delete through them orphans
    /// dependents, because their clients delete dependents themselves.
    pub fn orphan_dependents<const N: usize>(mut self, api_versions: [&str; N]) -> Self {
        for version in &mut self.versions {
            version.orphans_dependents |= api_versions.iter().any(|named| api_version_is(version, named));
        }
        self
    }

    /// Sets the warning for a delete without a propagation policy that orphans dependents by the version's default.
    pub fn warn_of_orphans(mut self, warning: &'static str) -> Self {
        self.deletion.orphan_warning = Some(warning);
        self
    }

    /// Sets the rule for names, if it is not a DNS subdomain.
    pub fn names(mut self, rule: NameRule) -> Self {
        self.rules.name = rule;
        self
    }

    /// Declares that the finalizers of objects of this kind need no domain.
    pub fn any_finalizers(mut self) -> Self {
        self.rules.any_finalizers = true;
        self
    }

    /// Sets the metadata rules that the kind's own validation repeats on update. By default these are the rules for
    /// updates.
    pub fn metadata_on_update(mut self, rules: MetadataOnUpdate) -> Self {
        self.rules.metadata_on_update = rules;
        self
    }

    /// Declares that a delete returns the deleted object.
    pub fn return_deleted_object(mut self) -> Self {
        self.deletion.returns_deleted = true;
        self
    }

    /// Names the objects of this kind that are never deleted.
    pub fn immortal(mut self, names: &'static [&'static str]) -> Self {
        self.deletion.immortal = names;
        self
    }

    /// Names the objects that the system requires, so that they cannot be deleted; `what` describes them in the
    /// refusal.
    pub fn system(mut self, what: &'static str, names: &'static [&'static str]) -> Self {
        self.deletion.system = Some((what, names));
        self
    }

    /// Declares that objects are deleted some time after their last change. The operator sets the time by an option.
    pub fn expires(mut self) -> Self {
        self.deletion.expires = true;
        self
    }

    /// Declares that the server names objects that are created without a name.
    pub fn named_by_server(mut self) -> Self {
        self.writes.named_by_server = true;
        self
    }

    /// Declares that objects of this kind have no dependents.
    pub fn independent(mut self) -> Self {
        self.deletion.independent = true;
        self
    }

    /// Sets the JSON pointer to the pod spec in objects of this kind.
    pub fn pods_at(mut self, pointer: &'static str) -> Self {
        self.content.pods_at = Some(pointer);
        self
    }

    /// Sets the amounts that quotas count for this kind in addition to the number of objects.
    pub fn measured(mut self, measure: &'static Measure) -> Self {
        self.content.measure = measure;
        self
    }

    /// Declares that this kind is one of the kinds of role-based access control.
    pub fn role(mut self, role: RoleKind) -> Self {
        self.influence.role = Some(role);
        self
    }

    /// Sets how the Node authorizer relates objects of this kind to nodes.
    pub fn leads_to_nodes(mut self, relation: Relation) -> Self {
        self.influence.relation = Some(relation);
        self
    }

    pub fn status(self) -> Self {
        self.view("status")
    }

    /// Adds a subresource that shows the object itself: `status`, `approval`.
    pub fn view(self, name: &str) -> Self {
        self.part(name, None, &VIEW)
    }

    /// Adds a subresource with its own body kind, given as group, version and kind.
    pub fn part(mut self, name: &str, body: Option<[&str; 3]>, verbs: &[&'static str]) -> Self {
        let body = body.map(|[group, version, kind]| (group.into(), version.into(), kind.into()));
        let verbs = verbs.into();
        let reset_fields: FieldPaths = match name {
            "status" => STATUS_RESETS,
            // A write of `approval` may change metadata, like a status write.
            "approval" => STATUS_RESETS,
            _ => PART_RESETS,
        };
        let part = Subresource { name: name.into(), body, verbs, scale: None, validate: None, reset_fields };
        self.subresources.push(part);
        self
    }

    /// Sets the fields that a status write resets, if more than the spec.
    pub fn status_resets(self, fields: FieldPaths) -> Self {
        self.part_resets("status", fields)
    }

    /// Sets the fields that a write of a subresource resets, if they differ from the usual fields.
    pub fn part_resets(mut self, part: &str, fields: FieldPaths) -> Self {
        for part in self.subresources.iter_mut().filter(|found| found.name == part) {
            part.reset_fields = fields;
        }
        self
    }

    /// Adds the HTTP `proxy` subresource of a pod, service or node.
    pub fn proxy(self, options: &str) -> Self {
        self.part("proxy", Some(["", "v1", options]), &["create", "delete", "get", "patch", "update"])
    }

    /// Adds the `scale` subresource with the usual paths.
    pub fn scale(mut self) -> Self {
        let scale = ScalePaths {
            spec_replicas: "spec.replicas".into(),
            status_replicas: "status.replicas".into(),
            selector: Some("spec.selector".into()),
        };
        self.subresources.push(Subresource {
            name: "scale".into(),
            body: Some(("autoscaling".into(), "v1".into(), "Scale".into())),
            verbs: VIEW.into(),
            scale: Some(scale),
            validate: None,
            reset_fields: PART_RESETS,
        });
        self
    }

    /// Adds a selectable field: the scalar at this path in the hub version.
    pub fn select(self, path: &'static str) -> Self {
        self.select_at(path, path)
    }

    pub fn named_in_selectors(mut self) -> Self {
        self.selectors.names_itself = true;
        self
    }

    /// Adds a selectable field whose name differs from its path.
    pub fn select_at(self, field: &str, path: &'static str) -> Self {
        self.select_or(field, path, "")
    }

    /// Adds a selectable field like [`Kind::select_at`], with a value for objects that do not set it.
    pub fn select_or(mut self, field: &str, path: &'static str, unset: &'static str) -> Self {
        self.push_selectable(None, field, &[path], Read::at(path, unset));
        self
    }

    /// Adds a selectable field that has this name in one group only.
    pub fn select_in(mut self, group: &str, field: &str, path: &'static str) -> Self {
        self.push_selectable(Some(group), field, &[path], Read::at(path, ""));
        self
    }

    /// Adds a selectable field computed from the values at these paths. If a group is given, only requests of this
    /// group can select by the field.
    pub fn select_with(
        mut self,
        group: Option<&str>,
        field: &str,
        paths: &[&'static str],
        read: fn(&Value) -> String,
    ) -> Self {
        self.push_selectable(group, field, paths, Read::With(read));
        self
    }

    fn push_selectable(&mut self, group: Option<&str>, field: &str, paths: &[&'static str], read: Read) {
        paths.iter().for_each(|path| self.selectors.indexed.add(path));
        self.selectors.fields.push(Selectable { field: field.into(), group: group.map(Into::into), read });
    }

    pub fn columns(mut self, columns: Vec<Column>) -> Self {
        self.shown.set_columns(columns);
        self
    }

    /// Sets the function that decides whether a Table shows an object as completed.
    pub fn completed(mut self, completed: Completed) -> Self {
        self.shown.completed = Some(completed);
        self
    }

    /// Names an annotation that represents a field of other versions. It is left out when only metadata is shown.
    pub fn left_out_of_metadata(mut self, annotation: &'static str) -> Self {
        self.shown.left_out = Some(annotation);
        self
    }

    /// Declares that `metadata.generation` counts the changes of this kind's desired state.
    pub fn generation(self) -> Self {
        self.generation_with(&[])
    }

    /// Like [`Kind::generation`], but changes of these metadata fields count too.
    pub fn generation_with(mut self, metadata: &'static [&'static str]) -> Self {
        self.writes.generation = Generation::Changes { metadata };
        self
    }

    /// Like [`Kind::generation`], but the count does not start when an object is created: the creator's value stays.
    pub fn generation_of_changes(mut self) -> Self {
        self.writes.generation = Generation::LaterChanges;
        self
    }

    /// Sets the fields that a write of the object itself resets, if more than the status.
    pub fn resets(mut self, fields: FieldPaths) -> Self {
        self.writes.reset_fields = Some(fields);
        self
    }

    pub fn deleted_first(mut self) -> Self {
        self.deletion.deleted_first = true;
        self
    }

    pub fn create_on_update(mut self) -> Self {
        self.writes.create_on_update = true;
        self
    }

    /// Declares that an update must name a resourceVersion.
    pub fn conditional_update(mut self) -> Self {
        self.writes.needs_version = true;
        self
    }

    pub fn note(mut self, note: fn(&mut Value, Option<&Value>, &Asking)) -> Self {
        self.writes.note = Some(note);
        self
    }

    pub fn authorize(mut self, authorize: Authorize) -> Self {
        self.rules.authorize = Some(authorize);
        self
    }

    /// Sets the function that makes older and newer forms of the same field agree.
    pub fn agree(mut self, agree: fn(&mut Value)) -> Self {
        self.writes.agree = Some(agree);
        self
    }

    pub fn prepare_create(mut self, prepare_create: fn(&mut Value)) -> Self {
        self.writes.prepare_create = Some(prepare_create);
        self
    }

    pub fn prepare_update(mut self, prepare_update: fn(&mut Value, &Value)) -> Self {
        self.writes.prepare_update = Some(prepare_update);
        self
    }

    /// Sets the fields that cannot be newly set while their feature gate is off.
    pub fn gated(mut self, fields: &'static [Gated]) -> Self {
        self.writes.gated = fields;
        self
    }

    pub fn gated_rules(mut self, rules: &'static [GatedRule]) -> Self {
        self.rules.gated = rules;
        self
    }

    /// Sets the function that sets an object's `observedGeneration` while the feature gate `gate` is on.
    pub fn observe(mut self, gate: &'static str, observe: Observe) -> Self {
        self.writes.observe = Some((gate, observe));
        self
    }

    /// Sets the rules of this kind beyond its schema.
    pub fn validate(mut self, rules: Validate) -> Self {
        self.rules.validate = Some(rules);
        self
    }

    /// Sets the rules for writes through some versions, if they differ from the kind's rules.
    pub fn validate_in<const N: usize>(mut self, api_versions: [&str; N], rules: Validate) -> Self {
        for version in self.versions.iter_mut().filter(|v| api_versions.iter().any(|named| api_version_is(v, named))) {
            version.validate = Some(rules);
        }
        self
    }

    /// Sets the rules for a write through the subresource `name`.
    pub fn validate_part(mut self, name: &str, rules: Validate) -> Self {
        for part in self.subresources.iter_mut().filter(|part| part.name == name) {
            part.validate = Some(rules);
        }
        self
    }

    /// Sets the rules for a new object that depend on the labels of its namespace.
    pub fn validate_in_namespace(mut self, rules: fn(&Value, &Value) -> Causes) -> Self {
        self.rules.in_namespace = Some(rules);
        self
    }

    pub fn warnings(mut self, warnings: Warnings) -> Self {
        self.rules.warnings = Some(warnings);
        self
    }

    pub fn registers(mut self, registers: Registers) -> Self {
        self.influence.registers = Some(registers);
        self
    }

    pub fn claims(mut self, claims: fn(&Value) -> Vec<String>) -> Self {
        self.claims.held = Some(claims);
        self.selectors.indexed = Glance::default();
        self
    }

    pub fn allocate(mut self, allocate: Allocate) -> Self {
        self.claims.allocate = Some(allocate);
        self
    }

    pub fn grace_period(mut self, grace_period: fn(&Document, Option<i64>) -> i64) -> Self {
        self.deletion.grace_period = Some(grace_period);
        self
    }

    pub fn begin_delete(mut self, begin_delete: fn(&mut Document, &str)) -> Self {
        self.deletion.begin = Some(begin_delete);
        self
    }

    pub fn is_held(mut self, is_held: fn(&Document) -> bool) -> Self {
        self.deletion.is_held = Some(is_held);
        self
    }

    /// Sets the function that finds the destination of subresources that are answered outside the API server.
    pub fn leads(mut self, leads: Lead) -> Self {
        self.connect.leads = Some(leads);
        self
    }

    pub fn connect_options(mut self, connect_options: CheckConnect) -> Self {
        self.connect.options = Some(connect_options);
        self
    }

    pub fn export(mut self, export: fn(&mut Document)) -> Self {
        self.content.export = Some(export);
        self
    }
}

/// The scalar at a JSON pointer (without escapes) as text for field selectors; empty if absent.
pub(super) fn text(object: &Value, pointer: &str) -> String {
    let found = pointer.split('/').skip(1).try_fold(object, |value, field| value.get(field));
    found.map(scalar).unwrap_or_default()
}

/// Like [`text`], but an unset field has the value `unset`.
pub(super) fn text_or(object: &Value, pointer: &str, unset: &str) -> String {
    let text = text(object, pointer);
    if text.is_empty() { unset.into() } else { text }
}

/// Removes these fields from the object's spec.
pub(super) fn drop_from_spec(object: &mut Document, fields: &[&str]) {
    if let Some(Value::Object(spec)) = object.get_mut("spec") {
        for field in fields {
            spec.remove(*field);
        }
    }
}

/// Restores a top-level field from the old object, or removes it if the old object has none.
pub(super) fn keep_old(new: &mut Value, old: &Value, field: &str) {
    let Some(new) = new.as_object_mut() else { return };
    match old.get(field) {
        Some(value) => new.insert(field, value.clone()),
        None => new.remove(field),
    };
}

#[cfg(test)]
mod tests {
    use crate::kinds::{Generation, registry};

    /// Compares the properties that determine the writes of each kind with Kubernetes' strategies.
    #[test]
    fn who_may_write_what() {
        let mut shown = String::new();
        for (_, kind) in registry().iter().filter(|(_, kind)| kind.stored) {
            let flags = [
                ("generation", kind.writes.generation != Generation::Nothing),
                ("create-on-update", kind.writes.create_on_update),
                ("version-needed", kind.writes.needs_version),
                ("status", kind.subresource(0, "status").is_some()),
                ("deleted-object", kind.deletion.returns_deleted),
                ("expires", kind.deletion.expires),
            ];
            let flags: Vec<&str> = flags.iter().filter(|(_, set)| *set).map(|(flag, _)| *flag).collect();
            shown += format!("{} {}", kind.kind, flags.join(" ")).trim_end();
            shown += "\n";
        }
        expect_test::expect![[r#"
            ConfigMap
            Endpoints create-on-update
            Event create-on-update expires
            LimitRange create-on-update
            Namespace status
            Node status
            PersistentVolume status deleted-object
            PersistentVolumeClaim status deleted-object
            Pod generation status deleted-object
            PodTemplate generation deleted-object
            ReplicationController generation status
            ResourceQuota status deleted-object
            Secret
            Service create-on-update status deleted-object
            ServiceAccount deleted-object
            APIService version-needed status
            Deployment generation status
            DaemonSet generation status
            ReplicaSet generation status
            StatefulSet generation status
            ControllerRevision
            HorizontalPodAutoscaler status
            CronJob generation status
            Job generation status
            CertificateSigningRequest status
            ClusterTrustBundle version-needed
            PodCertificateRequest version-needed status
            Ingress generation status
            IngressClass generation
            NetworkPolicy generation
            IPAddress
            ServiceCIDR status
            PodDisruptionBudget generation version-needed status
            ClusterRole create-on-update
            ClusterRoleBinding create-on-update
            Role create-on-update
            RoleBinding create-on-update
            StorageClass deleted-object
            VolumeAttachment version-needed status deleted-object
            CSIDriver generation version-needed deleted-object
            CSINode version-needed deleted-object
            CSIStorageCapacity version-needed
            VolumeAttributesClass deleted-object
            MutatingWebhookConfiguration generation version-needed
            ValidatingWebhookConfiguration generation version-needed
            ValidatingAdmissionPolicy generation version-needed status
            ValidatingAdmissionPolicyBinding generation version-needed
            MutatingAdmissionPolicy generation version-needed
            MutatingAdmissionPolicyBinding generation version-needed
            CustomResourceDefinition generation version-needed status
            PriorityClass
            Workload
            Lease create-on-update version-needed
            LeaseCandidate create-on-update version-needed
            RuntimeClass create-on-update version-needed
            EndpointSlice generation
            DeviceClass generation deleted-object
            ResourceClaim status deleted-object
            ResourceClaimTemplate deleted-object
            ResourceSlice generation deleted-object
            DeviceTaintRule generation status deleted-object
            FlowSchema generation status
            PriorityLevelConfiguration generation status
            StorageVersionMigration version-needed status
            StorageVersion version-needed status
        "#]]
        .assert_eq(&shown);
    }
}
