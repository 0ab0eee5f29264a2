use super::approve::Approver;
use super::clean::Cleaner;
use super::sign::Signing;
use super::*;
use crate::Settings;
use holdfast_value::{Value, json};
use holdfast_world::Trial;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// A signer that returns the same certificate for all requests, and records the terms of each.
#[derive(Debug, Default)]
struct Scribe(Mutex<Vec<Terms>>);

impl Signer for Scribe {
    fn sign(&self, _: &[u8], terms: &Terms) -> Result<String, String> {
        self.0.lock().expect("no panic").push(terms.clone());
        Ok(include_str!("../../testdata/certificate.pem").to_owned())
    }

    fn end(&self) -> Time {
        Time::from_second(4_000_000_000)
    }
}

const NODE_REQUEST: &str = include_str!("../../testdata/node.csr.b64");
const PERSON_REQUEST: &str = include_str!("../../testdata/person.csr.b64");

fn request(signer: &str, request: &str, usages: &[&str]) -> Value {
    json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "r"},
        "spec": {"request": request.trim(), "signerName": signer, "usages": usages}})
}

fn trial() -> Trial {
    trial_with(Arc::default())
}

fn trial_with(scribe: Arc<Scribe>) -> Trial {
    let names = [KUBELET_CLIENT, KUBELET_SERVING, API_CLIENT, LEGACY_UNKNOWN];
    let signers: BTreeMap<String, Arc<dyn Signer>> =
        names.iter().map(|name| ((*name).to_owned(), scribe.clone() as Arc<dyn Signer>)).collect();
    Trial::new().with(Approver::default()).with(Signing::new(&Settings { signers, ..Settings::default() }))
}

fn conditions(trial: &Trial) -> Vec<String> {
    let found = trial.get("certificatesigningrequests", "r");
    let list = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
    list.iter()
        .map(|one| {
            format!(
                "{} {} {}",
                one["type"].as_str().unwrap_or(""),
                one["reason"].as_str().unwrap_or(""),
                one["message"].as_str().unwrap_or("")
            )
        })
        .collect()
}

fn is_signed(trial: &Trial) -> bool {
    trial.get("certificatesigningrequests", "r")["status"]["certificate"].is_string()
}

const CLIENT: [&str; 3] = ["digital signature", "key encipherment", "client auth"];

#[test]
fn a_kubelet_that_may_ask_gets_its_certificate() {
    for usages in [&CLIENT[..], &["digital signature", "client auth"]] {
        let mut trial = trial();
        trial.allows = |review| review["spec"]["resourceAttributes"]["subresource"] == "nodeclient";
        trial.create(request(KUBELET_CLIENT, NODE_REQUEST, usages));
        trial.run();
        assert_eq!(
            conditions(&trial),
            ["Approved AutoApproved Auto approving kubelet client certificate after SubjectAccessReview."]
        );
        assert!(is_signed(&trial));
    }
}

#[test]
fn who_may_not_ask_waits() {
    let mut trial = trial();
    trial.create(request(KUBELET_CLIENT, NODE_REQUEST, &CLIENT));
    trial.run_for(1);
    assert!(conditions(&trial).is_empty());
    trial.allows = |_| true;
    trial.run_for(60);
    assert_eq!(conditions(&trial).len(), 1);
}

#[test]
fn what_is_no_request_of_a_kubelet_is_not_approved() {
    for (request_text, usages) in [(PERSON_REQUEST, &CLIENT[..]), (NODE_REQUEST, &["digital signature", "server auth"])]
    {
        let mut trial = trial();
        trial.allows = |_| true;
        trial.create(request(KUBELET_CLIENT, request_text, usages));
        trial.run_for(10);
        assert!(conditions(&trial).is_empty());
    }
}

fn approve(trial: &mut Trial) {
    let condition = json!({"type": "Approved", "status": "True", "reason": "Test", "message": "by hand"});
    trial.patch_part("certificatesigningrequests", "r", "approval", json!({"status": {"conditions": [condition]}}));
    trial.run();
}

#[test]
fn signers_refuse_what_does_not_fit_them() {
    for (signer, text, usages, why) in [
        (API_CLIENT, PERSON_REQUEST, &CLIENT[..], ""),
        (API_CLIENT, PERSON_REQUEST, &["server auth"], "invalid usage for client certificate: server auth"),
        (
            API_CLIENT,
            PERSON_REQUEST,
            &["digital signature"],
            "missing required usage for client certificate: client auth",
        ),
        (KUBELET_CLIENT, PERSON_REQUEST, &CLIENT, "subject organization is not system:nodes"),
        (
            KUBELET_CLIENT,
            NODE_REQUEST,
            &["client auth"],
            "usages did not match [client auth digital signature key encipherment]",
        ),
        (KUBELET_SERVING, NODE_REQUEST, &["digital signature", "server auth"], "DNS or IP subjectAltName is required"),
        ("example.com/mine", PERSON_REQUEST, &CLIENT, ""),
    ] {
        let mut trial = trial();
        trial.create(request(signer, text, usages));
        trial.run();
        approve(&mut trial);
        let mut expected = vec!["Approved Test by hand".to_owned()];
        if !why.is_empty() {
            expected.push(format!("Failed SignerValidationFailure {why}"));
        }
        assert_eq!(conditions(&trial), expected);
        assert_eq!(is_signed(&trial), why.is_empty() && signer.starts_with("kubernetes.io"), "{signer}");
    }
}

#[test]
fn how_long_a_certificate_lives() {
    for (asked, lives) in
        [(json!(null), 8760 * 3600), (json!(3600), 3600 + 300), (json!(86_400), 86_400), (json!(600), 900)]
    {
        let scribe = Arc::<Scribe>::default();
        let mut trial = trial_with(scribe.clone());
        let mut wanted = request(API_CLIENT, PERSON_REQUEST, &CLIENT);
        wanted["spec"]["expirationSeconds"] = asked;
        trial.create(wanted);
        approve(&mut trial);
        let terms = scribe.0.lock().expect("no panic")[0].clone();
        assert_eq!(terms.not_after.seconds() - terms.not_before.seconds(), lives);
    }
}

#[test]
fn old_requests_are_deleted() {
    let mut trial = Trial::new().with(Cleaner);
    trial.create(request(API_CLIENT, PERSON_REQUEST, &CLIENT));
    trial.run_for(86_399);
    assert_eq!(trial.list("certificatesigningrequests").len(), 1);
    trial.run_for(1);
    assert!(trial.list("certificatesigningrequests").is_empty());
    trial.create(request(API_CLIENT, PERSON_REQUEST, &CLIENT));
    let denied = json!({"type": "Denied", "status": "True", "reason": "Test", "message": "by hand"});
    trial.patch_part("certificatesigningrequests", "r", "approval", json!({"status": {"conditions": [denied]}}));
    trial.run_for(3_600);
    assert!(trial.list("certificatesigningrequests").is_empty());
}
