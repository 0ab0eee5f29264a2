//! Tests reads of the past at exact versions, and reads of the pages of one snapshot while objects are written.

use super::stage::{Stage, at_once, config_map, create, delete, everything, patch, selection, set};
use holdfast_core::Refusal;
use holdfast_core::event::Offset;
use holdfast_core::list::{Continue, Freshness, TokenKey, page};
use holdfast_core::state::{Entry, State};
use holdfast_engine::memory::MemoryLog;
use holdfast_engine::{Engine, Reader};
use holdfast_value::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A short history in which objects are made, changed, deleted and made again. Returns the state after each event.
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
    at_once(engine.reach(Offset(offset)))?;
    at_once(engine.state_at(Offset(offset)))
}

#[test]
fn a_past_version_is_what_it_was() {
    let log = Arc::new(MemoryLog::default());
    let mut stage = Stage::new(log.clone());
    let states = history(&mut stage);
    let services = states[0].registry.by_storage("services/specs").unwrap();
    for engine in [stage.engine.clone(), stage.restart(&log).engine] {
        // The versions are read in descending and in ascending order, because no read may change the result of a later
        // read.
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
fn a_past_version_answers_without_being_built() {
    let log = Arc::new(MemoryLog::default());
    let mut stage = Stage::new(log.clone());
    let states = history(&mut stage);
    for engine in [stage.engine.clone(), stage.restart(&log).engine] {
        for was in &states {
            let view = at_once(engine.past(was.offset)).unwrap();
            assert_eq!(view.offset(), was.offset);
            for (kind, served) in was.registry.iter().filter(|(_, kind)| kind.stored) {
                let name = format!("{} at {}", served.storage.path, was.offset);
                let expected: Vec<_> = was.scan(kind, "", None).collect();
                for (key, entry) in &expected {
                    let found = at_once(view.get(kind, key)).unwrap().map(|found| (found.json(), found.index.clone()));
                    assert_eq!(found, Some((entry.json(), entry.index.clone())), "{name}: {key}");
                }
                assert!(at_once(view.get(kind, "default/none")).unwrap().is_none());
                for limit in [1, 2, 99] {
                    let (mut found, mut from) = (Vec::new(), None);
                    loop {
                        let picked = selection(was, &served.resource, "", "", "");
                        let page = at_once(view.page(&picked, Some(limit), from.as_ref())).unwrap();
                        found.extend(page.entries);
                        from = page.next;
                        if from.is_none() {
                            break;
                        }
                    }
                    let bytes = |entry: &Arc<Entry>| entry.json();
                    let (found, expected): (Vec<_>, Vec<_>) =
                        (found.iter().map(bytes).collect(), expected.iter().map(|(_, entry)| bytes(entry)).collect());
                    assert_eq!(found, expected, "{name} by {limit}");
                }
            }
        }
    }
}

#[test]
fn tokens_live_five_minutes_and_versions_as_long_as_the_log_remembers() {
    let log = Arc::new(MemoryLog::default());
    let mut stage = Stage::new(log.clone());
    stage.must(&config_map("a"));
    stage.must(&config_map("b"));
    let began = stage.engine.snapshot().offset;
    stage.clock.now_ms.store(4 * 60_000, Ordering::Relaxed);
    stage.must(&set("a", "b"));
    stage.clock.now_ms.store(30 * 60_000, Ordering::Relaxed);
    let engine = stage.restart(&log).engine;
    let go_on = |token: &Continue| at_once(engine.view_for(Freshness::Newest, Some(token)));
    let token = Continue::fresh(began, String::new());
    assert!(matches!(go_on(&token), Err(Refusal::Expired { .. })), "the list began with the newest state");

    let view = at_once(engine.view_for(Freshness::Exact(began), None)).unwrap();
    let picked = selection(view.state(), "configmaps", "default", "", "");
    let next = at_once(view.page(&picked, Some(1), None)).unwrap().next.unwrap();
    let rest = at_once(go_on(&next).unwrap().page(&picked, Some(1), Some(&next))).unwrap();
    assert_eq!((rest.offset, rest.entries.len(), rest.next), (began, 1, None), "the list was asked for by its version");

    engine.log().forget(Offset(began.0 + 1)).unwrap();
    for refused in [
        go_on(&next).map(drop),
        at_once(engine.past(began)).map(drop),
        at_once(engine.state_at(began)).map(drop),
        at_once(engine.moment(&began.to_string())).map(drop),
    ] {
        assert!(matches!(refused, Err(Refusal::Expired { .. })), "{refused:?}");
    }
    assert!(at_once(engine.past(Offset(began.0 + 1))).is_ok());
}

#[test]
fn a_moment_is_a_version_a_time_or_a_time_ago() {
    let log = Arc::new(MemoryLog::default());
    let mut stage = Stage::new(log.clone());
    let first = stage.engine.snapshot().offset.0;
    for minute in 1..=3 {
        stage.clock.now_ms.store(minute * 60_000, Ordering::Relaxed);
        stage.must(&config_map(&format!("a{minute}")));
    }
    stage.clock.now_ms.store(4 * 60_000, Ordering::Relaxed);
    for (text, expected) in [
        ("2", Ok(2)),
        ("-90s", Ok(first + 2)),
        ("-1h", Ok(0)),
        ("2026-11-21T10:01:00Z", Ok(first + 1)),
        ("99", Err("version 99 is in the future: the newest one is 4")),
        ("2026-11-22T00:00:00Z", Err("the time 2026-11-22T00:00:00Z is in the future")),
        ("noon", Err("\"noon\" is not a moment")),
    ] {
        match (at_once(stage.engine.moment(text)), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, Offset(expected), "{text}"),
            (Err(Refusal::BadRequest(why)), Err(expected)) => {
                assert!(why.to_string().starts_with(expected), "{text}: {why}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
    // If the log begins with a deletion, moments before the deletion do not resolve to its version.
    stage.clock.now_ms.store(5 * 60_000, Ordering::Relaxed);
    stage.must(&delete("configmaps", "default", "a3"));
    stage.clock.now_ms.store(9 * 60_000, Ordering::Relaxed);
    let last = stage.engine.snapshot().offset;
    stage.engine.log().forget(last).unwrap();
    assert_eq!(at_once(stage.engine.moment("-2m")).unwrap(), last);
    let before = at_once(stage.engine.moment("-4m30s"));
    assert!(matches!(before, Err(Refusal::Expired { .. })), "{before:?}");
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
    stage.engine.pin(&first_state, &Reader::SERVER);
    let first = page(&first_state, &picked, Some(4), None);
    assert_eq!(first.remaining, Some(6));
    let mut found: Vec<u64> = first.entries.iter().map(|entry| entry.offset.0).collect();
    let key = TokenKey::default();
    let mut token = first.next.map(|next| next.seal(&key)).unwrap_or_default();
    let mut turn = 0;
    while !token.is_empty() {
        // Between two pages one object is deleted, another is changed and a third is created. Some of their keys are
        // before the next page's first key, and other keys are after it.
        stage.must(&delete("configmaps", "default", &format!("a{}", 8 - turn)));
        stage.must(&set("a9", &format!("w{turn}")));
        stage.must(&config_map(&format!("a5{turn}")));
        // The second page is read from the pinned snapshot. The third page is read by a server that has crashed and
        // restarted since the second page.
        let engine = if turn == 0 { stage.engine.clone() } else { stage.restart(&log).engine };
        let from = Continue::open(&token, &key).unwrap();
        let view = at_once(engine.view_for(Freshness::Newest, Some(&from))).unwrap();
        let next = at_once(view.page(&picked, Some(4), Some(&from))).unwrap();
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
    let reader = tokio::spawn(async move { engine.view_for(Freshness::NotOlderThan(Offset(2)), None).await });
    tokio::task::yield_now().await;
    assert!(!reader.is_finished());
    stage.must(&config_map("a"));
    assert_eq!(reader.await.unwrap().unwrap().offset(), Offset(2));
}
