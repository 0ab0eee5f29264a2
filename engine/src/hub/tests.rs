//! What the hub keeps, and for whom.

use super::*;
use holdfast_core::kinds::registry;
use holdfast_core::select::{FieldSelector, LabelSelector};
use holdfast_core::state::Index;

fn state() -> State {
    State::new(Arc::new(registry().clone()))
}

fn find(state: &State, group: &str, version: &str, resource: &str) -> KindId {
    state.registry.find(group, version, resource).expect("a built-in kind").0
}

fn entry(offset: u64, json: String) -> Arc<Entry> {
    Arc::new(Entry::new(json.into(), 0, Offset(offset), 0, Index::default()))
}

fn selection(kind: KindId, prefix: &str) -> Selection {
    let (labels, fields) = (LabelSelector::default(), FieldSelector::default());
    Selection { kind, version: 0, prefix: prefix.to_owned(), key: None, labels, fields }
}

fn change(kind: KindId, offset: u64, json: String) -> Change {
    Change { offset: Offset(offset), kind, key: "default/a".into(), entry: entry(offset, json), deleted: false }
}

#[test]
fn a_watcher_that_does_not_read_holds_few_bytes() {
    let (mut state, hub) = (state(), Arc::new(Hub::default()));
    let kind = find(&state, "", "v1", "configmaps");
    let mut slow = hub.subscribe(state.kind(kind), &selection(kind, "default/"));
    let mut quick = hub.subscribe(state.kind(kind), &selection(kind, "default/"));
    let mut taken = 0;
    for offset in 1..=20 {
        state.offset = Offset(offset);
        hub.deliver(&state, vec![(change(kind, offset, "x".repeat(1 << 20)), None)]);
        taken += usize::from(quick.try_recv().is_ok());
    }
    assert_eq!(taken, 20, "who reads is not let go");
    let mut kept = 0;
    let ended = loop {
        match slow.try_recv() {
            Ok(_) => kept += 1,
            Err(ended) => break ended,
        }
    };
    assert_eq!((kept, ended), (QUEUE_BYTES_MAX >> 20, TryRecvError::Disconnected));
}

#[test]
fn one_user_leaves_room_for_others() {
    let hub = Arc::new(Hub::default());
    let mut places: Vec<_> = (0..WATCHES_OF_ONE_MAX).map_while(|_| hub.place("one")).collect();
    assert_eq!(places.len(), WATCHES_OF_ONE_MAX);
    assert!(hub.place("one").is_none());
    assert!(hub.place("other").is_some());
    places.pop();
    assert!(hub.place("one").is_some());
    places.clear();
    assert!(hub.users().is_empty());
}

#[test]
fn a_frame_is_made_once_for_each_version() {
    let state = state();
    let kind = find(&state, "autoscaling", "v2", "horizontalpodautoscalers");
    let json = r#"{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"a"},"spec":{}}"#;
    let event = Event::new(change(kind, 1, format!("{json}\n")), None);
    let kind = state.kind(kind);
    assert!(kind.versions.len() > 1);
    for version in 0..kind.versions.len() {
        let frame = || event.frame(kind, version, ChangeType::Added);
        let told = kind.versions[version].api_version();
        assert!(String::from_utf8_lossy(&frame()).contains(&format!("\"apiVersion\":\"{told}\"")));
        assert_eq!(frame().as_ptr(), frame().as_ptr());
        let protobuf = || event.protobuf_frame(kind, version, ChangeType::Added).expect("a message");
        assert_eq!(protobuf().as_ptr(), protobuf().as_ptr());
    }
}

#[test]
fn who_leaves_leaves_nothing_behind() {
    let (state, hub) = (state(), Arc::new(Hub::default()));
    let kind = find(&state, "", "v1", "pods");
    let by_node = FieldSelector::parse("spec.nodeName=n1").unwrap();
    let selections = [
        selection(kind, ""),
        selection(kind, "default/"),
        Selection { key: Some("default/a".into()), ..selection(kind, "default/") },
        Selection { fields: by_node, ..selection(kind, "") },
    ];
    let twice = selections.iter().chain(&selections);
    let mut members: Vec<_> = twice.map(|selection| hub.subscribe(state.kind(kind), selection)).collect();
    assert_eq!(hub.watchers(), 8);
    members.truncate(4);
    assert_eq!(hub.lock()[&kind].all.len(), 1);
    members.clear();
    let topics = hub.lock();
    let topic = &topics[&kind];
    assert!(topic.all.is_empty() && topic.by_namespace.is_empty() && topic.by_object.is_empty());
    assert!(topic.by_field.values().all(HashMap::is_empty));
}
