//! The etcd harness of other tests: servers start, and can be disturbed as intended.

use holdfast_tests::etcd::{Cluster, Event, Proxy, has};
use std::time::Duration;

#[test]
fn every_release_that_is_here_answers() {
    for version in ["3.4", "3.5", "3.6", "3.7"] {
        if !has(version) {
            assert_ne!(version, "3.6", "the newest one is always there");
            continue;
        }
        let cluster = Cluster::start(version, 1, &[]);
        cluster.ctl(&["put", "/registry/a", "1"]);
        assert_eq!(cluster.ctl(&["get", "/registry/a", "--print-value-only"]).trim(), "1", "{version}");
    }
}

#[test]
fn a_cluster_goes_on_without_one_of_three_members() {
    let mut cluster = Cluster::start("3.6", 3, &[]);
    cluster.ctl(&["put", "a", "1"]);
    cluster.member(0).kill();
    // Requests in progress at a lost leader may be lost, so wait for the next one.
    cluster.await_ready(1);
    cluster.ctl(&["put", "a", "2"]);
    cluster.member(0).restart();
    cluster.await_ready(0);
    cluster.member(1).pause();
    cluster.await_ready(2);
    cluster.ctl(&["put", "a", "3"]);
    cluster.member(1).resume();
    cluster.await_ready(1);
    let proxy = Proxy::to(cluster.member(1).port());
    proxy.delay(Duration::from_millis(1));
    assert_eq!(cluster.ctl_at(&proxy.url(), &["get", "a", "--print-value-only"]).trim(), "3");
}

#[test]
fn what_etcd_tells_of_its_events_is_read() {
    let cluster = Cluster::single();
    cluster.ctl(&["put", "/registry/a", "1"]);
    cluster.ctl(&["put", "/registry/a", "2"]);
    cluster.ctl(&["put", "/other", "3"]);
    cluster.ctl(&["del", "/registry/a"]);
    let event = |revision, is_create, is_delete, value: &str| Event {
        key: "/registry/a".into(),
        revision,
        is_delete,
        is_create,
        value: value.into(),
    };
    let expected = [event(2, true, false, "1"), event(3, false, false, "2"), event(5, false, true, "2")];
    assert_eq!(cluster.events("/registry/", 2), expected);
    assert_eq!(cluster.events("/registry/", 3), expected[1..]);
}
