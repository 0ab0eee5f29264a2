//! A tap returns all changes that are committed after a snapshot, once and in order, or reports that there were too
//! many.

use super::stage::{Stage, at_once, create, delete, patch, set};
use holdfast_engine::memory::MemoryLog;
use holdfast_engine::{Tap, TapOutput};
use holdfast_value::json;
use std::sync::Arc;

/// The keys of the changes with their versions, and the offset up to which the tap has returned changes.
fn told(tap: &mut Tap) -> String {
    match at_once(tap.next()) {
        TapOutput::Changes { changes, through, .. } => {
            let told: Vec<String> = changes.iter().map(|change| format!("{}@{}", change.key, change.offset)).collect();
            format!("{} through {through}", told.join(" "))
        }
        TapOutput::Behind => "behind".to_owned(),
    }
}

fn map(stage: &mut Stage, name: &str) {
    stage.must(&create("configmaps", "default", json!({"metadata": {"name": name}})));
}

#[test]
fn what_is_committed_after_the_snapshot_is_told_once() {
    let mut stage = Stage::new(Arc::new(MemoryLog::default()));
    map(&mut stage, "before");
    let mut tap = Tap::new(&stage.engine);
    let began = tap.begin().offset.0;
    map(&mut stage, "a");
    map(&mut stage, "b");
    let expected = format!("default/a@{} default/b@{} through {}", began + 1, began + 2, began + 2);
    assert_eq!(told(&mut tap), expected);
    map(&mut stage, "c");
    assert_eq!(told(&mut tap), format!("default/c@{} through {}", began + 3, began + 3));
}

#[test]
fn that_an_object_goes_is_not_told_where_it_is_gone_at_once() {
    let mut stage = Stage::new(Arc::new(MemoryLog::default()));
    let container = json!({"name": "c", "image": "i"});
    let pod = |name: &str, seconds: u32| {
        let spec =
            json!({"nodeName": "n", "terminationGracePeriodSeconds": seconds, "containers": [container.clone()]});
        create("pods", "default", json!({"metadata": {"name": name}, "spec": spec}))
    };
    map(&mut stage, "map");
    stage.must(&pod("slow", 30));
    stage.must(&pod("quick", 0));
    let mut tap = Tap::new(&stage.engine);
    let began = tap.begin().offset.0;
    stage.must(&delete("pods", "default", "slow"));
    assert_eq!(told(&mut tap), format!("default/slow@{} through {}", began + 1, began + 1));
    // The tap omits the event before the removal, which marks the pod as being deleted.
    stage.must(&delete("pods", "default", "quick"));
    assert_eq!(told(&mut tap), format!("default/quick@{} through {}", began + 3, began + 3));
    stage.must(&set("map", "changed"));
    stage.must(&delete("configmaps", "default", "map"));
    assert_eq!(told(&mut tap), format!("default/map@{} default/map@{} through {}", began + 4, began + 5, began + 5));
}

#[test]
fn one_that_falls_behind_is_told_so_and_holds_nothing() {
    let mut stage = Stage::new(Arc::new(MemoryLog::default()));
    let mut slow = Tap::new(&stage.engine);
    let body = json!({"metadata": {"name": "big"}, "data": {"text": "x".repeat(900_000)}});
    stage.must(&create("configmaps", "default", body));
    for number in 0..90 {
        let text = format!("{number}{}", "x".repeat(900_000));
        stage.must(&patch("configmaps", "default", "big", json!({"data": {"text": text}})));
    }
    assert_eq!(told(&mut slow), "behind");
    assert_eq!(told(&mut slow), "behind", "for ever after");
    let mut again = Tap::new(&stage.engine);
    map(&mut stage, "a");
    assert!(told(&mut again).starts_with("default/a@"));
}
