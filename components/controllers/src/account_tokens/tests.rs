use super::clean::TokenCleaner;
use super::fill::TokenSecrets;
use super::*;
use crate::Settings;
use crate::encoded::{decode, encode};
use holdfast_value::json;
use holdfast_world::Trial;
use std::sync::Arc;

#[derive(Debug)]
struct Scribe;

impl TokenSigner for Scribe {
    fn sign(&self, claims: &Value) -> Result<String, String> {
        Ok(claims["sub"].as_str().unwrap_or_default().to_owned())
    }
}

fn trial() -> Trial {
    let signer: Arc<dyn TokenSigner> = Arc::new(Scribe);
    Trial::new().with(TokenSecrets::new(&Settings {
        account_tokens: Some(signer),
        root_ca: Some("CA".into()),
        ..Settings::default()
    }))
}

fn account(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
}

fn secret(annotations: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tok", "annotations": annotations}, "type": TYPE})
}

#[test]
fn a_secret_gets_the_token_of_its_account() {
    let mut trial = trial();
    let uid = trial.create(account("robot"))["metadata"]["uid"].clone();
    trial.create(secret(json!({NAME: "robot"})));
    trial.run();
    let found = trial.get("secrets", "tok");
    assert_eq!(found["metadata"]["annotations"], json!({NAME: "robot", UID: uid}));
    let text = |field: &str| {
        String::from_utf8(decode(found["data"][field].as_str().expect(field)).expect("base64")).expect("text")
    };
    assert_eq!(["token", "namespace", "ca.crt"].map(text), ["system:serviceaccount:default:robot", "default", "CA"]);
    trial.patch("secrets", "tok", json!({"data": {"ca.crt": encode(b"old"), "token": encode(b"kept")}}));
    trial.run();
    let mended = trial.get("secrets", "tok");
    assert_eq!((&mended["data"]["ca.crt"], &mended["data"]["token"]), (&json!(encode(b"CA")), &json!(encode(b"kept"))));
    trial.delete("serviceaccounts", "robot");
    trial.run();
    assert!(trial.get("secrets", "tok").is_null());
}

#[test]
fn an_account_forgets_a_secret_that_is_deleted() {
    let mut trial = trial();
    let mut listing = account("robot");
    listing["secrets"] = json!([{"name": "tok"}, {"name": "to-come"}]);
    trial.create(listing);
    trial.create(secret(json!({NAME: "robot"})));
    trial.run();
    trial.delete("secrets", "tok");
    trial.run();
    assert_eq!(trial.get("serviceaccounts", "robot")["secrets"], json!([{"name": "to-come"}]));
}

#[test]
fn what_others_wrote_into_a_secret_stays() {
    let mut trial = trial();
    let mut listing = account("robot");
    listing["secrets"] = json!([{"name": "tok"}, {"name": "opaque"}, {"name": "of-another"}]);
    trial.create(listing);
    trial.create(account("another"));
    trial.create(secret(json!({NAME: "robot"})));
    trial.create(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "opaque"}}));
    let mut of_another = secret(json!({NAME: "another"}));
    of_another["metadata"]["name"] = json!("of-another");
    trial.create(of_another);
    trial.run();
    let elsewhere = json!({"data": {"namespace": encode(b"elsewhere")}, "metadata": {"annotations": {UID: null}}});
    trial.patch("secrets", "tok", elsewhere);
    trial.delete("secrets", "opaque");
    trial.delete("secrets", "of-another");
    trial.run();
    let found = trial.get("secrets", "tok");
    assert_eq!(found["data"]["namespace"], encode(b"elsewhere"));
    assert_eq!(found["metadata"]["annotations"], json!({NAME: "robot"}));
    let listed = trial.get("serviceaccounts", "robot")["secrets"].clone();
    assert_eq!(listed.as_array().map(Vec::len), Some(3), "only the account of the token forgets it");
}

#[test]
fn a_secret_of_no_account_is_deleted() {
    for annotations in [json!({NAME: "nobody"}), json!({NAME: "robot", UID: "11111111-2222-3333-4444-555555555555"})] {
        let mut trial = trial();
        trial.create(account("robot"));
        trial.create(secret(annotations));
        trial.run();
        assert!(trial.get("secrets", "tok").is_null());
    }
}

#[test]
fn a_token_that_was_made_unasked_and_is_not_used_goes() {
    let mut trial = Trial::new()
        .with(TokenCleaner::new(&Settings { account_token_period_seconds: 2 * 86_400, ..Settings::default() }));
    let mut listing = account("robot");
    listing["secrets"] = json!([{"name": "tok"}, {"name": "odd"}]);
    trial.create(listing);
    trial.create(secret(json!({NAME: "robot"})));
    let mut asked_for = secret(json!({NAME: "robot"}));
    asked_for["metadata"]["name"] = json!("kept");
    trial.create(asked_for.clone());
    asked_for["metadata"]["name"] = json!("odd");
    asked_for["metadata"]["labels"] = json!({"kubernetes.io/legacy-token-last-used": "yesterday"});
    trial.create(asked_for);
    trial.create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "kube-system",
        "name": "kube-apiserver-legacy-service-account-token-tracking"}, "data": {"since": "2026-11-21"}}));
    trial.run_for(86_400);
    assert_eq!(trial.get("secrets", "tok")["metadata"]["labels"], Value::Null);
    trial.run_for(2 * 86_400);
    assert!(trial.get("secrets", "tok")["metadata"]["labels"]["kubernetes.io/legacy-token-invalid-since"].is_string());
    trial.run_for(4 * 86_400);
    assert_eq!(trial.names("secrets"), ["kept", "odd"]);
}
