use super::{Life, NodeSide, Notice, live};
use crate::behaviour::BehaviourSettings;
use crate::course::Courses;
use holdfast_value::{Value, json};
use holdfast_world::Time;

const START: i64 = 1_700_000_000;

/// A pod on its node. Its status is what the kubelet's patches have produced so far.
struct Pod {
    document: Value,
    now: i64,
    last: Life,
    tells_all: bool,
    told_until: i64,
}

impl Pod {
    fn new(annotations: Value, spec: Value) -> Pod {
        let mut document = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u", "generation": 1,
            "annotations": annotations}, "spec": spec, "status": {"phase": "Pending"}});
        document["spec"]["nodeName"] = "node".into();
        Pod { document, now: START, last: Life::default(), tells_all: false, told_until: 0 }
    }

    /// Plans the pod until nothing changes, at this many seconds after the pod's start.
    fn at(&mut self, second: i64) -> &mut Pod {
        self.now = START + second;
        let told = BehaviourSettings::default();
        let allocatable = json!({"cpu": "4", "memory": "8Gi"});
        let place = NodeSide {
            host_ip: "172.16.0.1",
            allocatable: &allocatable,
            told: &told,
            tells_all: self.tells_all,
            told_until: Time::from_second(self.told_until),
            courses: &Courses::default(),
        };
        self.last = live(&self.document, &place, Time::from_second(self.now), &mut || "10.0.0.7".into());
        self.told_until = self.now;
        if let Some(patch) = &self.last.status {
            merge(&mut self.document["status"], &patch["status"]);
            let again =
                live(&self.document, &place, Time::from_second(self.now), &mut || unreachable!("it has an address"));
            assert_eq!(again.status, None, "planning again gives nothing");
        }
        self
    }

    fn phase(&self) -> &str {
        self.document["status"]["phase"].as_str().expect("a phase")
    }

    fn condition(&self, kind: &str) -> String {
        let conditions = self.document["status"]["conditions"].as_array().expect("conditions");
        let found = conditions.iter().find(|condition| condition["type"] == kind).unwrap_or(&Value::Null);
        let text = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
        format!("{} {} {}", text("status"), text("reason"), text("message")).trim().to_owned()
    }

    fn container(&self, list: &str, name: &str) -> Value {
        let found =
            self.document["status"][list].as_array().into_iter().flatten().find(|status| status["name"] == name);
        found.cloned().unwrap_or_default()
    }

    /// The state of a container, its exit code if it has ended, and its restart count: `running 0`, `terminated 0 1`,
    /// `waiting CrashLoopBackOff 2`.
    fn state(&self, name: &str) -> String {
        let list = if self.container("containerStatuses", name).is_null() {
            "initContainerStatuses"
        } else {
            "containerStatuses"
        };
        let status = self.container(list, name);
        let (kind, state) = status["state"].as_object().and_then(|state| state.iter().next()).expect("a state");
        let said = match kind.as_str() {
            "waiting" => format!(" {}", state["reason"].as_str().unwrap_or_default()),
            "terminated" => format!(" {}", state["exitCode"]),
            _ => String::new(),
        };
        format!("{kind}{said} {}", status["restartCount"])
    }

    /// The Events of the last plan, each with the path of its container.
    fn notices(&self) -> Vec<String> {
        let line = |Notice { warning, reason, message, part }: &Notice| {
            let kind = if *warning { "Warning" } else { "Normal" };
            format!("{kind} {reason} {message} {part}").trim_end().to_owned()
        };
        self.last.notices.iter().map(line).collect()
    }

    fn again(&self) -> Option<i64> {
        self.last.again.map(|again| again.seconds() - START)
    }
}

/// Applies a strategic merge patch to a pod's status: merges conditions by type, and replaces all other fields.
fn merge(status: &mut Value, patch: &Value) {
    for (name, value) in patch.as_object().expect("an object") {
        if name != "conditions" {
            status[name] = value.clone();
            continue;
        }
        let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        for changed in value.as_array().expect("conditions") {
            conditions.retain(|condition| condition["type"] != changed["type"]);
            if changed["$patch"] != "delete" {
                let mut changed = changed.clone();
                changed.as_object_mut().expect("a condition").retain(|_, value| !value.is_null());
                conditions.push(changed);
            }
        }
        status["conditions"] = conditions.into();
    }
}

fn one(policy: &str) -> Value {
    json!({"restartPolicy": policy, "containers": [{"name": "c", "image": "i:1"}]})
}

fn told(words: &[(&str, &str)]) -> Value {
    words
        .iter()
        .map(|(name, value)| (format!("simulate.holdfast.dev/{name}"), Value::from(*value)))
        .collect::<holdfast_value::Map>()
        .into()
}

#[test]
fn a_pod_is_ready_at_once() {
    let mut pod = Pod::new(json!({}), one("Always"));
    pod.at(0);
    assert_eq!((pod.phase(), pod.state("c").as_str(), pod.again()), ("Running", "running 0", None));
    for kind in ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"] {
        assert_eq!(pod.condition(kind), "True", "{kind}");
    }
    let status = &pod.document["status"];
    assert_eq!((status["podIP"].as_str(), status["hostIP"].as_str()), (Some("10.0.0.7"), Some("172.16.0.1")));
    assert_eq!(status["observedGeneration"], 1);
    let container = pod.container("containerStatuses", "c");
    assert!(
        container["containerID"].as_str().is_some_and(|id| id.starts_with("simulated://") && id.len() == 76),
        "{container}"
    );
    assert!(container["imageID"].as_str().is_some_and(|id| id.starts_with("i@sha256:")), "{container}");
    pod.at(100_000);
    assert_eq!(pod.last, Life::default());
}

#[test]
fn a_container_that_exits_ends_or_restarts_its_pod() {
    let rows = [
        ("Never", "0", "Succeeded", "terminated 0 0"),
        ("Never", "1", "Failed", "terminated 1 0"),
        ("OnFailure", "0", "Succeeded", "terminated 0 0"),
        ("OnFailure", "1", "Running", "running 1"),
        ("Always", "0", "Running", "running 1"),
    ];
    for (policy, code, phase, state) in rows {
        let mut pod = Pod::new(told(&[("run-for", "30s"), ("exit-code", code)]), one(policy));
        assert_eq!(pod.at(0).again(), Some(30), "{policy} {code}");
        assert_eq!(pod.at(29).state("c"), "running 0");
        pod.at(30);
        assert_eq!((pod.phase(), pod.state("c").as_str()), (phase, state), "{policy} {code}");
    }
    let mut pod = Pod::new(told(&[("run-for", "1s")]), one("Never"));
    pod.at(0).at(1);
    assert_eq!(pod.condition("Ready"), "False PodCompleted");
    assert_eq!(pod.condition("Initialized"), "True PodCompleted");
    assert_eq!(pod.condition("PodReadyToStartContainers"), "False");
}

#[test]
fn a_crash_loop_waits_longer_each_time() {
    let mut pod = Pod::new(told(&[("run-for", "1s"), ("exit-code", "1"), ("exit-reason", "OOMKilled")]), one("Always"));
    let (mut starts, mut second) = (Vec::new(), 0);
    while starts.len() < 9 {
        pod.at(second);
        if pod.state("c").starts_with("running") {
            starts.push(second);
        } else {
            assert!(pod.state("c").starts_with("waiting CrashLoopBackOff"), "{}", pod.state("c"));
            assert_eq!(pod.phase(), "Running");
        }
        second = pod.again().expect("it goes on");
    }
    // The container restarts at once after its first end. After each further end, it restarts after 10, 20, 40, 80, 160
    // and then 300 seconds. Each run takes one second.
    assert_eq!(starts, [0, 1, 12, 33, 74, 155, 316, 617, 918]);
    let status = pod.container("containerStatuses", "c");
    assert_eq!(status["lastState"]["terminated"]["reason"], "OOMKilled");
    pod.at(919);
    assert_eq!(
        pod.notices(),
        ["Warning BackOff Back-off restarting failed container c in pod p_n(u) spec.containers{c}"]
    );
    // After the container has run for ten minutes, its back-off starts again, so the next restart is immediate.
    pod.document["metadata"]["annotations"] = told(&[("run-for", "601s"), ("exit-code", "1")]);
    pod.at(1219).at(1219 + 601);
    assert!(pod.state("c").starts_with("running"), "{}", pod.state("c"));
}

#[test]
fn a_container_that_exits_at_once_does_not_spin() {
    let mut pod = Pod::new(told(&[("run-for", "0")]), one("Always"));
    pod.at(0);
    assert_eq!((pod.state("c").as_str(), pod.again()), ("waiting CrashLoopBackOff 1", Some(10)));
}

#[test]
fn init_containers_run_one_after_the_other_and_sidecars_beside() {
    let spec = json!({"restartPolicy": "Never",
        "initContainers": [{"name": "a", "image": "i"}, {"name": "s", "image": "i", "restartPolicy": "Always"}, {"name": "b", "image": "i"}],
        "containers": [{"name": "c", "image": "i"}]});
    let mut pod = Pod::new(told(&[("run-for.a", "5s"), ("run-for.b", "5s"), ("run-for.c", "5s")]), spec);
    pod.at(0);
    assert_eq!(
        (pod.phase(), pod.state("a").as_str(), pod.state("s").as_str()),
        ("Pending", "running 0", "waiting PodInitializing 0")
    );
    assert_eq!(
        pod.condition("Initialized"),
        "False ContainersNotInitialized containers with incomplete status: [a s b]"
    );
    pod.at(5);
    assert_eq!(
        (pod.state("a").as_str(), pod.state("s").as_str(), pod.state("b").as_str()),
        ("terminated 0 0", "running 0", "running 0")
    );
    pod.at(10);
    assert_eq!((pod.phase(), pod.condition("Ready").as_str()), ("Running", "True"));
    pod.at(15);
    assert_eq!((pod.phase(), pod.state("s").as_str()), ("Succeeded", "terminated 0 0"));
}

#[test]
fn an_init_container_that_fails_ends_or_holds_its_pod() {
    let spec = |policy: &str| json!({"restartPolicy": policy, "initContainers": [{"name": "a", "image": "i"}], "containers": [{"name": "c", "image": "i"}]});
    let mut pod = Pod::new(told(&[("exit-code.a", "2")]), spec("Never"));
    pod.at(0);
    assert_eq!((pod.phase(), pod.state("a").as_str()), ("Failed", "terminated 2 0"));
    let mut pod = Pod::new(told(&[("exit-code.a", "2")]), spec("Always"));
    pod.at(0);
    assert_eq!((pod.phase(), pod.state("a").as_str()), ("Pending", "waiting CrashLoopBackOff 1"));
    assert_eq!(pod.state("c"), "waiting PodInitializing 0");
}

#[test]
fn images_that_do_not_come_and_pods_that_do_not_become_ready() {
    let mut pod = Pod::new(told(&[("pull", "forever")]), one("Always"));
    pod.at(0);
    assert_eq!((pod.phase(), pod.state("c").as_str(), pod.again()), ("Pending", "waiting ContainerCreating 0", None));
    assert_eq!(pod.condition("Ready"), "False ContainersNotReady containers with unready status: [c]");
    let mut pod = Pod::new(told(&[("pull", "fails")]), one("Always"));
    assert_eq!(pod.at(0).state("c"), "waiting ErrImagePull 0");
    assert_eq!(pod.at(10).state("c"), "waiting ImagePullBackOff 0");
    let mut pod = Pod::new(told(&[("pull", "5s"), ("ready-after", "7s")]), one("Always"));
    assert_eq!(pod.at(0).again(), Some(5));
    assert_eq!(pod.at(5).condition("Ready"), "False ContainersNotReady containers with unready status: [c]");
    assert_eq!(pod.at(12).condition("Ready"), "True");
    let mut pod = Pod::new(told(&[("ready-after", "never")]), one("Always"));
    pod.at(0);
    assert_eq!((pod.phase(), pod.again()), ("Running", None));
    assert_eq!(pod.condition("ContainersReady"), "False ContainersNotReady containers with unready status: [c]");
}

#[test]
fn readiness_gates_hold_readiness() {
    let mut spec = one("Always");
    spec["readinessGates"] = json!([{"conditionType": "x/y"}]);
    let mut pod = Pod::new(json!({}), spec);
    pod.at(0);
    assert_eq!(pod.condition("ContainersReady"), "True");
    assert_eq!(
        pod.condition("Ready"),
        "False ReadinessGatesNotReady corresponding condition of pod readiness gate \"x/y\" does not exist."
    );
    pod.document["status"]["conditions"]
        .as_array_mut()
        .expect("conditions")
        .push(json!({"type": "x/y", "status": "False"}));
    pod.at(1);
    assert_eq!(
        pod.condition("Ready"),
        "False ReadinessGatesNotReady the status of pod readiness gate \"x/y\" is not \"True\", but False"
    );
    let conditions = pod.document["status"]["conditions"].as_array_mut().expect("conditions");
    conditions
        .iter_mut()
        .filter(|condition| condition["type"] == "x/y")
        .for_each(|condition| condition["status"] = "True".into());
    assert_eq!(pod.at(2).condition("Ready"), "True");
}

#[test]
fn a_deadline_ends_the_pod() {
    let mut spec = one("Always");
    spec["activeDeadlineSeconds"] = 60.into();
    let mut pod = Pod::new(json!({}), spec);
    assert_eq!(pod.at(0).again(), Some(60));
    pod.at(60);
    assert_eq!((pod.phase(), pod.document["status"]["reason"].as_str()), ("Failed", Some("DeadlineExceeded")));
    assert_eq!(pod.condition("Ready"), "False PodFailed");
}

#[test]
fn pods_of_jobs_end_at_once_unless_they_pause() {
    let of = |version: &str, image: &str, words: &[(&str, &str)]| {
        let mut pod =
            Pod::new(told(words), json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": image}]}));
        pod.document["metadata"]["ownerReferences"] =
            json!([{"apiVersion": version, "kind": "Job", "controller": true}]);
        pod.at(0);
        pod.phase().to_owned()
    };
    let of_job = |image: &str, words: &[(&str, &str)]| of("batch/v1", image, words);
    assert_eq!(of("batch.volcano.sh/v1alpha1", "busybox", &[]), "Running", "a Job of another group");
    assert_eq!(of("v1", "busybox", &[]), "Running");
    assert_eq!(of_job("busybox", &[]), "Succeeded");
    assert_eq!(of_job("busybox", &[("exit-code", "1")]), "Failed");
    assert_eq!(of_job("busybox", &[("run-for", "forever")]), "Running");
    assert_eq!(of_job("registry.k8s.io/pause:3.9", &[]), "Running");
    assert_eq!(of_job("registry.k8s.io/pause@sha256:0", &[]), "Running");
    assert_eq!(of_job("example.com/pause/run:1", &[]), "Succeeded");
}

#[test]
fn commands_that_sleep_run_so_long() {
    let containers = json!({"restartPolicy": "Never",
        "initContainers": [{"name": "i", "image": "busybox", "command": ["sleep", "5"]}],
        "containers": [{"name": "c", "image": "busybox", "command": ["sh", "-c"], "args": ["sleep 30"]}]});
    let mut pod = Pod::new(told(&[]), containers.clone());
    assert_eq!(pod.at(0).again(), Some(5));
    assert_eq!(pod.phase(), "Pending");
    assert_eq!(pod.at(5).again(), Some(35));
    assert_eq!(pod.phase(), "Running");
    pod.at(35);
    assert_eq!(pod.phase(), "Succeeded");
    let mut pod = Pod::new(told(&[("run-for.c", "forever")]), containers);
    pod.at(5);
    assert_eq!((pod.at(40).again(), pod.phase()), (None, "Running"), "annotations count more");
}

#[test]
fn deletion_waits_for_containers_within_the_grace_period() {
    let deleted = |words: &[(&str, &str)], grace: i64| {
        let mut pod = Pod::new(told(words), one("Always"));
        pod.at(0);
        pod.document["metadata"]["deletionTimestamp"] = json!(Time::from_second(START + 5 + grace));
        pod.document["metadata"]["deletionGracePeriodSeconds"] = grace.into();
        pod
    };
    let mut pod = deleted(&[], 30);
    pod.at(5);
    assert_eq!((pod.last.gone, pod.phase(), pod.state("c").as_str()), (true, "Failed", "terminated 137 0"));
    assert!(pod.at(6).last.gone, "it is still to go");
    let mut pod = deleted(&[("stop-for", "10s"), ("stop-exit-code", "0")], 30);
    assert_eq!((pod.at(5).last.gone, pod.again()), (false, Some(15)));
    assert_eq!((pod.at(15).last.gone, pod.phase()), (true, "Succeeded"));
    let mut pod = deleted(&[("stop-for", "forever")], 30);
    assert_eq!((pod.at(5).last.gone, pod.again()), (false, Some(35)));
    assert!(pod.at(35).last.gone);
    // After a grace period of 0 seconds, the deletion does not wait for the pod's containers. Only finalizers can keep
    // the pod.
    assert_eq!(deleted(&[], 0).at(5).last, Life::default());
}

#[test]
fn resources_change_in_place() {
    let mut spec = one("Always");
    spec["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    spec["containers"][0]["resizePolicy"] = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    let mut pod = Pod::new(json!({}), spec);
    pod.at(0);
    assert_eq!(pod.container("containerStatuses", "c")["allocatedResources"], json!({"cpu": "1"}));
    let resize = |pod: &mut Pod, resources: Value| {
        pod.document["spec"]["containers"][0]["resources"] = resources;
        pod.document["metadata"]["generation"] =
            json!(pod.document["metadata"]["generation"].as_i64().expect("one") + 1);
    };
    resize(&mut pod, json!({"requests": {"cpu": "2"}}));
    pod.at(1);
    let status = pod.container("containerStatuses", "c");
    assert_eq!((&status["resources"]["requests"]["cpu"], pod.state("c").as_str()), (&json!("2"), "running 0"));
    assert_eq!(pod.document["status"]["observedGeneration"], 2);
    resize(&mut pod, json!({"requests": {"cpu": "2", "memory": "1Gi"}}));
    assert_eq!(pod.at(2).state("c"), "running 1");
    resize(&mut pod, json!({"requests": {"cpu": "40", "memory": "1Gi"}}));
    pod.at(3);
    assert_eq!(
        pod.condition("PodResizePending"),
        "True Infeasible Node didn't have enough capacity: cpu, requested: 40000, capacity: 4000"
    );
    assert_eq!(pod.container("containerStatuses", "c")["resources"]["requests"]["cpu"], "2");
    resize(&mut pod, json!({"requests": {"cpu": "3", "memory": "1Gi"}}));
    pod.at(4);
    assert_eq!(pod.condition("PodResizePending"), "");
}

#[test]
fn mistakes_in_annotations_are_told() {
    let mut pod = Pod::new(told(&[("run-four", "1s")]), one("Always"));
    pod.at(0);
    assert!(pod.notices()[0].contains("run-four is not known"), "{:?}", pod.notices());
    assert_eq!(pod.phase(), "Running");
}

#[test]
fn what_becomes_of_containers_is_told() {
    let told_all = |words: &[(&str, &str)], spec: Value| Pod { tells_all: true, ..Pod::new(told(words), spec) };
    let mut pod = told_all(&[("run-for", "1s"), ("exit-code", "1")], one("Always"));
    let started = [
        "Normal Pulled Container image \"i:1\" already present on machine spec.containers{c}",
        "Normal Created Container created spec.containers{c}",
        "Normal Started Container started spec.containers{c}",
    ];
    assert_eq!(pod.at(0).notices(), started);
    assert_eq!(pod.at(1).notices(), started, "it is restarted at once");
    assert_eq!(
        pod.at(2).notices(),
        ["Warning BackOff Back-off restarting failed container c in pod p_n(u) spec.containers{c}"]
    );
    let mut spec = one("Never");
    spec["containers"][0]["imagePullPolicy"] = json!("Always");
    spec["initContainers"] = json!([{"name": "a", "image": "i"}]);
    let mut pod = told_all(&[("pull.c", "5s")], spec);
    assert_eq!(
        pod.at(0).notices(),
        [
            "Normal Pulled Container image \"i\" already present on machine spec.initContainers{a}",
            "Normal Created Container created spec.initContainers{a}",
            "Normal Started Container started spec.initContainers{a}",
            "Normal Pulling Pulling image \"i:1\" spec.containers{c}",
        ]
    );
    assert_eq!(
        pod.at(5).notices()[0],
        "Normal Pulled Successfully pulled image \"i:1\" in 5s (5s including waiting). Image size: 0 bytes. spec.containers{c}"
    );
    pod.document["metadata"]["deletionTimestamp"] = json!(Time::from_second(START + 36));
    pod.document["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    assert_eq!(pod.at(6).notices(), ["Normal Killing Stopping container c spec.containers{c}"]);
    let mut pod = Pod::new(told(&[("pull", "fails")]), one("Always"));
    let failure = "failed to pull and unpack image \"i:1\": the image is simulated to be missing";
    assert_eq!(
        pod.at(0).notices(),
        [
            format!("Warning Failed Failed to pull image \"i:1\": {failure} spec.containers{{c}}"),
            "Warning Failed Error: ErrImagePull spec.containers{c}".to_owned()
        ]
    );
    assert_eq!(
        pod.at(10).notices(),
        [
            "Normal BackOff Back-off pulling image \"i:1\" spec.containers{c}",
            "Warning Failed Error: ImagePullBackOff spec.containers{c}"
        ]
    );
}

#[test]
fn containers_are_told_by_name_and_init_containers_in_their_order() {
    let list = |names: &[&str]| -> Value { names.iter().map(|name| json!({"name": name, "image": "i"})).collect() };
    let spec = json!({"restartPolicy": "Always", "initContainers": list(&["z", "y"]), "containers": list(&["b", "a"])});
    let mut pod = Pod::new(json!({}), spec);
    pod.at(0);
    let names = |list: &str| -> Vec<Value> {
        let statuses = pod.document["status"][list].as_array().cloned().unwrap_or_default();
        statuses.into_iter().map(|status| status["name"].clone()).collect()
    };
    assert_eq!(names("containerStatuses"), ["a", "b"]);
    assert_eq!(names("initContainerStatuses"), ["z", "y"]);
}

#[test]
fn failures_of_probes_and_hooks_are_told_once() {
    let probe = json!({"exec": {"command": ["cat", "/tmp/no"]}, "periodSeconds": 5, "failureThreshold": 2});
    let mut pod = Pod::new(
        json!({}),
        json!({"containers": [{"name": "c", "image": "i", "command": ["sleep", "600"], "livenessProbe": probe}]}),
    );
    pod.tells_all = true;
    let failed = "Warning Unhealthy Liveness probe failed: cat: can't open '/tmp/no': No such file or directory";
    pod.at(0);
    assert!(pod.notices().iter().any(|told| told.starts_with(failed)), "{:?}", pod.notices());
    assert_eq!(pod.again(), Some(5));
    pod.at(3);
    assert_eq!(pod.notices(), [""; 0], "nothing is told twice");
    pod.at(5);
    let killed = "Normal Killing Container c failed liveness probe, will be restarted spec.containers{c}";
    assert!(pod.notices().iter().any(|told| told.starts_with(failed)), "{:?}", pod.notices());
    assert!(pod.notices().iter().any(|told| told == killed), "{:?}", pod.notices());
    assert_eq!(pod.state("c"), "running 1");
    let refused = json!({"httpGet": {"port": 80}});
    let mut pod = Pod::new(
        told(&[("answer", "refused")]),
        json!({"containers": [{"name": "c", "image": "nginx", "readinessProbe": refused}]}),
    );
    pod.at(0).at(10);
    let why = "Get \"http://10.0.0.7:80/\": dial tcp 10.0.0.7:80: connect: connection refused";
    assert_eq!(pod.notices(), [format!("Warning Unhealthy Readiness probe failed: {why} spec.containers{{c}}")]);
    assert_eq!(pod.container("containerStatuses", "c")["ready"], false);
    let hook = json!({"postStart": {"exec": {"command": ["sh", "-c", "sleep 2; exit 1"]}}});
    let mut pod = Pod::new(
        json!({}),
        json!({"restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i", "command": ["sleep", "600"], "lifecycle": hook}]}),
    );
    pod.at(0);
    assert_eq!((pod.condition("Ready").split(' ').next(), pod.again()), (Some("False"), Some(2)));
    pod.at(2);
    assert_eq!(pod.state("c"), "terminated 137 0");
    assert_eq!(pod.notices(), ["Warning FailedPostStartHook PostStartHook failed spec.containers{c}"]);
}
