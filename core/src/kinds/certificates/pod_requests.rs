//! Validation of PodCertificateRequests, which kubelets create.

use super::pem;
use crate::kinds::rules::{At, immutable, named, same};
use crate::kinds::shapes::{conditions, is_condition_true, not_longer, signer_name};
use crate::object::names;
use crate::refusal::{Cause, Causes};
use holdfast_value::Value;

const SECONDS_MIN: i64 = 3600;
const SECONDS_MAX: i64 = 91 * 86400;
const KUBERNETES_SECONDS_MAX: i64 = 86400;
const KEY_BYTES_MAX: usize = 10 * 1024;
const UID_BYTES_MAX: usize = 128;

pub fn request(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    if let Some(old) = old {
        immutable(spec, &old["spec"], &mut causes);
        return causes;
    }
    let signer = spec.get("signerName");
    signer_name(signer, &mut causes);
    for (name, uid) in [("podName", "podUID"), ("serviceAccountName", "serviceAccountUID"), ("nodeName", "nodeUID")] {
        let uid = spec.get(uid);
        named(spec.get(name), names::subdomain, &mut causes);
        if uid.is_empty() {
            causes.push(Cause::invalid(uid.path(), &Value::from(""), "must not be empty"));
        }
        not_longer(uid, UID_BYTES_MAX, &mut causes);
    }
    let of_kubernetes = signer.text().split('/').next().is_some_and(|domain| domain.ends_with("kubernetes.io"));
    let most = if of_kubernetes { KUBERNETES_SECONDS_MAX } else { SECONDS_MAX };
    let seconds = spec.get("maxExpirationSeconds");
    match seconds.number() {
        None => causes.push(seconds.required("must be set")),
        Some(number) if !(SECONDS_MIN..=most).contains(&number) => {
            causes.push(seconds.invalid(&format!("must be in the range [{SECONDS_MIN}, {most}]")));
        }
        Some(_) => {}
    }
    for field in ["pkixPublicKey", "proofOfPossession"] {
        // Base64 encodes three bytes as four letters.
        if spec.get(field).text().len() / 4 * 3 > KEY_BYTES_MAX {
            causes.push(Cause::too_long(spec.get(field).path(), KEY_BYTES_MAX));
        }
    }
    if spec.get("pkixPublicKey").is_empty() {
        causes.push(spec.get("pkixPublicKey").invalid("must be a valid PKIX-serialized public key"));
    }
    causes
}

pub fn status(new: &Value, old: Option<&Value>) -> Causes {
    const TERMINAL: &[&str] = &["Issued", "Denied", "Failed"];
    let mut causes = Causes::default();
    let root = At::root(new);
    let status = root.get("status");
    let list = status.get("conditions");
    let mut known = 0;
    for condition in list.items() {
        let ty = condition.get("type");
        if !TERMINAL.contains(&ty.text()) {
            causes.push(ty.not_supported(TERMINAL));
            continue;
        }
        known += 1;
        if known > 1 {
            let detail = "There may be at most one condition with type \"Issued\", \"Denied\", or \"Failed\"";
            causes.push(ty.invalid(detail));
        }
        if condition.get("status").text() != "True" {
            causes.push(condition.get("status").not_supported(&["True"]));
        }
    }
    conditions(list, &mut causes);
    if !causes.is_empty() {
        return causes;
    }
    let ended = |status: At| TERMINAL.iter().any(|ty| is_condition_true(status, ty));
    let before = old.map(|old| &old["status"]).unwrap_or(&Value::Null);
    if ended(At::root(before)) {
        if !same(status.value, before) {
            causes.push(status.invalid("immutable after PodCertificateRequest is issued, denied, or failed"));
        }
        return causes;
    }
    let fields = ["certificateChain", "notBefore", "notAfter", "beginRefreshAt"];
    if is_condition_true(status, "Denied") || is_condition_true(status, "Failed") {
        if fields.iter().any(|field| !status.get(field).is_empty()) {
            let detail = "non-condition status fields must be empty when denying or failing the PodCertificateRequest";
            causes.push(status.invalid(detail));
        }
    } else if is_condition_true(status, "Issued") {
        issued(status, &mut causes);
    } else if fields.iter().any(|field| !status.get(field).is_empty()) {
        causes.push(status.invalid("may only be set when a condition of type \"Issued\" is present"));
    }
    causes
}

fn issued(status: At, causes: &mut Causes) {
    let chain = status.get("certificateChain");
    let blocks = pem::blocks(chain.text());
    if blocks.is_empty() {
        causes.push(chain.invalid("issued certificate chain must contain at least one certificate"));
    } else if blocks.iter().any(|block| block.ty != "CERTIFICATE") {
        causes.push(chain.invalid("issued certificate chain must consist entirely of CERTIFICATE PEM blocks"));
    } else if !pem::is_signed(&blocks[0].bytes) {
        causes.push(chain.invalid("leaf certificate does not parse as valid X.509"));
    }
    for (field, detail) in [
        ("notBefore", "must be present and consistent with the issued certificate"),
        ("notAfter", "must be present and consistent with the issued certificate"),
        ("beginRefreshAt", "must be present and in the range [notbefore+10min, notafter-10min]"),
    ] {
        if status.get(field).is_empty() {
            causes.push(status.get(field).required(detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pem::testing::{certificate, pem};
    use crate::kinds::rules::testing::{check_part, check_rows, check_updates};
    use holdfast_value::{Value, json};

    #[test]
    fn requests_of_pods() {
        let good = json!({
            "apiVersion": "certificates.k8s.io/v1beta1", "kind": "PodCertificateRequest", "metadata": {"name": "a"},
            "spec": {
                "signerName": "example.com/s", "podName": "p", "podUID": "1", "serviceAccountName": "s",
                "serviceAccountUID": "2", "nodeName": "n", "nodeUID": "3", "maxExpirationSeconds": 3600,
                "pkixPublicKey": "AAAA", "proofOfPossession": "AAAA",
            },
        });
        check_rows(
            &good,
            &[
                ("/spec/podUID", json!(""), "spec.podUID: Invalid value: \"\": must not be empty"),
                ("/spec/nodeName", json!("A"), "spec.nodeName: Invalid value: \"A\": a lowercase RFC 1123 subdomain"),
                (
                    "/spec/maxExpirationSeconds",
                    json!(60),
                    "spec.maxExpirationSeconds: Invalid value: 60: must be in the",
                ),
                ("/spec/maxExpirationSeconds", json!(86400 * 30), ""),
                ("/spec/nodeUID", json!("a".repeat(129)), "spec.nodeUID: Too long: may not be more than 128 bytes"),
            ],
        );
        check_updates(&good, &[("/spec/podName", json!("q"), "spec: Invalid value: {")]);
        let at = "2024-01-01T00:00:00Z";
        let condition =
            |ty: &str| json!({"type": ty, "status": "True", "reason": "R", "message": "", "lastTransitionTime": at});
        let chain = pem("CERTIFICATE", &certificate(false, 1));
        let done = json!({
            "certificateChain": chain, "notBefore": at, "notAfter": at, "beginRefreshAt": at,
            "conditions": [condition("Issued")],
        });
        check_part(
            &good,
            "status",
            &[
                ("/status", done.clone(), ""),
                ("/status/conditions", json!([condition("Denied")]), ""),
                ("/status/conditions", json!([condition("Issued")]), "status.certificateChain: Invalid value: "),
                (
                    "/status/conditions",
                    json!([condition("Ready")]),
                    "status.conditions[0].type: Unsupported value: \"R",
                ),
                (
                    "/status/conditions",
                    json!([condition("Denied"), condition("Failed")]),
                    "status.conditions[1].type: Invalid value: \"Failed\": There may be at most one condition with type",
                ),
            ],
        );
        let mut issued = good;
        issued["status"] = done;
        check_part(&issued, "status", &[("/status/notAfter", Value::Null, "status: Invalid value: {")]);
    }
}
