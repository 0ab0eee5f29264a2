//! Writes a configuration as a complete document of version v1, with all defaults filled in.

use super::Configuration;
use super::extender::{Extender, Tls};
use super::version::GROUP;
use crate::plugin::POINTS;
use crate::plugins::{
    balanced_allocation, default_preemption, dynamic_resources, inter_pod_affinity, node_affinity, node_resources_fit,
    pod_topology_spread, volume_binding,
};
use crate::profile::{PluginSet, Profile, ProfileDocument};
use holdfast_core::object::duration as go;
use holdfast_value::{Map, Value, json};

/// Plug-ins that have arguments, in the order in which they are written.
const WITH_ARGUMENTS: [&str; 8] = [
    default_preemption::NAME,
    dynamic_resources::NAME,
    inter_pod_affinity::NAME,
    node_affinity::NAME,
    balanced_allocation::NAME,
    node_resources_fit::NAME,
    pod_topology_spread::NAME,
    volume_binding::NAME,
];

impl Configuration {
    /// The names of the settings of this configuration that a document of version v1 cannot express; earlier versions
    /// and Policies have them.
    pub fn unwritten(&self) -> Vec<&'static str> {
        let check_all = self.profiles.iter().any(|profile| profile.check_all);
        let all = [
            ("alwaysCheckAllPredicates", check_all),
            ("healthzBindAddress", self.healthz_bind_address.is_some()),
            ("metricsBindAddress", self.metrics_bind_address.is_some()),
        ];
        all.into_iter().filter(|(_, is_set)| *is_set).map(|(field, _)| field).collect()
    }

    /// The configuration as a document of version v1. Reading the document gives an equal configuration, except for the
    /// settings that [`Configuration::unwritten`] names.
    pub fn document(&self) -> Value {
        let (election, client) = (&self.leader_election, &self.client_connection);
        let mut document = json!({
            "apiVersion": format!("{GROUP}/v1"),
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {
                "acceptContentTypes": client.accept_content_types,
                "burst": client.burst,
                "contentType": client.content_type,
                "kubeconfig": client.kubeconfig,
                "qps": number(client.qps),
            },
            "enableContentionProfiling": self.enable_contention_profiling,
            "enableProfiling": self.enable_profiling,
            "leaderElection": {
                "leaderElect": election.leader_elect,
                "leaseDuration": duration(election.lease_duration_seconds),
                "renewDeadline": duration(election.renew_deadline_seconds),
                "resourceLock": election.resource_lock,
                "resourceName": election.resource_name,
                "resourceNamespace": election.resource_namespace,
                "retryPeriod": duration(election.retry_period_seconds),
            },
            "parallelism": self.parallelism,
            "percentageOfNodesToScore": self.percentage_of_nodes_to_score,
            "podInitialBackoffSeconds": self.pod_initial_backoff_seconds,
            "podMaxBackoffSeconds": self.pod_max_backoff_seconds,
            "profiles": self.profiles.iter().map(profile).collect::<Vec<_>>(),
        });
        if self.delay_cache_until_active {
            document["delayCacheUntilActive"] = json!(true);
        }
        if !self.extenders.is_empty() {
            document["extenders"] = self.extenders.iter().map(extender).collect();
        }
        document
    }
}

fn profile(profile: &Profile) -> Value {
    let ProfileDocument { sets, arguments, .. } = &profile.document;
    let mut plugins = Map::new();
    for field in POINTS.iter().map(|row| row.1).chain(["multiPoint"]) {
        plugins.insert(field, sets.get(field).map_or_else(|| json!({}), set));
    }
    let mut configured: Vec<Value> =
        arguments.iter().map(|(name, args)| plugin(name, with_defaults(name, args))).collect();
    let named = |name: &str| arguments.iter().any(|(own, _)| own == name);
    let enabled = |name: &str| profile.plugin(name).is_some();
    let defaults = WITH_ARGUMENTS.into_iter().filter(|name| enabled(name) && !named(name));
    configured.extend(defaults.map(|name| plugin(name, with_defaults(name, &json!({})))));
    let mut document = json!({
        "pluginConfig": configured,
        "plugins": plugins,
        "schedulerName": &*profile.scheduler_name,
    });
    if let Some(percentage) = profile.percentage_of_nodes_to_score {
        document["percentageOfNodesToScore"] = json!(percentage);
    }
    document
}

fn set(set: &PluginSet) -> Value {
    let mut document = json!({});
    if !set.enabled.is_empty() {
        let enabled = set.enabled.iter().map(|(name, weight)| json!({"name": name, "weight": weight}));
        document["enabled"] = enabled.collect();
    }
    if !set.disabled.is_empty() {
        document["disabled"] = set.disabled.iter().map(|name| json!({"name": name, "weight": 0})).collect();
    }
    document
}

fn plugin(name: &str, args: Value) -> Value {
    json!({"name": name, "args": args})
}

/// The arguments of a plug-in, with defaults filled in.
fn with_defaults(name: &str, args: &Value) -> Value {
    let mut args = args.clone();
    if crate::plugins::find(name).is_none() || !args.is_object() {
        return args;
    }
    args["apiVersion"] = json!(format!("{GROUP}/v1"));
    args["kind"] = json!(format!("{name}Args"));
    let mut defaults = |field: &str, value: Value| {
        if args[field].is_null() {
            args[field] = value;
        }
    };
    match name {
        default_preemption::NAME => {
            defaults("minCandidateNodesAbsolute", json!(100));
            defaults("minCandidateNodesPercentage", json!(10));
        }
        dynamic_resources::NAME => {
            defaults("bindingTimeout", json!("10m0s"));
            defaults("filterTimeout", json!("10s"));
        }
        inter_pod_affinity::NAME => {
            defaults("hardPodAffinityWeight", json!(1));
            defaults("ignorePreferredTermsOfExistingPods", json!(false));
        }
        balanced_allocation::NAME => defaults("resources", json!([])),
        node_resources_fit::NAME => {
            defaults("scoringStrategy", json!({}));
            if args["scoringStrategy"]["type"].is_null() {
                args["scoringStrategy"]["type"] = json!("LeastAllocated");
            }
        }
        pod_topology_spread::NAME => defaults("defaultingType", json!("System")),
        volume_binding::NAME => defaults("bindTimeoutSeconds", json!(600)),
        _ => {}
    }
    match name {
        balanced_allocation::NAME => with_default_resources(&mut args["resources"]),
        node_resources_fit::NAME => with_default_resources(&mut args["scoringStrategy"]["resources"]),
        _ => {}
    }
    args
}

/// Fills in the default resources if there are none, and the default weight of each resource.
fn with_default_resources(resources: &mut Value) {
    match resources.as_array_mut() {
        Some(resources) if !resources.is_empty() => {
            for resource in resources.iter_mut().filter(|resource| resource["weight"].as_i64().unwrap_or(0) == 0) {
                resource["weight"] = json!(1);
            }
        }
        _ => *resources = json!([{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]),
    }
}

fn extender(extender: &Extender) -> Value {
    let mut document = json!({
        "httpTimeout": duration(extender.http_timeout_seconds),
        "urlPrefix": extender.url_prefix,
    });
    let texts = [
        ("bindVerb", &extender.bind_verb),
        ("filterVerb", &extender.filter_verb),
        ("preemptVerb", &extender.preempt_verb),
        ("prioritizeVerb", &extender.prioritize_verb),
    ];
    put_texts(&mut document, &texts);
    let global_options = [
        ("enableHTTPS", extender.enable_https),
        ("ignorable", extender.ignorable),
        ("nodeCacheCapable", extender.node_cache_capable),
    ];
    for (field, _) in global_options.into_iter().filter(|(_, on)| *on) {
        document[field] = json!(true);
    }
    if extender.weight != 0 {
        document["weight"] = json!(extender.weight);
    }
    if extender.tls != Tls::default() {
        document["tlsConfig"] = tls(&extender.tls);
    }
    if !extender.managed_resources.is_empty() {
        let managed = extender.managed_resources.iter().map(|managed| {
            let mut document = json!({"name": &*managed.name});
            if managed.ignored_by_scheduler {
                document["ignoredByScheduler"] = json!(true);
            }
            document
        });
        document["managedResources"] = managed.collect();
    }
    document
}

fn tls(tls: &Tls) -> Value {
    let mut document = json!({});
    if tls.insecure {
        document["insecure"] = json!(true);
    }
    let texts = [
        ("caData", &tls.ca_data),
        ("caFile", &tls.ca_file),
        ("certData", &tls.cert_data),
        ("certFile", &tls.cert_file),
        ("keyData", &tls.key_data),
        ("keyFile", &tls.key_file),
        ("serverName", &tls.server_name),
    ];
    put_texts(&mut document, &texts);
    document
}

fn put_texts(document: &mut Value, texts: &[(&str, &String)]) {
    for (field, text) in texts.iter().filter(|(_, text)| !text.is_empty()) {
        document[*field] = json!(text);
    }
}

/// A number as a document gives it: without a decimal point if it is whole.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 1e15 { json!(value as i64) } else { json!(value) }
}

pub(super) fn duration(seconds: f64) -> String {
    go::text((seconds * 1e9).round() as i64)
}
