//! ImagePolicyWebhook: a webhook decides whether images may run.
//!
//! The engine caches the answers for a while. This file builds the question and interprets the answer.

use super::pods::list;
use crate::admission::plugins::Configuration;
use crate::admission::{Attributes, Operation};
use crate::kinds::known::{IMAGE_REVIEW, POD};
use crate::object::meta::{metadata_mut, object_mut};
use crate::object::reader::Reader;
use crate::pipeline::effect::{Effect, Stop};
use holdfast_value::{Map, Value, json};
use std::time::Duration;

/// The operator's configuration of ImagePolicyWebhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImagePolicy {
    /// The path of the kubeconfig for calling the webhook.
    pub kubeconfig: String,
    /// How long an answer that allows the images is cached.
    pub allow_time: Duration,
    /// How long an answer that denies the images is cached.
    pub deny_time: Duration,
    /// The first wait before a retry; zero means no retries.
    pub retry_backoff: Duration,
    /// Whether images are allowed if the webhook cannot be called.
    pub default_allow: bool,
}

/// The annotations of a pod whose keys contain this text are sent to the webhook.
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
            object_mut(metadata, "annotations").insert(FAILED_OPEN, "true".into());
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
    let own: Map = annotations
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

pub(super) fn configure(configuration: &mut Configuration, document: &Reader) {
    let Some(own) = document.child("imagePolicy") else { return document.required("imagePolicy", "") };
    let kubeconfig = own.text("kubeConfigFile").unwrap_or("").to_owned();
    if kubeconfig.is_empty() {
        own.required("kubeConfigFile", "");
    }
    let (second, minutes) = (Duration::from_secs(1), Duration::from_secs(60));
    let millisecond = Duration::from_millis(1);
    configuration.image_policy = Some(ImagePolicy {
        kubeconfig,
        allow_time: time(&own, "allowTTL", second, 30 * minutes, 5 * minutes),
        deny_time: time(&own, "denyTTL", second, 30 * minutes, 30 * second),
        retry_backoff: time(&own, "retryBackoff", millisecond, 5 * minutes, 500 * millisecond),
        default_allow: own.bool("defaultAllow").unwrap_or(false),
    });
}

/// Reads a duration, at most `most`, that is given as a number of `unit`. Zero or an absent field means `default`, -1
/// means zero.
fn time(own: &Reader, field: &str, unit: Duration, most: Duration, default: Duration) -> Duration {
    match own.int(field).unwrap_or(0) {
        -1 => Duration::ZERO,
        0 => default,
        number => {
            let found = u32::try_from(number).ok().and_then(|number| unit.checked_mul(number));
            found.filter(|found| *found <= most).unwrap_or_else(|| {
                let why = format!("valid value is between {unit:?} and {most:?}, got {number} times {unit:?}");
                own.fault(field, why);
                default
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::reader::read as strictly;

    #[test]
    fn times_have_bounds() {
        let read = |own: Value| {
            let mut configuration = Configuration::default();
            let read = strictly(&json!({"imagePolicy": own}), |own| configure(&mut configuration, own));
            read.map(|()| configuration.image_policy.expect("it is configured"))
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
        let wrong = read(json!({"allowTTL": 1801, "denyTTL": "x", "ttl": 1})).expect_err("four faults");
        assert_eq!(
            wrong,
            [
                "imagePolicy.kubeConfigFile: Required value",
                "imagePolicy.allowTTL: valid value is between 1s and 1800s, got 1801 times 1s",
                "imagePolicy.denyTTL: Invalid value: \"x\": must be an integer",
                "strict decoding error: unknown field \"imagePolicy.ttl\"",
            ]
        );
    }
}
