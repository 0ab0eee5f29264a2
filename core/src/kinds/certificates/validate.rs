//! Validation of certificate signing requests and trust bundles.

use super::pem;
use crate::kinds::rules::{At, Seen, immutable, same};
use crate::kinds::shapes::{TRUE_FALSE_UNKNOWN, at_least, distinct_items, not_longer, signer_name};
use crate::object::names;
use crate::refusal::Causes;
use holdfast_value::Value;
use std::collections::BTreeMap;

const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
const APPROVED: &str = "Approved";
const DENIED: &str = "Denied";
const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];
const BUNDLE_BYTES_MAX: usize = 1024 * 1024;
const SECONDS_MIN: i64 = 600;

pub fn request(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    // The request is immutable, so it is validated only once.
    if old.is_none() {
        request_spec(spec, &mut causes);
    }
    conditions(root.get("status"), &mut causes);
    causes
}

fn request_spec(spec: At, causes: &mut Causes) {
    let (request, usages, signer) = (spec.get("request"), spec.get("usages"), spec.get("signerName"));
    match pem::blocks(&decoded(request)).first() {
        Some(block) if block.ty == "CERTIFICATE REQUEST" => {
            if !pem::is_signed(&block.bytes) {
                causes.push(request.invalid("asn1: structure error: not a certificate request"));
            }
        }
        _ => causes.push(request.invalid("PEM block type must be CERTIFICATE REQUEST")),
    }
    if usages.is_empty() {
        causes.push(usages.required(""));
    }
    for usage in usages.items().filter(|usage| !USAGES.contains(&usage.text())) {
        causes.push(usage.not_supported(USAGES));
    }
    distinct_items(usages, causes);
    if signer.text() == LEGACY_SIGNER {
        causes.push(signer.invalid("the legacy signerName is not allowed via this API version"));
    } else {
        signer_name(signer, causes);
    }
    let short = "may not specify a duration less than 600 seconds (10 minutes)";
    at_least(spec.get("expirationSeconds"), SECONDS_MIN, short, causes);
}

fn decoded(at: At) -> String {
    pem::decoded(at.text())
}

fn conditions(status: At, causes: &mut Causes) {
    let mut seen = Seen::default();
    let (mut approved, mut denied) = (false, false);
    let list = status.get("conditions");
    for condition in list.items() {
        let (ty, value) = (condition.get("type"), condition.get("status"));
        if ty.is_empty() {
            causes.push(ty.required(""));
        }
        let supported: &[&str] = match ty.text() {
            APPROVED | DENIED | "Failed" => &["True"],
            _ => TRUE_FALSE_UNKNOWN,
        };
        if value.is_empty() {
            causes.push(value.required(""));
        } else if !supported.contains(&value.text()) {
            causes.push(value.not_supported(supported));
        }
        approved |= ty.text() == APPROVED;
        denied |= ty.text() == DENIED;
        if approved && denied && matches!(ty.text(), APPROVED | DENIED) {
            causes.push(list.invalid_as(ty.text(), "Approved and Denied conditions are mutually exclusive"));
        }
        if seen.again(ty.value) {
            causes.push(ty.duplicate());
        }
    }
}

/// Validates an approval, which may add conditions but not remove them.
pub fn approval(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    conditions(root.get("status"), &mut causes);
    none_removed(root, old, &mut causes);
    causes
}

/// Validates a status write, which sets the certificate once and leaves the approval unchanged.
pub fn status(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = approval(new, old);
    let root = At::root(new);
    let status = root.get("status");
    let certificate = status.get("certificate");
    let Some(old) = old else { return causes };
    for ty in [APPROVED, DENIED] {
        let (before, after) = (of_type(old, ty), of_type(new, ty));
        let list = status.get("conditions");
        if after.len() > before.len() {
            causes.push(list.forbidden(&format!("updates may not add a condition of type \"{ty}\"")));
        } else if after.len() == before.len() && !after.iter().zip(&before).all(|(after, before)| same(after, before)) {
            causes.push(list.forbidden(&format!("updates may not modify a condition of type \"{ty}\"")));
        }
    }
    let before = old["status"]["certificate"].as_str().unwrap_or("");
    if certificate.text() != before {
        if !before.is_empty() {
            causes.push(certificate.forbidden("updates may not modify existing certificate content"));
        }
        if !certificate.is_empty()
            && let Some(fault) = chain_fault(&decoded(certificate))
        {
            let shown = Value::from("<certificate data>");
            causes.push(certificate.holding(&shown).invalid(&fault));
        }
    }
    causes
}

fn none_removed(request: At, old: Option<&Value>, causes: &mut Causes) {
    let Some(old) = old else { return };
    let status = request.get("status");
    for ty in [APPROVED, DENIED, "Failed"] {
        if of_type(request.value, ty).len() < of_type(old, ty).len() {
            let detail = format!("updates may not remove a condition of type \"{ty}\"");
            causes.push(status.get("conditions").forbidden(&detail));
        }
    }
}

fn of_type<'a>(request: &'a Value, ty: &str) -> Vec<&'a Value> {
    let list = request["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    list.iter().filter(|condition| condition["type"] == ty).collect()
}

fn chain_fault(text: &str) -> Option<String> {
    let blocks = pem::blocks(text);
    if blocks.is_empty() {
        return Some("must contain at least one CERTIFICATE PEM block".into());
    }
    blocks.iter().find_map(|block| {
        if block.ty != "CERTIFICATE" {
            return Some(format!("only CERTIFICATE PEM blocks are allowed, found {}", Value::from(block.ty.as_str())));
        }
        if block.has_headers {
            return Some("no PEM block headers are permitted".into());
        }
        (!pem::is_signed(&block.bytes)).then(|| "x509: malformed certificate".into())
    })
}

pub fn bundle(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    let (signer, trust) = (spec.get("signerName"), spec.get("trustBundle"));
    let metadata = root.get("metadata");
    bundle_name(metadata.get("name"), signer.text(), &mut causes);
    if !signer.is_empty() {
        signer_name(signer, &mut causes);
    }
    if old.is_none_or(|old| &old["spec"]["trustBundle"] != trust.value) {
        anchors(trust, &mut causes);
    }
    if let Some(old) = old {
        immutable(signer, &old["spec"]["signerName"], &mut causes);
    }
    causes
}

fn bundle_name(name: At, signer: &str, causes: &mut Causes) {
    let prefix = format!("{}:", signer.replace('/', ":"));
    let rest = match name.text().strip_prefix(&prefix) {
        _ if signer.is_empty() && name.text().contains(':') => {
            causes.push(name.invalid("ClusterTrustBundle without signer name must not have \":\" in its name"));
            return;
        }
        _ if signer.is_empty() => name.text(),
        Some(rest) => rest,
        None => {
            let detail = format!("ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}");
            causes.push(name.invalid(&detail));
            return;
        }
    };
    causes.extend(names::subdomain(rest).iter().map(|message| name.invalid(message)));
}

fn anchors(trust: At, causes: &mut Causes) {
    let text = trust.text();
    if text.len() > BUNDLE_BYTES_MAX {
        not_longer(trust, BUNDLE_BYTES_MAX, causes);
        return;
    }
    let hidden = Value::from("<value omitted>");
    let at = trust.holding(&hidden);
    let mut places: BTreeMap<Vec<u8>, Vec<usize>> = BTreeMap::new();
    let before = causes.len();
    for (index, block) in pem::blocks(text).into_iter().enumerate() {
        let fault = if block.ty != "CERTIFICATE" {
            format!("has bad block type: {}", block.ty)
        } else if block.has_headers {
            "has PEM block headers".into()
        } else if !pem::is_signed(&block.bytes) {
            "does not parse as X.509".into()
        } else if !pem::is_authority(&block.bytes) {
            "does not have the CA bit set".into()
        } else {
            places.entry(block.bytes).or_default().push(index);
            continue;
        };
        causes.push(at.invalid(&format!("entry {index} {fault}")));
    }
    if causes.len() > before {
        return;
    }
    if places.is_empty() {
        causes.push(at.invalid("at least one trust anchor must be provided"));
    }
    for indices in places.values().filter(|indices| indices.len() > 1) {
        let shown: Vec<String> = indices.iter().map(usize::to_string).collect();
        causes.push(at.invalid(&format!("duplicate trust anchor (indices [{}])", shown.join(" "))));
    }
}

#[cfg(test)]
mod tests {
    use super::super::pem::testing::{certificate, pem, signed};
    use super::*;
    use crate::kinds::rules::testing::{check_part, check_rows, check_updates};
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use holdfast_value::json;

    fn encoded(ty: &str, der: &[u8]) -> Value {
        STANDARD.encode(pem(ty, der)).into()
    }

    fn signing_request() -> Value {
        json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "a"},
            "spec": {
                "request": encoded("CERTIFICATE REQUEST", &signed(&[])), "signerName": "example.com/s",
                "usages": ["client auth"],
            },
        })
    }

    #[test]
    fn requests() {
        check_rows(
            &signing_request(),
            &[
                (
                    "/spec/request",
                    json!("AAAA"),
                    "spec.request: Invalid value: \"AAAA\": PEM block type must be CERTIFI",
                ),
                ("/spec/request", encoded("CERTIFICATE", &signed(&[])), "spec.request: Invalid value: "),
                ("/spec/request", encoded("CERTIFICATE REQUEST", b"no"), "spec.request: Invalid value: "),
                ("/spec/usages", json!([]), "spec.usages: Required value"),
                (
                    "/spec/usages/0",
                    json!("all"),
                    "spec.usages[0]: Unsupported value: \"all\": supported values: \"any\"",
                ),
                ("/spec/usages", json!(["any", "any"]), "spec.usages[1]: Duplicate value: \"any\""),
                ("/spec/signerName", json!(""), "spec.signerName: Required value"),
                ("/spec/signerName", json!("me"), "spec.signerName: Invalid value: \"me\": must be a fully qualified"),
                (
                    "/spec/signerName",
                    json!(LEGACY_SIGNER),
                    "spec.signerName: Invalid value: \"kubernetes.io/legacy-unkn",
                ),
                (
                    "/spec/expirationSeconds",
                    json!(599),
                    "spec.expirationSeconds: Invalid value: 599: may not specify a",
                ),
            ],
        );
    }

    #[test]
    fn approvals_and_certificates() {
        let approved = json!({"type": "Approved", "status": "True"});
        let denied = json!({"type": "Denied", "status": "True"});
        let fresh = signing_request();
        check_part(
            &fresh,
            "approval",
            &[
                ("/status/conditions", json!([approved]), ""),
                (
                    "/status/conditions",
                    json!([approved, denied]),
                    "status.conditions: Invalid value: \"Denied\": Approved and Denied conditions are mutually",
                ),
                (
                    "/status/conditions",
                    json!([approved, approved]),
                    "status.conditions[1].type: Duplicate value: \"App",
                ),
                (
                    "/status/conditions",
                    json!([{"type": "Approved", "status": "False"}]),
                    "status.conditions[0].status: Unsupported value: \"False\": supported values: \"True\"",
                ),
                ("/status/conditions", json!([{"status": "True"}]), "status.conditions[0].type: Required value"),
                ("/status/conditions", json!([{"type": "Approved"}]), "status.conditions[0].status: Required value"),
            ],
        );
        let chain = encoded("CERTIFICATE", &certificate(false, 1));
        let add = "status.conditions: Forbidden: updates may not add a condition of type \"Approved\"";
        check_part(
            &fresh,
            "status",
            &[
                ("/status/certificate", chain.clone(), ""),
                ("/status/conditions", json!([{"type": "Failed", "status": "True"}]), ""),
                ("/status/conditions", json!([approved]), add),
                (
                    "/status/certificate",
                    encoded("KEY", b"k"),
                    "status.certificate: Invalid value: \"<certificate data>\": only CERTIFICATE PEM blocks are allowed",
                ),
                (
                    "/status/certificate",
                    json!("AAAA"),
                    "status.certificate: Invalid value: \"<certificate data>\": must",
                ),
            ],
        );
        let mut done = fresh;
        done["status"] = json!({"conditions": [approved], "certificate": chain});
        let other = encoded("CERTIFICATE", &certificate(false, 2));
        let removed = "status.conditions: Forbidden: updates may not remove a condition of type \"Approved\"";
        check_part(&done, "approval", &[("/status/conditions", json!([]), removed)]);
        check_part(
            &done,
            "status",
            &[
                ("/status/conditions", json!([]), removed),
                (
                    "/status/conditions/0/message",
                    json!("m"),
                    "status.conditions: Forbidden: updates may not modify a condition of type \"Approved\"",
                ),
                (
                    "/status/certificate",
                    other,
                    "status.certificate: Forbidden: updates may not modify existing certifi",
                ),
            ],
        );
    }

    #[test]
    fn bundles() {
        let anchor = pem("CERTIFICATE", &certificate(true, 1));
        let good = json!({
            "apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle",
            "metadata": {"name": "example.com:s:a"},
            "spec": {"signerName": "example.com/s", "trustBundle": anchor},
        });
        let entry = "spec.trustBundle: Invalid value: \"<value omitted>\": ";
        let of = |rest: &str| format!("{entry}{rest}");
        check_rows(
            &good,
            &[
                (
                    "/metadata/name",
                    json!("a"),
                    "metadata.name: Invalid value: \"a\": ClusterTrustBundle for signerName",
                ),
                (
                    "/spec/signerName",
                    json!(""),
                    "metadata.name: Invalid value: \"example.com:s:a\": ClusterTrustBundle w",
                ),
                ("/spec/trustBundle", json!(""), &of("at least one trust anchor must be provided")),
                (
                    "/spec/trustBundle",
                    json!(format!("{anchor}{anchor}")),
                    &of("duplicate trust anchor (indices [0 1])"),
                ),
                ("/spec/trustBundle", json!(pem("KEY", b"k")), &of("entry 0 has bad block type: KEY")),
                ("/spec/trustBundle", json!(pem("CERTIFICATE", b"k")), &of("entry 0 does not parse as X.509")),
                (
                    "/spec/trustBundle",
                    json!(pem("CERTIFICATE", &certificate(false, 1))),
                    &of("entry 0 does not have the CA bit set"),
                ),
            ],
        );
        let changed = "spec.signerName: Invalid value: \"example.com/t\": field is immutable";
        check_updates(&good, &[("/spec/signerName", json!("example.com/t"), changed)]);
    }
}
