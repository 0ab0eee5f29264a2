//! Tests kinds whose objects are in a log of their own, next to the main log.

use crate::stage::{TestClock, config_map, create, delete, options, patch, set};
use holdfast_core::Refusal;
use holdfast_core::admission::Admission;
use holdfast_core::event::Offset;
use holdfast_core::kinds::{KindId, registry};
use holdfast_engine::memory::MemoryLog;
use holdfast_engine::{Apart, Engine, Log, Tap};
use holdfast_value::json;
use std::sync::Arc;

struct World {
    main: Arc<Engine>,
    part: Arc<Engine>,
    maps: KindId,
}

/// An engine with ConfigMaps in another log. Its first event creates the namespace `default`.
async fn open(admission: Admission) -> World {
    let mut options = options(&Arc::new(TestClock::default()));
    options.settings.admission = admission;
    let main = Engine::open(Arc::new(MemoryLog::default()), Arc::new(registry().clone()), options).expect("an engine");
    let maps = registry().apart("", "configmaps").expect("a kind that may be apart");
    let log: Arc<dyn Log> = Arc::new(MemoryLog::default());
    let of_maps = Apart { kinds: vec![maps], log, sealing: None };
    main.open_parts(vec![of_maps]).expect("its part");
    let part = main.of(maps).clone();
    main.mutate(&create("namespaces", "", json!({"metadata": {"name": "default"}}))).await.expect("a namespace");
    World { main, part, maps }
}

fn offsets(apart: &World) -> (u64, u64) {
    let (main, part) = (apart.main.snapshot(), apart.part.snapshot());
    assert_eq!(main.offset_of(apart.maps), part.offset, "both see the same objects");
    assert_eq!(apart.main.own_snapshot().offset, main.offset);
    (main.offset.0, part.offset.0)
}

#[tokio::test]
async fn each_log_has_versions_of_its_own_and_all_see_all() {
    let apart = open(Admission::default()).await;
    let World { main, part, maps } = &apart;
    let mut tap = Tap::new(part);
    part.mutate(&config_map("a")).await.expect("created");
    part.mutate(&set("a", "x")).await.expect("changed");
    main.mutate(&create("secrets", "default", json!({"metadata": {"name": "s"}}))).await.expect("created");
    assert_eq!(offsets(&apart), (2, 2));
    for state in [main.snapshot(), part.snapshot()] {
        assert_eq!(state.version_of(*maps, "default/a"), Some(Offset(2)));
        assert_eq!(state.version_of(state.registry.namespaces(), "default"), Some(Offset(1)));
        assert!(state.room.stored("default") > 0);
    }
    assert_eq!(main.own_snapshot().count(*maps), 0);
    assert_eq!(main.log().versions("configmaps", "default/a").expect("a log"), []);
    assert_eq!(part.log().versions("configmaps", "default/a").expect("a log"), [Offset(1), Offset(2)]);
    let holdfast_engine::TapOutput::Changes { changes, .. } = tap.next().await else { panic!("it is not behind") };
    assert_eq!(changes.iter().map(|change| change.offset.0).max(), Some(2));
    // The objects that a namespace stores are counted over all logs.
    let stored = |state: &holdfast_core::state::State| state.room.stored("default");
    assert_eq!(stored(&main.snapshot()), stored(&main.own_snapshot()) + stored(&part.own_snapshot()));
}

#[tokio::test]
async fn a_decision_writes_to_the_logs_of_its_objects() {
    let apart = open(Admission::standard()).await;
    let quota = json!({"metadata": {"name": "few"}, "spec": {"hard": {"count/configmaps": "2"}}});
    apart.main.mutate(&create("resourcequotas", "default", quota)).await.expect("a quota");
    let mut status = patch(
        "resourcequotas",
        "default",
        "few",
        json!({
            "status": {"hard": {"count/configmaps": "2"}, "used": {"count/configmaps": "0"}}
        }),
    );
    status.target.subresource = Some("status".into());
    apart.main.mutate(&status).await.expect("its status");
    assert_eq!(offsets(&apart), (3, 0));
    for (name, expected) in [("a", (4, 1)), ("b", (5, 2))] {
        apart.part.mutate(&config_map(name)).await.expect("created");
        assert_eq!(offsets(&apart), expected);
    }
    let refused = apart.part.mutate(&config_map("c")).await.err().expect("a refusal");
    assert!(refused.message().contains("exceeded quota: few"), "{}", refused.message());
    assert_eq!(offsets(&apart), (5, 2));
    let state = apart.main.snapshot();
    let quota = state.get(state.registry.quotas(), "default/few").expect("the quota").document();
    assert_eq!(quota["status"]["used"]["count/configmaps"], "2");
}

#[tokio::test]
async fn a_namespace_that_ends_or_is_not_there_takes_nothing() {
    let apart = open(Admission::default()).await;
    let map = |namespace: &str, name: &str| create("configmaps", namespace, json!({"metadata": {"name": name}}));
    let nowhere = apart.part.mutate(&map("nowhere", "a")).await.err();
    assert!(matches!(nowhere, Some(Refusal::NotFound(_))), "{nowhere:?}");
    let team = create("namespaces", "", json!({"metadata": {"name": "team"}}));
    apart.main.mutate(&team).await.expect("a namespace");
    apart.part.mutate(&map("team", "a")).await.expect("created");
    apart.main.mutate(&delete("namespaces", "", "team")).await.expect("it is ending");
    let refused = apart.part.mutate(&map("team", "b")).await.err().expect("a refusal");
    assert!(matches!(refused, Refusal::Forbidden { .. }), "{refused:?}");
    assert_eq!(apart.main.snapshot().count_of(apart.maps, "team/", None), 1);
}
