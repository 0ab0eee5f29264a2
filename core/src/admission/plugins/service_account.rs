//! ServiceAccount: every pod gets a service account, and its token unless automounting is off.

use super::pods::{self, MIRROR};
use crate::admission::{Attributes, Operation};
use crate::kinds::known::{POD, SERVICE_ACCOUNT};
use crate::object::meta::{self, object_mut};
use crate::pipeline::effect::Stop;
use crate::stamp::Purpose;
use holdfast_value::{Value, json};

const DEFAULT: &str = "default";
const VOLUME: &str = "kube-api-access";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const ENFORCE_MOUNTABLE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";
/// The lifetime of a pod's token: a little more than an hour, so that a kubelet renews the token about every hour.
const TOKEN_SECONDS: i64 = 60 * 60 + 7;

pub(super) fn mutate(attributes: &mut Attributes) -> Result<(), Stop> {
    if !attributes.creates(POD) {
        return Ok(());
    }
    if pods::has_annotation(&attributes.object, MIRROR) {
        return mirror(attributes);
    }
    let spec = object_mut(attributes.fields_mut(), "spec");
    if meta::text(spec, "serviceAccountName").is_empty() {
        spec.insert("serviceAccountName", DEFAULT.into());
    }
    let name = meta::text(spec, "serviceAccountName").to_owned();
    // Old clients read the account from this field.
    spec.insert("serviceAccount", name.as_str().into());
    let account = account(attributes, &name)?;
    let said = |holder: &Value| holder["automountServiceAccountToken"].as_bool();
    let automount = said(&attributes.object["spec"]).or_else(|| said(&account)).unwrap_or(true);
    let suffix = attributes.stamp.suffix(Purpose::Volume, 0);
    let spec = object_mut(attributes.fields_mut(), "spec");
    if automount {
        mount_token(spec, &suffix);
    }
    let pull_secrets = account["imagePullSecrets"].as_array().filter(|secrets| !secrets.is_empty());
    if let Some(secrets) = pull_secrets
        && spec.get("imagePullSecrets").and_then(Value::as_array).is_none_or(Vec::is_empty)
    {
        spec.insert("imagePullSecrets", secrets.clone().into());
    }
    check_secrets(attributes, &account)
}

pub(super) fn validate(attributes: &mut Attributes) -> Result<(), Stop> {
    match (attributes.operation, attributes.subresource()) {
        (Operation::Create, "") if attributes.is_on(POD) => {}
        (Operation::Update, "ephemeralcontainers") if attributes.is_on(POD) => return ephemeral(attributes),
        _ => return Ok(()),
    }
    let pod = &attributes.object;
    if pods::has_annotation(pod, MIRROR) {
        return mirror(attributes);
    }
    let name = pod["spec"]["serviceAccountName"].as_str().unwrap_or("");
    let account = required_account(attributes, name)?;
    check_secrets(attributes, &account)
}

fn check_secrets(attributes: &Attributes, account: &Value) -> Result<(), Stop> {
    if !limits_secrets(account) {
        return Ok(());
    }
    match unlisted_secret(&attributes.object, account) {
        Some(fault) => Err(attributes.forbidden(fault)),
        None => Ok(()),
    }
}

fn required_account(attributes: &Attributes, name: &str) -> Result<Value, Stop> {
    if name.is_empty() {
        let (namespace, pod) = (attributes.namespace(), attributes.name());
        return Err(attributes.forbidden(format!("no service account specified for pod {namespace}/{pod}")));
    }
    account(attributes, name)
}

fn account(attributes: &Attributes, name: &str) -> Result<Value, Stop> {
    let namespace = attributes.namespace();
    attributes.find(SERVICE_ACCOUNT, namespace, name).ok_or_else(|| {
        attributes.forbidden(format!(
            "error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found"
        ))
    })
}

/// A mirror pod (of a pod that a kubelet runs from a file) must not use the cluster's service accounts or secrets.
fn mirror(attributes: &Attributes) -> Result<(), Stop> {
    let pod = &attributes.object;
    if !pod["spec"]["serviceAccountName"].as_str().unwrap_or("").is_empty() {
        return Err(attributes.forbidden("a mirror pod may not reference service accounts"));
    }
    if pods::names_secrets(pod) {
        return Err(attributes.forbidden("a mirror pod may not reference secrets"));
    }
    let mut sources = pods::volumes(pod).flat_map(|volume| pods::list(&volume["projected"]["sources"]));
    if sources.any(|source| source["serviceAccountToken"].is_object()) {
        return Err(attributes.forbidden("a mirror pod may not use ServiceAccountToken volume projections"));
    }
    Ok(())
}

/// Adds the token volume, and mounts it at the usual path in each container that has no mount at that path.
fn mount_token(spec: &mut meta::Document, suffix: &str) {
    let prefix = format!("{VOLUME}-");
    let volumes = spec.get("volumes").and_then(Value::as_array).into_iter().flatten();
    let mut names = volumes.filter_map(|volume| volume["name"].as_str());
    let found = names.find(|name| name.starts_with(&prefix)).map(str::to_owned);
    let name = found.clone().unwrap_or_else(|| format!("{prefix}{suffix}"));
    let mut is_needed = false;
    for list in ["initContainers", "containers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(container) = container.as_object_mut() else { continue };
            let mounts = container.entry("volumeMounts").or_insert_with(|| json!([]));
            let Some(mounts) = mounts.as_array_mut() else { continue };
            if mounts.iter().any(|mount| mount["mountPath"] == MOUNT_PATH) {
                continue;
            }
            mounts.push(json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH}));
            is_needed = true;
        }
    }
    if found.is_some() || !is_needed {
        return;
    }
    if let Some(volumes) = spec.entry("volumes").or_insert_with(|| json!([])).as_array_mut() {
        volumes.push(token_volume(&name));
    }
}

fn token_volume(name: &str) -> Value {
    let namespace = json!({"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}});
    json!({"name": name, "projected": {"defaultMode": 0o644, "sources": [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_SECONDS}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]}})
}

fn limits_secrets(account: &Value) -> bool {
    let said = account["metadata"]["annotations"][ENFORCE_MOUNTABLE_SECRETS].as_str();
    // Go's ParseBool accepts exactly these texts as true.
    said.is_some_and(|said| matches!(said, "1" | "t" | "T" | "true" | "True" | "TRUE"))
}

fn names(list: &Value) -> impl Iterator<Item = &str> {
    pods::list(list).filter_map(|item| item["name"].as_str())
}

/// The first secret of a pod that its account does not list, as a message.
fn unlisted_secret(pod: &Value, account: &Value) -> Option<String> {
    let owner = account["metadata"]["name"].as_str().unwrap_or("");
    let is_listed = |secret: &str| names(&account["secrets"]).any(|name| name == secret);
    let because = format!("is not allowed because service account {owner} does not reference that secret");
    for volume in pods::volumes(pod) {
        if let Some(secret) = volume["secret"]["secretName"].as_str().filter(|secret| !is_listed(secret)) {
            return Some(format!("volume with secret.secretName=\"{secret}\" {because}"));
        }
    }
    for (list, called) in [("initContainers", "init container"), ("containers", "container")] {
        for container in pods::list(&pod["spec"][list]) {
            if let Some(found) = unlisted_in(container, called, &is_listed) {
                return Some(format!("{found} {because}"));
            }
        }
    }
    for (at, name) in names(&pod["spec"]["imagePullSecrets"]).enumerate() {
        if !names(&account["imagePullSecrets"]).any(|listed| listed == name) {
            return Some(format!(
                "imagePullSecrets[{at}].name=\"{name}\" is not allowed because service account {owner} does not \
                 reference that imagePullSecret"
            ));
        }
    }
    None
}

/// The first unlisted secret in the environment of a container.
fn unlisted_in(container: &Value, called: &str, is_listed: &impl Fn(&str) -> bool) -> Option<String> {
    let name = container["name"].as_str().unwrap_or("");
    for variable in pods::list(&container["env"]) {
        let secret = variable["valueFrom"]["secretKeyRef"]["name"].as_str();
        if let Some(secret) = secret.filter(|secret| !is_listed(secret)) {
            let variable = variable["name"].as_str().unwrap_or("");
            return Some(format!("{called} {name} with envVar {variable} referencing secret.secretName=\"{secret}\""));
        }
    }
    for source in pods::list(&container["envFrom"]) {
        if let Some(secret) = source["secretRef"]["name"].as_str().filter(|secret| !is_listed(secret)) {
            return Some(format!("{called} {name} with envFrom referencing secret.secretName=\"{secret}\""));
        }
    }
    None
}

fn ephemeral(attributes: &Attributes) -> Result<(), Stop> {
    let pod = &attributes.object;
    let account = required_account(attributes, pod["spec"]["serviceAccountName"].as_str().unwrap_or(""))?;
    if !limits_secrets(&account) {
        return Ok(());
    }
    let owner = account["metadata"]["name"].as_str().unwrap_or("");
    let is_listed = |secret: &str| names(&account["secrets"]).any(|name| name == secret);
    for container in pods::list(&pod["spec"]["ephemeralContainers"]) {
        if let Some(found) = unlisted_in(container, "ephemeral container", &is_listed) {
            let because = format!("is not allowed because service account {owner} does not reference that secret");
            return Err(attributes.fault(format!("{found} {because}")));
        }
    }
    Ok(())
}
