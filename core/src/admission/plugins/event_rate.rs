//! EventRateLimit: limits how fast Events are written.
//!
//! The tokens of the rate limiters are not part of the state: the engine keeps them, and an effect takes one token from
//! each limiter.

use crate::admission::call::Bucket;
use crate::admission::plugins::Configuration;
use crate::admission::{Attributes, Operation};
use crate::kinds::known::EVENT;
use crate::object::reader::Reader;
use crate::pipeline::effect::{Effect, Stop};
use crate::refusal::{Refusal, Ruling, RulingKind};
use holdfast_value::Value;

/// One limit of the configuration. Depending on its type, it has one rate limiter for the whole server, or one for each
/// namespace, each user, or each pair of an Event's source and object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventLimit {
    sort: String,
    per_second: u32,
    burst: u32,
    keys_max: usize,
}

/// The default maximum number of rate limiters that the engine stores for one limit.
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
    let (kind, reason) = (RulingKind::TooManyRequests, "TooManyRequests".to_owned());
    let ruling = Ruling { kind, reason, message, details: Value::Null };
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

pub(super) fn configure(configuration: &mut Configuration, document: &Reader) {
    super::configuration::check(document, "eventratelimit.admission.k8s.io/", "Configuration");
    configuration.event_limits = document.list("limits").unwrap_or_default().iter().map(limit).collect();
    if configuration.event_limits.is_empty() {
        document.required("limits", "must not be empty");
    }
}

fn limit(limit: &Reader) -> EventLimit {
    const SORTS: [&str; 4] = ["Server", "Namespace", "User", "SourceAndObject"];
    let number = |field: &str, least: i64| {
        let number = limit.int(field).unwrap_or(0);
        let is_number = limit.get(field).is_none_or(holdfast_value::Value::is_i64);
        if is_number && number < least {
            limit.invalid(field, number, if least > 0 { "must be positive" } else { "must not be negative" });
        }
        u32::try_from(number).unwrap_or(u32::MAX)
    };
    let sort = limit.text("type").unwrap_or("").to_owned();
    if !SORTS.contains(&sort.as_str()) {
        limit.fault("type", format!("Unsupported value: \"{sort}\": supported values: \"{}\"", SORTS.join("\", \"")));
    }
    let keys_max = usize::try_from(number("cacheSize", 0)).ok().filter(|size| *size > 0);
    let (per_second, burst) = (number("qps", 1), number("burst", 1));
    EventLimit { sort, per_second, burst, keys_max: keys_max.unwrap_or(KEYS_MAX) }
}
