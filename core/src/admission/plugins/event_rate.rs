//! EventRateLimit: nobody floods the cluster with Events.
//!
//! How full the buckets are is no part of the state: the outside keeps them, and is asked for one token of each.

use super::pods::list;
use crate::admission::call::Bucket;
use crate::admission::settings::Configuration;
use crate::admission::{Attributes, Operation};
use crate::kinds::known::EVENT;
use crate::pipeline::effect::{Effect, Stop};
use crate::refusal::{Refusal, Ruling};
use serde_json::Value;

/// One limit: a bucket for each key of its sort.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventLimit {
    sort: String,
    per_second: u32,
    burst: u32,
    keys_max: usize,
}

/// How many buckets a limit has, when it does not say.
const KEYS_MAX: usize = 4096;

pub(super) fn validate(attributes: &mut Attributes) -> Result<(), Stop> {
    let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
    let group = &attributes.kind.versions[attributes.request.target.version].group;
    if !writes || !attributes.is_of(EVENT) || !group.is_empty() || attributes.is_dry_run() {
        return Ok(());
    }
    let limits = &attributes.admission.configuration.event_limits;
    let buckets: Vec<Bucket> = limits.iter().enumerate().map(|(limit, what)| bucket(attributes, limit, what)).collect();
    if buckets.is_empty() {
        return Ok(());
    }
    let Some(empty) = attributes.answers.limited(&buckets) else {
        return Err(Stop::Needs(Effect::Limit(buckets)));
    };
    let told = |at: &usize| format!("limit reached on type {} for key {}", limits[*at].sort, buckets[*at].key);
    let told: Vec<String> = empty.iter().map(told).collect();
    let message = match told.as_slice() {
        [] => return Ok(()),
        [one] => format!("Too many requests: {one}"),
        all => format!("Too many requests: [{}]", all.join(", ")),
    };
    let ruling = Ruling { code: 429, reason: "TooManyRequests".into(), message, details: Value::Null };
    Err(Refusal::Ruled(Box::new(ruling)).into())
}

fn bucket(attributes: &Attributes, limit: usize, what: &EventLimit) -> Bucket {
    let event = &attributes.object;
    let text = |holder: &str, field: &str| event[holder][field].as_str().unwrap_or("").to_owned();
    let key = match what.sort.as_str() {
        "Namespace" => attributes.namespace().to_owned(),
        "User" => attributes.user().name.clone(),
        "SourceAndObject" => {
            let source = ["component", "host"].map(|field| text("source", field));
            let object = ["kind", "namespace", "name", "uid", "apiVersion"].map(|field| text("involvedObject", field));
            [source.concat(), object.concat()].concat()
        }
        _ => String::new(),
    };
    Bucket { limit, key, per_second: what.per_second, burst: what.burst, keys_max: what.keys_max }
}

pub(super) fn configure(configuration: &mut Configuration, document: &Value) -> Result<(), String> {
    super::configuration::check(document, "eventratelimit.admission.k8s.io/", "Configuration", &["limits"])?;
    let number = |limit: &Value, field: &str| {
        let number = limit[field].as_u64().and_then(|number| u32::try_from(number).ok()).filter(|number| *number > 0);
        number.ok_or_else(|| format!("limits.{field}: Invalid value: {}: must be positive", limit[field]))
    };
    let limit = |limit: &Value| {
        let sort = limit["type"].as_str().unwrap_or("").to_owned();
        if !matches!(sort.as_str(), "Server" | "Namespace" | "User" | "SourceAndObject") {
            return Err(format!(
                "limits.type: Unsupported value: \"{sort}\": supported values: \"Server\", \"Namespace\", \"User\", \
                 \"SourceAndObject\""
            ));
        }
        let keys_max = limit["cacheSize"].as_u64().and_then(|size| usize::try_from(size).ok()).filter(|size| *size > 0);
        let (per_second, burst) = (number(limit, "qps")?, number(limit, "burst")?);
        Ok(EventLimit { sort, per_second, burst, keys_max: keys_max.unwrap_or(KEYS_MAX) })
    };
    configuration.event_limits = list(&document["limits"]).map(limit).collect::<Result<_, _>>()?;
    match configuration.event_limits.is_empty() {
        true => Err("limits: Required value: must not be empty".into()),
        false => Ok(()),
    }
}
