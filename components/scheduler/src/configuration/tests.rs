use super::*;
use crate::plugin::ExtensionPoint;
use crate::profile::EnabledPlugin;
use holdfast_value::json;

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

fn names(profile: &Profile, point: ExtensionPoint) -> Vec<&str> {
    profile.at(point).iter().map(|enabled| enabled.plugin.name()).collect()
}

fn weights(profile: &Profile) -> Vec<(&str, i64)> {
    profile.at(ExtensionPoint::Score).iter().map(|enabled| (enabled.plugin.name(), enabled.weight)).collect()
}

#[test]
fn fields_left_out_have_defaults() {
    let (read, defaults) = (read("v1", ""), Configuration::default());
    assert_eq!(weights(&read.profiles[0]), weights(&defaults.profiles[0]));
    assert_eq!(names(&read.profiles[0], ExtensionPoint::Filter), names(&defaults.profiles[0], ExtensionPoint::Filter));
    assert_eq!(read.leader_election, defaults.leader_election);
    assert!(read.profiles[0].preemption.is_some());
}

#[test]
fn sets_are_merged() {
    let profile = &read("v1", "profiles:\n- plugins:\n    multiPoint: {disabled: [{name: ImageLocality}]}\n    score: {disabled: [{name: NodeAffinity}], enabled: [{name: TaintToleration, weight: 7}]}\n    filter: {disabled: [{name: '*'}], enabled: [{name: NodeName}]}").profiles[0];
    let weights = weights(profile);
    assert_eq!(weights[0], ("TaintToleration", 7), "what is named comes first");
    assert!(weights.iter().all(|(name, _)| !["ImageLocality", "NodeAffinity"].contains(name)));
    assert_eq!(names(profile, ExtensionPoint::Filter), ["NodeName"]);
    assert!(names(profile, ExtensionPoint::PreFilter).contains(&"NodeAffinity"));
}

/// The default weight of a plug-in applies only if no document enables the plug-in.
#[test]
fn a_weight_that_is_left_out_is_one() {
    let weight = |version: &str, plugins: &str| {
        let configuration = read(version, &format!("profiles:\n- plugins: {{{plugins}}}"));
        let weights = weights(&configuration.profiles[0]);
        weights.iter().find(|(name, _)| *name == "TaintToleration").map(|(_, weight)| *weight)
    };
    for (version, plugins, expected) in [
        ("v1", "score: {enabled: [{name: TaintToleration}]}", 1),
        ("v1", "score: {disabled: [{name: '*'}], enabled: [{name: TaintToleration, weight: 0}]}", 1),
        ("v1", "multiPoint: {enabled: [{name: TaintToleration}]}", 1),
        ("v1", "multiPoint: {enabled: [{name: TaintToleration, weight: 4}]}", 4),
        ("v1", "multiPoint: {enabled: [{name: NodeAffinity}]}", 3),
        ("v1beta3", "score: {enabled: [{name: TaintToleration}]}", 1),
        ("v1beta2", "score: {enabled: [{name: TaintToleration}]}", 1),
    ] {
        assert_eq!(weight(version, plugins), Some(expected), "{version} {plugins}");
    }
}

#[test]
fn a_plug_in_disabled_and_enabled_at_a_point_loses_its_position() {
    let filters = |disabled: &str, enabled: &str| {
        let plugins = format!("filter: {{disabled: [{disabled}], enabled: [{enabled}]}}");
        let configuration = read("v1", &format!("profiles:\n- plugins: {{{plugins}}}"));
        names(&configuration.profiles[0], ExtensionPoint::Filter).join(" ")
    };
    let fit = "{name: NodeResourcesFit}";
    assert!(filters("", fit).starts_with("NodeResourcesFit NodeUnschedulable"));
    let last = filters(fit, fit);
    assert!(last.starts_with("NodeUnschedulable") && last.ends_with("DynamicResources NodeResourcesFit"), "{last}");
    assert_eq!(filters("{name: '*'}", "{name: NodePorts}, {name: NodeName}"), "NodePorts NodeName");
}

#[test]
fn former_plug_in_names_are_accepted() {
    let plugins = |version: &str, plugins: &str| {
        let rest = match version {
            "v1alpha1" => format!("plugins: {{{plugins}}}"),
            _ => format!("profiles:\n- plugins: {{{plugins}}}"),
        };
        Configuration::read(&document(version, &rest)).map(|configuration| configuration.profiles[0].clone())
    };
    let spread = "score: {disabled: [{name: '*'}], enabled: [{name: DefaultPodTopologySpread, weight: 3}]}";
    for version in ["v1alpha1", "v1alpha2", "v1beta1"] {
        assert_eq!(weights(&plugins(version, spread).unwrap()), [("SelectorSpread", 3)], "{version}");
    }
    assert!(plugins("v1beta2", spread).is_err());
    let limits = "filter: {disabled: [{name: '*'}], enabled: [{name: EBSLimits}, {name: GCEPDLimits}, {name: NodeVolumeLimits}, {name: NodeName}]}";
    for version in ["v1alpha1", "v1alpha2", "v1beta1", "v1beta2", "v1beta3"] {
        let profile = plugins(version, limits).unwrap();
        assert_eq!(names(&profile, ExtensionPoint::Filter), ["NodeVolumeLimits", "NodeName"], "{version}");
        let without = plugins(version, "filter: {disabled: [{name: EBSLimits}]}").unwrap();
        assert!(
            names(&without, ExtensionPoint::Filter).contains(&"NodeVolumeLimits"),
            "the other limits are still there"
        );
    }
    let removed = plugins("v1", limits).unwrap_err();
    let told = "enabled[0]: Invalid value: \"EBSLimits\": was invalid in version \"v1\" (KubeSchedulerConfiguration is \
                version \"kubescheduler.config.k8s.io/v1\")";
    assert!(removed[0].to_string().ends_with(told), "{}", removed[0]);
    // The configuration replaces the plug-in that spreads pods over nodes by the plug-in that fills nodes one after the
    // other.
    let packs =
        "score: {disabled: [{name: NodeResourcesLeastAllocated}], enabled: [{name: NodeResourcesMostAllocated}]}";
    for version in ["v1alpha1", "v1alpha2", "v1beta1"] {
        let profile = plugins(version, packs).unwrap();
        let by_allocation =
            names(&profile, ExtensionPoint::Score).into_iter().filter(|name| name.starts_with("NodeResources"));
        let expected = ["NodeResourcesBalancedAllocation", "NodeResourcesMostAllocated"];
        assert_eq!(by_allocation.collect::<Vec<_>>(), expected, "{version}");
    }
    let told = |plugins: &str| faults("v1", &format!("profiles:\n- plugins: {{{plugins}}}")).join("; ");
    let twice = "enabled: [{name: NodeName}, {name: NodeName}]";
    assert_eq!(
        told(&format!("filter: {{{twice}}}")),
        "profiles[0].plugins.filter.enabled[1].name: plugin \"NodeName\" already registered as \"FilterPlugin\""
    );
    assert_eq!(
        told("multiPoint: {enabled: [{name: Nobody}]}"),
        "profiles[0].plugins.multiPoint.enabled[0].name: PreFilterPlugin \"Nobody\" does not exist"
    );
}

/// v1alpha1 was read strictly at first, and leniently if that failed.
#[test]
fn the_first_version_ignores_unknown_fields() {
    let rest = "paralelism: 3\nschedulerName: mine\nschedulerName: mine\nleaderElection: {odd: 1}";
    let configuration = read("v1alpha1", rest);
    assert_eq!(&*configuration.profiles[0].scheduler_name, "mine");
    assert_eq!(configuration.ignored_fields.len(), 3, "{:?}", configuration.ignored_fields);
    assert!(read("v1alpha1", "schedulerName: mine").ignored_fields.is_empty());
    assert!(Configuration::read(&document("v1alpha1", "paralelism: 3\nschedulerName: 7")).is_err());
    assert_eq!(faults("v1alpha2", "paralelism: 3").len(), 1);
}

/// Earlier versions of the configuration ignored the case of extenders' field names.
#[test]
fn field_names_of_extenders_in_old_versions_may_have_any_case() {
    for (url, tls) in [
        ("urlPrefix", "tlsConfig: {insecure: true, serverName: s}"),
        ("URLPrefix", "TLSConfig: {Insecure: true, ServerName: s}"),
    ] {
        for https in ["enableHttps", "enableHTTPS", "EnableHTTPS"] {
            let managed = "managedResources: [{Name: e.io/r, ignoredbyscheduler: true}]";
            let extender = format!("{{{url}: 'https://e', BindVerb: b, {https}: true, {tls}, {managed}}}");
            let mut policy = Configuration::default();
            policy.apply_policy(&format!("kind: Policy\nextenders: [{extender}]")).expect("it is right");
            let file = read("v1alpha2", &format!("extenders: [{extender}]"));
            for read in [&policy.extenders[0], &file.extenders[0]] {
                assert!(read.enable_https && read.tls.insecure, "{extender}");
                let texts =
                    [&*read.url_prefix, &read.bind_verb, &read.tls.server_name, &read.managed_resources[0].name];
                assert_eq!(texts, ["https://e", "b", "s", "e.io/r"], "{extender}");
                assert!(read.managed_resources[0].ignored_by_scheduler);
            }
        }
    }
    let today = faults("v1beta1", "extenders: [{urlPrefix: 'https://e', enableHttps: true}]");
    assert_eq!(today, ["strict decoding error: unknown field \"extenders[0].enableHttps\""]);
}

/// The point that v1alpha1 calls `postFilter` is called `preScore` today.
#[test]
fn plug_ins_of_the_first_version_are_enabled_at_todays_points() {
    let plugins = "postFilter: {disabled: [{name: '*'}], enabled: [{name: TaintToleration}]}";
    let profile = read("v1alpha1", &format!("plugins: {{{plugins}}}")).profiles.remove(0);
    assert_eq!(names(&profile, ExtensionPoint::PreScore), ["TaintToleration"]);
    assert!(names(&profile, ExtensionPoint::PostFilter).contains(&"DefaultPreemption") && profile.preemption.is_some());
    let profile = read("v1alpha2", "profiles: [{plugins: {postFilter: {disabled: [{name: '*'}]}}}]").profiles.remove(0);
    assert!(profile.preemption.is_none() && names(&profile, ExtensionPoint::PreScore).contains(&"TaintToleration"));
    let wrong = faults("v1alpha1", "plugins: {postFilter: {enabled: [{name: NodePorts}]}}");
    assert_eq!(wrong, ["plugins.postFilter: plugin \"NodePorts\" does not extend PreScorePlugin plugin"]);
}

#[test]
fn former_and_current_lock_names_must_agree() {
    let lock = |rest: &str| Configuration::read(&document("v1alpha1", &format!("leaderElection: {{{rest}}}")));
    for (rest, expected) in [
        ("lockObjectName: a", "a"),
        ("lockObjectName: a, resourceName: a", "a"),
        ("resourceName: a, lockObjectName: ''", "a"),
        ("", "kube-scheduler"),
    ] {
        assert_eq!(lock(rest).expect("it is right").leader_election.resource_name, expected, "{rest}");
    }
    for (first, second) in [("ResourceName", "LockObjectName"), ("ResourceNamespace", "LockObjectNamespace")] {
        let field = |name: &str| format!("{}{}", name[..1].to_lowercase(), &name[1..]);
        let wrong = lock(&format!("{}: a, {}: b", field(first), field(second))).expect_err("they differ");
        let why = format!("{first} and {second} are both set and do not match, {first}: a, {second}: b");
        assert_eq!(wrong[0].to_string(), format!("leaderElection: {why}"));
    }
}

#[test]
fn an_extender_without_a_timeout_gets_the_default() {
    for (timeout, expected) in [("0s", 5.0), ("0", 5.0), ("100000000", 0.1), ("2s", 2.0)] {
        let read = read("v1", &format!("extenders: [{{urlPrefix: 'http://e', httpTimeout: {timeout}}}]"));
        assert_eq!(read.extenders[0].http_timeout_seconds, expected, "{timeout}");
    }
}

/// An extender with both a CA and `insecure` is an error.
#[test]
fn tls_data_of_an_extender_is_validated_when_read() {
    let told = |tls: &str| {
        let rest = format!("extenders: [{{urlPrefix: 'https://e', enableHTTPS: true, tlsConfig: {{{tls}}}}}]");
        let read = Configuration::read(&document("v1", &rest));
        read.err().map(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    };
    let both = "extenders[0].tlsConfig: specifying a root certificates file with the insecure flag is not allowed";
    for (tls, expected) in [
        ("", None),
        ("insecure: true", None),
        ("caFile: /ca", None),
        ("caData: YQ==", None),
        ("caData: \"YQ\\n==\"", None),
        ("insecure: true, caFile: /ca", Some(both)),
        ("insecure: true, caData: YQ==", Some(both)),
        ("caData: '-----BEGIN'", Some("extenders[0].tlsConfig.caData: Invalid value: illegal base64 data")),
        ("keyData: '%'", Some("extenders[0].tlsConfig.keyData: Invalid value: illegal base64 data")),
    ] {
        assert_eq!(told(tls).as_deref(), expected, "{tls}");
    }
}

#[test]
fn all_errors_are_reported_at_once() {
    let told = faults(
        "v1",
        "parallelism: 0\npercentageOfNodesToScore: 101\npodMaxBackoffSeconds: 0\nparalelism: 3\nleaderElection: {leaseDuration: 5s, resourceLock: nodes}\nprofiles:\n- {schedulerName: a, plugins: {score: {enabled: [{name: Nobody}, {name: NodePorts}]}, bind: {disabled: [{name: '*'}]}}}\n- {schedulerName: a, pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: RequestedToCapacityRatio, resources: [{name: cpu, weight: 101}]}, odd: 1}}]}",
    );
    let wanted = [
        "parallelism: Invalid value: 0: should be an integer value greater than zero",
        "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]",
        "leaderElection.leaseDuration: Invalid value: \"5s\": LeaseDuration must be greater than RenewDeadline",
        "leaderElection.resourceLock: Unsupported value: \"nodes\": supported values: \"leases\", \"endpoints\", \"configmaps\", \"endpointsleases\", \"configmapsleases\"",
        "podMaxBackoffSeconds: Invalid value: 0: must be greater than or equal to PodInitialBackoffSeconds",
        "profiles[0].plugins.score.enabled[0].name: ScorePlugin \"Nobody\" does not exist",
        "profiles[0].plugins.score: plugin \"NodePorts\" does not extend ScorePlugin plugin",
        "profiles[0].plugins.bind: at least one bind plugin is needed for profile with scheduler name \"a\"",
        "profiles[1].pluginConfig[0].args.scoringStrategy.resources[0].weight: Invalid value: 101: resource weight of cpu not in valid range (0, 100]",
        "profiles[1].pluginConfig[0].args.scoringStrategy.requestedToCapacityRatio: Required value: must be specified when type is RequestedToCapacityRatio",
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
fn empty_strings_and_zero_mean_the_default() {
    let read = read(
        "v1",
        "clientConnection: {qps: 0, burst: 0, contentType: ''}\nleaderElection: {leaseDuration: 0s, renewDeadline: 0s, retryPeriod: 0s, resourceLock: '', resourceName: '', resourceNamespace: ''}",
    );
    assert_eq!(read.client_connection, ClientConnection::default());
    assert_eq!(read.leader_election, LeaderElection::default());
    let negative = faults("v1", "leaderElection: {retryPeriod: -1s}");
    assert_eq!(negative, ["leaderElection.retryPeriod: Invalid value: \"-1s\": must be greater than zero"]);
}

#[test]
fn errors_have_kubernetes_words() {
    let managed = "managedResources: [{name: example.com/a}]";
    let extender = format!("{{urlPrefix: 'http://e', bindVerb: b, {managed}}}");
    let told = faults(
        "v1",
        &format!(
            "podInitialBackoffSeconds: 0\nclientConnection: {{burst: -1}}\nextenders: [{extender}, {extender}]\nprofiles:\n- percentageOfNodesToScore: -1\n  pluginConfig:\n  - {{name: DefaultPreemption, args: {{minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0}}}}\n  - {{name: NodeResourcesBalancedAllocation, args: {{resources: [{{name: cpu, weight: 2}}, {{name: cpu}}]}}}}\n  - {{name: NodeResourcesFit, args: {{scoringStrategy: {{type: MostAllocated, resources: [{{name: cpu}}, {{name: cpu, weight: 3}}], requestedToCapacityRatio: {{shape: [{{utilization: 0, score: 0}}]}}}}}}}}\n  - {{name: VolumeBinding, args: {{bindTimeoutSeconds: -1}}}}\n  - {{name: PodTopologySpread, args: {{defaultConstraints: [{{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule}}]}}}}\n  - {{name: VolumeBinding}}\n  - {{name: CinderLimits}}"
        ),
    );
    let args = |at: usize, rest: &str| format!("profiles[0].pluginConfig[{at}].args.{rest}");
    let wanted = [
        "podInitialBackoffSeconds: Invalid value: 0: must be greater than 0".to_owned(),
        "clientConnection.burst: Invalid value: -1: must be non-negative".into(),
        "extenders: Invalid value: \"found 2 extenders implementing bind\": only one extender can implement bind".into(),
        "extenders[1].managedResources[0].name: Invalid value: \"example.com/a\": duplicate extender managed resource name".into(),
        "profiles[0].percentageOfNodesToScore: Invalid value: -1: not in valid range [0-100]".into(),
        args(0, "minCandidateNodesPercentage: Invalid value: 0: cannot be zero at the same time as minCandidateNodesAbsolute"),
        args(0, "minCandidateNodesAbsolute: Invalid value: 0: cannot be zero at the same time as minCandidateNodesPercentage"),
        args(1, "resources[0].weight: Invalid value: 2: must be 1"),
        args(1, "resources[1].name: Duplicate value: \"cpu\""),
        args(2, "scoringStrategy.requestedToCapacityRatio: Forbidden: must be nil when type is not RequestedToCapacityRatio"),
        args(3, "bindTimeoutSeconds: Invalid value: -1: invalid BindTimeoutSeconds, should not be a negative value"),
        args(4, "defaultingType: Invalid value: \"System\": when .defaultConstraints are not empty"),
        "profiles[0].pluginConfig[5]: Duplicate value: \"VolumeBinding\"".into(),
        "profiles[0].pluginConfig[6]: Invalid value: \"CinderLimits\": was invalid in version \"v1\" (KubeSchedulerConfiguration is version \"kubescheduler.config.k8s.io/v1\")".into(),
    ];
    for wanted in &wanted {
        assert!(told.contains(wanted), "{wanted}\nis not among\n{told:#?}");
    }
    assert_eq!(told.len(), wanted.len(), "{told:#?}");
}

/// `addedAffinity` is validated by the same rules as label and field selectors.
#[test]
fn added_affinity_is_validated_as_selectors_are() {
    let told = faults(
        "v1",
        "parallelism: 1\nparallelism: 2\nprofiles:\n- pluginConfig:\n  - name: NodeAffinity\n    args:\n      addedAffinity:\n        requiredDuringSchedulingIgnoredDuringExecution:\n          nodeSelectorTerms:\n          - matchExpressions: [{key: '', operator: Is}, {key: a, operator: Gt, values: [x]}, {key: b, operator: In}, {key: c, operator: Exists, values: [x], odd: 1}, {key: 'd d', operator: NotIn, values: []}, {key: e, operator: In, values: [x, 'y y']}, {key: f, operator: Lt, values: ['1', '2']}]\n            matchFields: [{key: spec.x, operator: In, values: [a, b]}, {key: metadata.name, operator: Exists}]\n        preferredDuringSchedulingIgnoredDuringExecution: [{weight: 0}]\n  - name: PodTopologySpread\n    args: {defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule, nodeTaintsPolicy: Like}]}",
    );
    let required = "profiles[0].pluginConfig[0].args.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution";
    let preferred = "profiles[0].pluginConfig[0].args.addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]";
    let label = |rest: &str| format!("{required}.nodeSelectorTerms[0].matchExpressions{rest}");
    let field = |rest: &str| format!("{required}.nodeSelectorTerms[0].matchFields{rest}");
    let wanted = [
        label("[0].operator: Unsupported value: \"Is\": supported values: \"In\", \"NotIn\", \"Exists\", \"DoesNotExist\", \"Gt\", \"Lt\""),
        label("[1].values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer"),
        label("[2].values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"),
        label("[3].values: Invalid value: [\"x\"]: values set must be empty for exists and does not exist"),
        format!("strict decoding error: unknown field \"{}\"", label("[3].odd")),
        label("[4].key: Invalid value: \"d d\": name part must consist of alphanumeric characters"),
        label("[4].values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"),
        label("[5].values[1][e]: Invalid value: \"y y\": a valid label must be an empty string or consist of"),
        label("[6].values: Invalid value: [\"1\",\"2\"]: for 'Gt', 'Lt' operators, exactly one value is required"),
        field("[0].key: Invalid value: \"spec.x\": not a valid field selector key"),
        field("[0].values: Invalid value: [\"a\",\"b\"]: must have one element"),
        field("[1].operator: Unsupported value: \"Exists\": supported values: \"In\", \"NotIn\""),
        format!("{preferred}.weight: Invalid value: 0: must be in the range 1-100"),
        format!("{preferred}.preference: Required value"),
        "profiles[0].pluginConfig[1].args.defaultConstraints[0].nodeTaintsPolicy: Unsupported value: \"Like\": supported values: \"Honor\", \"Ignore\"".into(),
        "strict decoding error: yaml: unmarshal errors:\n  line 4: key \"parallelism\" already set in map".into(),
    ];
    for wanted in &wanted {
        assert!(told.iter().any(|told| told.starts_with(wanted)), "{wanted}\nis not among\n{told:#?}");
    }
    assert_eq!(told.len(), wanted.len(), "{told:#?}");
}

#[test]
fn names_are_validated() {
    let fit = |args: &str| format!("profiles: [{{pluginConfig: [{{name: NodeResourcesFit, args: {{{args}}}}}]}}]");
    let spread = |key: &str| {
        let constraint = format!("{{maxSkew: 1, whenUnsatisfiable: DoNotSchedule, topologyKey: {key}}}");
        let args = format!("{{defaultingType: List, defaultConstraints: [{constraint}]}}");
        format!("profiles: [{{pluginConfig: [{{name: PodTopologySpread, args: {args}}}]}}]")
    };
    let managed = |name: &str| format!("extenders: [{{urlPrefix: 'http://e', managedResources: [{{name: {name}}}]}}]");
    let part = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with";
    for (document, expected) in [
        (spread("zone.io/a_b"), vec![]),
        (spread("'a b'"), vec![format!("defaultConstraints[0].topologyKey: Invalid value: \"a b\": {part}")]),
        (
            spread("/a"),
            vec!["defaultConstraints[0].topologyKey: Invalid value: \"/a\": prefix part must be non-empty".into()],
        ),
        (fit("ignoredResources: [a.io/b], ignoredResourceGroups: [a.io]"), vec![]),
        (fit("ignoredResources: ['b b']"), vec![format!("ignoredResources[0]: Invalid value: \"b b\": {part}")]),
        (
            fit("ignoredResourceGroups: [a/b, '-']"),
            vec![
                "ignoredResourceGroups[0]: Invalid value: \"a/b\": resource group name can't contain '/'".into(),
                format!("ignoredResourceGroups[1]: Invalid value: \"-\": {part}"),
            ],
        ),
        (
            managed("cpu"),
            vec!["managedResources[0].name: Invalid value: \"cpu\": is an invalid extended resource name".into()],
        ),
        (managed("'a.io/b b'"), vec![format!("managedResources[0].name: Invalid value: \"a.io/b b\": {part}")]),
    ] {
        let told = match expected.is_empty() {
            true => read("v1", &document).ignored_fields,
            false => faults("v1", &document),
        };
        assert_eq!(told.len(), expected.len(), "{document}: {told:#?}");
        for (told, expected) in told.iter().zip(&expected) {
            assert!(told.contains(expected), "{told}\nis not\n{expected}");
        }
    }
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

/// In versions without system defaults, PodTopologySpread uses the constraints that its arguments list.
#[test]
fn listed_default_constraints_apply() {
    let constraint = "{maxSkew: 2, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}";
    let args = format!("pluginConfig: [{{name: PodTopologySpread, args: {{defaultConstraints: [{constraint}]}}}}]");
    for (version, document) in [("v1alpha1", args.clone()), ("v1alpha2", format!("profiles: [{{{args}}}]"))] {
        let configuration = read(version, &document);
        let shown = |configuration: &Configuration| {
            let plugin = configuration.profiles[0].plugin("PodTopologySpread").cloned();
            format!("{:?}", plugin.expect("the plug-in"))
        };
        let spread = shown(&configuration);
        assert!(spread.contains("max_skew: 2") && spread.contains("system: false"), "{version}: {spread}");
        assert_eq!(shown(&Configuration::of(&configuration.document()).unwrap()), spread);
    }
    let told = faults("v1alpha2", "profiles: [{pluginConfig: [{name: PodTopologySpread, args: none}]}]");
    assert_eq!(told, ["profiles[0].pluginConfig[0].args: Invalid value: \"none\": must be an object"]);
    let told = faults("v1beta1", &format!("profiles: [{{{args}}}]"));
    assert!(
        told[0].ends_with("defaultingType: Invalid value: \"System\": when .defaultConstraints are not empty"),
        "{told:?}"
    );
}

#[test]
fn options_for_all_profiles_reach_their_plug_ins() {
    let configuration = read("v1alpha1", "disablePreemption: true\nschedulerName: mine\nbindTimeoutSeconds: 5");
    let profile = configuration.profile("mine").expect("the profile");
    assert!(profile.preemption.is_none() && !names(profile, ExtensionPoint::PostFilter).contains(&"DefaultPreemption"));
    let waits_for_nothing = read("v1alpha1", "bindTimeoutSeconds: 0").profiles.remove(0);
    assert_eq!(arguments(&waits_for_nothing)[0], "VolumeBinding {\"bindTimeoutSeconds\":0}");
    let source = read("v1alpha1", "algorithmSource: {policy: {file: {path: /p}}}").policy;
    assert_eq!(source, Some(PolicySource::File("/p".into())));
    let provided = read("v1alpha1", "algorithmSource: {provider: ClusterAutoscalerProvider}");
    assert!(weights(&provided.profiles[0]).contains(&("NodeResourcesMostAllocated", 1)));
}

fn arguments(profile: &Profile) -> Vec<String> {
    profile.document.arguments.iter().map(|(name, arguments)| format!("{name} {arguments}")).collect()
}

/// The options that a configuration file sets for all profiles apply where the Policy sets no value.
#[test]
fn a_policy_keeps_the_options_for_all_profiles() {
    let file = "algorithmSource: {policy: {file: {path: /p}}}\ndisablePreemption: true\nhardPodAffinitySymmetricWeight: 7\nbindTimeoutSeconds: 33";
    let taken = |rest: &str, weight: Option<i64>, policy: &str| {
        let mut configuration = read("v1alpha1", rest);
        weight.into_iter().for_each(|weight| configuration.set_hard_pod_affinity_weight(weight));
        configuration.apply_policy(policy).map(|()| configuration.profiles.remove(0))
    };
    let profile = taken(file, None, "kind: Policy").unwrap();
    assert!(profile.preemption.is_none() && names(&profile, ExtensionPoint::PostFilter).is_empty());
    let affinity = |weight: i64| format!("InterPodAffinity {{\"hardPodAffinityWeight\":{weight}}}");
    let binding = "VolumeBinding {\"bindTimeoutSeconds\":33}".to_owned();
    let has = |profile: &Profile, expected: &String| arguments(profile).contains(expected);
    assert!(has(&profile, &affinity(7)) && has(&profile, &binding), "{:?}", arguments(&profile));
    for (weight, policy, expected) in [
        (Some(44), "kind: Policy", 44),
        (Some(44), "kind: Policy\nhardPodAffinitySymmetricWeight: 9", 9),
        (None, "kind: Policy\nhardPodAffinitySymmetricWeight: 0", 7),
    ] {
        let profile = taken(file, weight, policy).unwrap();
        assert!(has(&profile, &affinity(expected)), "{policy}: {:?}", arguments(&profile));
    }
    let mut overruled = read("v1alpha1", "hardPodAffinitySymmetricWeight: 7");
    overruled.set_hard_pod_affinity_weight(44);
    assert!(has(&overruled.profiles[0], &affinity(44)));
    for (more, what) in
        [("plugins: {}", "Plugins"), ("pluginConfig: [{name: VolumeBinding, args: {}}]", "PluginConfig")]
    {
        let wrong = taken(more, None, "kind: Policy").unwrap_err();
        assert_eq!(wrong[0].to_string(), format!("using {what} and Policy simultaneously is not supported"));
    }
}

#[test]
fn a_provider_sets_the_default_plug_ins() {
    let plugins = "plugins: {score: {disabled: [{name: ImageLocality}]}, filter: {disabled: [{name: NodePorts}]}}";
    for (source, packs) in [
        ("algorithmSource: {provider: DefaultProvider}", false),
        ("algorithmSource: {provider: ClusterAutoscalerProvider}", true),
        ("", false),
    ] {
        let profile = read("v1alpha1", &format!("{source}\n{plugins}")).profiles.remove(0);
        let (filters, scores) = (names(&profile, ExtensionPoint::Filter), names(&profile, ExtensionPoint::Score));
        assert!(!filters.contains(&"NodePorts") && filters.contains(&"NodeResourcesFit"), "{source}: {filters:?}");
        assert!(!scores.contains(&"ImageLocality"), "{source}: {scores:?}");
        assert_eq!(scores.contains(&"NodeResourcesMostAllocated"), packs, "{source}: {scores:?}");
    }
    let mut configuration = read(
        "v1alpha1",
        "disablePreemption: true\npluginConfig: [{name: VolumeBinding, args: {bindTimeoutSeconds: 3}}]",
    );
    configuration.apply_provider("ClusterAutoscalerProvider").unwrap();
    assert!(configuration.profiles[0].preemption.is_none());
    assert_eq!(arguments(&configuration.profiles[0])[0], "VolumeBinding {\"bindTimeoutSeconds\":3}");
}

#[test]
fn feature_gates_apply() {
    let mut configuration = Configuration::default();
    assert!(
        configuration.pops_from_backoff && configuration.nominates_expected_nodes && !configuration.extended_resources
    );
    configuration.apply_feature_gates(|gate| gate == "DRAExtendedResource");
    assert!(
        !configuration.pops_from_backoff && !configuration.nominates_expected_nodes && configuration.extended_resources
    );
    for (version, rest, expected) in [
        ("v1", "", true),
        ("v1", "profiles: [{plugins: {score: {disabled: [{name: '*'}]}}}]", false),
        ("v1alpha1", "", true),
        ("v1alpha1", "algorithmSource: {provider: ClusterAutoscalerProvider}", true),
    ] {
        let mut configuration = read(version, rest);
        configuration.apply_feature_gates(|gate| gate == "ResourceLimitsPriorityFunction");
        let found = weights(&configuration.profiles[0]).contains(&("NodeResourceLimits", 1));
        assert_eq!(found, expected, "{version} {rest}");
        let written = Configuration::of(&configuration.document()).unwrap();
        assert_eq!(weights(&written.profiles[0]), weights(&configuration.profiles[0]), "{version} {rest}");
    }
}

#[test]
fn a_policy_becomes_a_profile() {
    let policy = r#"{"kind": "Policy", "apiVersion": "v1",
        "predicates": [{"name": "PodFitsResources"}, {"name": "PodFitsHostPorts"},
            {"name": "zoned", "argument": {"labelsPresence": {"labels": ["zone"], "presence": true}}}],
        "priorities": [{"name": "MostRequestedPriority", "weight": 3}, {"name": "ResourceLimitsPriority", "weight": 4},
            {"name": "a", "weight": 2, "argument": {"labelPreference": {"label": "ssd", "presence": true}}},
            {"name": "b", "weight": 2, "argument": {"labelPreference": {"label": "old", "presence": false}}}]}"#;
    let taken = |policy: &str| {
        let mut configuration = Configuration::default();
        configuration.apply_policy(policy).map(|()| configuration.profiles.remove(0))
    };
    let profile = taken(policy).expect("a profile");
    // Mandatory predicates are added although the Policy does not list them, and all filters are in the order of
    // evaluation.
    let filters = ["NodeUnschedulable", "NodePorts", "NodeResourcesFit", "TaintToleration", "NodeLabel"];
    assert_eq!(names(&profile, ExtensionPoint::Filter), filters);
    assert_eq!(weights(&profile), [("NodeResourcesMostAllocated", 3), ("NodeResourceLimits", 4), ("NodeLabel", 4)]);
    let defaults = taken("kind: Policy").expect("a profile");
    assert!(names(&defaults, ExtensionPoint::Filter).contains(&"InterPodAffinity"));
    assert!(weights(&defaults).contains(&("NodePreferAvoidPods", 10000)));
    let wrong = taken(r#"{"predicates": [{"name": "Nobody"}], "priorities": [{"name": "EqualPriority"}]}"#);
    let told: Vec<_> = wrong.expect_err("faults").iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "predicates[0].name: predicate type not found for \"Nobody\"",
            "priorities[0]: priority EqualPriority should have a positive weight applied to it or it has overflown",
        ]
    );
}

#[test]
fn priorities_with_arguments_of_one_kind_are_one_plug_in() {
    let prefers = |name: &str, weight: i64| {
        let argument = "{labelPreference: {label: l, presence: true}}";
        format!("{{name: {name}, weight: {weight}, argument: {argument}}}")
    };
    let ratio = |name: &str| {
        let argument = "{requestedToCapacityRatioArguments: {shape: [{utilization: 0, score: 0}]}}";
        format!("{{name: {name}, weight: 1, argument: {argument}}}")
    };
    let told = |priorities: &[String], more: &str| {
        let policy = format!("kind: Policy\npriorities: [{}]\n{more}", priorities.join(", "));
        let taken = Configuration::default().apply_policy(&policy);
        taken.err().into_iter().flatten().map(|fault| fault.to_string()).collect::<Vec<_>>()
    };
    let none: &[&str] = &[];
    assert_eq!(told(&[prefers("a", 2), ratio("r"), prefers("b", 2)], ""), none);
    assert_eq!(
        told(&[prefers("a", 2), prefers("b", 3)], ""),
        ["priorities[1].argument: LabelPreference  priority \"b\" has a different weight with \"a\""]
    );
    assert_eq!(
        told(&[ratio("r"), ratio("s")], ""),
        ["priorities[1].argument: priority \"s\" redeclares custom priority \"RequestedToCapacityRatio\", from: \"r\""]
    );
    let weight = "hardPodAffinitySymmetricWeight: 101";
    let why = "hardPodAffinitySymmetricWeight: Invalid value: 101: not in valid range [0-100]";
    assert_eq!(told(&[], weight), [why]);
    assert_eq!(faults("v1alpha1", weight), [why]);
}

#[test]
fn service_arguments_of_a_policy_become_one_plug_in() {
    let same =
        |name: &str, labels: &str| format!("{{name: {name}, argument: {{serviceAffinity: {{labels: [{labels}]}}}}}}");
    let differs = |name: &str, weight: i64, label: &str| {
        format!("{{name: {name}, weight: {weight}, argument: {{serviceAntiAffinity: {{label: {label}}}}}}}")
    };
    let labelled = "{name: l, argument: {labelsPresence: {labels: [l], presence: true}}}";
    let policy = |predicates: &[&str], priorities: &[&str]| {
        let text = format!("predicates: [{}]\npriorities: [{}]", predicates.join(", "), priorities.join(", "));
        let mut configuration = Configuration::default();
        let taken = configuration
            .apply_policy(&text)
            .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>());
        taken.map(|()| configuration)
    };
    let predicates = [&same("s", "region, zone"), "{name: NoVolumeZoneConflict}", labelled, &same("t", "rack")];
    let priorities = [&*differs("a", 2, "zone"), &differs("b", 2, "rack")];
    let configuration = policy(&predicates, &priorities).expect("it is right");
    let profile = &configuration.profiles[0];
    let filters = ["NodeUnschedulable", "TaintToleration", "NodeLabel", "ServiceAffinity", "VolumeZone"];
    assert_eq!(names(profile, ExtensionPoint::Filter), filters);
    assert!(names(profile, ExtensionPoint::PreFilter).contains(&"ServiceAffinity"));
    assert_eq!(weights(profile), [("ServiceAffinity", 4)]);
    let args = r#"{"affinityLabels":["region","zone","rack"],"antiAffinityLabelsPreference":["zone","rack"]"#;
    let is_written = |one: &String| one.starts_with(&format!("ServiceAffinity {args}"));
    assert!(arguments(profile).iter().any(is_written), "{:?}", arguments(profile));
    let document = configuration.document();
    let written = document["profiles"][0]["pluginConfig"].as_array().expect("a list");
    let written = written.iter().find(|one| one["name"] == "ServiceAffinity").expect("its arguments");
    assert_eq!(written["args"]["affinityLabels"], json!(["region", "zone", "rack"]));
    assert_eq!(written["args"]["antiAffinityLabelsPreference"], json!(["zone", "rack"]));
    let again = Configuration::of(&document).expect("it is right");
    let shown = |profile: &Profile| format!("{:?}", profile.plugin("ServiceAffinity").expect("it is there"));
    assert_eq!(shown(&again.profiles[0]), shown(profile));

    let alone = policy(&["{name: CheckServiceAffinity}"], &[]).expect("it is right");
    assert!(names(&alone.profiles[0], ExtensionPoint::Filter).contains(&"ServiceAffinity"));
    let told = |predicates: &[&str], priorities: &[&str]| policy(predicates, priorities).expect_err("faults");
    assert_eq!(
        told(&[], &[&differs("a", 2, "zone"), &differs("b", 3, "rack")]),
        ["priorities[1].argument: ServiceAntiAffinity  priority \"b\" has a different weight with \"a\""]
    );
    let both = "{serviceAffinity: {labels: []}, labelsPresence: {labels: []}}";
    assert_eq!(
        told(&[&format!("{{name: s, argument: {both}}}")], &[]),
        ["predicates[0].argument: exactly 1 predicate argument is required, numArgs: 2, predicate: s"]
    );
    let both = "{serviceAntiAffinity: {label: a}, labelPreference: {label: b}}";
    assert_eq!(
        told(&[], &[&format!("{{name: a, weight: 1, argument: {both}}}")]),
        ["priorities[0].argument: exactly 1 priority argument is required, numArgs: 2, priority: a"]
    );
}

/// If a configuration of any version, or a Policy, is written as a v1 document and read again, the result is the same
/// configuration.
#[test]
fn a_written_configuration_reads_back_equal() {
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
        "predicates: [{name: s, argument: {serviceAffinity: {labels: [zone]}}}]\npriorities: [{name: a, weight: 3, argument: {serviceAntiAffinity: {label: rack}}}]",
    ] {
        let mut configuration = Configuration::default();
        configuration.apply_policy(policy).expect("it is right");
        all.push(configuration);
    }
    let mut adjusted = Configuration::default();
    adjusted.rename("mine");
    adjusted.set_hard_pod_affinity_weight(44);
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
                    // Weights are compared only at the point `score`, because they have no effect at other points.
                    let weight = |enabled: &EnabledPlugin| (point == ExtensionPoint::Score).then_some(enabled.weight);
                    enabled.map(|enabled| format!("{:?} {:?}", enabled.plugin, weight(enabled))).collect::<Vec<_>>()
                };
                assert_eq!(shown(before), shown(after), "{at}: {point:?}");
            }
        }
    }
}

#[test]
fn settings_that_v1_cannot_express_are_listed() {
    assert!(Configuration::default().unwritten().is_empty());
    let mut policy = Configuration::default();
    policy.apply_policy("kind: Policy\nalwaysCheckAllPredicates: true").expect("it is right");
    assert_eq!(policy.unwritten(), ["alwaysCheckAllPredicates"]);
    assert_eq!(read("v1beta1", "").unwritten(), ["healthzBindAddress", "metricsBindAddress"]);
}

#[test]
fn the_default_configuration_is_written_as_kubernetes_writes_it() {
    let text = holdfast_core::wire::yaml::yaml(&Configuration::default().document());
    assert_eq!(text, include_str!("default.yaml"));
}

#[test]
fn options_override_the_configuration() {
    let mut configuration = read("v1", "");
    configuration.apply_provider("ClusterAutoscalerProvider").expect("it is known");
    assert!(weights(&configuration.profiles[0]).contains(&("NodeResourcesMostAllocated", 1)));
    let unknown = configuration.apply_provider("Nobody").expect_err("it is not").to_string();
    assert_eq!(unknown, "algorithmSource.provider: algorithm provider \"Nobody\" is not registered");
    let mut several = read("v1", "profiles: [{schedulerName: a}, {schedulerName: b}]");
    several.rename("c");
    assert_eq!(&*several.profiles[0].scheduler_name, "a");
    assert!(several.apply_policy("kind: Policy").is_err());
}
