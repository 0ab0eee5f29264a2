//! Tests with the largest numbers that fields allow: no computation overflows, plans stay small, and other objects of
//! the same kind are not delayed.

use crate::deployment::Deployments;
use crate::job::Jobs;
use crate::replicas::Replicas;
use crate::stateful_set::StatefulSets;
use crate::testing::template;
use holdfast_value::{Value, json};
use holdfast_world::views::{ReplicaSet, ReplicationController};
use holdfast_world::{Controller, Trial};

const MANY: i64 = i32::MAX as i64;
/// How many pods one plan creates at most, whatever its controller is.
const PODS_MAX: usize = 500;
/// How many plans the test carries out: enough to plan each object twice.
const STEPS: usize = 6;

/// An object `huge` with the largest numbers in its spec, and an object `small` that needs two pods.
fn pair(kind: &str, api_version: &str, huge: Value, small: Value) -> [Value; 2] {
    [("huge", huge), ("small", small)].map(|(name, spec)| {
        let mut template = template(name, "i");
        template["spec"]["terminationGracePeriodSeconds"] = json!(i64::MAX);
        let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec});
        if kind == "Job" {
            template["spec"]["restartPolicy"] = "Never".into();
        } else {
            let labels = json!({"app": name});
            let is_plain = kind == "ReplicationController";
            object["spec"]["selector"] = if is_plain { labels } else { json!({"matchLabels": labels}) };
        }
        object["spec"]["template"] = template;
        object
    })
}

/// Carries out [`STEPS`] plans; returns how many pods the first and the second object have then.
fn pods_of(controllers: Vec<Box<dyn Controller>>, objects: [Value; 2]) -> [usize; 2] {
    let mut trial = Trial::new();
    controllers.into_iter().for_each(|controller| trial.add(controller));
    for object in objects {
        trial.create(object);
    }
    for _ in 0..STEPS {
        trial.step();
    }
    // A wait of the longest possible length must end at a time that can be represented.
    trial.pass_millis(MANY * 1000);
    for _ in 0..STEPS {
        trial.step();
    }
    let pods = trial.list("pods");
    let of = |name: &str| pods.iter().filter(|pod| pod["metadata"]["labels"]["app"] == name).count();
    [of("huge"), of("small")]
}

/// A kind, its API version, its controllers, a spec with the largest numbers, and a spec with two pods.
type ExtremeCase = (&'static str, &'static str, Vec<Box<dyn Controller>>, (Value, Value));

#[test]
fn the_largest_numbers_keep_nobody_from_small_ones() {
    let replicas = |more: Value| {
        let mut huge = json!({"replicas": MANY, "minReadySeconds": MANY});
        huge.as_object_mut().expect("fields").extend(more.as_object().expect("fields").clone());
        (huge, json!({"replicas": 2}))
    };
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": MANY, "maxUnavailable": "100%"}});
    let limits = json!({"strategy": rolling, "revisionHistoryLimit": MANY, "minReadySeconds": MANY - 1,
        "progressDeadlineSeconds": MANY});
    let members = json!({"serviceName": "s", "podManagementPolicy": "Parallel", "ordinals": {"start": MANY},
        "revisionHistoryLimit": MANY,
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": MANY}}});
    let work = json!({"parallelism": MANY, "completions": MANY, "backoffLimit": MANY,
        "activeDeadlineSeconds": i64::MAX, "ttlSecondsAfterFinished": MANY});
    let indexed = json!({"parallelism": 10_000, "completions": MANY, "completionMode": "Indexed",
        "backoffLimitPerIndex": 100_000, "maxFailedIndexes": 10_000});
    let two = json!({"parallelism": 2, "completions": 2});
    let both = || -> Vec<Box<dyn Controller>> {
        vec![Box::new(Deployments::default()), Box::new(Replicas::<ReplicaSet>::default())]
    };
    let rows: [ExtremeCase; 6] = [
        ("Deployment", "apps/v1", both(), replicas(limits)),
        ("ReplicaSet", "apps/v1", vec![Box::new(Replicas::<ReplicaSet>::default())], replicas(json!({}))),
        (
            "ReplicationController",
            "v1",
            vec![Box::new(Replicas::<ReplicationController>::default())],
            replicas(json!({})),
        ),
        ("StatefulSet", "apps/v1", vec![Box::new(StatefulSets::default())], {
            let (huge, _) = replicas(members);
            (huge, json!({"replicas": 2, "serviceName": "s", "podManagementPolicy": "Parallel"}))
        }),
        ("Job", "batch/v1", vec![Box::new(Jobs::default())], (work, two.clone())),
        ("Job", "batch/v1", vec![Box::new(Jobs::default())], (indexed, two)),
    ];
    for (kind, api_version, controllers, (huge, small)) in rows {
        let [huge, small] = pods_of(controllers, pair(kind, api_version, huge, small));
        assert_eq!(small, 2, "{kind}: others go on");
        assert!((1..=2 * STEPS * PODS_MAX).contains(&huge), "{kind}: {huge} pods");
    }
}
