//! Makes the ConversionReview for a conversion webhook and reads its answer. This module is pure: the engine makes the
//! call.

use crate::object::meta::{Document, metadata, metadata_mut, text, type_name};
use crate::object::validate;
use crate::refusal::{Causes, WebhookFault};
use holdfast_value::{Value, json};

/// The supported versions of the review, the preferred one first.
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// The ConversionReview that asks the webhook for the objects in the version `to`. `webhook` is the definition's
/// `spec.conversion.webhook`.
pub fn review(webhook: &Value, uid: &str, to: &str, objects: &[Value]) -> Result<Value, String> {
    let wanted = webhook["conversionReviewVersions"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let version = wanted.into_iter().find(|version| VERSIONS.contains(version));
    let version = version.ok_or("no supported conversion review versions")?;
    Ok(json!({
        "kind": "ConversionReview",
        "apiVersion": api_version(version),
        "request": {"uid": uid, "desiredAPIVersion": to, "objects": objects},
    }))
}

/// The objects in a webhook's answer, in the order of the request.
///
/// In the objects' metadata the webhook may change only labels and annotations.
pub fn converted(review: &Value, answer: &Value, to: &str, objects: &[Value]) -> Result<Vec<Document>, WebhookFault> {
    check_review(review, answer).map_err(WebhookFault::Call)?;
    let found = answer["response"]["convertedObjects"].as_array().map(Vec::as_slice).unwrap_or_default();
    if found.len() != objects.len() {
        return Err(WebhookFault::Returned(format!("{} objects, expected {}", found.len(), objects.len())));
    }
    let pairs = found.iter().zip(objects).enumerate();
    let place = |index: usize| match objects.len() {
        1 => None,
        _ => Some(index),
    };
    pairs
        .map(|(index, (found, object))| {
            one(found, object, to).map_err(|unfit| WebhookFault::Returned(unfit.at(place(index))))
        })
        .collect()
}

/// Checks that the answer is for this review and reports success.
fn check_review(review: &Value, answer: &Value) -> Result<(), String> {
    let name = |review: &Value| {
        let text = |field: &str| review[field].as_str().unwrap_or_default().to_owned();
        (text("apiVersion"), text("kind"))
    };
    let ((version, kind), (found_version, found_kind)) = (name(review), name(answer));
    if (&version, &kind) != (&found_version, &found_kind) {
        let spoken = |version: &str| VERSIONS.into_iter().find(|spoken| version == api_version(spoken));
        if let (true, Some(other), Some(own)) = (kind == found_kind, spoken(&found_version), spoken(&version)) {
            return Err(format!("converting ({other}.{kind}) to ({own}.{kind}): unknown conversion"));
        }
        let found_version = if found_version.is_empty() { "/" } else { found_version.as_str() };
        return Err(format!(
            "expected webhook response of {version}, Kind={kind}, got {found_version}, Kind={found_kind}"
        ));
    }
    let response = &answer["response"];
    if !response.is_object() {
        return Err("no response provided".into());
    }
    if response["uid"] != review["request"]["uid"] {
        let found = response["uid"].as_str().unwrap_or_default();
        return Err(format!("expected response.uid={}, got {found:?}", review["request"]["uid"]));
    }
    let result = &response["result"];
    if result["status"] != "Success" {
        let message = result["message"].as_str().filter(|message| !message.is_empty());
        let status = result["status"].as_str().unwrap_or_default();
        let why = || format!("response.result.status was '{status}', not 'Success'");
        return Err(message.map_or_else(why, str::to_owned));
    }
    Ok(())
}

/// The reason why an object in the answer cannot be used.
enum Unfit {
    /// The converted object has another version or kind.
    Type(String),
    /// The converted object has another name, namespace or UID than the original object.
    Object(String),
    Metadata(String),
}

impl Unfit {
    /// The message for the only object of the answer, or for one of several objects.
    fn at(self, index: Option<usize>) -> String {
        match (self, index) {
            (Self::Type(why), None) => format!("invalid object at index 0: {why}"),
            (Self::Object(why), None) => format!("invalid object: {why}"),
            (Self::Metadata(why), None) => format!("invalid metadata: {why}"),
            (Self::Type(why) | Self::Object(why), Some(index)) => {
                format!("invalid converted object at index {index}: {why}")
            }
            (Self::Metadata(why), Some(index)) => format!("invalid metadata in object at index {index}: {why}"),
        }
    }
}

fn one(found: &Value, object: &Value, to: &str) -> Result<Document, Unfit> {
    let (Value::Object(found), Value::Object(object)) = (found, object) else {
        return Err(Unfit::Type("it is not an object".into()));
    };
    let version = text(found, "apiVersion");
    if version != to {
        return Err(Unfit::Type(format!("invalid groupVersion (expected {to}, received {version})")));
    }
    let (kind, found_kind) = (text(object, "kind"), text(found, "kind"));
    if found_kind != kind {
        return Err(Unfit::Type(format!("invalid kind (expected {kind}, received {found_kind})")));
    }
    for (field, shown) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (before, after) = (text(metadata(object), field), text(metadata(found), field));
        if before != after {
            return Err(Unfit::Object(format!("must have the same {shown}: {before} != {after}")));
        }
    }
    let mut converted = found.clone();
    let changed = metadata(found).clone();
    let meta = metadata_mut(&mut converted);
    *meta = metadata(object).clone();
    for (field, rule) in [("labels", validate::labels as Rule), ("annotations", validate::annotations as Rule)] {
        let texts = match changed.get(field) {
            None | Some(Value::Null) => {
                meta.remove(field);
                continue;
            }
            Some(Value::Object(texts)) => texts,
            Some(other) => {
                let found = type_name(other);
                return Err(Unfit::Metadata(format!("invalid metadata.{field} of type {found} in converted object")));
            }
        };
        if let Some((key, other)) = texts.iter().find(|(_, value)| !value.is_string()) {
            let found = type_name(other);
            let why = format!("metadata.{field}[{key}] must be a string, but is {found} in converted object");
            return Err(Unfit::Metadata(why));
        }
        // Labels and annotations that the webhook did not change need not be valid.
        if meta.get(field).and_then(Value::as_object) != Some(texts) {
            let mut causes = Causes::default();
            rule(texts, &format!("metadata.{field}"), &mut causes);
            let told: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
            match told.as_slice() {
                [] => {}
                [one] => return Err(Unfit::Metadata(one.clone())),
                all => return Err(Unfit::Metadata(format!("[{}]", all.join(", ")))),
            }
        }
        meta.insert(field, Value::Object(texts.clone()));
    }
    Ok(converted)
}

type Rule = fn(&Document, &str, &mut Causes);

fn api_version(version: &str) -> String {
    format!("apiextensions.k8s.io/{version}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(version: &str, spec: Value) -> Value {
        json!({"apiVersion": format!("example.com/{version}"), "kind": "Tab",
            "metadata": {"name": "a", "namespace": "b", "uid": "u", "generation": 2, "labels": {"x": "1"}}, "spec": spec})
    }

    #[test]
    fn a_review_is_in_a_version_that_both_speak() {
        for (versions, expected) in [
            (json!(["v1"]), Some("apiextensions.k8s.io/v1")),
            (json!(["v9", "v1beta1", "v1"]), Some("apiextensions.k8s.io/v1beta1")),
            (json!(["v9"]), None),
            (json!(null), None),
        ] {
            let review = review(&json!({"conversionReviewVersions": versions}), "u", "example.com/v2", &[]);
            assert_eq!(
                review.ok().and_then(|review| Some(review["apiVersion"].as_str()?.to_owned())).as_deref(),
                expected
            );
        }
    }

    #[test]
    fn answers_are_believed_as_far_as_they_may_go() {
        let objects = [object("v1", json!({"a": 1}))];
        let asked = review(&json!({"conversionReviewVersions": ["v1"]}), "r", "example.com/v2", &objects).expect("v1");
        let good = object("v2", json!({"b": 1}));
        let with = |pointer: &str, value: Value| {
            let mut changed = good.clone();
            *changed.pointer_mut(pointer).expect(pointer) = value;
            changed
        };
        let answer = |uid: &str, result: Value, objects: Value| {
            json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
                "response": {"uid": uid, "result": result, "convertedObjects": objects}})
        };
        let success = json!({"status": "Success"});
        let rows = [
            (answer("r", success.clone(), json!([good])), Ok(json!({"b": 1}))),
            (answer("x", success.clone(), json!([good])), Err("failed: expected response.uid=\"r\", got \"x\"")),
            (answer("r", json!({"status": "Failed", "message": "no way"}), json!([])), Err("failed: no way")),
            (
                answer("r", json!({"status": "Failed"}), json!([])),
                Err("failed: response.result.status was 'Failed', not 'Success'"),
            ),
            (answer("r", json!(null), json!([])), Err("failed: response.result.status was '', not 'Success'")),
            (answer("r", success.clone(), json!([])), Err("returned 0 objects, expected 1")),
            (answer("r", success.clone(), json!(null)), Err("returned 0 objects, expected 1")),
            (
                answer("r", success.clone(), json!([object("v3", json!({}))])),
                Err("returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received \
                     example.com/v3)"),
            ),
            (
                answer("r", success.clone(), json!([with("/kind", json!("Bar"))])),
                Err("returned invalid object at index 0: invalid kind (expected Tab, received Bar)"),
            ),
            (
                answer("r", success.clone(), json!([with("/metadata/name", json!("z"))])),
                Err("returned invalid object: must have the same name: a != z"),
            ),
            (
                answer("r", success.clone(), json!([with("/metadata/uid", json!(null))])),
                Err("returned invalid object: must have the same UID: u != "),
            ),
            (
                answer("r", success.clone(), json!([with("/metadata/labels", json!({"x": 1}))])),
                Err(
                    "returned invalid metadata: metadata.labels[x] must be a string, but is number in converted object",
                ),
            ),
            (
                answer("r", success.clone(), json!([with("/metadata/labels", json!({"x": "a b"}))])),
                Err(
                    "returned invalid metadata: metadata.labels: Invalid value: \"a b\": a valid label must be an empty \
                     string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                     alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation \
                     is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
                ),
            ),
            (
                json!({"kind": "Other"}),
                Err("failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, \
                     Kind=Other"),
            ),
            (
                json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1beta1"}),
                Err("failed: converting (v1beta1.ConversionReview) to (v1.ConversionReview): unknown conversion"),
            ),
            (
                json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1"}),
                Err("failed: no response provided"),
            ),
        ];
        for (answer, expected) in rows {
            let found = converted(&asked, &answer, "example.com/v2", &objects);
            let found = found.map(|objects| objects[0]["spec"].clone()).map_err(|fault| fault.to_string());
            assert_eq!(found, expected.map_err(str::to_owned), "{answer}");
        }
        // Only labels and annotations come from the answer; the server keeps the other metadata.
        let changed = with("/metadata/generation", json!(9));
        let answer = answer("r", json!({"status": "Success"}), json!([changed]));
        let kept = converted(&asked, &answer, "example.com/v2", &objects).expect("converted");
        assert_eq!(kept[0]["metadata"]["generation"], 2);
    }
}
