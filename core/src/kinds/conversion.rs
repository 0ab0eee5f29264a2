//! The ConversionReview that a webhook gets and gives: pure, so that only the call itself is left to the shell.

use crate::object::meta::{Document, metadata, metadata_mut, text};
use holdfast_value::{Value, json};

/// Versions of the review that can be spoken, the preferred one first.
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// What is posted to the webhook; `webhook` is the definition's `spec.conversion.webhook`.
pub fn review(webhook: &Value, uid: &str, to: &str, objects: &[Value]) -> Result<Value, String> {
    let wanted = webhook["conversionReviewVersions"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let version = wanted.into_iter().find(|version| VERSIONS.contains(version));
    let version = version.ok_or("no supported conversion review versions")?;
    Ok(json!({
        "kind": "ConversionReview",
        "apiVersion": format!("apiextensions.k8s.io/{version}"),
        "request": {"uid": uid, "desiredAPIVersion": to, "objects": objects},
    }))
}

/// The objects of a webhook's answer, in the order of those that it was given.
///
/// Of their metadata only labels and annotations are the webhook's to change.
pub fn converted(review: &Value, answer: &Value, to: &str, objects: &[Value]) -> Result<Vec<Document>, String> {
    for field in ["kind", "apiVersion"] {
        if answer[field] != review[field] {
            return Err(format!("expected webhook response of {}, got {}", review[field], answer[field]));
        }
    }
    let response = &answer["response"];
    if !response.is_object() {
        return Err("expected webhook response to contain a response".into());
    }
    if response["uid"] != review["request"]["uid"] {
        return Err(format!("expected response.uid={}, got {}", review["request"]["uid"], response["uid"]));
    }
    let result = &response["result"];
    if result["status"] != "Success" {
        let message = result["message"].as_str().filter(|message| !message.is_empty());
        return Err(message.map_or_else(|| format!("unexpected result: {result}"), str::to_owned));
    }
    let found = response["convertedObjects"].as_array().map(Vec::as_slice).unwrap_or_default();
    if found.len() != objects.len() {
        return Err(format!("returned {} objects, expected {}", found.len(), objects.len()));
    }
    let pairs = found.iter().zip(objects).enumerate();
    pairs
        .map(|(index, (found, object))| {
            one(found, object, to).map_err(|why| format!("returned invalid converted object at index {index}: {why}"))
        })
        .collect()
}

fn one(found: &Value, object: &Value, to: &str) -> Result<Document, String> {
    let (Value::Object(found), Value::Object(object)) = (found, object) else {
        return Err("it is no object".into());
    };
    if text(found, "apiVersion") != to {
        return Err(format!("invalid groupVersion (requested: {to}, received: {})", text(found, "apiVersion")));
    }
    if text(found, "kind") != text(object, "kind") {
        return Err(format!("invalid kind (requested: {}, received: {})", text(object, "kind"), text(found, "kind")));
    }
    for field in ["name", "namespace", "uid"] {
        let (before, after) = (text(metadata(object), field), text(metadata(found), field));
        if before != after {
            return Err(format!("must have the same {field}: {before} != {after}"));
        }
    }
    let mut converted = found.clone();
    let changed = metadata(found).clone();
    let meta = metadata_mut(&mut converted);
    *meta = metadata(object).clone();
    for field in ["labels", "annotations"] {
        match changed.get(field).filter(|value| value.is_object()) {
            Some(value) => {
                let texts = value.as_object().into_iter().flat_map(|texts| texts.iter());
                if let Some((key, _)) = texts.into_iter().find(|(_, value)| !value.is_string()) {
                    return Err(format!("invalid metadata of {field}: {key} is no text"));
                }
                meta.insert(field, value.clone())
            }
            None => meta.remove(field),
        };
    }
    Ok(converted)
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
            (answer("x", success.clone(), json!([good])), Err("expected response.uid=\"r\", got \"x\"")),
            (answer("r", json!({"status": "Failed", "message": "no way"}), json!([])), Err("no way")),
            (answer("r", success.clone(), json!([])), Err("returned 0 objects, expected 1")),
            (
                answer("r", success.clone(), json!([object("v3", json!({}))])),
                Err("returned invalid converted object at index 0: invalid groupVersion (requested: example.com/v2, \
                     received: example.com/v3)"),
            ),
            (
                answer("r", success.clone(), json!([with("/metadata/name", json!("z"))])),
                Err("returned invalid converted object at index 0: must have the same name: a != z"),
            ),
            (
                answer("r", success, json!([with("/metadata/labels", json!({"x": 1}))])),
                Err("returned invalid converted object at index 0: invalid metadata of labels: x is no text"),
            ),
            (json!({"kind": "Other"}), Err("expected webhook response of \"ConversionReview\", got \"Other\"")),
        ];
        for (answer, expected) in rows {
            let found = converted(&asked, &answer, "example.com/v2", &objects);
            let found = found.map(|objects| objects[0]["spec"].clone());
            assert_eq!(found, expected.map_err(str::to_owned), "{answer}");
        }
        // The rest of the metadata is the server's.
        let changed = with("/metadata/generation", json!(9));
        let answer = answer("r", json!({"status": "Success"}), json!([changed]));
        let kept = converted(&asked, &answer, "example.com/v2", &objects).expect("converted");
        assert_eq!(kept[0]["metadata"]["generation"], 2);
    }
}
