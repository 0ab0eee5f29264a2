//! Validation of volume sources of pods and of persistent volumes, each with its required fields and rules.

use super::claims::claim_template;
use super::environment::{FILE_FIELDS, field_reference, resource_reference};
use crate::kinds::rules::{
    At, Seen, between, descending_path, file_mode, file_path, is_less, named_if_any, need, need_name, need_one_of,
    no_backsteps, one_of, selector,
};
use crate::object::names;
use crate::refusal::{Cause, Causes};
use holdfast_value::{Value, json};

/// The volume that has the source.
pub(super) struct Owner<'a> {
    pub volume: At<'a>,
    pub name: &'a str,
    /// The pod's name; empty if unknown.
    pub pod: &'a str,
    /// Whether the volume is in a pod and not in a template, because pods have stricter rules.
    pub is_pod: bool,
}

pub(super) struct Source {
    pub field: &'static str,
    /// The names of the field in Kubernetes' messages: in faults of its contents, and in the fault of a second source.
    names: (&'static str, &'static str),
    needs: &'static [&'static str],
    /// The required fields of the source's `secretRef`.
    secret: &'static [&'static str],
    rule: Option<fn(At, &Owner, &mut Causes)>,
    /// Whether Kubernetes permits this source together with another source.
    beside: bool,
}

type Rule = fn(At, &Owner, &mut Causes);

const fn source(field: &'static str, needs: &'static [&'static str], rule: Option<Rule>) -> Source {
    Source { field, names: (field, field), needs, secret: &[], rule, beside: false }
}

const fn misnamed(source: Source, wrong: &'static str, surplus: &'static str) -> Source {
    Source { names: (wrong, surplus), ..source }
}

const fn secret(source: Source, secret: &'static [&'static str]) -> Source {
    Source { secret, ..source }
}

const LOCAL: &[&str] = &["name"];
const REMOTE: &[&str] = &["name", "namespace"];
const AWS: Source = source("awsElasticBlockStore", &["volumeID"], Some(partition));
const AZURE_DISK: Source = source("azureDisk", &["diskName", "diskURI"], Some(azure_disk));
const CEPH_FS: Source = misnamed(source("cephfs", &["monitors"], None), "cephfs", "cephFS");
const CINDER: Source = source("cinder", &["volumeID"], None);
const FIBRE_CHANNEL: Source = source("fc", &[], Some(fibre_channel));
const FLEX: Source = source("flexVolume", &["driver"], Some(flex));
const FLOCKER: Source = source("flocker", &[], Some(flocker));
const GCE: Source =
    misnamed(source("gcePersistentDisk", &["pdName"], Some(partition)), "persistentDisk", "gcePersistentDisk");
const HOST_PATH: Source = source("hostPath", &["path"], Some(host_path));
const NFS: Source = source("nfs", &["server", "path"], Some(nfs));
const PHOTON: Source = source("photonPersistentDisk", &["pdID"], None);
const PORTWORX: Source = source("portworxVolume", &["volumeID"], None);
const QUOBYTE: Source = source("quobyte", &[], Some(quobyte));
const RBD: Source = source("rbd", &["monitors", "image"], None);
const SCALE_IO: Source = source("scaleIO", &["gateway", "system", "volumeName"], None);
const STORAGE_OS: Source = source("storageos", &["volumeName"], Some(storage_os));
const VSPHERE: Source = source("vsphereVolume", &["volumePath"], None);

/// The sources in Kubernetes' order. The order determines which of two sources is reported.
pub(super) const OF_PODS: &[Source] = &[
    source("emptyDir", &[], Some(empty_dir)),
    HOST_PATH,
    source("gitRepo", &["repository"], Some(|at, _, causes| descending_path(at.get("directory"), causes))),
    GCE,
    AWS,
    source("secret", &["secretName"], Some(files)),
    NFS,
    source("iscsi", &["targetPortal"], Some(iscsi)),
    source("glusterfs", &["endpoints", "path"], None),
    FLOCKER,
    source("persistentVolumeClaim", &["claimName"], None),
    RBD,
    secret(CINDER, LOCAL),
    CEPH_FS,
    QUOBYTE,
    misnamed(source("downwardAPI", &[], Some(downward)), "downwardAPI", "downwarAPI"),
    FIBRE_CHANNEL,
    FLEX,
    source("configMap", &["name"], Some(files)),
    source("azureFile", &["secretName", "shareName"], None),
    VSPHERE,
    PHOTON,
    PORTWORX,
    AZURE_DISK,
    secret(STORAGE_OS, LOCAL),
    source("projected", &[], Some(projected)),
    SCALE_IO,
    source("csi", &[], Some(csi)),
    source("ephemeral", &["volumeClaimTemplate"], Some(ephemeral)),
    source("image", &[], Some(image)),
];

pub(super) const PERSISTENT: &[Source] = &[
    HOST_PATH,
    GCE,
    AWS,
    source("glusterfs", &["endpoints", "path"], Some(glusterfs)),
    FLOCKER,
    NFS,
    RBD,
    QUOBYTE,
    CEPH_FS,
    secret(source("iscsi", &["targetPortal"], Some(persistent_iscsi)), LOCAL),
    secret(CINDER, REMOTE),
    FIBRE_CHANNEL,
    Source { beside: true, ..FLEX },
    source("azureFile", &["secretName", "shareName"], Some(persistent_azure_file)),
    VSPHERE,
    PHOTON,
    PORTWORX,
    AZURE_DISK,
    SCALE_IO,
    source("local", &["path"], Some(|at, _, causes| no_backsteps(at.get("path"), causes))),
    secret(STORAGE_OS, REMOTE),
    source("csi", &[], Some(persistent_csi)),
];

/// Checks that a volume has one source, and validates the source. Returns the source.
pub(super) fn check<'a>(at: At, sources: &'a [Source], owner: &Owner, causes: &mut Causes) -> Option<&'a Source> {
    let mut found = None;
    for source in sources {
        let value = at.get(source.field);
        if !value.is_set() {
            continue;
        }
        if found.is_some() && !source.beside {
            causes.push(at.get(source.names.1).forbidden("may not specify more than 1 volume type"));
            continue;
        }
        found = found.or(Some(source));
        let value = at.get(source.names.0).holding(value.value);
        for needed in source.needs {
            need(value.get(needed), causes);
        }
        if let Some(rule) = source.rule {
            rule(value, owner, causes);
        }
        let reference = value.get("secretRef");
        if reference.is_set() {
            source.secret.iter().for_each(|field| need(reference.get(field), causes));
        }
    }
    if found.is_none() {
        causes.push(at.required("must specify a volume type"));
    }
    found
}

fn empty_dir(at: At, _: &Owner, causes: &mut Causes) {
    let limit = at.get("sizeLimit");
    if is_less(limit.value, &json!("0")) {
        causes.push(limit.forbidden("SizeLimit field must be a valid resource quantity"));
    }
}

fn host_path(at: At, _: &Owner, causes: &mut Causes) {
    const TYPES: &[&str] =
        &["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    if !at.get("path").is_empty() {
        no_backsteps(at.get("path"), causes);
        one_of(at.get("type"), TYPES, causes);
    }
}

fn partition(at: At, _: &Owner, causes: &mut Causes) {
    let partition = at.get("partition");
    if partition.number().is_some_and(|number| !(0..=255).contains(&number)) {
        causes.push(partition.invalid("must be between 1 and 255, inclusive"));
    }
}

/// Validates the keys of a Secret or ConfigMap that become files.
fn files(at: At, _: &Owner, causes: &mut Causes) {
    file_mode(at.get("defaultMode"), causes);
    keys(at.get("items"), causes);
}

fn keys(list: At, causes: &mut Causes) {
    for item in list.items() {
        let path = item.get("path");
        need(item.get("key"), causes);
        need(path, causes);
        file_path(path, causes);
        file_mode(item.get("mode"), causes);
    }
}

fn nfs(at: At, _: &Owner, causes: &mut Causes) {
    let path = at.get("path");
    if !path.text().starts_with('/') {
        causes.push(path.invalid_as(path.text(), "must be an absolute path"));
    }
}

fn iscsi(at: At, owner: &Owner, causes: &mut Causes) {
    const START: &str = "must be valid format starting with iqn, eui, or naa";
    iscsi_names(at, START, causes);
    if is_too_long(at, owner.name) {
        causes.push(owner.volume.get("name").invalid_as(owner.name, PORTAL_TOO_LONG));
    }
}

fn persistent_iscsi(at: At, owner: &Owner, causes: &mut Causes) {
    if is_too_long(at, owner.name) {
        let portal = at.get("targetPortal");
        causes.push(at.get("targetportal").invalid_as(portal.text(), PORTAL_TOO_LONG));
    }
    iscsi_names(at, "must be valid format", causes);
}

const PORTAL_TOO_LONG: &str = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
                               iscsi.initiatorName is specified.";

fn is_too_long(at: At, volume: &str) -> bool {
    at.get("initiatorName").is_set() && volume.len() + 1 + at.get("targetPortal").text().len() > 64
}

fn iscsi_names(at: At, wrong_start: &str, causes: &mut Causes) {
    let target = at.get("iqn");
    if target.is_empty() {
        causes.push(target.required(""));
    } else {
        iscsi_name(target, wrong_start, causes);
    }
    between(at.get("lun"), 0, 255, causes);
    let secret = at.get("secretRef");
    let authenticates = at.get("chapAuthDiscovery").is_true() || at.get("chapAuthSession").is_true();
    if authenticates && !secret.is_set() {
        causes.push(secret.required(""));
    }
    let initiator = at.get("initiatorName");
    if initiator.is_set() {
        iscsi_name(at.get("initiatorname").holding(initiator.value), wrong_start, causes);
    }
}

/// Validates the name of an iSCSI initiator or target: `iqn.2001-04.com.example:storage`, `eui.` and 16 letters or
/// digits, or `naa.` and 32.
fn iscsi_name(at: At, wrong_start: &str, causes: &mut Causes) {
    let name = at.text();
    let plain = |text: &str, length| text.len() == length && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let after = |length: usize| name.get(length..).unwrap_or("");
    let good = match name.get(..3) {
        // Kubernetes accepts any character in place of the dot.
        Some("eui") => plain(after(4), 16),
        Some("naa") => plain(after(4), 32),
        Some("iqn") => is_qualified_iscsi(name),
        _ => {
            causes.push(at.invalid(wrong_start));
            return;
        }
    };
    if !good {
        causes.push(at.invalid("must be valid format"));
    }
}

fn is_qualified_iscsi(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("iqn.") else { return false };
    let Some((date, rest)) = rest.split_once('.') else { return false };
    let Some((authority, unique)) = rest.split_once(':') else { return false };
    let digits = |text: &str, length| text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit());
    date.split_once('-').is_some_and(|(year, month)| digits(year, 4) && digits(month, 2))
        && !authority.is_empty()
        && authority.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
        && !unique.is_empty()
        && !unique.contains(|c: char| c.is_whitespace() || ",;*&$|".contains(c))
}

fn glusterfs(at: At, _: &Owner, causes: &mut Causes) {
    let namespace = at.get("endpointsNamespace");
    if namespace.is_set() && namespace.is_empty() {
        causes.push(namespace.invalid("if the endpointnamespace is set, it must be a valid namespace name"));
    }
    named_if_any(namespace, names::label, causes);
}

fn flocker(at: At, _: &Owner, causes: &mut Causes) {
    let name = at.get("datasetName");
    match (name.is_empty(), at.get("datasetUUID").is_empty()) {
        (true, true) => causes.push(at.required("one of datasetName and datasetUUID is required")),
        (false, false) => {
            causes.push(at.invalid_as("resource", "datasetName and datasetUUID can not be specified simultaneously"));
        }
        _ => {}
    }
    if name.text().contains('/') {
        causes.push(name.invalid("must not contain '/'"));
    }
}

fn quobyte(at: At, _: &Owner, causes: &mut Causes) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let (registry, tenant) = (at.get("registry"), at.get("tenant"));
    let is_pair = |pair: &str| {
        pair.rsplit_once(':')
            .is_some_and(|(host, _)| !host.contains(':') || (host.starts_with('[') && host.ends_with(']')))
    };
    if registry.is_empty() {
        causes.push(registry.required(PAIRS));
    } else if tenant.text().len() > 64 {
        causes.push(tenant.required("must be a UUID and may not exceed a length of 64 characters"));
    } else {
        let wrong = registry.text().split(',').filter(|pair| !is_pair(pair)).count();
        causes.extend((0..wrong).take(1).map(|_| registry.invalid(PAIRS)));
    }
    need(at.get("volume"), causes);
}

fn downward(at: At, _: &Owner, causes: &mut Causes) {
    file_mode(at.get("defaultMode"), causes);
    downward_files(at, causes);
}

/// Validates files with fields of the pod. Kubernetes reports the files without their index.
fn downward_files(at: At, causes: &mut Causes) {
    for item in at.get("items").items() {
        let file = at.holding(item.value);
        let path = file.get("path");
        need(path, causes);
        file_path(path, causes);
        let (field, resource) = (file.get("fieldRef"), file.get("resourceFieldRef"));
        match (field.is_set(), resource.is_set()) {
            (true, both) => {
                field_reference(field, FILE_FIELDS, causes);
                if both {
                    let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                    causes.push(at.invalid_as("resource", detail));
                }
            }
            (false, true) => resource_reference(resource, true, causes),
            (false, false) => causes.push(at.required("one of fieldRef and resourceFieldRef is required")),
        }
        file_mode(file.get("mode"), causes);
    }
}

fn fibre_channel(at: At, _: &Owner, causes: &mut Causes) {
    let (names, ids, unit) = (at.get("targetWWNs"), at.get("wwids"), at.get("lun"));
    match (names.is_empty(), ids.is_empty()) {
        (true, true) => causes.push(names.required("must specify either targetWWNs or wwids, but not both")),
        (false, false) => causes.push(names.invalid("targetWWNs and wwids can not be specified simultaneously")),
        _ => {}
    }
    if !names.is_empty() {
        if unit.is_set() {
            between(unit, 0, 255, causes);
        } else {
            causes.push(unit.required("lun is required if targetWWNs is specified"));
        }
    }
}

fn flex(at: At, _: &Owner, causes: &mut Causes) {
    for (key, option) in at.get("options").entries() {
        let domain = format!(".{}", key.split('/').next().unwrap_or_default().to_lowercase());
        if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
            causes.push(option.invalid_as(key, "kubernetes.io and k8s.io namespaces are reserved"));
        }
    }
}

fn persistent_azure_file(at: At, _: &Owner, causes: &mut Causes) {
    let namespace = at.get("secretNamespace");
    if namespace.is_set() {
        need(namespace, causes);
    }
}

fn azure_disk(at: At, _: &Owner, causes: &mut Causes) {
    const MANAGED: &str =
        "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
    const BLOB: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    let (kind, place) = (at.get("kind"), at.get("diskURI"));
    one_of(at.get("cachingMode"), &["None", "ReadOnly", "ReadWrite"], causes);
    one_of(kind, &["Dedicated", "Managed", "Shared"], causes);
    let (start, supported) = if kind.text() == "Managed" { ("/subscriptions/", MANAGED) } else { ("https://", BLOB) };
    if kind.is_set() && !place.text().starts_with(start) {
        causes.push(place.not_supported(&[supported]));
    }
}

fn storage_os(at: At, _: &Owner, causes: &mut Causes) {
    named_if_any(at.get("volumeName"), names::label, causes);
    named_if_any(at.get("volumeNamespace"), names::label, causes);
}

/// Validates a volume with several sources in one directory. Two sources must not write the same file.
fn projected(at: At, _: &Owner, causes: &mut Causes) {
    const CONFLICT: &str = "conflicting duplicate paths";
    file_mode(at.get("defaultMode"), causes);
    let mut paths = Seen::default();
    for source in at.get("sources").items() {
        for field in ["secret", "configMap"] {
            let object = source.get(field);
            if !object.is_set() {
                continue;
            }
            need(object.get("name"), causes);
            keys(object.get("items"), causes);
            for item in object.get("items").items() {
                if !item.get("path").is_empty() && paths.again(item.get("path").value) {
                    causes.push(at.invalid_as(object.get("name").text(), CONFLICT));
                }
            }
        }
        let shown = source.get("downwardAPI");
        downward_files(shown, causes);
        for item in shown.get("items").items() {
            let path = item.get("path");
            if !path.is_empty() && paths.again(path.value) {
                causes.push(at.invalid_as(path.text(), CONFLICT));
            }
        }
        token(at, source.get("serviceAccountToken"), causes);
        let bundle = source.get("clusterTrustBundle");
        if bundle.is_set() {
            trust_bundle(bundle, causes);
            let path = bundle.get("path");
            if paths.again(&path.text().into()) {
                causes.push(at.invalid_as(path.text(), CONFLICT));
            }
        }
        certificate(at, source.get("podCertificate"), &mut paths, causes);
        if source.value.as_object().is_some_and(|fields| fields.values().filter(|value| !value.is_null()).count() > 1) {
            causes.push(source.forbidden("may not specify more than 1 volume type per source"));
        }
    }
}

fn token(volume: At, token: At, causes: &mut Causes) {
    if !token.is_set() {
        return;
    }
    let expiration = token.get("expirationSeconds");
    if expiration.number_or_zero() < 600 {
        let detail = "may not specify a duration less than 10 minutes";
        causes.push(expiration.invalid_as(expiration.number_or_zero(), detail));
    }
    if expiration.number_or_zero() > 1 << 32 {
        causes.push(expiration.invalid("may not specify a duration larger than 2^32 seconds"));
    }
    // Kubernetes reports the token's path as a field of the volume.
    let path = volume.get("path").holding(&token.value["path"]);
    need(path, causes);
    file_path(path, causes);
}

/// Validates trust anchors: a bundle by name, or the bundles of a signer.
fn trust_bundle(bundle: At, causes: &mut Causes) {
    let (name, signer, labels) = (bundle.get("name"), bundle.get("signerName"), bundle.get("labelSelector"));
    match (name.is_set(), signer.is_set()) {
        (true, true) => causes.push(bundle.invalid("only one of name and signerName may be used")),
        (true, false) => {
            if name.is_empty() {
                causes.push(name.required("must be a valid object name"));
            }
            let plain = name.text().rsplit(':').next().unwrap_or_default();
            let messages = names::subdomain(plain);
            causes.extend(
                messages.iter().map(|m| Cause::from(name.invalid(&format!("not a valid clustertrustbundlename: {m}")))),
            );
            if labels.is_set() {
                causes.push(labels.invalid("labelSelector must be unset if name is specified"));
            }
        }
        (false, true) => {
            if signer.is_empty() {
                causes.push(signer.required("must be a valid signer name"));
            } else if signer.text().split_once('/').is_none_or(|(domain, path)| domain.is_empty() || path.is_empty()) {
                causes.push(
                    signer.invalid("must be a fully qualified domain and path of the form 'example.com/signer-name'"),
                );
            }
            selector(labels, causes);
        }
        (false, false) => causes.push(bundle.required("either name or signerName must be specified")),
    }
    let path = bundle.get("path");
    need(path, causes);
    file_path(path, causes);
}

/// Validates the paths of the files for the pod's own key and certificates.
fn certificate(volume: At, certificate: At, paths: &mut Seen, causes: &mut Causes) {
    for field in ["credentialBundlePath", "keyPath", "certificateChainPath"] {
        let path = certificate.get(field);
        if path.is_empty() {
            continue;
        }
        file_path(path, causes);
        if paths.again(path.value) {
            causes.push(volume.invalid_as(path.text(), "conflicting duplicate paths"));
        }
    }
}

fn csi(at: At, _: &Owner, causes: &mut Causes) {
    driver(at.get("driver"), causes);
    let reference = at.get("nodePublishSecretRef");
    if reference.is_set() {
        let name = reference.get("name");
        need(name, causes);
        // Kubernetes omits the name of the reference from this path.
        named_if_any(at.get("name").holding(name.value), names::subdomain, causes);
    }
}

fn persistent_csi(at: At, _: &Owner, causes: &mut Causes) {
    driver(at.get("driver"), causes);
    need(at.get("volumeHandle"), causes);
    let references =
        ["controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"];
    for reference in references {
        let reference = at.get(reference);
        if reference.is_set() {
            need_name(reference.get("name"), names::subdomain, causes);
            need_name(reference.get("namespace"), names::label, causes);
        }
    }
}

/// Validates the name of a CSI driver.
fn driver(at: At, causes: &mut Causes) {
    if at.is_empty() {
        need(at, causes);
        return;
    }
    if at.text().len() > 63 {
        causes.push(Cause::too_long(at.path(), 63));
    }
    let messages = names::subdomain(&at.text().to_lowercase());
    causes.extend(messages.iter().map(|message| at.invalid_as(at.text(), message)));
}

fn ephemeral(at: At, owner: &Owner, causes: &mut Causes) {
    let template = at.get("volumeClaimTemplate");
    if template.is_set() {
        claim_template(template, causes);
    }
    if owner.pod.is_empty() || owner.name.is_empty() {
        return;
    }
    let claim = format!("{}-{}", owner.pod, owner.name);
    for message in names::subdomain(&claim) {
        let detail = format!("PVC name {}: {message}", Value::from(claim.as_str()));
        causes.push(owner.volume.get("name").invalid_as(owner.name, &detail));
    }
}

fn image(at: At, owner: &Owner, causes: &mut Causes) {
    if owner.is_pod {
        need(at.get("reference"), causes);
    }
    need_one_of(at.get("pullPolicy"), &["Always", "IfNotPresent", "Never"], causes);
}
