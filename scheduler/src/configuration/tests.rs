use super::*;
use crate::plugin::Point;
use crate::profile::Enabled;

fn document(version: &str, rest: &str) -> String {
    format!("apiVersion: kubescheduler.config.k8s.io/{version}\nkind: KubeSchedulerConfiguration\n{rest}")
}

fn read(version: &str, rest: &str) -> Configuration {
    Configuration::read(&document(version, rest)).unwrap_or_else(|faults| panic!("{faults:#?}"))
}

fn faults(version: &str, rest: &str) -> Vec<String> {
    let faults = Configuration::read(&document(version, rest)).expect_err("faults");
    faults.iter().map(ToString::to_string).collect()
}

fn names(profile: &Profile, point: Point) -> Vec<&str> {
    profile.at(point).iter().map(|enabled| enabled.plugin.name()).collect()
}

fn weights(profile: &Profile) -> Vec<(&str, i64)> {
    profile.at(Point::Score).iter().map(|enabled| (enabled.plugin.name(), enabled.weight)).collect()
}

#[test]
fn what_is_not_said_is_as_usual() {
    let (read, usual) = (read("v1", ""), Configuration::default());
    assert_eq!(weights(&read.profiles[0]), weights(&usual.profiles[0]));
    assert_eq!(names(&read.profiles[0], Point::Filter), names(&usual.profiles[0], Point::Filter));
    assert_eq!(read.leader_election, usual.leader_election);
    assert!(read.profiles[0].preemption.is_some());
}

#[test]
fn sets_are_merged() {
    let profile = &read("v1", "profiles:\n- plugins:\n    multiPoint: {disabled: [{name: ImageLocality}]}\n    score: {disabled: [{name: NodeAffinity}], enabled: [{name: TaintToleration, weight: 7}]}\n    filter: {disabled: [{name: '*'}], enabled: [{name: NodeName}]}").profiles[0];
    let weights = weights(profile);
    assert_eq!(weights[0], ("TaintToleration", 7), "what is named comes first");
    assert!(weights.iter().all(|(name, _)| !["ImageLocality", "NodeAffinity"].contains(name)));
    assert_eq!(names(profile, Point::Filter), ["NodeName"]);
    assert!(names(profile, Point::PreFilter).contains(&"NodeAffinity"));
}

#[test]
fn all_faults_come_at_once() {
    let told = faults(
        "v1",
        "parallelism: 0\npercentageOfNodesToScore: 101\npodMaxBackoffSeconds: 0\nparalelism: 3\nleaderElection: {leaseDuration: 5s, resourceLock: nodes}\nprofiles:\n- {schedulerName: a, plugins: {score: {enabled: [{name: Nobody}, {name: NodePorts}]}, bind: {disabled: [{name: '*'}]}}}\n- {schedulerName: a, pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: RequestedToCapacityRatio, resources: [{name: cpu, weight: 101}]}, odd: 1}}]}",
    );
    let wanted = [
        "parallelism: Invalid value: 0: must be at least 1",
        "percentageOfNodesToScore: Invalid value: 101: not in valid range [0, 100]",
        "leaderElection.leaseDuration: Invalid value: LeaseDuration must be greater than RenewDeadline",
        "leaderElection.resourceLock: Unsupported value: \"nodes\": supported values: \"leases\", \"endpoints\", \"configmaps\", \"endpointsleases\", \"configmapsleases\"",
        "podMaxBackoffSeconds: Invalid value: 0: must be greater than or equal to PodInitialBackoffSeconds",
        "profiles[0].plugins.score.enabled[0].name: plugin \"Nobody\" does not exist",
        "profiles[0].plugins.score: plugin \"NodePorts\" does not extend ScorePlugin plugin",
        "profiles[0].plugins.bind: at least one bind plugin is needed for profile with scheduler name \"a\"",
        "profiles[1].pluginConfig[0].args.scoringStrategy.resources[0].weight: Invalid value: 101: resource weight of cpu not in valid range [1, 100]",
        "profiles[1].pluginConfig[0].args.scoringStrategy.requestedToCapacityRatio: Required value",
        "strict decoding error: unknown field \"profiles[1].pluginConfig[0].args.odd\"",
        "profiles[1].schedulerName: Duplicate value: \"a\"",
        "strict decoding error: unknown field \"paralelism\"",
    ];
    for wanted in wanted {
        assert!(told.iter().any(|told| told == wanted), "{wanted}\nis not among\n{told:#?}");
    }
    assert_eq!(told.len(), wanted.len(), "{told:#?}");
}

#[test]
fn what_is_added_to_pods_is_judged_like_theirs() {
    let told = faults(
        "v1",
        "parallelism: 1\nparallelism: 2\nprofiles:\n- pluginConfig:\n  - name: NodeAffinity\n    args:\n      addedAffinity:\n        requiredDuringSchedulingIgnoredDuringExecution:\n          nodeSelectorTerms:\n          - matchExpressions: [{key: '', operator: Is}, {key: a, operator: Gt, values: [x]}, {key: b, operator: In}, {key: c, operator: Exists, values: [x], odd: 1}]\n            matchFields: [{key: spec.x, operator: In, values: [a, b]}]\n        preferredDuringSchedulingIgnoredDuringExecution: [{weight: 0}]\n  - name: PodTopologySpread\n    args: {defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule, nodeTaintsPolicy: Like}]}",
    );
    let term = "profiles[0].pluginConfig[0].args.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]";
    let wanted = [
        format!("{term}.matchExpressions[0].key: Invalid value: \"\": must be a qualified name"),
        format!("{term}.matchExpressions[0].operator: Invalid value: \"Is\": not a valid selector operator"),
        format!("{term}.matchExpressions[1].values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer"),
        format!("{term}.matchExpressions[2].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"),
        format!("{term}.matchExpressions[3].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"),
        format!("strict decoding error: unknown field \"{term}.matchExpressions[3].odd\""),
        format!("{term}.matchFields[0].key: Invalid value: \"spec.x\": not a valid field selector key"),
        format!("{term}.matchFields[0].values: Required value: must be only one value when `operator` is 'In' or 'NotIn' for node field selector"),
        "profiles[0].pluginConfig[0].args.addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 0: must be in the range 1-100".into(),
        "profiles[0].pluginConfig[0].args.addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference: Required value".into(),
        "profiles[0].pluginConfig[1].args.defaultConstraints[0].nodeTaintsPolicy: Unsupported value: \"Like\": supported values: \"Honor\", \"Ignore\"".into(),
        "strict decoding error: yaml: unmarshal errors:\n  line 4: key \"parallelism\" already set in map".into(),
    ];
    for wanted in &wanted {
        assert!(told.contains(wanted), "{wanted}\nis not among\n{told:#?}");
    }
    assert_eq!(told.len(), wanted.len(), "{told:#?}");
}

#[test]
fn versions_differ_in_their_defaults() {
    let weight = |version: &str| {
        let configuration = read(version, "");
        let weights = weights(&configuration.profiles[0]);
        weights.iter().find(|(name, _)| *name == "TaintToleration").map(|(_, weight)| *weight)
    };
    let by_version = ["v1alpha2", "v1beta1", "v1beta2", "v1beta3", "v1"].map(weight);
    assert_eq!(by_version, [Some(1), Some(1), Some(1), Some(3), Some(3)]);
    assert_eq!(read("v1alpha1", "").healthz_bind_address.as_deref(), Some("0.0.0.0:10251"));
    assert_eq!(
        faults("v1", "healthzBindAddress: ':10251'"),
        ["strict decoding error: unknown field \"healthzBindAddress\""]
    );
    assert_eq!(faults("v1beta2", "healthzBindAddress: ':10251'").len(), 1);
    assert_eq!(faults("v2", "parallelism: 3\nprofiles: []").len(), 1, "of its fields nothing is known");
    assert_eq!(faults("v2", ""), ["apiVersion: no kind \"KubeSchedulerConfiguration\" is registered for version \"kubescheduler.config.k8s.io/v2\""][..1].to_vec());
}

#[test]
fn switches_of_old_reach_their_plug_ins() {
    let configuration = read("v1alpha1", "disablePreemption: true\nschedulerName: mine\nbindTimeoutSeconds: 5");
    let profile = configuration.profile("mine").expect("the profile");
    assert!(profile.preemption.is_none() && !names(profile, Point::PostFilter).contains(&"DefaultPreemption"));
    let source = read("v1alpha1", "algorithmSource: {policy: {file: {path: /p}}}").policy;
    assert_eq!(source, Some(PolicySource::File("/p".into())));
    let provided = read("v1alpha1", "algorithmSource: {provider: ClusterAutoscalerProvider}");
    assert!(weights(&provided.profiles[0]).contains(&("NodeResourcesMostAllocated", 1)));
}

#[test]
fn a_policy_becomes_a_profile() {
    let policy = r#"{"kind": "Policy", "apiVersion": "v1",
        "predicates": [{"name": "PodFitsResources"}, {"name": "PodFitsHostPorts"},
            {"name": "zoned", "argument": {"labelsPresence": {"labels": ["zone"], "presence": true}}}],
        "priorities": [{"name": "MostRequestedPriority", "weight": 3},
            {"name": "a", "weight": 2, "argument": {"labelPreference": {"label": "ssd", "presence": true}}},
            {"name": "b", "weight": 5, "argument": {"labelPreference": {"label": "old", "presence": false}}}]}"#;
    let (profile, _) = read_policy(policy).expect("a profile");
    // The mandatory ones come too, in the order of evaluation.
    let filters = ["NodeLabel", "NodeUnschedulable", "NodePorts", "NodeResourcesFit", "TaintToleration"];
    assert_eq!(names(&profile, Point::Filter), filters);
    assert_eq!(weights(&profile), [("NodeResourcesMostAllocated", 3), ("NodeLabel", 7)]);
    let usual = read_policy("kind: Policy").expect("a profile").0;
    assert!(names(&usual, Point::Filter).contains(&"InterPodAffinity"));
    assert!(weights(&usual).contains(&("NodePreferAvoidPods", 10000)));
    let wrong = read_policy(r#"{"predicates": [{"name": "Nobody"}], "priorities": [{"name": "EqualPriority"}]}"#);
    let told: Vec<_> = wrong.expect_err("faults").iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "predicates[0].name: predicate type not found for \"Nobody\"",
            "priorities[0]: priority EqualPriority should have a positive weight applied to it or it has overflown",
        ]
    );
}

/// Every version and every Policy, written as a document of today and read again, is the same configuration.
#[test]
fn what_is_written_is_what_was_read() {
    let profile = "profiles:\n- schedulerName: a\n  percentageOfNodesToScore: 30\n  plugins:\n    multiPoint: {disabled: [{name: ImageLocality}]}\n    score: {disabled: [{name: NodeAffinity}], enabled: [{name: TaintToleration, weight: 7}]}\n  pluginConfig:\n  - {name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu}]}}}\n  - {name: foreign, args: {x: [1]}}\n- schedulerName: b\nextenders:\n- {urlPrefix: 'http://e', filterVerb: f, weight: 2, httpTimeout: 1m, managedResources: [{name: e.io/r, ignoredByScheduler: true}]}\ndelayCacheUntilActive: true\nleaderElection: {leaseDuration: 1m30s}";
    let old = "algorithmSource: {provider: ClusterAutoscalerProvider}\nhardPodAffinitySymmetricWeight: 7\nbindTimeoutSeconds: 5\ndisablePreemption: true";
    let mut all: Vec<Configuration> =
        ["v1alpha1", "v1alpha2", "v1beta1", "v1beta2", "v1beta3", "v1"].map(|version| read(version, "")).into();
    all.extend([read("v1", profile), read("v1alpha1", old)]);
    let points = "profiles:\n- plugins: {filter: {disabled: [{name: '*'}], enabled: [{name: NodeName}]}, score: {enabled: [{name: NodeAffinity, weight: 9}, {name: TaintToleration}]}}";
    all.extend(["v1alpha2", "v1beta1", "v1beta2"].map(|version| read(version, points)));
    for policy in [
        "kind: Policy",
        "kind: Policy\nhardPodAffinitySymmetricWeight: 9\npredicates: [{name: zoned, argument: {labelsPresence: {labels: [zone], presence: true}}}]\npriorities: [{name: r, weight: 3, argument: {requestedToCapacityRatioArguments: {shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}], resources: [{name: cpu, weight: 2}]}}}]\nextenders: [{urlPrefix: 'http://e', httpTimeout: 100000000, bindVerb: b}]",
    ] {
        let mut configuration = Configuration::default();
        configuration.take_policy(policy).expect("it is right");
        all.push(configuration);
    }
    let mut adjusted = Configuration::default();
    adjusted.rename("mine");
    adjusted.weigh_hard_affinity(44);
    all.push(adjusted);
    for (at, before) in all.iter().enumerate() {
        let document = before.document();
        let after = Configuration::of(&document).unwrap_or_else(|faults| panic!("{at}: {faults:#?}\n{document:#}"));
        assert_eq!(after.document(), document, "{at}");
        assert_eq!(before.extenders, after.extenders, "{at}");
        for (before, after) in before.profiles.iter().zip(&after.profiles) {
            assert_eq!(before.preemption.is_some(), after.preemption.is_some(), "{at}");
            for (point, ..) in crate::plugin::POINTS {
                let shown = |profile: &Profile| {
                    let enabled = profile.at(point).iter();
                    // What weighs counts where the point scores.
                    let weight = |enabled: &Enabled| (point == Point::Score).then_some(enabled.weight);
                    enabled.map(|enabled| format!("{:?} {:?}", enabled.plugin, weight(enabled))).collect::<Vec<_>>()
                };
                assert_eq!(shown(before), shown(after), "{at}: {point:?}");
            }
        }
    }
}

#[test]
fn what_cannot_be_written_is_named() {
    assert!(Configuration::default().unwritten().is_empty());
    let mut policy = Configuration::default();
    policy.take_policy("kind: Policy\nalwaysCheckAllPredicates: true").expect("it is right");
    assert_eq!(policy.unwritten(), ["alwaysCheckAllPredicates"]);
    assert_eq!(read("v1beta1", "").unwritten(), ["healthzBindAddress", "metricsBindAddress"]);
}

#[test]
fn the_usual_configuration_is_written_as_kubernetes_does() {
    let text = holdfast_core::wire::yaml::yaml(&Configuration::default().document());
    assert_eq!(text, include_str!("usual.yaml"));
}

#[test]
fn options_adjust_what_was_read() {
    let mut configuration = read("v1", "");
    configuration.take_provider("ClusterAutoscalerProvider").expect("it is known");
    assert!(weights(&configuration.profiles[0]).contains(&("NodeResourcesMostAllocated", 1)));
    let unknown = configuration.take_provider("Nobody").expect_err("it is not").to_string();
    assert_eq!(unknown, "algorithmSource.provider: algorithm provider \"Nobody\" is not registered");
    let mut several = read("v1", "profiles: [{schedulerName: a}, {schedulerName: b}]");
    several.rename("c");
    assert_eq!(&*several.profiles[0].scheduler_name, "a");
    assert!(several.take_policy("kind: Policy").is_err());
}
