use super::*;
use crate::client::{Compare, Expected, Operation, RangeContent};
use bytes::Bytes;

const NOW: Duration = Duration::ZERO;

fn key(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn put(name: &str, value: &str, replaces: u64) -> Txn {
    Txn {
        compares: vec![Compare { key: key(name), is: Expected::ModRevision(replaces) }],
        operations: vec![Operation::Put { key: key(name), value: key(value), lease: 0 }],
        otherwise: Some(KeyRange::one(key(name))),
    }
}

fn delete(name: &str, replaces: u64) -> Txn {
    Txn { operations: vec![Operation::Delete { key: key(name) }], ..put(name, "", replaces) }
}

fn one(client: &ModelClient, asked: Txn) -> Result<Decided, Fault> {
    client.transact(vec![asked]).remove(0)
}

fn all() -> KeyRange {
    KeyRange::between(key("/"), key("0"))
}

fn values(client: &ModelClient, revision: u64) -> Result<Vec<(String, String)>, Fault> {
    let ranged = client.range(&Range::of(all()).at(revision))?;
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    Ok(ranged.found.iter().map(|found| (text(&found.key), text(&found.value))).collect())
}

/// Makes a [`Chance`] that decides these fates in order, and then `Answered`.
fn fated(fates: &[Fate]) -> Chance {
    let mut fates = Vec::from(fates).into_iter();
    Box::new(move |_| fates.next().unwrap_or_default())
}

fn events(watch: &mut dyn Watch) -> Vec<(String, u64, bool)> {
    let watched = watch.next(NOW).expect("events").expect("some");
    let told =
        |event: &Event| (String::from_utf8_lossy(&event.now.key).into_owned(), event.now.mod_revision, event.is_delete);
    watched.events.iter().map(told).collect()
}

#[test]
fn keys_have_revisions_and_versions() {
    let model = Model::default();
    let client = model.plain_client(1);
    assert_eq!(one(&client, put("/a", "1", 0)).unwrap().header.revision, 2);
    assert_eq!(one(&client, put("/a", "2", 2)).unwrap().header.revision, 3);
    let late = one(&client, put("/a", "3", 2)).unwrap();
    assert!(!late.held);
    assert_eq!(late.header.revision, 3, "what writes nothing takes no revision");
    let found = &late.found[0];
    assert_eq!((&found.value[..], found.mod_revision, found.create_revision, found.version), (&b"2"[..], 3, 2, 2));
    assert!(one(&client, delete("/a", 3)).unwrap().held);
    assert!(one(&client, put("/a", "4", 0)).unwrap().held);
    let again = client.range(&Range::of(KeyRange::one(key("/a")))).unwrap().found.remove(0);
    assert_eq!((again.create_revision, again.version), (5, 1), "a new life begins at one");
    assert_eq!(values(&client, 2).unwrap(), [("/a".into(), "1".into())]);
    assert_eq!(values(&client, 4).unwrap(), []);
    assert!(matches!(values(&client, 6), Err(Fault::Refused(_))), "it is yet to come");
}

#[test]
fn ranges_count_all_and_show_up_to_their_limit() {
    let client = Model::default().plain_client(1);
    for name in ["/a", "/b", "/c"] {
        one(&client, put(name, "v", 0)).unwrap();
    }
    let page = client.range(&Range::of(all()).limit(2)).unwrap();
    assert_eq!((page.found.len(), page.more, page.count), (2, true, 3));
    let count = client.range(&Range::of(all()).only(RangeContent::Count)).unwrap();
    assert_eq!((count.found.len(), count.count), (0, 3));
    assert!(client.range(&Range::of(all()).only(RangeContent::WithoutValues)).unwrap().found[0].value.is_empty());
    let backwards = client.range(&Range::of(KeyRange::between(key("/c"), key("/a")))).unwrap();
    assert_eq!(backwards.count, 0);
}

#[test]
fn a_transaction_is_refused_as_etcd_refuses_it() {
    let client = Model::default().plain_client(1);
    let twice =
        Txn { operations: [put("/a", "1", 0).operations, put("/a", "2", 0).operations].concat(), ..Txn::default() };
    let many = Txn {
        operations: (0..129).map(|n| Operation::Delete { key: key(&n.to_string()) }).collect(),
        ..Txn::default()
    };
    let large = put("/a", &"x".repeat(2 << 20), 0);
    for asked in [twice, many, large] {
        assert!(matches!(one(&client, asked), Err(Fault::Refused(_))));
    }
    let mut leased = put("/a", "1", 0);
    leased.operations = vec![Operation::Put { key: key("/a"), value: key("1"), lease: 7 }];
    assert!(matches!(one(&client, leased), Err(Fault::NoLease(_))));
    assert_eq!(values(&client, 0).unwrap(), []);
}

#[test]
fn a_watch_shows_whole_revisions_with_what_was_before() {
    let model = Model::default();
    let client = model.plain_client(1);
    let mut both = put("/a", "1", 0);
    both.operations.extend(put("/b", "1", 0).operations);
    one(&client, both).unwrap();
    one(&client, delete("/a", 2)).unwrap();
    let mut watch = client.watch(&all(), 2).unwrap();
    let watched = watch.next(NOW).unwrap().unwrap();
    let told: Vec<(u64, bool, bool)> =
        watched.events.iter().map(|event| (event.now.mod_revision, event.is_delete, event.before.is_some())).collect();
    assert_eq!(told, [(2, false, false), (2, false, false), (3, true, true)]);
    assert_eq!(watch.next(NOW).unwrap(), None);
    watch.ask_progress().unwrap();
    let progress = watch.next(NOW).unwrap().unwrap();
    assert_eq!((progress.header.revision, progress.events.len()), (3, 0));
    one(&client, put("/b", "2", 2)).unwrap();
    assert_eq!(events(watch.as_mut()), [("/b".into(), 4, false)]);
}

#[test]
fn what_was_compacted_is_gone() {
    let client = Model::default().plain_client(1);
    one(&client, put("/a", "1", 0)).unwrap();
    one(&client, put("/a", "2", 2)).unwrap();
    one(&client, put("/b", "1", 0)).unwrap();
    one(&client, delete("/b", 4)).unwrap();
    let mut slow = client.watch(&all(), 2).unwrap();
    client.compact(5).unwrap();
    assert_eq!(values(&client, 4), Err(Fault::Compacted(5)));
    assert_eq!(values(&client, 5).unwrap(), [("/a".into(), "2".into())]);
    assert!(matches!(client.watch(&all(), 5), Err(Fault::Compacted(5))));
    assert_eq!(slow.next(NOW), Err(Fault::Compacted(5)));
    assert_eq!(client.compact(5), Err(Fault::Compacted(5)));
    assert!(matches!(client.compact(6), Err(Fault::Refused(_))));
    one(&client, put("/a", "3", 3)).unwrap();
    let mut watch = client.watch(&all(), 6).unwrap();
    assert!(watch.next(NOW).unwrap().unwrap().events[0].before.is_some(), "what stood then is still known");
}

#[test]
fn a_lease_ends_with_all_its_keys_at_one_revision() {
    let model = Model::default();
    let client = model.plain_client(1);
    let lease = client.grant(10).unwrap().id;
    let leased = |name: &str, lease| Txn {
        operations: vec![Operation::Put { key: key(name), value: key("v"), lease }],
        ..put(name, "", 0)
    };
    for name in ["/a", "/b", "/c"] {
        one(&client, leased(name, lease)).unwrap();
    }
    // A put without a lease detaches the key, so it does not expire.
    one(&client, put("/c", "2", 4)).unwrap();
    let mut watch = client.watch(&all(), 6).unwrap();
    model.advance(9);
    assert_eq!(watch.next(NOW).unwrap(), None);
    model.advance(1);
    assert_eq!(events(watch.as_mut()), [("/a".into(), 6, true), ("/b".into(), 6, true)]);
    assert!(matches!(one(&client, leased("/d", lease)), Err(Fault::NoLease(_))));
}

#[test]
fn outcomes_may_be_unknown() {
    let model = Model::default();
    let client =
        model.client(1, fated(&[Fate::DoneUnanswered, Fate::LostUnanswered, Fate::DoneLater(1), Fate::Unreachable]));
    assert!(matches!(one(&client, put("/done", "1", 0)), Err(Fault::Unknown(_))));
    assert!(matches!(one(&client, put("/lost", "1", 0)), Err(Fault::Unknown(_))));
    assert!(matches!(one(&client, put("/late", "1", 0)), Err(Fault::Unknown(_))));
    assert!(matches!(one(&client, put("/none", "1", 0)), Err(Fault::Unreachable(_))));
    let names = |client: &ModelClient| values(client, 0).unwrap().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names(&client), ["/done", "/late"], "one call later it is done, before that call is");
    let late = model.client(1, fated(&[Fate::DoneLater(100)]));
    assert!(one(&late, put("/end", "1", 0)).is_err());
    assert_eq!(names(&client).len(), 2);
    model.settle();
    assert_eq!(names(&client).len(), 3);
    let full = model.client(1, fated(&[Fate::DoneThoughFull]));
    model.set_full(true);
    assert!(matches!(one(&full, put("/though-full", "1", 0)), Err(Fault::NoSpace(_))));
    assert!(matches!(one(&full, put("/full", "1", 0)), Err(Fault::NoSpace(_))));
    assert_eq!(names(&client).len(), 4);
    assert!(one(&full, delete("/done", 2)).unwrap().held, "deletions go on");
}

#[test]
fn members_may_lag() {
    let model = Model::default();
    let (one_of, other) = (model.plain_client(1), model.plain_client(2));
    let mut watch = other.watch(&all(), 2).unwrap();
    model.lag(2, u32::MAX);
    one(&one_of, put("/a", "1", 0)).unwrap();
    assert!(matches!(other.range(&Range::of(all())), Err(Fault::Unreachable(_))), "it cannot say what is newest");
    assert_eq!(watch.next(NOW).unwrap(), None);
    model.set_bugs(Bugs { stale_reads: true, ..Bugs::default() });
    let stale = other.range(&Range::of(all())).unwrap();
    assert_eq!((stale.header.revision, stale.count), (1, 0));
    model.catch_up(2);
    assert_eq!(events(watch.as_mut()), [("/a".into(), 2, false)]);
}

#[test]
fn old_releases_have_their_bugs() {
    let model = Model::default();
    let client = model.plain_client(1);
    for (nth, name) in ["/a", "/b", "/c"].into_iter().enumerate() {
        one(&client, put(name, &nth.to_string(), 0)).unwrap();
    }
    client.compact(2).unwrap();
    model.set_bugs(Bugs { loses_first_event: true, ..Bugs::default() });
    assert_eq!(events(client.watch(&all(), 3).unwrap().as_mut()), [("/c".into(), 4, false)]);
    model.set_bugs(Bugs { repeats_events: true, ..Bugs::default() });
    let mut watch = client.watch(&all(), 4).unwrap();
    assert_eq!(events(watch.as_mut()), events(watch.as_mut()));
    assert_eq!(watch.next(NOW).unwrap(), None);
    model.set_bugs(Bugs { early_progress: true, ..Bugs::default() });
    let mut watch = client.watch(&all(), 3).unwrap();
    watch.ask_progress().unwrap();
    let progress = watch.next(NOW).unwrap().unwrap();
    assert_eq!((progress.header.revision, progress.events.len()), (4, 0), "before the events of 3 and 4");
}

#[test]
fn a_backup_brings_another_cluster_with_lower_revisions() {
    let model = Model::default();
    let client = model.plain_client(1);
    one(&client, put("/a", "1", 0)).unwrap();
    let backup = model.backup();
    one(&client, put("/b", "1", 0)).unwrap();
    let mut watch = client.watch(&all(), 4).unwrap();
    let before = client.range(&Range::of(all())).unwrap().header;
    model.restore(&backup);
    let after = client.range(&Range::of(all())).unwrap().header;
    assert!(after.cluster != before.cluster && after.revision < before.revision);
    assert!(watch.next(NOW).is_err());
    assert_eq!(values(&client, 0).unwrap().len(), 1);
}

#[test]
fn who_waits_is_woken_by_the_event() {
    let model = Model::default();
    let client = model.plain_client(1);
    let mut watch = client.watch(&all(), 2).unwrap();
    let waiting = std::thread::spawn(move || watch.next(Duration::from_secs(60)));
    one(&client, put("/a", "1", 0)).unwrap();
    assert_eq!(waiting.join().unwrap().unwrap().unwrap().events.len(), 1);
}

#[test]
fn a_watch_may_be_cut() {
    let model = Model::default();
    let client = model.client(1, fated(&[Fate::Answered, Fate::Answered, Fate::Unreachable]));
    let mut watch = client.watch(&all(), 1).unwrap();
    assert_eq!(watch.next(NOW).unwrap(), None);
    assert!(watch.next(NOW).is_err() && watch.next(NOW).is_err() && watch.ask_progress().is_err());
}
