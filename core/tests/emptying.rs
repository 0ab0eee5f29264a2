//! Tests the deletion of namespaces, of definitions and of old Events: in which order objects are deleted, and how
//! often they are read for it.

#[path = "custom_resources/world.rs"]
#[allow(dead_code)]
mod world;

use holdfast_core::expiry;
use holdfast_core::namespace::Emptying;
use holdfast_core::pipeline::Clearing;
use holdfast_core::request::{Format, Verb};
use holdfast_core::stamp::Stamp;
use holdfast_value::{Value, json};
use std::time::Duration;
use world::{DEFINITIONS, World};

const SHOP: &str = "/api/v1/namespaces/shop";

struct House {
    world: World,
    emptying: Emptying,
    now_ms: i64,
}

impl House {
    /// A cluster with a terminating namespace that contains this many ConfigMaps. If `held` is true, half of them have
    /// a finalizer.
    fn new(config_maps: usize, held: bool) -> House {
        let mut world = World::new();
        for number in 0..config_maps {
            let finalizers = if held && number % 2 == 0 { json!(["example.com/hold"]) } else { json!([]) };
            let body = json!({"metadata": {"name": format!("c{number:05}"), "finalizers": finalizers}});
            world.create(&format!("{SHOP}/configmaps"), &body).expect("a ConfigMap");
        }
        House { world, emptying: Emptying::default(), now_ms: 1_800_000_000_000 }
    }

    fn go(mut self) -> House {
        self.world.delete(SHOP).expect("a deletion");
        self
    }

    /// Plans steps and carries them out until there are none. Returns the number of steps.
    fn tidy(&mut self) -> usize {
        let mut made = 0;
        for _ in 0..1000 {
            let time = jiff::Timestamp::from_millisecond(self.now_ms).expect("a time");
            let plan = self.emptying.plan(&self.world.state, Stamp { time, seed: 1 });
            if plan.steps.is_empty() && plan.again_ms.is_none_or(|again_ms| again_ms > self.now_ms) {
                return made;
            }
            made += plan.steps.len();
            for step in plan.steps {
                self.world.submit(&step.request).expect("a step that is possible");
            }
        }
        panic!("never ends");
    }

    fn condition(&self, ty: &str) -> Value {
        let namespace = self.world.get(SHOP).expect("the namespace");
        let conditions = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == ty).unwrap_or_default()
    }
}

#[test]
fn a_big_namespace_is_gone_through_once() {
    const COUNT: usize = 2500;
    let mut house = House::new(COUNT, false).go();
    house.tidy();
    assert!(house.world.get(SHOP).is_err(), "the namespace is gone");
    assert!(house.emptying.looked_at <= COUNT, "{} looks at {COUNT} objects", house.emptying.looked_at);
}

#[test]
fn nothing_is_looked_at_while_no_namespace_goes() {
    let mut house = House::new(20, false);
    assert_eq!((house.tidy(), house.emptying.looked_at), (0, 0));
}

/// Removing the finalizer of an object is a commit, and a new plan is made after each commit. The plans must not read
/// all objects with finalizers again.
#[test]
fn what_is_held_is_not_looked_at_after_every_commit() {
    const COUNT: usize = 400;
    let mut house = House::new(COUNT, true).go();
    house.tidy();
    let message = &house.condition("NamespaceContentRemaining")["message"];
    assert_eq!(message, "Some resources are remaining: configmaps. has 200 resource instances");
    let before = house.emptying.looked_at;
    assert!(before <= 2 * COUNT, "{before} looks at {COUNT} objects");
    let release = json!({"metadata": {"finalizers": null}});
    let names: Vec<String> = (0..COUNT).step_by(2).map(|number| format!("c{number:05}")).collect();
    let (last, others) = names.split_last().expect("some are held");
    for name in others {
        house.world.merge(&format!("{SHOP}/configmaps/{name}"), &release).expect("a release");
        assert_eq!(house.tidy(), 0);
    }
    assert_eq!(house.emptying.looked_at, before);
    // After a while, the namespace's conditions report what is still in the namespace.
    house.now_ms += 60_000;
    assert_eq!(house.tidy(), 1);
    let message = &house.condition("NamespaceContentRemaining")["message"];
    assert_eq!(message, "Some resources are remaining: configmaps. has 1 resource instances");
    // When the last object is released, the namespace is deleted at once, after its conditions were updated.
    house.world.merge(&format!("{SHOP}/configmaps/{last}"), &release).expect("a release");
    assert_eq!(house.tidy(), 2);
    assert!(house.world.get(SHOP).is_err());
}

#[test]
fn pods_go_before_what_they_use() {
    let mut house = House::new(1, false);
    for (name, finalizers) in [("free", json!([])), ("held", json!(["example.com/hold"]))] {
        let pod = json!({
            "metadata": {"name": name, "finalizers": finalizers},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        });
        house.world.create(&format!("{SHOP}/pods"), &pod).expect("a pod");
    }
    let mut house = house.go();
    house.tidy();
    assert!(house.world.get(&format!("{SHOP}/pods/free")).is_err());
    let config_map = house.world.get(&format!("{SHOP}/configmaps/c00000")).expect("it stays for the pod");
    assert_eq!(config_map["metadata"].get("deletionTimestamp"), None);
    let said = |ty: &str| {
        let condition = house.condition(ty);
        ["status", "reason", "message"].map(|field| condition[field].as_str().unwrap_or("none").to_owned())
    };
    let rows = [
        (
            "NamespaceDeletionContentFailure",
            ["False", "ContentDeleted", "All content successfully deleted, may be waiting on finalization"],
        ),
        // While there are pods, nothing that remains is counted, not even the pods.
        ("NamespaceContentRemaining", ["False", "ContentRemoved", "All content successfully removed"]),
        (
            "NamespaceFinalizersRemaining",
            ["False", "ContentHasNoFinalizers", "All content-preserving finalizers finished"],
        ),
    ];
    for (ty, expected) in rows {
        assert_eq!(said(ty), expected, "{ty}");
    }
    let release = json!({"metadata": {"finalizers": null}});
    house.world.merge(&format!("{SHOP}/pods/held"), &release).expect("a release");
    house.tidy();
    assert!(house.world.get(SHOP).is_err());
}

/// If the deletion of an object is refused, the namespace cannot be deleted either. Its conditions then have the
/// reason.
#[test]
fn deletions_that_are_refused_are_told() {
    let mut house = House::new(3, false).go();
    let refuse = |house: &mut House, is_refused: bool| {
        for _ in 0..4 {
            let time = jiff::Timestamp::from_millisecond(house.now_ms).expect("a time");
            for step in house.emptying.plan(&house.world.state, Stamp { time, seed: 1 }).steps {
                let target = step.request.target.clone();
                if is_refused && target.name.as_deref() == Some("c00001") {
                    house.emptying.refused("shop", target.kind, "configmaps \"c00001\" is forbidden: no".into());
                } else {
                    house.world.submit(&step.request).expect("a step that is possible");
                }
            }
        }
        house.now_ms += 60_000;
    };
    for _ in 0..2 {
        refuse(&mut house, true);
        let failure = house.condition("NamespaceDeletionContentFailure");
        assert_eq!(failure["reason"], "ContentDeletionFailed");
        let message = "Failed to delete all resource types, 1 remaining: configmaps \"c00001\" is forbidden: no";
        assert_eq!(failure["message"], message);
        assert_eq!(house.condition("NamespaceContentRemaining")["reason"], "ContentRemoved");
    }
    refuse(&mut house, false);
    assert!(house.world.get(SHOP).is_err(), "{}", house.world.get(SHOP).expect("a namespace"));
}

/// A namespace that is empty, but has a finalizer of another program, reports that it is empty.
#[test]
fn an_empty_namespace_that_is_held_says_so() {
    let mut house = House::new(0, false);
    let more = json!({"metadata": {"name": "shop"}, "spec": {"finalizers": ["kubernetes", "example.com/more"]}});
    let body = more.to_string().into_bytes();
    let mut request = house.world.request(Verb::Update, SHOP, Format::Json, body).expect("a path");
    request.target.subresource = Some("finalize".into());
    house.world.submit(&request).expect("another finalizer");
    let mut house = house.go();
    house.tidy();
    let remaining = house.condition("NamespaceContentRemaining");
    assert_eq!(remaining["reason"], "ContentRemoved");
    let held = house.condition("NamespaceFinalizersRemaining");
    assert_eq!(held["message"], "All content-preserving finalizers finished");
    let namespace = house.world.get(SHOP).expect("it is held");
    assert_eq!(namespace["spec"]["finalizers"], json!(["example.com/more"]));
}

/// After a client deletes a namespace, the server waits for a while before it empties the namespace, so that the client
/// can do it. The server does not wait if a client waits for the end of the namespace.
#[test]
fn a_namespace_is_left_alone_for_a_while() {
    const GRACE: Duration = Duration::from_secs(2);
    let patient = |objects: usize| House { emptying: Emptying::after(GRACE), ..House::new(objects, false) }.go();

    let mut house = patient(3);
    assert_eq!(house.tidy(), 0);
    house.now_ms += 1_999;
    assert_eq!((house.tidy(), house.emptying.looked_at), (0, 0));
    assert_eq!(house.emptying.left_alone().map(|name| &**name).collect::<Vec<_>>(), ["shop"]);
    house.now_ms += 1;
    house.tidy();
    assert!(house.world.get(SHOP).is_err());

    let mut house = patient(3);
    house.tidy();
    house.emptying.hurry("other");
    assert_eq!(house.tidy(), 0);
    house.emptying.hurry("shop");
    house.tidy();
    assert!(house.world.get(SHOP).is_err());

    // A namespace that is deleted a second time, after it was created again, has a waiting time of its own.
    let mut house = patient(0);
    house.tidy();
    house.now_ms += 1_500;
    finalize(&mut house);
    assert!(house.world.get(SHOP).is_err());
    assert_eq!((house.tidy(), house.emptying.left_alone().count()), (0, 0));
    let body = json!({"metadata": {"name": "shop"}});
    house.world.create("/api/v1/namespaces", &body).expect("a namespace");
    let mut house = house.go();
    house.tidy();
    house.now_ms += 1_999;
    assert_eq!(house.tidy(), 0);
    assert!(house.world.get(SHOP).is_ok());
}

/// Removes the namespace's finalizers through the subresource `finalize`, as test suites do.
fn finalize(house: &mut House) {
    let body = json!({"metadata": {"name": "shop"}, "spec": {"finalizers": []}}).to_string().into_bytes();
    let mut request = house.world.request(Verb::Update, SHOP, Format::Json, body).expect("a path");
    request.target.subresource = Some("finalize".into());
    house.world.submit(&request).expect("an end");
}

const WIDGETS: &str = "/apis/shop.example.com/v1/namespaces/shop/widgets";

fn tidy_definitions(world: &mut World, clearing: &mut Clearing, now_ms: i64) -> usize {
    let mut made = 0;
    for _ in 0..1000 {
        let time = jiff::Timestamp::from_millisecond(now_ms).expect("a time");
        let plan = clearing.plan(&world.state, Stamp { time, seed: 1 });
        if plan.steps.is_empty() && plan.again_ms.is_none_or(|again_ms| again_ms > now_ms) {
            return made;
        }
        made += plan.steps.len();
        for step in plan.steps {
            world.submit(&step.request).expect("a step that is possible");
        }
    }
    panic!("never ends");
}

/// Removing the finalizer of an object is a commit, and a new plan is made after each commit. The plans must not read
/// all objects with finalizers again.
#[test]
fn objects_that_hold_up_their_definition_are_not_looked_at_after_every_commit() {
    const COUNT: usize = 1200;
    let mut world = World::new();
    let version = json!({
        "name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
    });
    let names = json!({"plural": "widgets", "kind": "Widget"});
    let spec = json!({"group": "shop.example.com", "scope": "Namespaced", "names": names, "versions": [version]});
    let name = "widgets.shop.example.com";
    world.create(DEFINITIONS, &json!({"metadata": {"name": name}, "spec": spec})).expect("a definition");
    for number in 0..COUNT {
        let finalizers = if number % 2 == 0 { json!(["example.com/hold"]) } else { json!([]) };
        let metadata = json!({"name": format!("w{number:05}"), "finalizers": finalizers});
        let widget = json!({"apiVersion": "shop.example.com/v1", "kind": "Widget", "metadata": metadata});
        world.create(WIDGETS, &widget).expect("a widget");
    }
    let (mut clearing, now_ms) = (Clearing::default(), 1_800_000_000_000);
    assert_eq!((tidy_definitions(&mut world, &mut clearing, now_ms), clearing.looked_at), (0, 0));
    let path = format!("{DEFINITIONS}/{name}");
    world.delete(&path).expect("a deletion");
    // The deletion of every object is requested. One more step reports in the status that some objects wait for
    // finalizers.
    assert_eq!(tidy_definitions(&mut world, &mut clearing, now_ms), COUNT + 1);
    let before = clearing.looked_at;
    assert!(before <= 2 * COUNT, "{before} looks at {COUNT} objects");
    let release = json!({"metadata": {"finalizers": null}});
    for number in (2..COUNT).step_by(2) {
        world.merge(&format!("{WIDGETS}/w{number:05}"), &release).expect("a release");
        assert_eq!(tidy_definitions(&mut world, &mut clearing, now_ms), 0);
    }
    assert_eq!(clearing.looked_at, before);
    assert_eq!(tidy_definitions(&mut world, &mut clearing, now_ms + 60_000), 0);
    assert_eq!(clearing.looked_at, before + 1);
    // When the last object is released, the definition is deleted at once.
    world.merge(&format!("{WIDGETS}/w00000"), &release).expect("a release");
    assert_eq!(tidy_definitions(&mut world, &mut clearing, now_ms + 60_000), 1);
    assert!(world.get(&path).is_err());
}

#[test]
fn events_go_in_the_order_of_their_last_change() {
    let mut world = World::new();
    const EVENTS: &str = "/api/v1/namespaces/shop/events";
    for number in 0..600 {
        let involved = json!({"kind": "Pod", "name": "p", "namespace": "shop"});
        let event = json!({"metadata": {"name": format!("e{:03}", 599 - number)}, "involvedObject": involved});
        world.create(EVENTS, &event).expect("an event");
    }
    world.merge(&format!("{EVENTS}/e599"), &json!({"count": 2})).expect("a change");
    world.delete(&format!("{EVENTS}/e598")).expect("a deletion");
    let time_of = |world: &World, name: &str| {
        let state = &world.state;
        let (events, _) = state.registry.iter().find(|(_, kind)| kind.deletion.expires).expect("events");
        state.get(events, &format!("shop/{name}")).expect("an event").time_ms
    };
    let ttl = Duration::from_secs(3600);
    let at = |name: &str| time_of(&world, name) + 3_600_000;
    let names =
        |due: &expiry::Due| -> Vec<String> { due.steps.iter().map(|step| step.request.name().to_owned()).collect() };
    assert_eq!(names(&expiry::plan(&world.state, ttl, at("e597") - 1, None)), Vec::<String>::new());
    assert_eq!(names(&expiry::plan(&world.state, ttl, at("e596"), None)), ["e597", "e596"]);
    let first = expiry::plan(&world.state, ttl, at("e599"), None);
    let second = expiry::plan(&world.state, ttl, at("e599"), first.rest);
    assert_eq!((first.steps.len(), second.steps.len(), second.rest), (512, 87, None));
    assert_eq!(names(&second).last().map(String::as_str), Some("e599"));
    for step in first.steps.iter().chain(&second.steps) {
        world.submit(&step.request).expect("nothing has changed since");
    }
    assert_eq!(expiry::plan(&world.state, ttl, i64::MAX, None).steps.len(), 0);
}
