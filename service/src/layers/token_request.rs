//! Tokens for service accounts, which are asked for through the subresource `token`.

use super::Outcome;
use crate::{Reply, Service};
use holdfast_core::Refusal;
use holdfast_core::authz::service_account_user;
use holdfast_core::list;
use holdfast_core::object::meta::{self, Document};
use holdfast_core::pipeline::decode_body_as;
use holdfast_core::refusal::{Cause, Subject};
use holdfast_core::request::Request;
use holdfast_core::stamp::rfc3339;
use holdfast_core::state::State;
use jiff::SignedDuration;
use serde_json::{Value, json};

/// How long a token is good for when the request does not say, and at least.
const TOKEN_SECONDS: i64 = 3600;
const TOKEN_SECONDS_MIN: i64 = 600;
const TOKEN_SECONDS_MAX: i64 = 1 << 32;

/// Issues a token for a service account.
pub fn answer(service: &Service, request: &Request) -> Outcome {
    let state = service.engine().snapshot();
    let account = list::get(&state, request)?.document();
    let tokens = service.tokens();
    let issuer =
        tokens.issuer().ok_or_else(|| Refusal::Internal("the server has no key to sign tokens with".into()))?;
    let mut body = Value::Object(decode_body_as(&state, request, "authentication.k8s.io", "v1", "TokenRequest")?);
    let invalid = |cause: Cause| Refusal::Invalid {
        subject: Subject::new("authentication.k8s.io", "TokenRequest", request.name()),
        causes: vec![cause],
    };
    let seconds = body["spec"]["expirationSeconds"].as_i64().unwrap_or(TOKEN_SECONDS);
    if seconds < TOKEN_SECONDS_MIN {
        let why = "may not specify a duration less than 10 minutes";
        return Err(invalid(Cause::invalid("spec.expirationSeconds", &seconds.into(), why)));
    }
    if seconds > TOKEN_SECONDS_MAX {
        let why = "may not specify a duration larger than 2^32 seconds";
        return Err(invalid(Cause::invalid("spec.expirationSeconds", &seconds.into(), why)));
    }
    let mut audiences = strings(&body["spec"]["audiences"]);
    if audiences.is_empty() {
        audiences = tokens.audiences().to_vec();
    }
    let namespace = request.namespace().unwrap_or("").to_owned();
    let mut bound = bound_object(&state, &namespace, &body["spec"]["boundObjectRef"], request)?;
    bound.insert("namespace".into(), namespace.as_str().into());
    bound.insert("serviceaccount".into(), reference(&account));
    let stamp = service.engine().stamp();
    let claims = json!({
        "aud": audiences,
        "exp": stamp.seconds() + seconds,
        "iat": stamp.seconds(),
        "iss": issuer,
        "jti": stamp.uid(0),
        "kubernetes.io": Value::Object(bound),
        "nbf": stamp.seconds(),
        "sub": service_account_user(&namespace, request.name()),
    });
    let token = tokens.sign(&claims).map_err(Refusal::Internal)?;
    let expires = stamp.time.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(stamp.time);
    body["kind"] = "TokenRequest".into();
    body["apiVersion"] = "authentication.k8s.io/v1".into();
    body["metadata"] = json!({"name": request.name(), "namespace": namespace, "creationTimestamp": stamp.rfc3339()});
    body["spec"]["audiences"] = audiences.into();
    body["spec"]["expirationSeconds"] = seconds.into();
    body["status"] = json!({"token": token, "expirationTimestamp": rfc3339(expires)});
    match body {
        Value::Object(document) => Ok(Reply::Document { document, created: true }),
        _ => Err(Refusal::Internal("a TokenRequest is an object".into())),
    }
}

/// How claims name an object.
fn reference(object: &Value) -> Value {
    json!({"name": object["metadata"]["name"], "uid": object["metadata"]["uid"]})
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// What the token is to be bound to: a pod and the node under it, a secret, or a node.
fn bound_object(state: &State, namespace: &str, bound: &Value, request: &Request) -> Result<Document, Refusal> {
    let mut claims = Document::new();
    let Some(kind) = bound["kind"].as_str() else { return Ok(claims) };
    let name = bound["name"].as_str().unwrap_or("");
    let find = |kind: &str, resource: &str, namespace: Option<&str>, name: &str| {
        let (id, _) = state.registry.find_kind("", "v1", kind).ok_or(Refusal::NoSuchPath)?;
        let entry = state.get(id, &meta::key(namespace, name));
        Ok::<_, Refusal>(entry.ok_or_else(|| Refusal::NotFound(Subject::new("", resource, name)))?.document())
    };
    let same = |resource: &str, object: Value| {
        let (uid, asked) = (object["metadata"]["uid"].as_str().unwrap_or(""), bound["uid"].as_str().unwrap_or(""));
        if !asked.is_empty() && asked != uid {
            let message = format!(
                "the UID in the bound object reference ({asked}) does not match the UID in record. The object might have been deleted and then recreated"
            );
            return Err(Refusal::Conflict { subject: Subject::new("", resource, name), message });
        }
        Ok(object)
    };
    match kind {
        "Pod" => {
            let pod = same("pods", find("Pod", "pods", Some(namespace), name)?)?;
            let account = pod["spec"]["serviceAccountName"].as_str().unwrap_or("");
            if account != request.name() {
                let why = format!(
                    "cannot bind token for serviceaccount \"{}\" to pod running with different serviceaccount name.",
                    request.name()
                );
                return Err(Refusal::BadRequest(why));
            }
            if let Some(node) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
                // A node that has gone is named all the same: the pod is what counts.
                let found = find("Node", "nodes", None, node);
                claims.insert(
                    "node".into(),
                    found.map_or_else(|_| json!({"name": node, "uid": ""}), |node| reference(&node)),
                );
            }
            claims.insert("pod".into(), reference(&pod));
        }
        "Secret" => {
            let secret = same("secrets", find("Secret", "secrets", Some(namespace), name)?)?;
            claims.insert("secret".into(), reference(&secret));
        }
        "Node" => {
            let node = same("nodes", find("Node", "nodes", None, name)?)?;
            claims.insert("node".into(), reference(&node));
        }
        other => return Err(Refusal::BadRequest(format!("cannot bind token to object of type {other}"))),
    }
    Ok(claims)
}
