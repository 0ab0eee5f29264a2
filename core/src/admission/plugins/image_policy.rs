//! ImagePolicyWebhook: another server says whose images may run.
//!
//! What it said is kept for a while by whoever asks it; the core says what is to be asked, and what comes of the answer.

use super::pods::list;
use crate::admission::settings::Configuration;
use crate::admission::{Attributes, Operation};
use crate::kinds::known::{IMAGE_REVIEW, POD};
use crate::object::meta::{metadata_mut, object_mut};
use crate::pipeline::effect::{Effect, Stop};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// What the operator says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImagePolicy {
    /// The file that says where the server is.
    pub kubeconfig: String,
    /// For how long an answer is good, by what it is.
    pub allow_time: Duration,
    pub deny_time: Duration,
    /// How long the first wait is before it is asked again; zero: it is not.
    pub retry_backoff: Duration,
    /// A server that cannot be asked has said yes.
    pub default_allow: bool,
}

/// Annotations of pods that are meant for it.
const OWN_ANNOTATIONS: &str = ".image-policy.k8s.io/";
const FAILED_OPEN: &str = "alpha.image-policy.k8s.io/failed-open";
const AUDIT_PREFIX: &str = "imagepolicywebhook.image-policy.k8s.io/";

pub(super) fn validate(attributes: &mut Attributes) -> Result<(), Stop> {
    let lists: &[&str] = match attributes.subresource() {
        "" => &["containers", "initContainers"],
        "ephemeralcontainers" => &["ephemeralContainers"],
        _ => return Ok(()),
    };
    if !attributes.is_on(POD) || !matches!(attributes.operation, Operation::Create | Operation::Update) {
        return Ok(());
    }
    let Some(policy) = &attributes.admission.configuration.image_policy else { return Ok(()) };
    let review = review(attributes, lists);
    let status = match attributes.answers.judged(&review) {
        None => return Err(Stop::Needs(Effect::Images(Box::new(review)))),
        Some(Ok(status)) => status,
        Some(Err(_)) if policy.default_allow => {
            attributes.annotate(format!("{AUDIT_PREFIX}failed-open"), "true");
            let metadata = metadata_mut(attributes.fields_mut());
            object_mut(metadata, "annotations").insert(FAILED_OPEN.into(), "true".into());
            return Ok(());
        }
        Some(Err(why)) => return Err(attributes.forbidden(why.clone())),
    };
    for (key, value) in status["auditAnnotations"].as_object().into_iter().flatten() {
        attributes.annotate(format!("{AUDIT_PREFIX}{key}"), value.as_str().unwrap_or(""));
    }
    if status["allowed"] == true {
        return Ok(());
    }
    Err(attributes.forbidden(match status["reason"].as_str() {
        Some(reason) if !reason.is_empty() => {
            format!("image policy webhook backend denied one or more images: {reason}")
        }
        _ => "one or more images rejected by webhook backend".to_owned(),
    }))
}

fn review(attributes: &Attributes, lists: &[&str]) -> Value {
    let pod = &attributes.object;
    let containers = lists.iter().flat_map(|field| list(&pod["spec"][*field]));
    let images: Vec<Value> = containers.map(|container| json!({"image": container["image"]})).collect();
    let annotations = pod["metadata"]["annotations"].as_object().into_iter().flatten();
    let own: Map<String, Value> = annotations
        .filter(|(key, _)| key.contains(OWN_ANNOTATIONS))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let mut spec = json!({"containers": images});
    if !own.is_empty() {
        spec["annotations"] = own.into();
    }
    if !attributes.namespace().is_empty() {
        spec["namespace"] = attributes.namespace().into();
    }
    json!({"kind": IMAGE_REVIEW.kind, "apiVersion": IMAGE_REVIEW.api_version(), "metadata": {"creationTimestamp": null},
        "spec": spec, "status": {"allowed": false}})
}

pub(super) fn configure(configuration: &mut Configuration, document: &Value) -> Result<(), String> {
    const FIELDS: [&str; 5] = ["kubeConfigFile", "allowTTL", "denyTTL", "retryBackoff", "defaultAllow"];
    let own = document["imagePolicy"].as_object().ok_or("imagePolicy: Required value")?;
    let outside = document.as_object().into_iter().flat_map(Map::keys).find(|field| *field != "imagePolicy");
    if let Some(field) = outside.or_else(|| own.keys().find(|field| !FIELDS.contains(&field.as_str()))) {
        return Err(format!("strict decoding error: unknown field \"{field}\""));
    }
    let own = &document["imagePolicy"];
    let kubeconfig = own["kubeConfigFile"].as_str().filter(|file| !file.is_empty());
    let kubeconfig = kubeconfig.ok_or("imagePolicy.kubeConfigFile: Required value")?.to_owned();
    let default_allow = match &own["defaultAllow"] {
        Value::Null => false,
        Value::Bool(value) => *value,
        other => return Err(format!("imagePolicy.defaultAllow: Invalid value: {other}: must be a boolean")),
    };
    let (second, minutes) = (Duration::from_secs(1), Duration::from_secs(60));
    let millisecond = Duration::from_millis(1);
    configuration.image_policy = Some(ImagePolicy {
        kubeconfig,
        allow_time: time(own, "allowTTL", second, 30 * minutes, 5 * minutes)?,
        deny_time: time(own, "denyTTL", second, 30 * minutes, 30 * second)?,
        retry_backoff: time(own, "retryBackoff", millisecond, 5 * minutes, 500 * millisecond)?,
        default_allow,
    });
    Ok(())
}

/// A time in this unit, which is the least, too; -1 is none at all.
fn time(own: &Value, field: &str, unit: Duration, most: Duration, default: Duration) -> Result<Duration, String> {
    let number = match &own[field] {
        Value::Null => 0,
        value => {
            value.as_i64().ok_or_else(|| format!("imagePolicy.{field}: Invalid value: {value}: must be a number"))?
        }
    };
    match number {
        -1 => Ok(Duration::ZERO),
        0 => Ok(default),
        number => {
            let found = u32::try_from(number).ok().and_then(|number| unit.checked_mul(number));
            found.filter(|found| *found <= most).ok_or_else(|| {
                format!(
                    "imagePolicy.{field}: valid value is between {unit:?} and {most:?}, got {number} times {unit:?}"
                )
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_bounds() {
        let read = |own: Value| {
            let mut configuration = Configuration::default();
            let document = json!({"imagePolicy": own});
            configure(&mut configuration, &document).map(|()| configuration.image_policy.expect("it is configured"))
        };
        let plain = read(json!({"kubeConfigFile": "k"})).expect("defaults");
        assert_eq!((plain.allow_time, plain.deny_time), (Duration::from_secs(300), Duration::from_secs(30)));
        assert_eq!(plain.retry_backoff, Duration::from_millis(500));
        let none = read(json!({"kubeConfigFile": "k", "allowTTL": -1, "retryBackoff": -1})).expect("without");
        assert_eq!((none.allow_time, none.retry_backoff), (Duration::ZERO, Duration::ZERO));
        for wrong in [
            json!({}),
            json!({"kubeConfigFile": "k", "allowTTL": 1801}),
            json!({"kubeConfigFile": "k", "denyTTL": -2}),
            json!({"kubeConfigFile": "k", "retryBackoff": 300_001}),
            json!({"kubeConfigFile": "k", "defaultAllow": "yes"}),
            json!({"kubeConfigFile": "k", "ttl": 1}),
        ] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
