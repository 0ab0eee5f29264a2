use super::*;
use crate::views::Pod;
use crate::{Action, Verb, View};
use holdfast_value::json;

/// A controller that creates a pod if there is none, and panics if a pod is called `bad`.
struct One;

impl Controller for One {
    fn name(&self) -> &'static str {
        "one-controller"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![Pod::resource().clone()]
    }

    fn begin(&mut self, _: &World, keys: &mut Keys) {
        keys.add(Key::cluster("one"));
    }

    fn concerns(&mut self, _: &World, _: &Change, keys: &mut Keys) {
        keys.add(Key::cluster("one"));
        keys.add(Key::cluster("other"));
    }

    fn plan(&mut self, world: &World, key: &Key, _: Stamp) -> Plan {
        let mut plan = Plan::default();
        assert!(world.all::<Pod>().all(|pod| pod.meta().name != "bad" || *key.name != *"one"), "it is bad");
        if world.all::<Pod>().next().is_none() {
            plan.then(Action::new(Pod::resource(), Key::new("default", ""), Verb::Create(json!({}))));
        }
        plan
    }
}

fn now() -> Time {
    Time::from_second(1_795_255_200)
}

fn driver() -> Driver {
    let mut driver = Driver::new();
    driver.add(Box::new(One), 2, BackOff::default());
    driver
}

fn take(driver: &mut Driver, at: Time) -> Option<String> {
    driver.next_task(|| Stamp { time: at, seed: 0 }).map(|task| task.key.to_string())
}

fn see(driver: &mut Driver, name: &str, version: u64) {
    let bytes = json!({"metadata": {"name": name, "namespace": "default", "uid": name}}).to_string();
    driver.apply(Pod::resource(), Key::new("default", name), Some(bytes.into()), version, now());
    driver.release_written();
}

#[test]
fn nothing_is_planned_before_the_world_is_complete() {
    let mut driver = driver();
    see(&mut driver, "a", 1);
    assert_eq!(take(&mut driver, now()), None);
    driver.complete();
    assert_eq!(take(&mut driver, now()).as_deref(), Some("one"));
}

#[test]
fn a_key_waits_until_the_world_shows_what_was_written_for_it() {
    let mut driver = driver();
    driver.complete();
    assert_eq!(take(&mut driver, now()).as_deref(), Some("one"));
    let (resource, key) = (Pod::resource().clone(), Key::new("default", "a"));
    let written = vec![ActionResult { resource, key, result: WriteResult::Version(7) }];
    driver.finish(0, Key::cluster("one"), TaskOutcome { written, ..TaskOutcome::default() }, now());
    see(&mut driver, "other", 6);
    assert_eq!(take(&mut driver, now()).as_deref(), Some("other"), "another key waits for nothing");
    assert_eq!(take(&mut driver, now()), None);
    see(&mut driver, "a", 7);
    assert_eq!(take(&mut driver, now()).as_deref(), Some("one"));
}

/// A controller that reads as many objects for each key as the number in the key's name.
struct Expensive;

impl Controller for Expensive {
    fn name(&self) -> &'static str {
        "expensive-controller"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![Pod::resource().clone()]
    }

    fn concerns(&mut self, _: &World, change: &Change, keys: &mut Keys) {
        keys.add(change.key.clone());
    }

    fn plan(&mut self, _: &World, key: &Key, _: Stamp) -> Plan {
        work::count(key.name.split('-').next().and_then(|cost| cost.parse().ok()).unwrap_or(0));
        Plan::default()
    }
}

#[test]
fn a_namespace_waits_for_no_more_work_of_another_than_its_own() {
    let mut driver = Driver::new();
    for _ in 0..2 {
        driver.add(Box::new(Expensive), 1000, BackOff::default());
    }
    driver.complete();
    let show = |driver: &mut Driver, namespace: &str, name: String| {
        let bytes = json!({"metadata": {"name": name, "namespace": namespace, "uid": name}}).to_string();
        driver.apply(Pod::resource(), Key::new(namespace, &name), Some(bytes.into()), 1, now());
    };
    (0..500).for_each(|number| show(&mut driver, "many", format!("0-{number}")));
    (0..100).for_each(|number| show(&mut driver, "expensive", format!("100000-{number}")));
    let next = |driver: &mut Driver| {
        let task = driver.next_task(|| Stamp { time: now(), seed: 0 }).expect("a key");
        driver.finish(task.controller_index, task.key.clone(), TaskOutcome::default(), now());
        task
    };
    // The keys of the namespace `many` are cheap. They wait for only one plan of the namespace `expensive`.
    let first: Vec<u64> = (0..1001).map(|_| next(&mut driver).work).collect();
    assert_eq!(first.iter().filter(|work| **work > 1000).count(), 1);
    // A namespace that gets its first keys later has the next turn. It has saved up no further turns from the time
    // before.
    show(&mut driver, "late", "0-a".into());
    let late: Vec<Task> = (0..2).map(|_| next(&mut driver)).collect();
    assert!(late.iter().all(|task| &*task.key.namespace == "late" && task.waited_ms == 0));
    assert_eq!(
        (late[0].controller_index + late[1].controller_index, &*next(&mut driver).key.namespace),
        (1, "expensive")
    );
}

fn show(driver: &mut Driver, namespace: &str, name: &str, version: u64) {
    let bytes = json!({"metadata": {"name": name, "namespace": namespace, "uid": name}}).to_string();
    driver.apply(Pod::resource(), Key::new(namespace, name), Some(bytes.into()), version, now());
}

#[test]
fn an_expensive_plan_is_made_in_the_background_and_its_controller_misses_no_change() {
    let stamp = || Stamp { time: now(), seed: 0 };
    let mut driver = Driver::new();
    for _ in 0..2 {
        driver.add(Box::new(Expensive), 1000, BackOff::default());
    }
    driver.complete();
    let rest = |driver: &mut Driver| {
        while let Some(task) = driver.next_task(stamp) {
            driver.finish(task.controller_index, task.key, TaskOutcome::default(), now());
        }
    };
    show(&mut driver, "a", "100000", 1);
    // The first plan of the key is made in the foreground, because the driver records only after it that the key is
    // expensive.
    rest(&mut driver);
    show(&mut driver, "a", "100000", 2);
    assert!(!driver.has_next(0, now()) && driver.has_next(1, now()));
    assert!(driver.next_plan(stamp, 0).is_none());
    let Some(NextPlan::Background(background_plan)) = driver.next_plan(stamp, 1) else { panic!("it is expensive") };
    let (away, other) = (background_plan.controller_index, 1 - background_plan.controller_index);
    assert!(driver.is_in_background(away) && !driver.is_in_background(other));
    show(&mut driver, "b", "1", 3);
    let Some(NextPlan::Task(task)) = driver.next_plan(stamp, 0) else { panic!("the other controller goes on") };
    assert_eq!((task.controller_index, task.key.to_string()), (other, "b/1".into()));
    driver.finish(task.controller_index, task.key, TaskOutcome::default(), now());
    assert!(driver.next_plan(stamp, 0).is_none(), "the other plan is as expensive");
    let task = driver.finish_background(background_plan.run(), now()).expect("a plan");
    assert!(task.controller_index == away && task.work > 100_000);
    driver.finish(task.controller_index, task.key, TaskOutcome::default(), now());
    let task = driver.next_task(stamp).expect("what it missed");
    assert_eq!((task.controller_index, task.key.to_string()), (away, "b/1".into()));
}

#[test]
fn a_plan_is_bounded_by_the_work_that_it_may_be() {
    let mut driver = Driver::new();
    driver.add(Box::new(Expensive), 1, BackOff::default());
    driver.complete();
    show(&mut driver, "a", "1000000000000", 1);
    let task = driver.next_task(|| Stamp { time: now(), seed: 0 }).expect("a plan");
    assert!(task.plan.unready && task.plan.steps.is_empty());
    assert_eq!(task.plan.skipped, ["to plan it takes more work than 4000000 looks at objects"]);
}

#[test]
fn the_workers_of_a_namespace_are_its_own() {
    let mut driver = Driver::new();
    driver.add(Box::new(Expensive), 2, BackOff::default());
    driver.complete();
    for (namespace, name) in [("a", "1"), ("a", "2"), ("a", "3"), ("b", "1")] {
        let bytes = json!({"metadata": {"name": name, "namespace": namespace, "uid": name}}).to_string();
        driver.apply(Pod::resource(), Key::new(namespace, name), Some(bytes.into()), 1, now());
    }
    let mut taken: Vec<_> = (0..4).map(|_| take(&mut driver, now())).collect();
    taken.sort();
    assert_eq!(taken, [None, Some("a/1".into()), Some("a/2".into()), Some("b/1".into())]);
    assert!(!driver.has_next(1, now()));
    driver.finish(0, Key::new("a", "2"), TaskOutcome::default(), now());
    assert!(driver.has_next(1, now()));
    assert_eq!(take(&mut driver, now()).as_deref(), Some("a/3"));
}

#[test]
fn what_is_not_shown_is_not_waited_for() {
    let mut driver = driver();
    driver.complete();
    take(&mut driver, now());
    let resource = Resource::new("", "v1", "secrets", "Secret", true);
    let written = vec![ActionResult { resource, key: Key::new("default", "a"), result: WriteResult::Version(7) }];
    driver.finish(0, Key::cluster("one"), TaskOutcome { written, ..TaskOutcome::default() }, now());
    see(&mut driver, "a", 1);
    assert_eq!(take(&mut driver, now()).as_deref(), Some("one"));
}

#[test]
fn a_deletion_is_awaited_by_the_uid() {
    let mut driver = driver();
    driver.complete();
    see(&mut driver, "a", 1);
    take(&mut driver, now());
    let (resource, key) = (Pod::resource().clone(), Key::new("default", "a"));
    let written =
        vec![ActionResult { resource: resource.clone(), key: key.clone(), result: WriteResult::Gone("a".into()) }];
    driver.finish(0, Key::cluster("one"), TaskOutcome { written, ..TaskOutcome::default() }, now());
    assert_eq!(take(&mut driver, now()).as_deref(), Some("other"));
    assert_eq!(take(&mut driver, now()), None);
    driver.apply(&resource, key, None, 2, now());
    driver.release_written();
    assert_eq!(take(&mut driver, now()).as_deref(), Some("one"));
}

#[test]
fn a_panic_fails_its_key_alone_and_is_tried_again_later() {
    let mut driver = driver();
    driver.complete();
    see(&mut driver, "bad", 1);
    assert_eq!(take(&mut driver, now()).as_deref(), Some("other"));
    driver.finish(0, Key::cluster("other"), TaskOutcome::default(), now());
    assert_eq!(driver.next_time(), Some(now().plus_millis(5)));
    driver.apply(Pod::resource(), Key::new("default", "bad"), None, 2, now());
    driver.release_written();
    assert!(take(&mut driver, now().plus_millis(5)).is_some());
}

#[test]
fn a_list_tells_what_has_come_and_what_has_gone() {
    let mut driver = driver();
    driver.complete();
    see(&mut driver, "a", 1);
    let object = |name: &str| {
        let bytes = json!({"metadata": {"name": name, "namespace": "default", "uid": name}}).to_string();
        (Key::new("default", name), bytes.into(), 5)
    };
    driver.replace(Pod::resource(), vec![object("b")], 5, now());
    let names: Vec<&str> = driver.world().all::<Pod>().map(|pod| pod.meta().name.as_str()).collect();
    assert_eq!(names, ["b"]);
    assert!(driver.world().by_uid("a").is_none());
    assert_eq!(driver.world().version(Pod::resource()), 5);
}
