//! Tests the limits of the hub for each user.

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
    assert_eq!((kept, ended), (waiting::BYTES_MAX >> 20, TryRecvError::Disconnected));
}

#[test]
fn one_user_leaves_room_for_others() {
    let hub = Arc::new(Hub::default());
    let mut places: Vec<_> = (0..WATCHES_OF_ONE_MAX).map_while(|_| hub.place("one", 0).ok()).collect();
    assert_eq!(places.len(), WATCHES_OF_ONE_MAX);
    assert!(hub.place("one", 0).is_err());
    assert!(hub.place("other", 0).is_ok());
    places.pop();
    assert!(hub.place("one", 0).is_ok());
    places.clear();
    assert!(hub.users().by_name.is_empty());
}

#[test]
fn selectors_of_watches_are_counted_in_bytes() {
    let hub = Arc::new(Hub::default());
    let mebibyte = 1 << 20;
    let mut places: Vec<_> = (0..1000).map_while(|_| hub.place("one", mebibyte).ok()).collect();
    assert_eq!(places.len() * mebibyte, SELECTOR_BYTES_OF_ONE_MAX);
    let held = SELECTOR_BYTES_OF_ONE_MAX as u64;
    assert_eq!(hub.place("one", mebibyte).err(), Some(Plenty::Selectors { held, max: held }));
    assert!(hub.place("one", 0).is_ok(), "a watch without selectors");
    for user in 0..100 {
        places.extend((0..10).map_while(|_| hub.place(&format!("u{user}"), mebibyte).ok()));
    }
    // Of the 100 users, 44 users got all the selector bytes that they requested, one user got the last bytes below the
    // limit, and each of the 55 other users has only its guaranteed share.
    assert_eq!(hub.selector_bytes(), SELECTOR_BYTES_MAX + 55 * SELECTOR_BYTES_OF_EACH);
    assert!(hub.place("u99", mebibyte).is_err() && hub.place("another", mebibyte).is_ok());
    places.clear();
    assert_eq!(hub.selector_bytes(), 0);
}

fn labelled(offset: u64, labels: &[(&str, &str)]) -> Arc<Entry> {
    let labels: Vec<(Box<str>, Box<str>)> =
        labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    let index = Index { labels: labels.into(), ..Index::default() };
    Arc::new(Entry::new("{}\n".into(), 0, Offset(offset), 0, index))
}

#[test]
fn equal_selections_are_kept_once_and_found_by_the_labels_that_they_name() {
    let (mut state, hub) = (state(), Arc::new(Hub::default()));
    let kind = find(&state, "", "v1", "configmaps");
    let select =
        |text: &str| Selection { labels: LabelSelector::parse(text).expect(text), ..selection(kind, "default/") };
    let one = hub.subscribe(state.kind(kind), &select("a in (x,y),!b"));
    let mut other = hub.subscribe(state.kind(kind), &select("!b,a in (y,x)"));
    assert!(Arc::ptr_eq(&one.wanted, &other.wanted));
    drop(one);
    let mut of_z = hub.subscribe(state.kind(kind), &select("a=z"));
    let strangers: Vec<_> =
        (0..100).map(|number| hub.subscribe(state.kind(kind), &select(&format!("c={number}")))).collect();
    let mut tell = |offset: u64, before: Option<&[(&str, &str)]>, after: &[(&str, &str)]| {
        state.offset = Offset(offset);
        let entry = labelled(offset, after);
        let change = Change { offset: Offset(offset), kind, key: "default/a".into(), entry, deleted: false };
        hub.deliver(&state, vec![(change, before.map(|labels| labelled(offset - 1, labels)))]);
        [&mut other, &mut of_z].map(|watch| {
            let told = std::iter::from_fn(|| watch.try_recv().ok());
            told.map(|delivery| delivery.change_type).collect::<Vec<_>>()
        })
    };
    use ChangeType::{Added, Deleted, Modified};
    assert_eq!(tell(1, None, &[("a", "x")]), [vec![Added], vec![]]);
    assert_eq!(tell(2, Some(&[("a", "x")]), &[("a", "y")]), [vec![Modified], vec![]]);
    assert_eq!(tell(3, Some(&[("a", "y")]), &[("a", "z")]), [vec![Deleted], vec![Added]]);
    assert_eq!(tell(4, Some(&[("a", "z")]), &[("d", "e")]), [vec![], vec![Deleted]]);
    assert_eq!(tell(5, Some(&[("d", "e")]), &[("a", "x"), ("b", "")]), [vec![], vec![]]);
    drop((other, of_z, strangers));
    let topics = hub.lock();
    assert!(topics[&kind].by_namespace.is_empty());
}

#[test]
fn what_is_too_much_work_for_one_event_is_read_from_the_log() {
    let (mut state, hub) = (state(), Arc::new(Hub::default()));
    let kind = find(&state, "", "v1", "configmaps");
    let texts = |prefix: &str| (0..2_000).map(|number| format!("{prefix}{number:05}")).collect::<Vec<_>>();
    let mut watches: Vec<_> = (0..150)
        .map(|number| {
            let text = format!("!x{number},!{}", texts("k").join(",!"));
            let selection =
                Selection { labels: LabelSelector::parse(&text).expect("a selector"), ..selection(kind, "") };
            hub.subscribe(state.kind(kind), &selection)
        })
        .collect();
    let keys = texts("l");
    let labels: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), "")).collect();
    for (offset, labels, let_go) in [(1, &labels[..10], 0), (2, &labels[..], 50)] {
        state.offset = Offset(offset);
        let entry = labelled(offset, labels);
        let change = Change { offset: Offset(offset), kind, key: "default/a".into(), entry, deleted: false };
        hub.deliver(&state, vec![(change, None)]);
        let told = watches.iter_mut().map(|watch| {
            while watch.try_recv().is_ok() {}
            watch.try_recv().err()
        });
        let gone = told.filter(|end| *end == Some(TryRecvError::Disconnected)).count();
        assert!(gone >= let_go && gone <= let_go + 1, "{gone}");
    }
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
    assert_eq!(hub.lock()[&kind].all.all().count(), 1);
    members.clear();
    let topics = hub.lock();
    let topic = &topics[&kind];
    assert!(topic.all.is_empty() && topic.by_namespace.is_empty() && topic.by_object.is_empty());
    assert!(topic.by_field.values().all(HashMap::is_empty));
}
