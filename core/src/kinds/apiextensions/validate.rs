//! Validation of CustomResourceDefinitions.

use super::approval;
use super::paths::{columns, scale, selectable_fields};
use crate::kinds::certificates::pool_fault;
use crate::kinds::rules::{At, immutable};
use crate::kinds::shapes::{count, is_condition_true, need_one_of, texts, webhook_service, webhook_url};
use crate::object::names;
use crate::refusal::{Cause, Causes};
use crate::schema::structural::well_formed::{self, Fault, Group};
use holdfast_value::Value;
use std::collections::BTreeSet;

pub fn definition(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    let kinds = spec.get("names");
    let (group, plural) = (spec.get("group"), kinds.get("plural"));
    let metadata = root.get("metadata");
    let name = metadata.get("name");
    let wanted = format!("{}.{}", plural.text(), group.text());
    // On update the name is not checked: the group and the plural are immutable, and a change is reported with the
    // changed field.
    if old.is_none() && !name.is_empty() && name.text() != wanted {
        causes.push(name.invalid(MISNAMED));
    }
    // As in Kubernetes, a generateName is validated like a name.
    if old.is_none() && !metadata.get("generateName").is_empty() && metadata.get("generateName").text() != wanted {
        causes.push(metadata.get("generateName").invalid(MISNAMED));
    }
    group_name(group, &mut causes);
    need_one_of(spec.get("scope"), &["Cluster", "Namespaced"], &mut causes);
    kind_names(kinds, &mut causes);
    versions(spec, &mut causes);
    schemas(spec, old.map(|old| &old["spec"]), &mut causes);
    conversion(spec.get("conversion"), old.map(|old| &old["spec"]["conversion"]), &mut causes);
    stored_versions(root, &mut causes);
    approval::check(metadata, group.text(), old, &mut causes);
    if let Some(old) = old {
        let before = &old["spec"];
        let was = At::root(old);
        if is_condition_true(was.get("status"), "Established") {
            immutable(spec.get("scope"), &before["scope"], &mut causes);
            immutable(kinds.get("kind"), &before["names"]["kind"], &mut causes);
        }
        immutable(group, &before["group"], &mut causes);
        immutable(plural, &before["names"]["plural"], &mut causes);
    }
    causes
}

/// Validates a `v1` definition. It cannot set `preserveUnknownFields` at the top level of its spec, as `v1beta1`
/// definitions can, unless the old definition sets the field.
pub fn newer_definition(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = definition(new, old);
    let root = At::root(new);
    let spec = root.get("spec");
    let keeps = spec.get("preserveUnknownFields");
    if !keeps.is_true() || old.is_some_and(|old| old["spec"]["preserveUnknownFields"] == true) {
        return causes;
    }
    let has_defaults = spec.get("versions").items().any(|version| {
        let validation = version.get("schema");
        has_default(validation.get("openAPIV3Schema").value)
    });
    if has_defaults {
        causes.push(keeps.invalid("must be false in order to use defaults in the schema"));
    }
    let conversion = spec.get("conversion");
    let strategy = conversion.get("strategy");
    if strategy.text() == "Webhook" {
        causes.push(strategy.invalid("must be None if spec.preserveUnknownFields is true"));
    }
    causes.push(keeps.invalid(
        "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
    ));
    causes
}

/// Whether a schema, or a schema inside it, has a default.
fn has_default(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => {
            fields.get("default").is_some_and(|value| !value.is_object()) || fields.values().any(has_default)
        }
        Value::Array(items) => items.iter().any(has_default),
        _ => false,
    }
}

const MISNAMED: &str = "must be spec.names.plural+\".\"+spec.group";

fn group_name(group: At, causes: &mut Causes) {
    let messages = names::subdomain(group.text());
    if group.is_empty() {
        causes.push(group.required(""));
    } else if !messages.is_empty() {
        causes.push(group.invalid(&messages.join(",")));
    } else if !group.text().contains('.') {
        causes.push(group.invalid("should be a domain with at least one dot"));
    }
}

fn kind_names(kinds: At, causes: &mut Causes) {
    let label = |at: At, intro: &str, causes: &mut Causes| {
        let messages = names::label_1035(&at.text().to_lowercase());
        if !messages.is_empty() {
            causes.push(at.invalid(&format!("{intro}{}", messages.join(","))));
        }
    };
    for field in ["plural", "singular", "kind", "listKind"] {
        let at = kinds.get(field);
        let lower = matches!(field, "plural" | "singular");
        let messages = names::label_1035(at.text());
        if at.is_empty() {
            causes.push(at.required(""));
        } else if lower && !messages.is_empty() {
            causes.push(at.invalid(&messages.join(",")));
        } else if !lower {
            label(at, "may have mixed case, but should otherwise match: ", causes);
        }
    }
    for field in ["shortNames", "categories"] {
        for at in kinds.get(field).items() {
            let messages = names::label_1035(at.text());
            if !messages.is_empty() {
                causes.push(at.invalid(&messages.join(",")));
            }
        }
    }
    let list = kinds.get("listKind");
    if !list.is_empty() && list.text() == kinds.get("kind").text() {
        causes.push(list.invalid("kind and listKind may not be the same"));
    }
}

fn versions(spec: At, causes: &mut Causes) {
    let versions = spec.get("versions");
    let mut seen = BTreeSet::new();
    let mut distinct = true;
    for (index, version) in versions.items().enumerate() {
        let name = version.get("name");
        distinct &= seen.insert(name.text().to_owned());
        let messages = names::label_1035(name.text());
        if !messages.is_empty() {
            causes.push(Cause::invalid(name.path(), &name.text().into(), &messages.join(",")));
            // The first version's name is also `spec.version`.
            if index == 0 && !name.is_empty() {
                causes.push(Cause::invalid("spec.version", &name.text().into(), &messages.join(",")));
            }
        }
        deprecation_warning(version, causes);
    }
    each_version(spec, "subresources", &mut |at, _, _| scale(at.get("scale"), causes));
    each_version(spec, "additionalPrinterColumns", &mut |at, _, _| columns(at, causes));
    each_version(spec, "selectableFields", &mut |at, version, _| {
        selectable_fields(at, &version["schema"]["openAPIV3Schema"], causes);
    });
    let shown = apart(versions.value);
    if !distinct {
        causes.push(Cause::invalid(versions.path(), &shown, "must contain unique version names"));
    }
    if versions.items().filter(|version| version.get("storage").is_true()).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid(versions.path(), &shown, detail));
    }
}

/// The versions without the fields that all versions have in common. Kubernetes moves these common fields to the top of
/// the spec.
fn apart(versions: &Value) -> Value {
    let Some(versions) = versions.as_array() else { return Value::Null };
    let mut apart = versions.clone();
    for field in ["schema", "subresources", "additionalPrinterColumns", "selectableFields"] {
        if apart.iter().all(|version| version[field] == apart[0][field]) {
            apart.iter_mut().filter_map(Value::as_object_mut).for_each(|version| drop(version.remove(field)));
        }
    }
    apart.into()
}

/// Calls `visit` for a field in each version. If all versions have the same value, as with a single version, Kubernetes
/// has the field at the top of the spec and reports it once; then the last argument of `visit` is true.
fn each_version(spec: At, field: &str, visit: &mut dyn FnMut(At, &Value, bool)) {
    let versions = spec.get("versions");
    let all = versions.value.as_array().map_or(&[][..], Vec::as_slice);
    let Some((first, others)) = all.split_first() else { return };
    if others.iter().all(|other| other[field] == first[field]) {
        let name = if field == "schema" { "validation" } else { field };
        return visit(spec.get(name).holding(&first[field]), first, true);
    }
    for version in versions.items() {
        visit(version.get(field), version.value, false);
    }
}

fn deprecation_warning(version: At, causes: &mut Causes) {
    const WARNING_BYTES_MAX: usize = 256;
    let warning = version.get("deprecationWarning");
    let text = warning.text();
    if !warning.is_set() {
        return;
    }
    if !version.get("deprecated").is_true() {
        causes.push(warning.invalid("can only be set for deprecated versions"));
        return;
    }
    if text.len() > WARNING_BYTES_MAX {
        causes.push(warning.invalid("must be <= 256 characters long"));
    }
    if text.is_empty() {
        causes.push(warning.invalid("must not be an empty string"));
    }
    if let Some((at, _)) = text.char_indices().find(|(_, c)| c.is_control() || (c.is_whitespace() && *c != ' ')) {
        let rule = "must only contain printable UTF-8 characters; non-printable character found at index";
        causes.push(warning.invalid(&format!("{rule} {at}")));
    }
}

/// Validates the schemas of all versions. An update may keep old violations.
fn schemas(spec: At, old: Option<&Value>, causes: &mut Causes) {
    // `v1beta1` definitions that preserve unknown fields need no schema.
    if spec.get("preserveUnknownFields").is_true() {
        return;
    }
    let lacks_some = |spec: &Value| {
        let mut versions = spec["versions"].as_array().into_iter().flatten();
        versions.any(|version| version["schema"]["openAPIV3Schema"].is_null())
    };
    for version in spec.get("versions").items() {
        let validation = version.get("schema");
        let schema = validation.get("openAPIV3Schema");
        if !schema.is_set() && !old.is_some_and(lacks_some) {
            causes.push(schema.required(""));
        }
    }
    let faults = schema_faults(spec, old);
    let broken: BTreeSet<Group> = match old {
        Some(old) if !faults.is_empty() => {
            schema_faults(At::root(old), Some(old)).iter().map(|fault| fault.group).collect()
        }
        _ => BTreeSet::new(),
    };
    let binds = |group: &Group| match group {
        Group::Always => true,
        Group::Defaults => !broken.contains(&Group::Structure),
        group => !broken.contains(group),
    };
    causes.extend(faults.into_iter().filter(|fault| binds(&fault.group)).map(|fault| fault.cause));
}

/// The reasons why the schemas in a definition's spec are not structural.
pub(crate) fn structure_causes(spec: &Value) -> Causes {
    let faults = schema_faults(At::root(spec), None);
    faults.into_iter().filter(|fault| fault.group == Group::Structure).map(|fault| fault.cause).collect()
}

fn schema_faults(spec: At, old: Option<&Value>) -> Vec<Fault> {
    let mut faults = Vec::new();
    let has_status = |version: &Value| !version["subresources"]["status"].is_null();
    let any_has_status = spec.value["versions"].as_array().into_iter().flatten().any(has_status);
    each_version(spec, "schema", &mut |validation, version, is_shared| {
        let schema = validation.get("openAPIV3Schema");
        if schema.is_set() {
            let has_status = if is_shared { any_has_status } else { has_status(version) };
            let mut olds = old.into_iter().flat_map(|old| old["versions"].as_array()).flatten();
            let is_unchanged = olds.any(|old| old["name"] == version["name"] && old["schema"] == version["schema"]);
            faults.extend(well_formed::faults(schema, has_status, is_unchanged));
        }
    });
    faults
}

/// The reason why the conversion webhook's CA bundle is invalid; `None` if it is valid or not set.
pub fn bundle_fault(conversion: &Value) -> Option<&'static str> {
    let bundle = conversion["webhook"]["clientConfig"]["caBundle"].as_str().unwrap_or_default();
    if bundle.is_empty() { None } else { pool_fault(bundle) }
}

/// Validates `spec.conversion`. Kubernetes reports faults of the webhook with its internal type names.
fn conversion(conversion: At, old: Option<&Value>, causes: &mut Causes) {
    const REVIEWS: [&str; 2] = ["v1", "v1beta1"];
    let (strategy, webhook) = (conversion.get("strategy"), conversion.get("webhook"));
    if !conversion.is_set() {
        return;
    }
    need_one_of(strategy, &["None", "Webhook"], causes);
    let client = conversion.get("webhookClientConfig").holding(&webhook.value["clientConfig"]);
    let versions = conversion.get("conversionReviewVersions").holding(&webhook.value["conversionReviewVersions"]);
    if strategy.text() != "Webhook" {
        if client.is_set() {
            causes.push(client.forbidden("should not be set when strategy is not set to Webhook"));
        }
        if !versions.is_empty() {
            causes.push(versions.forbidden("should not be set when strategy is not set to Webhook"));
        }
        return;
    }
    let (url, service) = (client.get("url"), client.get("service"));
    if client.is_set() {
        match (url.is_set(), service.is_set()) {
            (true, false) => webhook_url(url, causes),
            (false, true) => webhook_service(service, causes),
            _ => causes.push(client.required("exactly one of url or service is required")),
        }
    } else {
        causes.push(client.required("required when strategy is set to Webhook"));
    }
    // A new definition often has a placeholder as CA bundle, which another program replaces later. Once the bundle is
    // valid, it must stay valid.
    let fault = bundle_fault(conversion.value).filter(|_| {
        let was_client = |old: &Value| old["webhook"]["clientConfig"].is_object();
        old.is_some_and(|old| was_client(old) && bundle_fault(old).is_none())
    });
    if let Some(fault) = fault {
        causes.push(client.get("caBundle").invalid(fault));
    }
    let mut seen = BTreeSet::new();
    for version in versions.items() {
        if seen.insert(version.text().to_owned()) {
            causes.extend(names::label_1035(version.text()).iter().map(|message| version.invalid(message)));
        } else {
            causes.push(version.invalid("duplicate version"));
        }
    }
    if versions.is_empty() {
        causes.push(versions.required(""));
    } else if !REVIEWS.iter().any(|version| seen.contains(*version)) {
        causes.push(versions.invalid(&format!("must include at least one of {}", REVIEWS.join(", "))));
    }
}

/// Validates `status.storedVersions`, which must name only existing versions, and must name the storage version.
fn stored_versions(definition: At, causes: &mut Causes) {
    let status = definition.get("status");
    let stored = status.get("storedVersions");
    let spec = definition.get("spec");
    let versions = spec.get("versions");
    if count(stored) == 0 {
        causes.push(stored.invalid("must have at least one stored version"));
        return;
    }
    let known: BTreeSet<&str> =
        spec.value["versions"].as_array().into_iter().flatten().filter_map(|one| one["name"].as_str()).collect();
    for version in stored.items().filter(|version| !known.contains(version.text())) {
        let name = version.text();
        causes.push(version.invalid(&format!(
            "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until \
             a storage migration ensures no data remains persisted in {name} and removes {name} from \
             status.storedVersions"
        )));
    }
    // If several versions have the same name, the first of them counts.
    let mut unseen = texts(stored);
    for version in versions.items() {
        let name = version.get("name").text();
        if !unseen.remove(name) && version.get("storage").is_true() {
            causes.push(stored.invalid(&format!("must have the storage version {name}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::{check_rows, check_updates, faults};
    use holdfast_value::{Value, json};

    fn good() -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "gizmos.example.test"},
            "spec": {
                "group": "example.test", "scope": "Namespaced", "names": {"plural": "gizmos", "kind": "Gizmo"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}}}],
            },
        })
    }

    #[test]
    fn each_rule() {
        let version = "spec.versions[0]";
        let of = |rest: &str| format!("{version}{rest}");
        let second = json!({"name": "v1", "served": true, "storage": false,
            "schema": {"openAPIV3Schema": {"type": "object"}}});
        check_rows(
            &good(),
            &[
                (
                    "/metadata/name",
                    json!("wrong"),
                    "metadata.name: Invalid value: \"wrong\": must be spec.names.plural+",
                ),
                ("/spec/group", json!("test"), "spec.group: Invalid value: \"test\": should be a domain with at least"),
                ("/spec/scope", json!("Some"), "spec.scope: Unsupported value: \"Some\""),
                ("/spec/scope", json!(""), "spec.scope: Required value"),
                ("/spec/names/kind", json!(""), "spec.names.kind: Required value"),
                (
                    "/spec/names/kind",
                    json!("Giz mo"),
                    "spec.names.kind: Invalid value: \"Giz mo\": may have mixed case, b",
                ),
                (
                    "/spec/names/listKind",
                    json!("Gizmo"),
                    "spec.names.listKind: Invalid value: \"Gizmo\": kind and listK",
                ),
                ("/spec/names/shortNames", json!(["G"]), "spec.names.shortNames[0]: Invalid value: \"G\": a DNS-1035"),
                ("/spec/versions/0/storage", json!(false), "spec.versions: Invalid value"),
                (
                    "/spec/versions/0/name",
                    json!("1"),
                    &of(".name: Invalid value: \"1\": a DNS-1035 label must consist"),
                ),
                ("/spec/versions/1", second, "spec.versions: Invalid value: [{"),
                ("/spec/versions/0/schema", Value::Null, &of(".schema.openAPIV3Schema: Required value")),
                (
                    "/spec/versions/0/deprecationWarning",
                    json!("w"),
                    &of(".deprecationWarning: Invalid value: \"w\": can o"),
                ),
                (
                    "/spec/versions/0/additionalPrinterColumns",
                    json!([{"name": "a", "type": "text", "jsonPath": ".spec.a"}]),
                    "spec.additionalPrinterColumns[0].type: Invalid value: \"text\": must be one of boolean,date",
                ),
                (
                    "/spec/versions/0/subresources/scale",
                    json!({"specReplicasPath": ".replicas", "statusReplicasPath": ".status.replicas"}),
                    "spec.subresources.scale.specReplicasPath: Invalid value: \".replicas\": should be a json path und",
                ),
                (
                    "/spec/versions/0/additionalPrinterColumns",
                    json!([{"name": "a", "type": "string", "jsonPath": "spec.a"}]),
                    "spec.additionalPrinterColumns[0].JSONPath: Invalid value: \"spec.a\": must be a simple json path st",
                ),
                (
                    "/spec/versions/0/selectableFields",
                    json!([{"jsonPath": ".spec.none"}]),
                    "spec.selectableFields[0].jsonPath: Invalid value: \".spec.none\": is an invalid path: does not re",
                ),
                (
                    "/spec/versions/0/deprecationWarning",
                    json!(""),
                    &of(".deprecationWarning: Invalid value: \"\": can only be set for deprecated versions"),
                ),
                (
                    "/spec/conversion",
                    json!({"strategy": "Webhook"}),
                    "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
                ),
                (
                    "/spec/conversion/webhook",
                    json!({"clientConfig": {"url": "https://h"}, "conversionReviewVersions": ["v1"]}),
                    "spec.conversion.webhookClientConfig: Forbidden: should not be set when strategy is not set to Web",
                ),
            ],
        );
    }

    #[test]
    fn protected_groups_need_approval() {
        let mut definition = good();
        definition["metadata"]["name"] = "gizmos.a.k8s.io".into();
        definition["spec"]["group"] = "a.k8s.io".into();
        let at = "metadata.annotations[api-approved.kubernetes.io]";
        assert!(
            faults(&definition)[0].starts_with(&format!("{at}: Required value: protected groups must have approval"))
        );
        definition["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "unapproved, a test"});
        assert_eq!(faults(&definition), [""; 0]);
    }

    #[test]
    fn versions_that_differ_are_told_apart() {
        let mut definition = good();
        let bad = json!({"type": "object", "properties": {"a": {}}});
        let mut second = definition["spec"]["versions"][0].clone();
        second["name"] = "v2".into();
        second["storage"] = false.into();
        second["schema"]["openAPIV3Schema"] = bad.clone();
        definition["spec"]["versions"].as_array_mut().expect("versions").push(second);
        let rest = "openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields";
        assert_eq!(faults(&definition), [format!("spec.versions[1].schema.{rest}")]);
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = bad;
        assert_eq!(faults(&definition), [format!("spec.validation.{rest}")]);
    }

    #[test]
    fn what_stays() {
        let mut old = good();
        old["status"] = json!({
            "storedVersions": ["v1"], "conditions": [{"type": "Established", "status": "True"}],
        });
        check_updates(
            &old,
            &[
                ("/spec/names/shortNames", json!(["g"]), ""),
                ("/spec/scope", json!("Cluster"), "spec.scope: Invalid value: \"Cluster\": field is immutable"),
                ("/spec/names/kind", json!("Gadget"), "spec.names.kind: Invalid value: \"Gadget\": field is immutable"),
                ("/spec/group", json!("other.test"), "spec.group: Invalid value: \"other.test\": field is immutable"),
                (
                    "/spec/versions/0/name",
                    json!("v2"),
                    "status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage",
                ),
            ],
        );
    }

    #[test]
    fn who_is_trusted_stays_to_be_trusted() {
        let webhook = |client: &Value| json!({"clientConfig": client, "conversionReviewVersions": ["v1"]});
        let before = |client: Option<Value>| {
            let mut old = good();
            old["status"] = json!({"storedVersions": ["v1"]});
            old["spec"]["conversion"] = match client {
                None => json!({"strategy": "None"}),
                Some(client) => json!({"strategy": "Webhook", "webhook": webhook(&client)}),
            };
            old
        };
        let bad = json!({"url": "https://h", "caBundle": "Cg=="});
        let after = json!({"strategy": "Webhook", "webhook": webhook(&bad)});
        let fault =
            "spec.conversion.webhookClientConfig.caBundle: Invalid value: \"Cg==\": data does not contain any v";
        check_updates(&before(Some(json!({"url": "https://h"}))), &[("/spec/conversion", after.clone(), fault)]);
        check_updates(&before(Some(bad)), &[("/spec/conversion", after.clone(), "")]);
        check_updates(&before(None), &[("/spec/conversion", after, "")]);
    }
}
