//! Carries out the plans for flow control objects on a state in memory, until a new plan has no steps.

use holdfast_core::apply::apply;
use holdfast_core::authz::{PRIVILEGED_GROUP, User};
use holdfast_core::event::{Operation, Record};
use holdfast_core::flowcontrol::{Configuration, upkeep};
use holdfast_core::kinds::registry;
use holdfast_core::pipeline::{self, Basis, Decision, Settings};
use holdfast_core::refusal::Refusal;
use holdfast_core::request::{Body, Format, Options, Request, Target, Verb};
use holdfast_core::stamp::Stamp;
use holdfast_core::state::{Change, State};
use holdfast_value::{Value, json};
use jiff::Timestamp;
use std::sync::Arc;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const ANNOTATION: &str = "/metadata/annotations/apf.kubernetes.io~1autoupdate-spec";

struct World {
    state: State,
    commands: u64,
}

impl World {
    fn new() -> World {
        World { state: State::new(Arc::new(registry().clone())), commands: 0 }
    }

    fn stamp(&self) -> Stamp {
        let time = Timestamp::from_second(1_795_000_000 + self.commands as i64).unwrap();
        Stamp { time, seed: self.commands }
    }

    fn carry_out(&mut self, request: &Request) -> Result<(), Refusal> {
        self.commands += 1;
        let settings = Settings::default();
        let basis = Basis::without_authorization(&self.state, &settings);
        let Decision { writes, .. } = pipeline::decide(basis, request, self.stamp())?;
        for write in writes {
            let offset = self.state.offset.next();
            let record = Record {
                offset: offset.0,
                time_ms: 0,
                resource: self.state.kind(write.kind).storage.path.clone(),
                key: write.key.to_string(),
                replaces: write.expect.map_or(0, |offset| offset.0),
                operation: if write.delete { Operation::Delete } else { Operation::Put } as i32,
                actor: pipeline::actor(request),
                object: write.draft.seal(offset),
            };
            let change = Change::from_record(&self.state.registry, &record).unwrap();
            apply(&mut self.state, &change);
        }
        Ok(())
    }

    /// Carries out plans until a plan has no steps. Returns the number of steps.
    fn settle(&mut self) -> usize {
        let mut count = 0;
        for _ in 0..4 {
            let steps = upkeep::plan(&self.state, self.stamp());
            if steps.is_empty() {
                return count;
            }
            for step in steps {
                count += 1;
                self.carry_out(&step.request).unwrap_or_else(|refusal| panic!("{:?}: {refusal:?}", step.request));
            }
        }
        panic!("there is always something left to do");
    }

    fn target(&self, resource: &str, name: Option<&str>) -> Target {
        let (kind, version) = self.state.registry.find(GROUP, "v1", resource).unwrap();
        Target { kind, version, namespace: None, name: name.map(str::to_owned), subresource: None }
    }

    fn send(&mut self, verb: Verb, resource: &str, name: Option<&str>, body: Value) -> Result<(), Refusal> {
        let format = if verb == Verb::Patch { Format::MergePatch } else { Format::Json };
        let body = Body { content: if body.is_null() { Default::default() } else { body.to_string().into() }, format };
        let user = Arc::new(User::new("admin", &[PRIVILEGED_GROUP]));
        let target = self.target(resource, name);
        self.carry_out(&Request { user, verb, target, options: Options::default(), body, id: "one".into() })
    }

    fn patch(&mut self, resource: &str, name: &str, body: Value) {
        self.send(Verb::Patch, resource, Some(name), body).unwrap();
    }

    fn find(&self, resource: &str, name: &str) -> Option<Value> {
        let target = self.target(resource, None);
        self.state.get(target.kind, name).map(|entry| entry.document())
    }

    fn dangling(&self, name: &str) -> Value {
        self.find("flowschemas", name).unwrap()["status"]["conditions"][0].clone()
    }
}

const SCHEMAS: &str = "flowschemas";
const LEVELS: &str = "prioritylevelconfigurations";

#[test]
fn a_fresh_server_makes_all_and_says_that_they_are_there() {
    let mut world = World::new();
    // The steps create 8 priority levels and 11 flow schemas, and write the status of each flow schema.
    assert_eq!(world.settle(), 8 + 11 + 11);
    let condition = world.dangling("probes");
    assert_eq!(
        (&condition["type"], &condition["status"], &condition["reason"]),
        (&json!("Dangling"), &json!("False"), &json!("Found"))
    );
    let message = "This FlowSchema references the PriorityLevelConfiguration object named \"exempt\" and it exists";
    assert_eq!(condition["message"], message);
    let managers = world.find(SCHEMAS, "probes").unwrap()["metadata"]["managedFields"].clone();
    let managers: Vec<&str> = managers.as_array().unwrap().iter().filter_map(|one| one["manager"].as_str()).collect();
    assert_eq!(
        managers,
        ["api-priority-and-fairness-config-consumer-v1", "api-priority-and-fairness-config-producer-v1"]
    );
    // The configuration that the server has stored equals the built-in configuration, apart from UIDs.
    let (stored, built_in) = (Configuration::of(&world.state), Configuration::built_in());
    for (level, known) in stored.levels.values().zip(built_in.levels.values()) {
        assert_eq!((&level.name, level.shares, level.queuing), (&known.name, known.shares, known.queuing));
        assert!(!level.uid.is_empty());
    }
    let names = |configuration: &Configuration| {
        configuration.schemas.iter().map(|schema| schema.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&stored), names(&built_in));
}

#[test]
fn who_keeps_an_object_up_to_date() {
    let mut world = World::new();
    world.settle();
    // If the annotation is `true`, the server sets its own values again.
    world.patch(LEVELS, "workload-low", json!({"spec": {"limited": {"nominalConcurrencyShares": 7}}}));
    assert_eq!(world.settle(), 1);
    assert_eq!(world.find(LEVELS, "workload-low").unwrap()["spec"]["limited"]["nominalConcurrencyShares"], 100);
    // If the annotation is `false`, the values of the operator stay.
    let mine = json!({"metadata": {"annotations": {"apf.kubernetes.io/autoupdate-spec": "false"}},
        "spec": {"limited": {"nominalConcurrencyShares": 7}}});
    world.patch(LEVELS, "workload-low", mine);
    assert_eq!(world.settle(), 0);
    // Without the annotation, the server updates the object only if the server itself wrote its spec last. It records
    // the result in the annotation.
    for (name, shares) in
        [("workload-high", json!({})), ("system", json!({"limited": {"nominalConcurrencyShares": 7}}))]
    {
        let object = world.find(LEVELS, name).unwrap();
        assert_eq!(object["metadata"]["generation"], 1);
        world.patch(LEVELS, name, json!({"metadata": {"annotations": null}, "spec": shares}));
    }
    assert_eq!(world.settle(), 2);
    let annotation = |world: &World, name: &str| world.find(LEVELS, name).unwrap().pointer(ANNOTATION).cloned();
    assert_eq!(annotation(&world, "workload-high"), Some(json!("true")));
    assert_eq!(annotation(&world, "system"), Some(json!("false")));
    assert_eq!(world.find(LEVELS, "system").unwrap()["spec"]["limited"]["nominalConcurrencyShares"], 7);
    // The server restores mandatory objects, whatever their annotation is. Only the share of seats that the level
    // `exempt` lends may be changed.
    let mine = json!({"metadata": {"annotations": {"apf.kubernetes.io/autoupdate-spec": "false"}},
        "spec": {"exempt": {"lendablePercent": 40}}});
    world.patch(LEVELS, "exempt", mine);
    assert_eq!(world.settle(), 1);
    let exempt = world.find(LEVELS, "exempt").unwrap();
    assert_eq!(
        (&exempt["spec"]["exempt"]["lendablePercent"], exempt.pointer(ANNOTATION)),
        (&json!(40), Some(&json!("true")))
    );
    // The server creates deleted objects again. It deletes an object that it created in an older release and no longer
    // needs.
    world.send(Verb::Delete, SCHEMAS, Some("catch-all"), Value::Null).unwrap();
    world.send(Verb::Delete, SCHEMAS, Some("probes"), Value::Null).unwrap();
    let old = json!({"metadata": {"name": "old", "annotations": {"apf.kubernetes.io/autoupdate-spec": "true"}},
        "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}});
    world.send(Verb::Create, LEVELS, None, old.clone()).unwrap();
    let mut mine = old;
    mine["metadata"] = json!({"name": "mine"});
    world.send(Verb::Create, LEVELS, None, mine).unwrap();
    assert_eq!(world.settle(), 2 + 1 + 2);
    assert!(world.find(SCHEMAS, "catch-all").is_some() && world.find(SCHEMAS, "probes").is_some());
    assert!(world.find(LEVELS, "old").is_none() && world.find(LEVELS, "mine").is_some());
}

#[test]
fn a_schema_says_whether_its_level_is_there() {
    let mut world = World::new();
    world.settle();
    let schema = json!({"metadata": {"name": "mine"}, "spec": {"priorityLevelConfiguration": {"name": "later"}}});
    world.send(Verb::Create, SCHEMAS, None, schema).unwrap();
    assert_eq!(world.settle(), 1);
    let condition = world.dangling("mine");
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("True"), &json!("NotFound")));
    let message =
        "This FlowSchema references the PriorityLevelConfiguration object named \"later\" but there is no such object";
    assert_eq!(condition["message"], message);
    // The priority level of the flow schema does not exist yet, so no request belongs to the flow schema.
    let has = |world: &World| Configuration::of(&world.state).schemas.iter().any(|schema| schema.name == "mine");
    assert!(!has(&world));
    let level = json!({"metadata": {"name": "later"}, "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}});
    world.send(Verb::Create, LEVELS, None, level).unwrap();
    assert_eq!(world.settle(), 1);
    let found = world.dangling("mine");
    assert_eq!(found["status"], "False");
    assert_ne!(found["lastTransitionTime"], condition["lastTransitionTime"]);
    assert!(has(&world));
    // The flow schema names another existing level, so its condition stays the same and its transition time does not
    // change.
    world.patch(SCHEMAS, "mine", json!({"spec": {"priorityLevelConfiguration": {"name": "system"}}}));
    assert_eq!(world.settle(), 1);
    assert_eq!(world.dangling("mine")["lastTransitionTime"], found["lastTransitionTime"]);
}

#[test]
fn what_a_server_cannot_do_without_is_there_in_any_case() {
    let mut world = World::new();
    let levels = |world: &World| Configuration::of(&world.state).levels.into_keys().collect::<Vec<_>>();
    // While no objects are stored, the server uses the configuration that results from the objects that it will create.
    assert_eq!(levels(&world).len(), 8);
    let schema = json!({"metadata": {"name": "mine"}, "spec": {"priorityLevelConfiguration": {"name": "later"}}});
    world.send(Verb::Create, SCHEMAS, None, schema).unwrap();
    assert_eq!(levels(&world), ["catch-all", "exempt"]);
    let schemas = Configuration::of(&world.state).schemas;
    assert_eq!(schemas.iter().map(|schema| &*schema.name).collect::<Vec<_>>(), ["exempt", "catch-all"]);
}
