use super::*;
use crate::plugin::Point;

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
        "parallelism: 0\npercentageOfNodesToScore: 101\npodMaxBackoffSeconds: 0\nparalelism: 3\nleaderElection: {leaseDuration: 5s, resourceLock: endpoints}\nprofiles:\n- {schedulerName: a, plugins: {score: {enabled: [{name: Nobody}, {name: NodePorts}]}, bind: {disabled: [{name: '*'}]}}}\n- {schedulerName: a, pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: RequestedToCapacityRatio, resources: [{name: cpu, weight: 101}]}, odd: 1}}]}",
    );
    let wanted = [
        "parallelism: Invalid value: 0: must be at least 1",
        "percentageOfNodesToScore: Invalid value: 101: not in valid range [0, 100]",
        "leaderElection.leaseDuration: Invalid value: LeaseDuration must be greater than RenewDeadline",
        "leaderElection.resourceLock: Invalid value: \"endpoints\": resourceLock value must be \"leases\"",
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
