//! Access reviews: kinds that are answered and never stored.

use super::chain::Authorizer;
use super::rbac::joined_errors;
use super::{Attributes, Requirement, ResourceTarget, Selected, User, Verdict};
use crate::kinds::{Kind, Question, structures};
use crate::object::names;
use crate::refusal::{BadRequest, Cause, Causes, Internal, Refusal, Subject};
use crate::schema::schema;
use crate::select::{FieldSelector, LabelSelector};
use holdfast_value::{CompactString, Map, Value, json};

/// Answers the review `body` of `user`: returns the document with its status.
///
/// A local review has its namespace in its metadata.
pub fn review(kind: &Kind, body: &Value, user: &User, authorizer: &Authorizer<'_>) -> Result<Value, Refusal> {
    let spec = body.get("spec").unwrap_or(&Value::Null);
    check(kind, body)?;
    let status = match kind.question {
        Some(Question::SubjectAccessReview | Question::LocalSubjectAccessReview) => {
            access_status(spec, &user_of(spec), authorizer)
        }
        Some(Question::SelfSubjectAccessReview) => access_status(spec, user, authorizer),
        Some(Question::SelfSubjectRulesReview) => {
            let namespace = text(spec, "namespace");
            if namespace.is_empty() {
                return Err(Refusal::BadRequest(BadRequest::NoNamespace));
            }
            rules_status(user, namespace, authorizer)
        }
        Some(Question::SelfSubjectReview) => json!({"userInfo": user_info(user)}),
        Some(Question::TokenReview | Question::Binding | Question::ComponentStatus) | None => {
            return Err(Refusal::Internal(Internal::NoReview { kind: kind.kind.clone() }));
        }
    };
    Ok(with_status(body, status))
}

/// Checks that a review can be answered.
pub fn check(kind: &Kind, body: &Value) -> Result<(), Refusal> {
    let mut causes = kind.question.map_or_else(Causes::default, |question| causes_against(question, body));
    if causes.is_empty() {
        return Ok(());
    }
    if let Some(message) = schema().id(&kind.hub().message) {
        structures::show(message, &mut causes);
        causes.fit();
    }
    Err(invalid(kind, causes))
}

/// As in Kubernetes, the refusal names neither the kind nor the object.
pub fn invalid(kind: &Kind, causes: Causes) -> Refusal {
    Refusal::Invalid { subject: Subject::new(&kind.hub().group, "", ""), causes }
}

/// Answers a TokenReview. The answer has the token's user and the requested audiences for which the token is valid, or
/// the reason why the token is invalid.
pub fn token_review(body: &Value, reviewed: Result<(&User, &[String]), &str>) -> Result<Value, Refusal> {
    if text(body.get("spec").unwrap_or(&Value::Null), "token").is_empty() {
        return Err(Refusal::BadRequest(BadRequest::NoToken));
    }
    let status = match reviewed {
        Err(why) => json!({"user": {}, "error": why}),
        Ok((user, [])) => json!({"authenticated": true, "user": user_info(user)}),
        Ok((user, audiences)) => json!({"authenticated": true, "user": user_info(user), "audiences": audiences}),
    };
    Ok(with_status(body, status))
}

/// The user in the form of the API's `userInfo`.
pub fn user_info(user: &User) -> Value {
    let mut info = Map::new();
    if !user.name.is_empty() {
        info.insert("username", user.name.clone().into());
    }
    if !user.uid.is_empty() {
        info.insert("uid", user.uid.clone().into());
    }
    if !user.groups.is_empty() {
        info.insert("groups", user.groups.clone().into());
    }
    if !user.extra.is_empty() {
        info.insert("extra", json!(user.extra));
    }
    Value::Object(info)
}

fn causes_against(question: Question, body: &Value) -> Causes {
    let spec = body.get("spec").unwrap_or(&Value::Null);
    let mut causes = Causes::default();
    let asks_access = matches!(
        question,
        Question::SubjectAccessReview | Question::LocalSubjectAccessReview | Question::SelfSubjectAccessReview
    );
    if !asks_access {
        return causes;
    }
    let (resource, path) = (present(spec, "resourceAttributes"), present(spec, "nonResourceAttributes"));
    match (resource, path) {
        (Some(_), Some(path)) => causes.push(Cause::invalid(
            "spec.nonResourceAttributes",
            path,
            "cannot be specified in combination with resourceAttributes",
        )),
        (None, None) => causes.push(Cause::invalid(
            "spec.resourceAttributes",
            &Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )),
        _ => {}
    }
    let groups = spec.get("groups").and_then(Value::as_array).is_some_and(|groups| !groups.is_empty());
    if question != Question::SelfSubjectAccessReview && text(spec, "user").is_empty() && !groups {
        causes.push(Cause::invalid("spec.user", &"".into(), "at least one of user or group must be specified"));
    }
    if let Some(resource) = resource {
        for selector in ["fieldSelector", "labelSelector"] {
            selector_causes(resource, selector, &mut causes);
        }
    }
    let local = question == Question::LocalSubjectAccessReview;
    causes.extend(metadata_cause(local, body));
    if local {
        let own = body.get("metadata").map(|metadata| text(metadata, "namespace")).unwrap_or_default();
        if let Some(asked) = resource.map(|resource| text(resource, "namespace")).filter(|asked| *asked != own) {
            causes.push(Cause::invalid(
                "spec.resourceAttributes.namespace",
                &asked.into(),
                "must match metadata.namespace",
            ));
        }
        if let Some(path) = path {
            causes.push(Cause::invalid("spec.nonResourceAttributes", path, "disallowed on this kind of request"));
        }
    }
    causes
}

fn selector_causes(resource: &Value, name: &str, causes: &mut Causes) {
    let Some(selector) = present(resource, name) else { return };
    let field = format!("spec.resourceAttributes.{name}");
    let raw = text(selector, "rawSelector");
    let requirements = selector.get("requirements").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    match (raw.is_empty(), requirements.is_empty()) {
        (false, false) => causes.push(Cause::invalid(
            format!("{field}.rawSelector"),
            &raw.into(),
            "may not specified at the same time as requirements",
        )),
        (true, true) => causes.push(Cause::required(
            format!("{field}.requirements"),
            &format!("when {field} is specified, requirements or rawSelector is required"),
        )),
        _ => {}
    }
    for (index, requirement) in requirements.iter().enumerate() {
        requirement_causes(requirement, name, &format!("{field}.requirements[{index}]"), causes);
    }
}

/// An unknown operator is accepted, because a newer client may have sent it.
fn requirement_causes(requirement: &Value, selector: &str, at: &str, causes: &mut Causes) {
    let key = text(requirement, "key");
    if selector == "fieldSelector" && key.is_empty() {
        causes.push(Cause::required(format!("{at}.key"), "must be specified"));
    }
    let has_values = requirement.get("values").and_then(Value::as_array).is_some_and(|values| !values.is_empty());
    match text(requirement, "operator") {
        "In" | "NotIn" if !has_values => {
            causes.push(Cause::required(format!("{at}.values"), "must be specified when `operator` is 'In' or 'NotIn'"))
        }
        "Exists" | "DoesNotExist" if has_values => causes.push(Cause::forbidden(
            format!("{at}.values"),
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        )),
        _ => {}
    }
    if selector == "labelSelector" {
        let messages = names::qualified_name(key);
        causes.extend(messages.iter().map(|message| Cause::invalid(format!("{at}.key"), &key.into(), message)));
    }
}

/// The cause if metadata has any field other than managed fields and, for a local review, the namespace.
fn metadata_cause(local: bool, body: &Value) -> Option<Cause> {
    let metadata = body.get("metadata").and_then(Value::as_object)?;
    let says_nothing = |(key, value): (&CompactString, &Value)| {
        key == "managedFields" || (local && key == "namespace") || value.is_null() || value == "" || value == &json!({})
    };
    if metadata.iter().all(says_nothing) {
        return None;
    }
    let detail = if local { "must be empty except for namespace" } else { "must be empty" };
    Some(Cause::invalid("metadata", &Value::Object(metadata.clone()), detail))
}

fn access_status(spec: &Value, user: &User, authorizer: &Authorizer<'_>) -> Value {
    let (selected, unread) = selected_of(&spec["resourceAttributes"]);
    let judged = authorizer.authorize(user, &attributes_of(spec, &selected));
    let mut status = json!({"allowed": judged.is_allowed()});
    if matches!(judged.verdict, Verdict::Deny { .. }) {
        status["denied"] = true.into();
    }
    if !judged.reason().is_empty() {
        status["reason"] = judged.reason().into();
    }
    if !judged.errors.is_empty() || !unread.is_empty() {
        status["evaluationError"] = joined_errors(judged.errors.iter().cloned().chain(unread)).into();
    }
    status
}

/// The selectors in a review, raw or as requirements, and messages for selectors that cannot be parsed. The request is
/// judged without the invalid selectors, that is, as a request for more objects.
fn selected_of(resource: &Value) -> (Selected, Vec<String>) {
    let mut selected = Selected::default();
    let mut unread = Vec::new();
    let fields = FieldSelector::parse(text(&resource["fieldSelector"], "rawSelector")).is_ok();
    let labels = LabelSelector::parse(text(&resource["labelSelector"], "rawSelector")).is_ok();
    let raw = |selector: &str| text(&resource[selector], "rawSelector");
    let parsed = Selected::parse(raw("fieldSelector"), raw("labelSelector"));
    for (selector, is_raw_read, own, raw) in [
        ("fieldSelector", fields, &mut selected.fields, parsed.fields),
        ("labelSelector", labels, &mut selected.labels, parsed.labels),
    ] {
        *own = raw;
        let requirements = resource[selector]["requirements"].as_array().map_or(&[][..], Vec::as_slice);
        let read = requirements.iter().filter_map(Requirement::from_value);
        let is_readable = if selector == "fieldSelector" { is_field_requirement } else { is_label_requirement };
        own.extend(read.filter(is_readable));
        if !is_raw_read || (!requirements.is_empty() && own.len() < requirements.len()) {
            let partially = if own.is_empty() { "" } else { "partially " };
            unread.push(format!("spec.resourceAttributes.{selector} {partially}ignored due to parse error"));
        }
    }
    (selected, unread)
}

/// Whether the requirement fits a field selector, which compares a field with one value.
fn is_field_requirement(requirement: &Requirement) -> bool {
    matches!(requirement.operator, "In" | "NotIn") && requirement.values.len() == 1
}

fn is_label_requirement(requirement: &Requirement) -> bool {
    requirement.values.iter().all(|value| names::label_value(value).is_empty())
}

fn attributes_of<'a>(spec: &'a Value, selected: &'a Selected) -> Attributes<'a> {
    match (present(spec, "resourceAttributes"), present(spec, "nonResourceAttributes")) {
        (Some(resource), _) => Attributes::resource(
            text(resource, "verb"),
            ResourceTarget {
                group: text(resource, "group"),
                version: Some(text(resource, "version")).filter(|version| !version.is_empty()).unwrap_or("*"),
                resource: text(resource, "resource"),
                subresource: text(resource, "subresource"),
                namespace: text(resource, "namespace"),
                name: text(resource, "name"),
                selected: (!selected.is_everything()).then_some(selected),
            },
        ),
        (None, path) => {
            let path = path.unwrap_or(&Value::Null);
            Attributes::path(text(path, "verb"), text(path, "path"))
        }
    }
}

fn rules_status(user: &User, namespace: &str, authorizer: &Authorizer<'_>) -> Value {
    let known = authorizer.rules_for(user, namespace);
    let mut resources = Vec::new();
    let mut paths = Vec::new();
    for mut rule in known.rules {
        let urls = std::mem::take(&mut rule.non_resource_urls);
        if !urls.is_empty() {
            paths.push(json!({"verbs": rule.verbs, "nonResourceURLs": urls}));
        }
        if !rule.resources.is_empty() {
            resources.push(rule.to_value());
        }
    }
    let mut status = json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": known.is_incomplete});
    if !known.errors.is_empty() {
        status["evaluationError"] = joined_errors(known.errors).into();
    }
    status
}

/// The user whose permissions a review asks about.
fn user_of(spec: &Value) -> User {
    let texts = |value: &Value| {
        let items = value.as_array().into_iter().flatten();
        items.filter_map(|item| item.as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let extra = spec.get("extra").and_then(Value::as_object).into_iter().flatten();
    User {
        name: text(spec, "user").to_owned(),
        uid: text(spec, "uid").to_owned(),
        groups: spec.get("groups").map(texts).unwrap_or_default(),
        extra: extra.map(|(key, values)| (key.to_string(), texts(values))).collect(),
    }
}

fn with_status(body: &Value, status: Value) -> Value {
    let mut answer = body.clone();
    answer["status"] = status;
    answer
}

fn present<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    value.get(key).filter(|value| !value.is_null())
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
#[path = "reviews_tests.rs"]
mod tests;
