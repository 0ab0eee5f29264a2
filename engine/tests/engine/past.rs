//! Reads of what was: exact versions, and pages of one snapshot while writes go on.

use super::stage::{Stage, at_once, config_map, create, delete, everything, patch, selection, set};
use holdfast_core::Refusal;
use holdfast_core::event::Offset;
use holdfast_core::list::{Continue, Freshness, TokenKey, page};
use holdfast_core::state::State;
use holdfast_engine::Engine;
use holdfast_engine::memory::MemoryLog;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A little history in which objects come, change, go and come again; the state after each event.
fn history(stage: &mut Stage) -> Vec<Arc<State>> {
    let service = |name: &str, address: &str| {
        create(
            "services",
            "default",
            json!({"metadata": {"name": name}, "spec": {"clusterIP": address, "ports": [{"port": 1}]}}),
        )
    };
    let role =
        json!({"metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
    let requests = [
        config_map("a"),
        config_map("b"),
        set("a", "w"),
        delete("configmaps", "default", "a"),
        config_map("a"),
        service("s", "10.0.0.3"),
        create("roles", "default", role),
        delete("services", "default", "s"),
        service("t", "10.0.0.3"),
        patch("configmaps", "default", "b", json!({"metadata": {"finalizers": ["example.com/f"]}})),
        delete("configmaps", "default", "b"),
        delete("roles", "default", "r"),
        patch("configmaps", "default", "b", json!({"metadata": {"finalizers": null}})),
        delete("services", "default", "t"),
        set("a", "x"),
    ];
    let mut states = vec![stage.engine.snapshot()];
    for request in requests {
        stage.must(&request);
        states.push(stage.engine.snapshot());
    }
    assert_eq!(states.len() as u64, stage.engine.snapshot().offset.0, "every request made one event");
    states
}

fn exact(engine: &Arc<Engine>, offset: u64) -> Result<Arc<State>, Refusal> {
    at_once(engine.state_for(Freshness::Exact(Offset(offset)), None))
}

#[test]
fn a_past_version_is_what_it_was() {
    let log = Arc::new(MemoryLog::default());
    let mut stage = Stage::new(log.clone());
    let states = history(&mut stage);
    let services = states[0].registry.by_storage("services/specs").unwrap();
    for engine in [stage.engine.clone(), stage.restart(&log).engine] {
        // In any order: one answer must not spoil the next.
        for was in states.iter().rev().chain(&states) {
            let found = exact(&engine, was.offset.0).unwrap();
            assert_eq!(found.offset, was.offset);
            assert_eq!(everything(&found), everything(was), "at {}", was.offset);
            assert_eq!(found.claimant("ip/10.0.0.3"), was.claimant("ip/10.0.0.3"), "at {}", was.offset);
            assert_eq!(found.count(services), was.count(services));
        }
        assert_eq!(everything(&engine.snapshot()), everything(states.last().unwrap()), "the newest is untouched");
    }
}

#[test]
fn versions_older_than_a_token_lives_are_gone() {
    let log = Arc::new(MemoryLog::default());
    let mut stage = Stage::new(log.clone());
    stage.must(&config_map("a"));
    stage.clock.now_ms.store(4 * 60_000, Ordering::Relaxed);
    stage.must(&set("a", "b"));
    stage.must(&set("a", "c"));
    stage.clock.now_ms.store(5 * 60_000 + 1, Ordering::Relaxed);
    assert!(matches!(exact(&stage.engine, 1), Err(Refusal::Expired { .. })), "the event after it is old");
    assert!(exact(&stage.engine, 2).is_ok());
    assert!(exact(&stage.engine, 4).is_ok(), "the newest never is");
    stage.clock.now_ms.store(10 * 60_000, Ordering::Relaxed);
    assert!(exact(&stage.engine, 2).is_ok(), "it was kept from the read before");
    assert!(matches!(exact(&stage.restart(&log).engine, 2), Err(Refusal::Expired { .. })));
}

#[test]
fn pages_are_of_one_snapshot() {
    let log = Arc::new(MemoryLog::default());
    let mut stage = Stage::new(log.clone());
    for n in 0..10 {
        stage.must(&config_map(&format!("a{n}")));
    }
    let first_state = stage.engine.snapshot();
    let picked = selection(&first_state, "configmaps", "default", "", "");
    stage.engine.pin(&first_state);
    let first = page(&first_state, &picked, Some(4), None);
    assert_eq!(first.remaining, Some(6));
    let mut found: Vec<u64> = first.entries.iter().map(|entry| entry.offset.0).collect();
    let key = TokenKey::default();
    let mut token = first.next.map(|next| next.seal(&key)).unwrap_or_default();
    let mut turn = 0;
    while !token.is_empty() {
        // Something goes, something changes and something comes, also before the next page and behind it.
        stage.must(&delete("configmaps", "default", &format!("a{}", 8 - turn)));
        stage.must(&set("a9", &format!("w{turn}")));
        stage.must(&config_map(&format!("a5{turn}")));
        // The second page is of the snapshot that was kept; the third comes from a server that crashed in between.
        let engine = if turn == 0 { stage.engine.clone() } else { stage.restart(&log).engine };
        let from = Continue::open(&token, &key).unwrap();
        let state = at_once(engine.state_for(Freshness::Newest, Some(&from))).unwrap();
        let next = page(&state, &picked, Some(4), Some(&from));
        assert_eq!(next.offset, first_state.offset);
        assert_eq!(next.remaining, [Some(2), None][turn]);
        found.extend(next.entries.iter().map(|entry| entry.offset.0));
        token = next.next.map(|next| next.seal(&key)).unwrap_or_default();
        turn += 1;
    }
    assert_eq!(found, (2..12).collect::<Vec<u64>>());
}

#[tokio::test]
async fn a_version_to_come_is_waited_for() {
    let mut stage = Stage::new(Arc::new(MemoryLog::default()));
    let engine = stage.engine.clone();
    let reader = tokio::spawn(async move { engine.state_for(Freshness::NotOlderThan(Offset(2)), None).await });
    tokio::task::yield_now().await;
    assert!(!reader.is_finished());
    stage.must(&config_map("a"));
    assert_eq!(reader.await.unwrap().unwrap().offset, Offset(2));
}
