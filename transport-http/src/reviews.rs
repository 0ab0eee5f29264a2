//! Kinds that are only ever posted: questions about access, tokens, bindings; and acting in another's name.

use crate::api::Api;
use crate::respond::{self, Form, Response, Shape};
use crate::tokens::{Audience, Claims, Kubernetes, Reference};
use holdfast_core::authz::reviews::{review, token_review};
use holdfast_core::authz::{Attributes, ResourceTarget, User, forbidden_message};
use holdfast_core::kinds::Kind;
use holdfast_core::list;
use holdfast_core::object::meta::{Document, metadata_mut};
use holdfast_core::pipeline::decode_body;
use holdfast_core::refusal::{Cause, Refusal, Subject};
use holdfast_core::request::{Request, Verb};
use holdfast_core::stamp::rfc3339;
use holdfast_core::state::State;
use http::HeaderMap;
use jiff::SignedDuration;
use serde_json::{Value, json};
use std::sync::Arc;

/// Answers a request on a kind that is not stored.
pub fn answer(
    api: &Arc<Api>,
    state: &State,
    kind: &Kind,
    request: &Request,
    shape: Shape,
) -> Result<Response, Refusal> {
    let shape = Shape { form: Form::Object, ..shape };
    match (kind.kind.as_str(), request.verb) {
        ("ComponentStatus", Verb::Get | Verb::List) => component_status(api, request, shape),
        ("TokenReview", Verb::Create) => {
            let body = Value::Object(decode_body(state, request)?);
            let token = body["spec"]["token"].as_str().unwrap_or("");
            let user = api.authenticator.token(&api.engine.snapshot(), token);
            let asked: Vec<String> = strings(&body["spec"]["audiences"]);
            let known = api.authenticator.service_accounts.as_ref().map(|tokens| tokens.audiences.clone());
            let known = known.unwrap_or_default();
            let audiences: Vec<String> = if asked.is_empty() {
                known
            } else {
                asked.into_iter().filter(|audience| known.contains(audience)).collect()
            };
            let answer = token_review(&body, user.as_deref(), &audiences)?;
            Ok(created(answer, shape))
        }
        (name, Verb::Create) => {
            let mut body = decode_body(state, request)?;
            if let Some(namespace) = request.namespace() {
                let found = body.get("spec").and_then(|spec| spec["resourceAttributes"]["namespace"].as_str());
                let subject = || Subject::new("authorization.k8s.io", name, "");
                if found.is_some_and(|found| found != namespace) {
                    let value = found.unwrap_or_default().into();
                    let why = format!("must match metadata.namespace: \"{namespace}\"");
                    let cause = Cause::invalid("spec.resourceAttributes.namespace", &value, &why);
                    return Err(Refusal::Invalid { subject: subject(), causes: vec![cause] });
                }
                metadata_mut(&mut body).insert("namespace".into(), namespace.into());
            }
            let answer = review(name, &Value::Object(body), &request.user, &api.authorizer(state))?;
            Ok(created(answer, shape))
        }
        _ => Err(Refusal::MethodNotAllowed {
            message: "the server does not allow this method on the requested resource".into(),
        }),
    }
}

fn created(answer: Value, shape: Shape) -> Response {
    respond::document(201, answer.as_object().unwrap_or(&Document::new()), shape)
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The health of the parts that a cluster used to have: here it is the log's.
fn component_status(api: &Api, request: &Request, shape: Shape) -> Result<Response, Refusal> {
    let health = match api.engine.log().last() {
        Ok(_) => json!({"type": "Healthy", "status": "True", "message": "ok"}),
        Err(fault) => json!({"type": "Healthy", "status": "False", "message": fault.to_string()}),
    };
    let item = json!({"metadata": {"name": "etcd-0"}, "conditions": [health]});
    let name = request.name();
    if !name.is_empty() && name != "etcd-0" {
        return Err(Refusal::NotFound(Subject::new("", "componentstatuses", name)));
    }
    let document = if name.is_empty() {
        json!({"kind": "ComponentStatusList", "apiVersion": "v1", "metadata": {}, "items": [item]})
    } else {
        json!({"kind": "ComponentStatus", "apiVersion": "v1", "metadata": item["metadata"], "conditions": item["conditions"]})
    };
    Ok(respond::document(200, document.as_object().unwrap_or(&Document::new()), shape))
}

/// How long a token is good for when the request does not say, and at least.
const TOKEN_SECONDS: i64 = 3600;
const TOKEN_SECONDS_MIN: i64 = 600;
const TOKEN_SECONDS_MAX: i64 = 1 << 32;

/// Issues a token for a service account.
pub async fn token(api: &Arc<Api>, request: &Request, shape: Shape) -> Result<Response, Refusal> {
    let state = api.engine.snapshot();
    let account = list::get(&state, request)?.document();
    let tokens = api.authenticator.service_accounts.as_ref();
    let tokens = tokens.ok_or_else(|| Refusal::Internal("the server has no key to sign tokens with".into()))?;
    let mut body = Value::Object(holdfast_core::pipeline::decode_body_as(
        &state,
        request,
        "authentication.k8s.io",
        "v1",
        "TokenRequest",
    )?);
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
        audiences.clone_from(&tokens.audiences);
    }
    let namespace = request.namespace().unwrap_or("").to_owned();
    let (pod, secret, node) = bound_object(&state, &namespace, &body["spec"]["boundObjectRef"], request)?;
    let stamp = api.engine.stamp();
    let reference = |object: &Value| Reference {
        name: object["metadata"]["name"].as_str().unwrap_or("").to_owned(),
        uid: object["metadata"]["uid"].as_str().unwrap_or("").to_owned(),
    };
    let claims = Claims {
        aud: Audience::Many(audiences.clone()),
        exp: stamp.seconds() + seconds,
        iat: stamp.seconds(),
        iss: tokens.issuer().to_owned(),
        jti: stamp.uid(0),
        kubernetes: Kubernetes { namespace: namespace.clone(), node, pod, secret, serviceaccount: reference(&account) },
        nbf: stamp.seconds(),
        sub: holdfast_core::authz::service_account_user(&namespace, request.name()),
    };
    let token = tokens
        .sign(&claims)
        .ok_or_else(|| Refusal::Internal("the server has no key to sign tokens with".into()))?
        .map_err(Refusal::Internal)?;
    let expires = stamp.time.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(stamp.time);
    body["kind"] = "TokenRequest".into();
    body["apiVersion"] = "authentication.k8s.io/v1".into();
    body["metadata"] = json!({"name": request.name(), "namespace": namespace, "creationTimestamp": stamp.rfc3339()});
    body["spec"]["audiences"] = audiences.into();
    body["spec"]["expirationSeconds"] = seconds.into();
    body["status"] = json!({"token": token, "expirationTimestamp": rfc3339(expires)});
    Ok(created(body, Shape { form: Form::Object, ..shape }))
}

type Bound = (Option<Reference>, Option<Reference>, Option<Reference>);

/// What the token is to be bound to: a pod (and through it its node), a secret, or a node.
fn bound_object(state: &State, namespace: &str, bound: &Value, request: &Request) -> Result<Bound, Refusal> {
    let Some(kind) = bound["kind"].as_str() else { return Ok((None, None, None)) };
    let name = bound["name"].as_str().unwrap_or("");
    let found = |kind: &str, resource: &str, namespace: Option<&str>| {
        let (id, _) = state.registry.find_kind("", "v1", kind).ok_or(Refusal::NoSuchPath)?;
        let entry = state.get(id, &holdfast_core::object::meta::key(namespace, name));
        let document = entry.ok_or_else(|| Refusal::NotFound(Subject::new("", resource, name)))?.document();
        let uid = document["metadata"]["uid"].as_str().unwrap_or("").to_owned();
        let asked = bound["uid"].as_str().unwrap_or("");
        if !asked.is_empty() && asked != uid {
            let message = format!(
                "the UID in the bound object reference ({asked}) does not match the UID in record. The object might have been deleted and then recreated"
            );
            return Err(Refusal::Conflict { subject: Subject::new("", resource, name), message });
        }
        Ok((Reference { name: name.to_owned(), uid }, document))
    };
    match kind {
        "Pod" => {
            let (reference, pod) = found("Pod", "pods", Some(namespace))?;
            let account = pod["spec"]["serviceAccountName"].as_str().unwrap_or("");
            if account != request.name() {
                let why = format!(
                    "cannot bind token for serviceaccount \"{}\" to pod running with different serviceaccount name.",
                    request.name()
                );
                return Err(Refusal::BadRequest(why));
            }
            let node = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty());
            let node = node.map(|node| Reference { name: node.to_owned(), uid: String::new() });
            Ok((Some(reference), None, node))
        }
        "Secret" => Ok((None, Some(found("Secret", "secrets", Some(namespace))?.0), None)),
        "Node" => Ok((None, None, Some(found("Node", "nodes", None)?.0))),
        other => Err(Refusal::BadRequest(format!("cannot bind token to object of type {other}"))),
    }
}

/// The user that the headers name, if the caller may act in that name.
pub fn impersonate(api: &Api, state: &State, caller: &User, headers: &HeaderMap) -> Result<Arc<User>, Refusal> {
    let values = |name: &str| -> Vec<String> {
        headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).map(str::to_owned).collect()
    };
    let may = |group: &str, resource: &str, subresource: &str, namespace: &str, name: &str| {
        let target = ResourceTarget { group, version: "v1", resource, subresource, namespace, name };
        let attributes = Attributes::resource("impersonate", target);
        let verdict = api.authorizer(state).authorize(caller, &attributes);
        if verdict.is_allowed() {
            return Ok(());
        }
        let message = forbidden_message(caller, &attributes, verdict.reason());
        Err(Refusal::Forbidden { subject: Subject::new(group, resource, name), message, causes: Vec::new() })
    };
    let name = values("impersonate-user").into_iter().next().unwrap_or_default();
    let account = name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    match account {
        Some((namespace, account)) => may("", "serviceaccounts", "", namespace, account)?,
        None => may("", "users", "", "", &name)?,
    }
    let mut user = match account {
        Some((namespace, account)) => User::service_account(namespace, account, ""),
        None => User::new(name.as_str(), &[]),
    };
    let groups = values("impersonate-group");
    for group in &groups {
        may("", "groups", "", "", group)?;
    }
    if !groups.is_empty() {
        user.groups = groups;
    }
    for uid in values("impersonate-uid") {
        may("authentication.k8s.io", "uids", "", "", &uid)?;
        user.uid = uid;
    }
    for key in headers.keys() {
        let Some(extra) = key.as_str().strip_prefix("impersonate-extra-") else { continue };
        let extra = crate::info::decode(extra);
        let all = values(key.as_str());
        for value in &all {
            may("authentication.k8s.io", "userextras", &extra, "", value)?;
        }
        user.extra.insert(extra, all);
    }
    let everybody = if user.name == "system:anonymous" { "system:unauthenticated" } else { "system:authenticated" };
    if !user.groups.iter().any(|group| group == everybody) {
        user.groups.push(everybody.into());
    }
    Ok(Arc::new(user))
}
