//! Tests that a configuration of any version stays equal if it is written as a document and read again.

use holdfast_scheduler::Configuration;
use holdfast_scheduler::configuration::GlobalOptions;
use holdfast_scheduler::plugin::{ExtensionPoint, POINTS};
use holdfast_scheduler::plugins::PLUGINS;
use holdfast_scheduler::profile::ProfileDocument;
use holdfast_value::{Value, json};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

const VERSIONS: [&str; 6] = ["v1alpha1", "v1alpha2", "v1beta1", "v1beta2", "v1beta3", "v1"];

/// Arguments that differ from the defaults, for each plug-in that takes arguments.
fn arguments() -> Vec<Value> {
    let term = json!({"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]});
    let shape = json!([{"utilization": 0, "score": 3}, {"utilization": 90, "score": 10}]);
    vec![
        json!({"name": "NodeResourcesFit", "args": {"ignoredResources": ["e.io/r"], "scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 3}, {"name": "e.io/r"}]}}}),
        json!({"name": "NodeResourcesFit", "args": {"ignoredResourceGroups": ["e.io"], "scoringStrategy": {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": shape}}}}),
        json!({"name": "NodeResourcesBalancedAllocation", "args": {"resources": [{"name": "memory"}]}}),
        json!({"name": "NodeAffinity", "args": {"addedAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 4, "preference": term}]}}}),
        json!({"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 7, "ignorePreferredTermsOfExistingPods": true}}),
        json!({"name": "PodTopologySpread", "args": {"defaultingType": "List", "defaultConstraints": [{"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]}}),
        json!({"name": "VolumeBinding", "args": {"bindTimeoutSeconds": 5}}),
        json!({"name": "DynamicResources", "args": {"filterTimeout": "3s", "bindingTimeout": "1m0s"}}),
        json!({"name": "DefaultPreemption", "args": {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 3}}),
        json!({"name": "ServiceAffinity", "args": {"affinityLabels": ["zone"], "antiAffinityLabelsPreference": ["rack", "zone"]}}),
        json!({"name": "foreign", "args": {"x": [1, {"y": null}]}}),
    ]
}

/// The set of plug-ins that a document enables and disables at one point, or in `multiPoint` if `point` is `None`.
fn set(point: Option<ExtensionPoint>) -> impl Strategy<Value = Value> {
    let rows = PLUGINS.iter().filter(move |row| point.is_none_or(|point| row.points.contains(&point)));
    let mut names: Vec<&'static str> = rows.map(|row| row.name).collect();
    let most = names.len().min(4);
    let enabled = subsequence(names.clone(), 0..=most).prop_shuffle();
    names.push("*");
    let disabled = subsequence(names, 0..=most.min(2));
    (enabled, prop::collection::vec(0..9i64, 4), disabled).prop_map(|(enabled, weights, disabled)| {
        let enabled = enabled.iter().zip(&weights).map(|(name, weight)| json!({"name": name, "weight": weight}));
        let disabled = disabled.iter().map(|name| json!({"name": name}));
        json!({"enabled": enabled.collect::<Vec<_>>(), "disabled": disabled.collect::<Vec<_>>()})
    })
}

fn plugins(multi_point: bool) -> impl Strategy<Value = Value> {
    let points: Vec<_> = POINTS.iter().map(|row| (row.1, Some(row.0))).collect();
    let everywhere = multi_point.then_some(("multiPoint", None));
    let sets = points.into_iter().chain(everywhere).map(|(field, point)| {
        (prop::bool::weighted(0.3), set(point)).prop_map(move |(is_there, set)| (field, set, is_there))
    });
    sets.collect::<Vec<_>>().prop_map(|sets| {
        let said = sets.into_iter().filter(|(.., is_there)| *is_there);
        said.map(|(field, set, _)| (field.to_owned(), set)).collect::<holdfast_value::Map>().into()
    })
}

fn profile(version: &'static str) -> impl Strategy<Value = Value> {
    let multi_point = matches!(version, "v1beta3" | "v1");
    let arguments = subsequence(arguments(), 0..6);
    (plugins(multi_point), arguments, prop::option::of(0..=100i64), any::<bool>()).prop_map(
        move |(plugins, arguments, percentage, named)| {
            let mut profile = json!({"plugins": plugins, "pluginConfig": arguments});
            if named {
                profile["schedulerName"] = "mine".into();
            }
            if let Some(percentage) = percentage.filter(|_| multi_point) {
                profile["percentageOfNodesToScore"] = percentage.into();
            }
            profile
        },
    )
}

fn extender() -> impl Strategy<Value = Value> {
    (any::<bool>(), any::<bool>(), 1..9i64, any::<bool>(), any::<bool>()).prop_map(
        |(filters, scores, weight, binds, ignored)| {
            let mut extender = json!({"urlPrefix": "https://e", "httpTimeout": "100ms", "ignorable": binds,
                "managedResources": [{"name": "e.io/m", "ignoredByScheduler": ignored}]});
            let verbs = [("filterVerb", filters), ("prioritizeVerb", scores), ("bindVerb", binds)];
            for (field, _) in verbs.into_iter().filter(|(_, there)| *there) {
                extender[field] = "v".into();
            }
            if scores {
                extender["weight"] = weight.into();
            }
            if filters {
                extender["enableHTTPS"] = true.into();
                extender["tlsConfig"] = json!({"insecure": true, "serverName": "n"});
            }
            extender
        },
    )
}

fn document() -> impl Strategy<Value = Value> {
    select(&VERSIONS[..]).prop_flat_map(|version| {
        let numbers = (1..99i64, 0..=100i64, 1..5i64, 1..500i64, 1..100_000i64);
        (profile(version), prop::option::of(extender()), numbers, any::<bool>()).prop_map(
            move |(mut profile, extender, (parallelism, percentage, backoff, qps, lease), flag)| {
                let mut document = json!({
                    "apiVersion": format!("kubescheduler.config.k8s.io/{version}"),
                    "kind": "KubeSchedulerConfiguration",
                    "parallelism": parallelism,
                    "percentageOfNodesToScore": percentage,
                    "podInitialBackoffSeconds": backoff,
                    "podMaxBackoffSeconds": backoff + 3,
                    "enableProfiling": flag,
                    "clientConnection": {"qps": qps as f64 / 4.0, "kubeconfig": "/k"},
                    "leaderElection": {"leaseDuration": format!("{}ms", lease + 10_000), "renewDeadline": "10s", "retryPeriod": "2s", "resourceName": "r"},
                });
                document["extenders"] = extender.into_iter().collect();
                match version {
                    "v1alpha1" => {
                        for (field, value) in profile.as_object_mut().into_iter().flat_map(std::mem::take) {
                            document[field] = value;
                        }
                        document["disablePreemption"] = flag.into();
                        document["hardPodAffinitySymmetricWeight"] = percentage.into();
                    }
                    _ => document["profiles"] = json!([profile]),
                }
                document
            },
        )
    })
}

/// A text of everything that a configuration means, without the fields that only tell how it was written.
fn meaning(mut configuration: Configuration) -> String {
    // A document of version v1 has no fields for these settings, which `unwritten` names.
    configuration.healthz_bind_address = None;
    configuration.metrics_bind_address = None;
    configuration.global_options = GlobalOptions::default();
    for profile in &mut configuration.profiles {
        profile.document = ProfileDocument::default();
        for (_, plugins) in profile.points.iter_mut().filter(|(point, _)| **point != ExtensionPoint::Score) {
            plugins.iter_mut().for_each(|enabled| enabled.weight = 0);
        }
        profile.points.retain(|_, plugins| !plugins.is_empty());
    }
    format!("{configuration:#?}")
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, max_global_rejects: 100_000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_means_the_same(document in document()) {
        let read = Configuration::of(&document);
        prop_assume!(read.is_ok());
        let before = read.unwrap_or_default();
        let written = before.document();
        let after = Configuration::of(&written);
        prop_assert!(after.is_ok(), "{:#?}\n{written:#}", after.err());
        let after = after.unwrap_or_default();
        prop_assert_eq!(&after.document(), &written);
        prop_assert_eq!(meaning(before), meaning(after), "{:#}", written);
    }
}
