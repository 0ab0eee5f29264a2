//! Extenders: servers that the scheduler calls over HTTP to filter and score nodes, to change the victims of
//! preemption, or to bind pods.

use super::arguments::check_name;
use super::reader::Reader;
use crate::object::Text;
use crate::object::pod::Pod;
use crate::object::resources::is_extended;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use holdfast_value::{CompactString, Value};
use std::collections::BTreeSet;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Extender {
    pub url_prefix: String,
    pub filter_verb: String,
    pub preempt_verb: String,
    pub prioritize_verb: String,
    pub bind_verb: String,
    pub weight: i64,
    pub enable_https: bool,
    pub tls: Tls,
    pub http_timeout_seconds: f64,
    pub node_cache_capable: bool,
    pub ignorable: bool,
    pub managed_resources: Vec<ManagedResource>,
}

impl Extender {
    /// Whether the extender is called for the pod: for all pods, or, if it manages resources, only for pods that
    /// request one of them.
    pub fn is_interested_in(&self, pod: &Pod) -> bool {
        let requests = &pod.template.requests.scalars;
        let manages = |name: &Text| self.managed_resources.iter().any(|managed| managed.name == *name);
        self.managed_resources.is_empty() || requests.iter().any(|(name, _)| manages(name))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Tls {
    pub insecure: bool,
    pub server_name: String,
    pub cert_file: String,
    pub key_file: String,
    pub ca_file: String,
    pub cert_data: String,
    pub key_data: String,
    pub ca_data: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ManagedResource {
    pub name: Text,
    pub ignored_by_scheduler: bool,
}

const DEFAULT_TIMEOUT_SECONDS: f64 = 5.0;

/// The names of all fields of an extender and of its parts, in their present spelling.
#[rustfmt::skip]
const FIELDS: [&str; 22] = [
    "urlPrefix", "filterVerb", "preemptVerb", "prioritizeVerb", "bindVerb", "weight", "enableHTTPS", "tlsConfig",
    "httpTimeout", "nodeCacheCapable", "ignorable", "managedResources", "name", "ignoredByScheduler", "insecure",
    "serverName", "certFile", "keyFile", "caFile", "certData", "keyData", "caData",
];

/// Renames the fields of extenders to their present spelling. Earlier versions of the configuration ignored the case of
/// these names.
pub fn name_fields(extenders: &mut Value) {
    if let Some(list) = extenders.as_array_mut() {
        return list.iter_mut().for_each(name_fields);
    }
    let Some(fields) = extenders.as_object() else { return };
    let named = |(name, value): (&CompactString, &Value)| {
        let mut value = value.clone();
        name_fields(&mut value);
        let current = FIELDS.iter().find(|field| field.eq_ignore_ascii_case(name));
        (current.map_or_else(|| name.clone(), |current| (*current).into()), value)
    };
    *extenders = Value::Object(fields.iter().map(named).collect());
}

/// Reads the list `extenders`. Extenders whose failure is ignored (`ignorable`) are moved to the end of the list.
pub fn read_all(reader: &Reader<'_>) -> Vec<Extender> {
    let list = reader.list("extenders").unwrap_or_default();
    let mut extenders: Vec<Extender> = list.iter().map(read).collect();
    let binders = extenders.iter().filter(|one| !one.bind_verb.is_empty()).count();
    if binders > 1 {
        let found = format!("\"found {binders} extenders implementing bind\"");
        reader.invalid("extenders", found, "only one extender can implement bind");
    }
    let mut names = BTreeSet::new();
    for (at, extender) in extenders.iter().enumerate() {
        for (number, one) in extender.managed_resources.iter().enumerate() {
            if !names.insert(one.name.clone()) {
                let field = format!("extenders[{at}].managedResources[{number}].name");
                let why = "duplicate extender managed resource name";
                reader.invalid(&field, format!("\"{}\"", one.name), why);
            }
        }
    }
    extenders.sort_by_key(|one| one.ignorable);
    extenders
}

fn read(one: &Reader<'_>) -> Extender {
    let text = |field: &str| one.text(field).unwrap_or("").to_owned();
    let extender = Extender {
        url_prefix: text("urlPrefix"),
        filter_verb: text("filterVerb"),
        preempt_verb: text("preemptVerb"),
        prioritize_verb: text("prioritizeVerb"),
        bind_verb: text("bindVerb"),
        weight: one.int("weight").unwrap_or(0),
        enable_https: one.bool("enableHTTPS").unwrap_or(false),
        tls: tls(one),
        http_timeout_seconds: timeout(one),
        node_cache_capable: one.bool("nodeCacheCapable").unwrap_or(false),
        ignorable: one.bool("ignorable").unwrap_or(false),
        managed_resources: managed(one),
    };
    if extender.url_prefix.is_empty() {
        one.required("urlPrefix", "");
    }
    if !extender.prioritize_verb.is_empty() && extender.weight <= 0 {
        one.invalid("weight", extender.weight, "must have a positive weight applied to it");
    }
    extender
}

/// The timeout of an extender in seconds. A configuration gives it as a duration, a Policy as a number of nanoseconds.
/// If it is absent or 0, the default applies.
fn timeout(one: &Reader<'_>) -> f64 {
    let seconds = match one.get("httpTimeout") {
        Some(value) if value.is_number() => value.as_f64().map(|nanoseconds| nanoseconds / 1e9),
        Some(_) => one.seconds("httpTimeout"),
        None => None,
    };
    seconds.filter(|seconds| *seconds != 0.0).unwrap_or(DEFAULT_TIMEOUT_SECONDS)
}

fn tls(one: &Reader<'_>) -> Tls {
    let Some(tls) = one.child("tlsConfig") else { return Tls::default() };
    let text = |field: &str| tls.text(field).unwrap_or("").to_owned();
    let data = |field: &str| {
        // Base64 may contain line breaks.
        let data = text(field).replace(['\r', '\n'], "");
        if STANDARD.decode(&data).is_err() {
            // The data may be a private key, so the message does not show it.
            tls.fault(field, "Invalid value: illegal base64 data");
        }
        data
    };
    let read = Tls {
        insecure: tls.bool("insecure").unwrap_or(false),
        server_name: text("serverName"),
        cert_file: text("certFile"),
        key_file: text("keyFile"),
        ca_file: text("caFile"),
        cert_data: data("certData"),
        key_data: data("keyData"),
        ca_data: data("caData"),
    };
    if read.insecure && !(read.ca_file.is_empty() && read.ca_data.is_empty()) {
        tls.fault("", "specifying a root certificates file with the insecure flag is not allowed");
    }
    read
}

fn managed(one: &Reader<'_>) -> Vec<ManagedResource> {
    let read = |one: &Reader<'_>| {
        let name = one.text("name").unwrap_or("");
        if check_name(one, "name", name) && !is_extended(name) {
            one.invalid("name", format!("\"{name}\""), "is an invalid extended resource name");
        }
        ManagedResource { name: name.into(), ignored_by_scheduler: one.bool("ignoredByScheduler").unwrap_or(false) }
    };
    one.list("managedResources").unwrap_or_default().iter().map(read).collect()
}
