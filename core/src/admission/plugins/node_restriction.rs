//! NodeRestriction: a node writes only its own objects. The Node authorizer grants nodes access to whole kinds; this
//! plug-in restricts the access to certain objects and fields.

use super::pods::{has_annotation, list, volumes};
use crate::admission::{Attributes, Operation};
use crate::authz::nodes::node_of;
use crate::authz::nodes::references::{self, MIRROR, Reference};
use crate::authz::{ResourceTarget, quoted};
use crate::kinds::certificates::signers;
use crate::kinds::known::{self, Known};
use crate::pipeline::effect::Stop;
use crate::refusal::{Refusal, Subject};
use holdfast_value::{CompactString, Map, Value};
use std::collections::BTreeSet;

const LEASES: &str = "kube-node-lease";

/// The check of a node's write; the `str` is the node's name.
type Rule = fn(&Attributes, &str) -> Result<(), Stop>;

/// The check of a node's writes for each kind that a node may write.
static KINDS: &[(Known, Rule)] = &[
    (known::POD, pod),
    (known::NODE, node),
    (known::PERSISTENT_VOLUME_CLAIM, claim),
    (known::SERVICE_ACCOUNT, account),
    (known::LEASE, lease),
    (known::CSI_NODE, storage_node),
    (known::RESOURCE_SLICE, slice),
    (known::CERTIFICATE_SIGNING_REQUEST, certificate),
    (known::POD_CERTIFICATE_REQUEST, pod_certificate),
];

pub(super) fn mutate(attributes: &mut Attributes) -> Result<(), Stop> {
    let Some(name) = node_of(attributes.user()) else { return Ok(()) };
    if attributes.operation == Operation::Connect {
        return Ok(());
    }
    if name.is_empty() {
        let user = quoted(&attributes.user().name);
        return Err(attributes.forbidden(format!("could not determine node from user {user}")));
    }
    match KINDS.iter().find(|(kind, _)| attributes.is_on(*kind)) {
        Some((_, check)) => check(attributes, name),
        None => Ok(()),
    }
}

fn pod(attributes: &Attributes, node: &str) -> Result<(), Stop> {
    let own = quoted(node);
    let on_node = |pod: &Value| pod["spec"]["nodeName"] == node;
    let refused = |why: String| Err(attributes.forbidden(why));
    let unexpected = || format!("unexpected operation {}", quoted(attributes.operation.as_str()));
    match (attributes.subresource(), attributes.operation) {
        ("", Operation::Create) => new_pod(attributes, node),
        ("", Operation::Delete) if !on_node(attributes.old) => {
            refused(format!("node {own} can only delete pods with spec.nodeName set to itself"))
        }
        ("", Operation::Delete) => Ok(()),
        ("", _) => refused(format!("{}, node {own} can only create and delete mirror pods", unexpected())),
        ("status", Operation::Update) if !on_node(attributes.old) => {
            refused(format!("node {own} can only update pod status for pods with spec.nodeName set to itself"))
        }
        ("status", Operation::Update) => {
            let differs =
                |pointer: &str| said(attributes.old.pointer(pointer)) != said(attributes.object.pointer(pointer));
            if differs("/metadata/labels") {
                return refused(format!("node {own} cannot update labels through pod status"));
            }
            let claims = ["/status/resourceClaimStatuses", "/status/extendedResourceClaimStatus"];
            if claims.into_iter().any(differs) {
                return refused(format!("node {own} cannot update resource claim statues"));
            }
            Ok(())
        }
        ("eviction", Operation::Create) => {
            let pod = existing(attributes, known::POD, attributes.namespace(), attributes.name())?;
            if on_node(&pod) {
                return Ok(());
            }
            refused(format!("node {node} can only evict pods with spec.nodeName set to itself"))
        }
        ("status" | "eviction", _) => refused(unexpected()),
        (other, _) => {
            let other = quoted(other);
            refused(format!("unexpected pod subresource {other}, only 'status' and 'eviction' are allowed"))
        }
    }
}

/// A node may create only mirror pods of its static pods, without references to other objects.
fn new_pod(attributes: &Attributes, node: &str) -> Result<(), Stop> {
    let (pod, own) = (&attributes.object, quoted(node));
    let refused = |why: String| Err(attributes.forbidden(why));
    if !has_annotation(pod, MIRROR) {
        let mirror = quoted(MIRROR);
        return refused(format!("pod does not have {mirror} annotation, node {own} can only create mirror pods"));
    }
    if pod["spec"]["nodeName"] != node {
        return refused(format!("node {own} can only create pods with spec.nodeName set to itself"));
    }
    owner(attributes, node)?;
    if pod["spec"]["serviceAccountName"].as_str().is_some_and(|name| !name.is_empty()) {
        return refused(format!("node {own} can not create pods that reference a service account"));
    }
    let (mut secrets, mut configuration) = (false, false);
    references::of_spec(&pod["spec"], &mut |reference| match reference {
        Reference::Secret(_) => secrets = true,
        _ => configuration = true,
    });
    let sources = || volumes(pod).flat_map(|volume| list(&volume["projected"]["sources"]));
    let claims = || list(&pod["spec"]["resourceClaims"]).next().is_some();
    for (names_some, what) in [
        (secrets, "secrets"),
        (configuration, "configmaps"),
        (sources().any(|source| !source["clusterTrustBundle"].is_null()), "clustertrustbundles"),
        (volumes(pod).any(|volume| !volume["persistentVolumeClaim"].is_null()), "persistentvolumeclaims"),
        (claims(), "resourceclaims"),
    ] {
        if names_some {
            return refused(format!("node {own} can not create pods that reference {what}"));
        }
    }
    Ok(())
}

/// The node must be the pod's only owner.
fn owner(attributes: &Attributes, node: &str) -> Result<(), Stop> {
    let own = quoted(node);
    let refused = |why: String| Err(attributes.forbidden(why));
    let owners: Vec<&Value> = list(&attributes.object["metadata"]["ownerReferences"]).collect();
    let [owner] = owners[..] else {
        let which = if owners.is_empty() { "an" } else { "a single" };
        return refused(format!("node {own} can only create pods with {which} owner reference set to itself"));
    };
    if owner["apiVersion"] != "v1" || owner["kind"] != known::NODE.kind || owner["name"] != node {
        return refused(format!("node {own} can only create pods with an owner reference set to itself"));
    }
    if owner["controller"] != true {
        return refused(format!("node {own} can only create pods with a controller owner reference set to itself"));
    }
    if owner["blockOwnerDeletion"] == true {
        return refused(format!("node {own} must not set blockOwnerDeletion on an owner reference"));
    }
    let found = existing(attributes, known::NODE, "", node)?;
    let (named, found) = (text(&owner["uid"]), text(&found["metadata"]["uid"]).to_owned());
    if named != found {
        return refused(format!("node {node} UID mismatch: expected {named} got {found}"));
    }
    Ok(())
}

fn node(attributes: &Attributes, node: &str) -> Result<(), Stop> {
    let (old, new, own) = (attributes.old, &attributes.object, quoted(node));
    let refused = |why: String| Err(attributes.forbidden(why));
    if !is_named(attributes, node) {
        return refused(format!("node {own} is not allowed to modify node {}", quoted(attributes.name())));
    }
    let differs = |pointer: &str| said(old.pointer(pointer)) != said(new.pointer(pointer));
    let has_source = !new["spec"]["configSource"].is_null();
    let labels = forbidden_labels(&old["metadata"]["labels"], &new["metadata"]["labels"]);
    match attributes.operation {
        Operation::Create if has_source => {
            refused(format!("node {own} is not allowed to create pods with a non-nil configSource"))
        }
        Operation::Create if !labels.is_empty() => {
            refused(format!("node {own} is not allowed to set the following labels: {labels}"))
        }
        Operation::Update if has_source && differs("/spec/configSource") => {
            refused(format!("node {own} is not allowed to update configSource to a new non-nil configSource"))
        }
        Operation::Update if differs("/spec/taints") => refused(format!("node {own} is not allowed to modify taints")),
        Operation::Update if !labels.is_empty() => refused(format!("is not allowed to modify labels: {labels}")),
        Operation::Update if differs("/metadata/ownerReferences") => {
            refused(format!("node {own} is not allowed to modify ownerReferences"))
        }
        _ => Ok(()),
    }
}

/// The domain of labels with which workloads choose nodes. Nodes must not set these labels on themselves.
const RESTRICTED: &str = "node-restriction.kubernetes.io";
/// Kubernetes labels that a node may set on itself.
const OWN_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];
const OWN_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// The changed labels that a node must not change, as text.
fn forbidden_labels(old: &Value, new: &Value) -> String {
    let none = Map::new();
    let (old, new) = (old.as_object().unwrap_or(&none), new.as_object().unwrap_or(&none));
    let keys: BTreeSet<&CompactString> =
        old.keys().chain(new.keys()).filter(|key| old.get(*key) != new.get(*key)).collect();
    let is_forbidden = |key: &str| {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        let within = |own: &str| domain == own || domain.ends_with(&format!(".{own}"));
        let is_kubernetes = within("kubernetes.io") || within("k8s.io");
        let is_own = OWN_LABELS.contains(&key) || OWN_DOMAINS.into_iter().any(within);
        within(RESTRICTED) || is_kubernetes && !is_own
    };
    let keys: Vec<&str> = keys.into_iter().map(CompactString::as_str).filter(|key| is_forbidden(key)).collect();
    keys.join(", ")
}

/// A node may write only the resize status of a PersistentVolumeClaim.
fn claim(attributes: &Attributes, node: &str) -> Result<(), Stop> {
    if attributes.subresource() != "status" {
        return Err(attributes.forbidden("may only update PVC status"));
    }
    if attributes.operation != Operation::Update {
        let operation = quoted(attributes.operation.as_str());
        return Err(attributes.forbidden(format!("unexpected operation {operation}")));
    }
    let rest = |claim: &Value| {
        let mut claim = claim.clone();
        for (part, fields) in [
            ("metadata", &["resourceVersion", "managedFields"][..]),
            ("status", &["capacity", "conditions", "allocatedResources", "allocatedResourceStatuses"]),
        ] {
            if let Some(part) = claim.get_mut(part).and_then(Value::as_object_mut) {
                fields.iter().for_each(|field| drop(part.remove(*field)));
            }
        }
        claim
    };
    let (old, new) = (rest(attributes.old), rest(&attributes.object));
    let differ: Vec<&str> = ["metadata", "spec", "status"]
        .into_iter()
        .filter(|part| said(old.get(*part)) != said(new.get(*part)))
        .collect();
    if differ.is_empty() {
        return Ok(());
    }
    let (own, differ) = (quoted(node), differ.join(", "));
    Err(attributes.forbidden(format!(
        "node {own} is not allowed to update fields other than status.capacity and status.conditions: {differ}"
    )))
}

/// A token that a node requests must be for a pod on the node, with an audience that the pod uses.
fn account(attributes: &Attributes, node: &str) -> Result<(), Stop> {
    if attributes.operation != Operation::Create || attributes.subresource() != "token" {
        return Ok(());
    }
    let refused = |why: &str| Err(attributes.forbidden(why));
    let bound = &attributes.object["spec"]["boundObjectRef"];
    let name = text(&bound["name"]);
    if bound["apiVersion"] != "v1" || bound["kind"] != known::POD.kind || name.is_empty() {
        return refused("node requested token not bound to a pod");
    }
    let uid = text(&bound["uid"]);
    if uid.is_empty() {
        return refused("node requested token with a pod binding without a uid");
    }
    let pod = existing(attributes, known::POD, attributes.namespace(), name)?;
    if pod["metadata"]["uid"] != uid {
        return refused(&format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been \
             deleted and then recreated"
        ));
    }
    if pod["spec"]["nodeName"] != node {
        return refused("node requested token bound to a pod scheduled on a different node");
    }
    match attributes.admission.gates_off.contains("ServiceAccountNodeAudienceRestriction") {
        true => Ok(()),
        false => audience(attributes, &pod),
    }
}

fn audience(attributes: &Attributes, pod: &Value) -> Result<(), Stop> {
    let asked: Vec<&str> = list(&attributes.object["spec"]["audiences"]).map(text).collect();
    let audience = match asked[..] {
        [] => "",
        [audience] => audience,
        _ => return Err(attributes.forbidden("node may only request 0 or 1 audiences")),
    };
    let mut faults = Vec::new();
    for volume in volumes(pod) {
        let sources = list(&volume["projected"]["sources"]);
        let mut tokens = sources.map(|source| &source["serviceAccountToken"]).filter(|token| token.is_object());
        if tokens.any(|token| text(&token["audience"]) == audience) {
            return Ok(());
        }
        match driver_has(attributes, pod, volume, audience) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(fault) => faults.push(fault),
        }
    }
    let shown = quoted(audience);
    if !faults.is_empty() {
        let faults = crate::authz::rbac::joined_errors(faults);
        return Err(attributes.forbidden(format!("error validating audience {shown}: {faults}")));
    }
    let target = ResourceTarget {
        version: "v1",
        resource: audience,
        namespace: attributes.namespace(),
        name: attributes.name(),
        ..ResourceTarget::default()
    };
    if attributes.may("request-serviceaccounts-token-audience", target) {
        return Ok(());
    }
    let user = &attributes.user().name;
    Err(attributes.forbidden(format!(
        "audience {shown} not found in pod spec volume, {user} is not authorized to request tokens for this audience"
    )))
}

/// Whether the CSI driver of a volume requests tokens for this audience. The result is an error if an object that leads
/// to the driver (claim, volume, driver) is missing.
fn driver_has(attributes: &Attributes, pod: &Value, volume: &Value, audience: &str) -> Result<bool, String> {
    let find = |known: Known, namespace: &str, name: &str| {
        let found = attributes.find(known, namespace, name);
        found
            .ok_or_else(|| Subject::new(known.group, known.kind.to_lowercase(), name).to_string())
            .map_err(|subject| format!("{subject} not found"))
    };
    let claim = match (text(&volume["persistentVolumeClaim"]["claimName"]), &volume["ephemeral"]["volumeClaimTemplate"])
    {
        ("", Value::Null) => None,
        ("", _) => Some(format!("{}-{}", text(&pod["metadata"]["name"]), text(&volume["name"]))),
        (name, _) => Some(name.to_owned()),
    };
    let driver = match claim {
        None => text(&volume["csi"]["driver"]).to_owned(),
        Some(claim) => {
            let claim = find(known::PERSISTENT_VOLUME_CLAIM, attributes.namespace(), &claim)?;
            match text(&claim["spec"]["volumeName"]) {
                "" => String::new(),
                name => text(&find(known::PERSISTENT_VOLUME, "", name)?["spec"]["csi"]["driver"]).to_owned(),
            }
        }
    };
    if driver.is_empty() {
        return Ok(false);
    }
    let driver = find(known::CSI_DRIVER, "", &driver)?;
    Ok(list(&driver["spec"]["tokenRequests"]).any(|request| text(&request["audience"]) == audience))
}

fn lease(attributes: &Attributes, node: &str) -> Result<(), Stop> {
    if attributes.namespace() != LEASES {
        return Err(attributes.forbidden(format!("can only access leases in the {LEASES:?} system namespace")));
    }
    own_name(attributes, node, "can only access node lease with the same name as the requesting node")
}

fn storage_node(attributes: &Attributes, node: &str) -> Result<(), Stop> {
    own_name(attributes, node, "can only access CSINode with the same name as the requesting node")
}

fn own_name(attributes: &Attributes, node: &str, why: &str) -> Result<(), Stop> {
    if is_named(attributes, node) { Ok(()) } else { Err(attributes.forbidden(why)) }
}

/// Whether the object has this name. An object with `generateName` has no name yet, so it never matches.
fn is_named(attributes: &Attributes, name: &str) -> bool {
    attributes.shown_name() == name
}

fn slice(attributes: &Attributes, node: &str) -> Result<(), Stop> {
    let (slice, verb) = match attributes.operation {
        Operation::Create => (&attributes.object, "create"),
        Operation::Delete => (attributes.old, "delete"),
        Operation::Update | Operation::Connect => return Ok(()),
    };
    if slice["spec"]["nodeName"] == node {
        return Ok(());
    }
    Err(attributes.forbidden(format!("can only {verb} ResourceSlice with the same NodeName as the requesting node")))
}

const NODES_SIGNERS: [&str; 2] = ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"];

fn certificate(attributes: &Attributes, node: &str) -> Result<(), Stop> {
    let request = &attributes.object["spec"];
    let concerns = NODES_SIGNERS.contains(&text(&request["signerName"]));
    if attributes.operation != Operation::Create || !concerns {
        return Ok(());
    }
    match signers::common_name(text(&request["request"])) {
        None => Err(attributes.forbidden("unable to parse csr: asn1: structure error")),
        Some(name) if name == format!("system:node:{node}") => Ok(()),
        Some(_) => Err(attributes.forbidden(format!("can only create a node CSR with CN=system:node:{node}"))),
    }
}

/// The pod, node and service account that a PodCertificateRequest names must exist, and their UIDs must match the
/// request.
fn pod_certificate(attributes: &Attributes, node: &str) -> Result<(), Stop> {
    if attributes.operation != Operation::Create || !attributes.subresource().is_empty() {
        let operation = attributes.operation.as_str();
        return Err(attributes.forbidden(format!("unexpected operation {operation}")));
    }
    let (request, namespace) = (&attributes.object["spec"], attributes.namespace());
    let asked = |field: &str| text(&request[field]);
    let own = quoted(node);
    if asked("nodeName") != node {
        let named = quoted(asked("nodeName"));
        return Err(attributes.forbidden(format!(
            "PodCertificateRequest.Spec.NodeName={named}, which is not the requesting node {own}"
        )));
    }
    let shown = quoted(&format!("{namespace}/{}", asked("podName")));
    // A UID that differs means an earlier object of the same name.
    let same = |what: &str, field: &str, found: &Value| match (asked(field), text(&found["metadata"]["uid"])) {
        (named, uid) if named == uid => Ok(()),
        (named, uid) => {
            let (named, uid) = (quoted(named), quoted(uid));
            Err(attributes.fault(format!(
                "PodCertificateRequest for pod {shown} names {what} UID {named}, which differs from the running {what} ({uid})"
            )))
        }
    };
    same("node", "nodeUID", &existing(attributes, known::NODE, "", node)?)?;
    let pod = existing(attributes, known::POD, namespace, asked("podName"))?;
    same("pod", "podUID", &pod)?;
    if pod["spec"]["nodeName"] != node {
        let why = format!("pod {shown} is not running on node {own} named in the PodCertificateRequest");
        return Err(attributes.forbidden(why));
    }
    if has_annotation(&pod, MIRROR) {
        return Err(attributes.forbidden(format!("pod {shown} is a mirror pod")));
    }
    let (named, account) = (asked("serviceAccountName"), text(&pod["spec"]["serviceAccountName"]));
    if named != account {
        let (named, account) = (quoted(named), quoted(account));
        return Err(attributes.forbidden(format!(
            "PodCertificateRequest for pod {shown} contains serviceAccountName ({named}) that differs from running pod \
             ({account})"
        )));
    }
    same("service account", "serviceAccountUID", &existing(attributes, known::SERVICE_ACCOUNT, namespace, named)?)
}

/// The existing object, or the refusal NotFound. Kubernetes looks the object up in a cache, whose error names the kind
/// in the singular.
fn existing(attributes: &Attributes, known: Known, namespace: &str, name: &str) -> Result<Value, Stop> {
    let found = attributes.find(known, namespace, name);
    let missing = || Refusal::NotFound(Subject::new(known.group, known.kind.to_lowercase(), name));
    Ok(found.ok_or_else(missing)?)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The value, or `None` for a value that is null or empty.
fn said(value: Option<&Value>) -> Option<&Value> {
    value.filter(|value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => true,
    })
}
