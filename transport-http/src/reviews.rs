//! Kinds that are only ever posted: questions about access, tokens, bindings; and acting in another's name.

use crate::api::Api;
use crate::paths::WRITER_PATIENCE;
use crate::respond::{self, Form, Response, Shape};
use holdfast_core::authz::reviews::{review, token_review};
use holdfast_core::authz::{Attributes, ResourceTarget, User, forbidden_message};
use holdfast_core::kinds::Kind;
use holdfast_core::object::meta::{Document, metadata_mut};
use holdfast_core::pipeline::decode_body;
use holdfast_core::refusal::{Cause, Refusal, Subject};
use holdfast_core::request::{Request, Verb};
use holdfast_core::state::State;
use holdfast_engine::Health;
use http::HeaderMap;
use serde_json::{Value, json};
use std::sync::Arc;

/// Answers a request on a kind that is not stored.
pub async fn answer(
    api: &Arc<Api>,
    state: &State,
    kind: &Kind,
    request: &Request,
    shape: Shape,
) -> Result<Response, Refusal> {
    let shape = Shape { form: Form::Object, ..shape };
    match (kind.kind.as_str(), request.verb) {
        ("ComponentStatus", Verb::Get | Verb::List) => component_status(api, request, shape).await,
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
async fn component_status(api: &Api, request: &Request, shape: Shape) -> Result<Response, Refusal> {
    let health = match api.engine.health(WRITER_PATIENCE).await {
        Health::Well => json!({"type": "Healthy", "status": "True", "message": "ok"}),
        Health::ReadOnly(why) | Health::Dead(why) => json!({"type": "Healthy", "status": "False", "message": why}),
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
