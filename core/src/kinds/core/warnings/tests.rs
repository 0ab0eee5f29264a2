use super::*;
use crate::kinds::registry;
use holdfast_value::json;

fn document(value: Value) -> Document {
    let Value::Object(document) = value else { unreachable!() };
    document
}

/// The warnings about an object that is new or replaces `old`.
fn told(kind: &str, new: &Value, old: Option<&Value>) -> Vec<String> {
    let (resource, group) = kind.split_once('.').unwrap_or((kind, ""));
    let (kind, _) = registry().find(group, "v1", resource).expect("a kind");
    let kind = registry().get(kind);
    let old = old.cloned().map(document);
    kind.warnings_about(&document(new.clone()), old.as_ref()).into_vec()
}

/// The warnings about a new pod with this spec.
fn of_pod(spec: Value) -> Vec<String> {
    told("pods", &json!({"metadata": {"name": "a"}, "spec": spec}), None)
}

#[test]
fn pods() {
    let pod = json!({
        "metadata": {"name": "a.b", "annotations": {"seccomp.security.alpha.kubernetes.io/pod": "x"}},
        "spec": {
            "nodeSelector": {"beta.kubernetes.io/os": "linux"},
            "imagePullSecrets": [{}],
            "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "k"}]}},
            "volumes": [{"name": "v", "projected": {"sources": [{}]}}, {"name": "s", "storageos": {}}],
            "containers": [{
                "name": "c",
                "env": [{"name": "A"}, {"name": "A", "value": "$(A)b"}, {"name": "A", "value": "c"}],
                "resources": {"limits": {"memory": "100m", "cpu": "100m"}},
                "ports": [{"containerPort": 80, "hostIP": "::1", "protocol": "TCP"}],
            }],
        },
    });
    let expected = [
        "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is \
         recommended: [must not contain dots]",
        "spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
        "spec.volumes[1].storageOS: deprecated in v1.22, non-functional in v1.25+",
        "volume \"v\" (Projected) has no sources provided",
        "spec.imagePullSecrets[0].name: invalid empty name \"\"",
        "metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]: non-functional in v1.27+; use the \
         \"seccompProfile\" field instead",
        "spec.containers[0].resources.limits[memory]: fractional byte value \"100m\" is invalid, must be an integer",
        "spec.containers[0].env[2]: hides previous definition of \"A\", which may be dropped when using apply",
        "spec.containers[0].ports[0]: hostIP set without hostPort: {Name: HostPort:0 ContainerPort:80 Protocol:TCP \
         HostIP:::1}",
        "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: a null \
         labelSelector results in matching no pod",
    ];
    assert_eq!(told("pods", &pod, None), expected);
    assert!(told("pods", &pod, Some(&pod)).is_empty());
}

#[test]
fn what_stands_twice_in_a_pod() {
    let repeated = of_pod(json!({
        "hostAliases": [{"ip": "1.1.1.1"}, {"ip": "1.1.1.1"}],
        "imagePullSecrets": [{"name": "s"}, {"name": "s"}],
    }));
    let expected =
        ["spec.hostAliases[1].ip: duplicate ip \"1.1.1.1\"", "spec.imagePullSecrets[1].name: duplicate name \"s\""];
    assert_eq!(repeated, expected);
    // A variable that hides another variable is reported, unless its value extends the other's value.
    for (second, is_hiding) in [
        (json!({"name": "X", "value": "$(X)"}), true),
        (json!({"name": "X", "value": "$(X)-b"}), false),
        (json!({"name": "X", "value": "$(Y)"}), true),
        (json!({"name": "X", "value": "$(X)-b", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}), true),
        (json!({"name": "Y"}), false),
    ] {
        let env = json!([{"name": "X", "value": "a"}, second]);
        let warnings = of_pod(json!({"containers": [{"name": "c", "env": env}]}));
        let hides =
            "spec.containers[0].env[1]: hides previous definition of \"X\", which may be dropped when using apply";
        assert_eq!(warnings, if is_hiding { vec![hides] } else { vec![] });
    }
}

#[test]
fn ports_that_are_hard_to_tell_apart() {
    let port = |more: Value| {
        let mut port = json!({"containerPort": 80, "protocol": "TCP"});
        port.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        port
    };
    for (first, second, what) in [
        (json!({}), json!({}), "duplicate"),
        (json!({}), json!({"protocol": "UDP"}), ""),
        (json!({}), json!({"containerPort": 81}), ""),
        (json!({}), json!({"hostPort": 80}), "overlapping"),
        (json!({"hostPort": 80}), json!({"hostPort": 80}), "duplicate"),
        (json!({"hostPort": 80}), json!({"hostPort": 81}), ""),
        (json!({"hostPort": 80}), json!({"hostPort": 80, "hostIP": "10.0.0.1"}), "dangerously ambiguous"),
        (json!({"hostPort": 80, "hostIP": "10.0.0.2"}), json!({"hostPort": 80, "hostIP": "10.0.0.1"}), ""),
    ] {
        let containers = json!([{"name": "a", "ports": [port(first)]}, {"name": "b", "ports": [port(second)]}]);
        let shown = containers.to_string();
        let expected = format!("spec.containers[1].ports[0]: {what} port definition with spec.containers[0].ports[0]");
        let expected = if what.is_empty() { vec![] } else { vec![expected] };
        assert_eq!(of_pod(json!({"containers": containers})), expected, "{shown}");
    }
    // Only containers that run at the same time must have distinct port names.
    let named = |number: i64| json!([{"name": "p", "containerPort": number, "protocol": "TCP"}]);
    let warnings = of_pod(json!({
        "initContainers": [
            {"name": "a", "ports": named(80)},
            {"name": "b", "ports": named(81), "restartPolicy": "Always"},
        ],
        "containers": [{"name": "c", "ports": named(82)}],
    }));
    let first = "spec.initContainers[1].ports[0]";
    let expected = format!(
        "spec.containers[0].ports[0]: duplicate port name \"p\" with {first}, services and probes that select ports by \
         name will use {first}"
    );
    assert_eq!(warnings, [expected]);
}

#[test]
fn files_of_volumes_that_are_in_the_way_of_others() {
    let items = |paths: &[&str]| -> Value { paths.iter().map(|path| json!({"key": "k", "path": path})).collect() };
    let map = |paths: &[&str]| json!({"name": "v", "configMap": {"name": "foo", "items": items(paths)}});
    let all = |volume: Value| of_pod(json!({"volumes": [volume]}));
    let overlap = |two: &str| format!("volume \"v\" (ConfigMap \"foo\"): overlapping paths: {two}");
    assert_eq!(all(map(&["a", "b", "c/d"])), [""; 0]);
    assert_eq!(all(map(&["dir/path3", "dir/path345", "dir.d", "dir/x"])), [""; 0]);
    assert_eq!(all(map(&["test", "test/app"])), [overlap("\"test/app\" with \"test\"")]);
    assert_eq!(all(map(&["test/app", "test/"])), [overlap("\"test\" with \"test/app\"")]);
    assert_eq!(all(map(&["a", "a"])), [overlap("\"a\" with \"a\"")]);
    let secret = json!({"name": "v", "secret": {"secretName": "foo", "items": items(&["a", "a"])}});
    assert_eq!(all(secret), ["volume \"v\" (Secret \"foo\"): overlapping paths: \"a\" with \"a\""]);
    let downward = json!({"name": "v", "downwardAPI": {"items": items(&["a", "a"])}});
    assert_eq!(all(downward), ["volume \"v\" (DownwardAPI): overlapping paths: \"a\" with \"a\""]);
    let projected = json!({"name": "v", "projected": {"sources": [
        {"configMap": {"name": "foo", "items": items(&["test/file"])}},
        {"serviceAccountToken": {"path": "test"}},
        {"clusterTrustBundle": {"name": "bar", "path": "test/file"}},
        {},
    ]}});
    let file = "\"test/file\" (ConfigMap \"foo\")";
    let bundle = "\"test/file\" (ClusterTrustBundle \"bar\")";
    let token = "\"test\" (ServiceAccountToken)";
    let expected = [(token, file), (bundle, file), (bundle, token)];
    let told = |(one, other): (&str, &str)| format!("volume \"v\" (Projected): overlapping paths: {one} with {other}");
    let mut expected = expected.map(told).to_vec();
    // Warnings are in the order of the sources.
    expected.push("volume \"v\" (Projected) has no sources provided".to_owned());
    assert_eq!(all(projected), expected);
}

#[test]
fn nodes_that_pods_ask_for() {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    let term = json!({"matchExpressions": [{"key": "beta.kubernetes.io/arch", "operator": "In", "values": ["-1"]}]});
    let warnings = of_pod(json!({
        "affinity": {
            "nodeAffinity": {
                required: {"nodeSelectorTerms": [term.clone()]},
                preferred: [{"weight": 1, "preference": term}],
            },
            "podAntiAffinity": {preferred: [{"weight": 1, "podAffinityTerm": {"topologyKey": "k"}}]},
        },
        "topologySpreadConstraints": [{"topologyKey": "failure-domain.beta.kubernetes.io/zone"}],
    }));
    let arch = "beta.kubernetes.io/arch is deprecated since v1.14; use \"kubernetes.io/arch\" instead";
    let zone = "failure-domain.beta.kubernetes.io/zone is deprecated since v1.17; use \"topology.kubernetes.io/zone\"";
    let null = "a null labelSelector results in matching no pod";
    let first = format!("spec.affinity.nodeAffinity.{preferred}[0].preference.matchExpressions[0]");
    let expected = [
        format!("spec.affinity.nodeAffinity.{required}.nodeSelectorTerms[0].matchExpressions[0].key: {arch}"),
        format!("{first}.key: {arch}"),
        format!("{first}.values[0]: -1 is invalid, a valid label must be an empty string or consist of"),
        format!("spec.topologySpreadConstraints[0].topologyKey: {zone}"),
        format!("spec.topologySpreadConstraints[0].labelSelector: {null}"),
        format!("spec.affinity.podAntiAffinity.{preferred}[0].podAffinityTerm.labelSelector: {null}"),
    ];
    assert_eq!(warnings.len(), expected.len(), "{warnings:#?}");
    for (warning, expected) in warnings.iter().zip(&expected) {
        assert!(warning.starts_with(expected.as_str()), "{warning}, not {expected}");
    }
}

#[test]
fn annotations_of_profiles_that_no_field_says() {
    let (seccomp, app_armor) =
        ("container.seccomp.security.alpha.kubernetes.io/c", "container.apparmor.security.beta.kubernetes.io/c");
    let said = |of_pod: Value, of_container: Value| {
        let annotations = json!({"seccomp.security.alpha.kubernetes.io/pod": "x", seccomp: "x", app_armor: "x"});
        let containers = json!([{"name": "c", "securityContext": of_container}]);
        let template = json!({
            "metadata": {"annotations": annotations},
            "spec": {"securityContext": of_pod, "containers": containers},
        });
        let deployment = json!({"metadata": {"name": "a"}, "spec": {"template": template}});
        let warnings = told("deployments.apps", &deployment, None);
        let at = "spec.template.metadata.annotations[";
        let keys = warnings.iter().map(|warning| {
            let (key, _) = warning.strip_prefix(at).expect("an annotation").split_once("]: ").expect("a reason");
            key.split('.').take(2).collect::<Vec<_>>().join(".")
        });
        keys.collect::<Vec<_>>().join(" ")
    };
    let profile = || json!({"type": "RuntimeDefault"});
    assert_eq!(said(json!({}), json!({})), "seccomp.security container.seccomp container.apparmor");
    let both = json!({"seccompProfile": profile(), "appArmorProfile": profile()});
    assert_eq!(said(both.clone(), json!({})), "container.seccomp");
    assert_eq!(said(json!({}), both), "seccomp.security");
}

#[test]
fn services() {
    let of = |spec: Value| told("services", &json!({"metadata": {"name": "a"}, "spec": spec}), None);
    let headless = of(json!({
        "type": "ClusterIP",
        "clusterIP": "None",
        "clusterIPs": ["None"],
        "loadBalancerIP": "::ffff:1.2.3.4",
        "sessionAffinity": "ClientIP",
    }));
    assert_eq!(
        headless[..2],
        [
            "spec.loadBalancerIP is ignored for headless services",
            "spec.SessionAffinity is ignored for headless services",
        ]
    );
    assert!(headless[2].starts_with("spec.loadBalancerIP: "), "{headless:?}");
    let plain =
        json!({"type": "ClusterIP", "clusterIP": "10.0.0.5", "clusterIPs": ["10.0.0.5"], "externalName": "a.b"});
    assert_eq!(of(plain), ["spec.externalName is ignored when spec.type is not \"ExternalName\""]);
    let elsewhere = of(json!({"type": "ExternalName", "externalName": "a.b", "externalIPs": ["1.2.3.4"]}));
    assert!(elsewhere.contains(&"spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned()));
    let hinted = json!({
        "metadata": {"name": "a", "annotations": {"service.kubernetes.io/topology-aware-hints": "auto"}},
        "spec": {"type": "ClusterIP"},
    });
    let expected = "annotation service.kubernetes.io/topology-aware-hints is deprecated, please use \
                    service.kubernetes.io/topology-mode instead";
    assert_eq!(told("services", &hinted, None), [expected]);
}

#[test]
fn volumes_and_claims() {
    let beta = "volume.beta.kubernetes.io/storage-class";
    let volume = json!({
        "metadata": {"name": "a", "annotations": {beta: "c"}},
        "spec": {
            "persistentVolumeReclaimPolicy": "Recycle",
            "cephfs": {},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "beta.kubernetes.io/os", "operator": "Exists"}]},
            ]}},
        },
    });
    let renamed = "metadata.annotations[volume.beta.kubernetes.io/storage-class]: deprecated since v1.8; use \
                   \"storageClassName\" attribute instead";
    let expected = [
        renamed,
        "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach \
         is to use dynamic provisioning.",
        "spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].key: beta.kubernetes.io/os is deprecated \
         since v1.14; use \"kubernetes.io/os\" instead",
        "spec.cephfs: deprecated in v1.28, non-functional in v1.31+",
    ];
    assert_eq!(told("persistentvolumes", &volume, None), expected);
    let spec = json!({"resources": {"requests": {"storage": "100m"}, "limits": {"storage": "1Gi"}}});
    let claim = json!({"metadata": {"name": "a", "annotations": {beta: "c"}}, "spec": spec.clone()});
    let broken = "resources.requests[storage]: fractional byte value \"100m\" is invalid, must be an integer";
    assert_eq!(told("persistentvolumeclaims", &claim, None), [renamed.to_owned(), format!("spec.{broken}")]);
    let ephemeral = json!({"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": spec.clone()}}});
    let expected = format!("spec.volumes[0].ephemeral.volumeClaimTemplate.spec.{broken}");
    assert_eq!(of_pod(json!({"volumes": [ephemeral]})), [expected]);
    let set = json!({
        "metadata": {"name": "a"},
        "spec": {"volumeClaimTemplates": [{"spec": spec}], "revisionHistoryLimit": -1},
    });
    let history =
        "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended";
    let of_claim = |path: &str| vec![format!("spec.volumeClaimTemplates[0]{path}.{broken}"), history.to_owned()];
    assert_eq!(told("statefulsets.apps", &set, None), of_claim(""));
    assert_eq!(told("statefulsets.apps", &set, Some(&set)), of_claim(".Spec"));
}

#[test]
fn endpoints_that_people_wrote() {
    let of = |manager: &str| {
        let subsets = json!([{"addresses": [{"ip": "1.2.3.4"}], "notReadyAddresses": [{"ip": "::ffff:1.2.3.4"}]}]);
        let label = "endpoints.kubernetes.io/managed-by";
        told("endpoints", &json!({"metadata": {"name": "a", "labels": {label: manager}}, "subsets": subsets}), None)
    };
    let warnings = of("me");
    assert!(warnings.iter().any(|warning| warning.starts_with("subsets[0].notReadyAddresses[0].ip: ")), "{warnings:?}");
    assert!(!of("endpoint-controller").iter().any(|warning| warning.starts_with("subsets")));
    let slice = |ty: &str, manager: &str| {
        let labels = json!({"endpointslice.kubernetes.io/managed-by": manager});
        let endpoints = json!([{"addresses": ["::ffff:1.2.3.4"]}]);
        json!({"metadata": {"name": "a", "labels": labels}, "addressType": ty, "endpoints": endpoints})
    };
    let of = |slice: &Value, old: Option<&Value>| told("endpointslices.discovery.k8s.io", slice, old);
    assert!(of(&slice("IPv6", "me"), None)[0].starts_with("endpoints[0].addresses[0]: "));
    let controller = "endpointslice-controller.k8s.io";
    assert!(of(&slice("IPv6", controller), None).is_empty());
    let names = slice("FQDN", controller);
    assert_eq!(of(&names, None), ["spec.addressType: FQDN endpoints are deprecated"]);
    assert!(of(&names, Some(&names)).is_empty());
}

#[test]
fn what_is_on_its_way_out() {
    let node = json!({"metadata": {"name": "a"}, "spec": {"externalID": "x", "configSource": {}}});
    let expected = [
        "spec.configSource: the feature is removed",
        "spec.externalID: this field is deprecated, and is unused by Kubernetes",
    ];
    assert_eq!(told("nodes", &node, None), expected);
    let key = "kubernetes.io/enforce-mountable-secrets";
    let account = json!({"metadata": {"name": "a", "annotations": {key: "true"}}});
    let expected = format!(
        "metadata.annotations[{key}]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
    );
    assert_eq!(told("serviceaccounts", &account, None), std::slice::from_ref(&expected));
    let plain = json!({"metadata": {"name": "a"}});
    assert_eq!(told("serviceaccounts", &account, Some(&plain)), [expected]);
    assert!(told("serviceaccounts", &account, Some(&account)).is_empty());
}

#[test]
fn jobs_of_too_many_parts() {
    let of = |completions: i64, parallelism: i64, mode: &str, old: bool| {
        let spec = json!({"completions": completions, "parallelism": parallelism, "completionMode": mode});
        let job = json!({"metadata": {"name": "a"}, "spec": spec.clone()});
        let cron = json!({"metadata": {"name": "a"}, "spec": {"jobTemplate": {"spec": spec}}});
        let told = |kind: &str, value: &Value| told(kind, value, old.then_some(value));
        (told("jobs.batch", &job), told("cronjobs.batch", &cron))
    };
    let (job, cron) = of(100_001, 10_001, "Indexed", false);
    assert!(job[0].starts_with("spec: In Indexed Jobs with a number of completions higher than 10^5"), "{job:?}");
    assert!(cron[0].starts_with("spec.jobTemplate.spec: In Indexed Jobs"), "{cron:?}");
    for (job, cron) in [
        of(100_000, 10_001, "Indexed", false),
        of(100_001, 10_000, "Indexed", false),
        of(100_001, 10_001, "NonIndexed", false),
        of(100_001, 10_001, "Indexed", true),
    ] {
        assert!(job.is_empty() && cron.is_empty(), "{job:?} {cron:?}");
    }
}

#[test]
fn ports_without_number_are_told_of_some_times() {
    let ports = vec![json!({"containerPort": 80, "protocol": "TCP"}); 1000];
    let told = of_pod(json!({"containers": [{"name": "c", "ports": ports}]}));
    assert!((100..300).contains(&told.len()), "{}", told.len());
}
