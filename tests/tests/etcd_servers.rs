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
    // The member above may have been the leader, and requests in progress at a lost leader may be lost, so wait for the
    // next leader.
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
fn a_member_that_is_cut_off_knows_nothing_new_and_catches_up() {
    let mut cluster = Cluster::partitionable(3);
    let newest = |cluster: &mut Cluster, at: usize| {
        let url = cluster.member(at).url();
        cluster.ctl_at(&url, &["get", "a", "--consistency=s", "--print-value-only"]).trim().to_owned()
    };
    for (at, other) in [(0, 1), (1, 2), (2, 0)] {
        let (before, after) = (format!("{at}-before"), format!("{at}-after"));
        cluster.ctl(&["put", "a", &before]);
        cluster.await_ready(at);
        cluster.cut_off(at);
        // The two other members elect a leader if the member that was cut off had been the leader.
        cluster.await_ready(other);
        let url = cluster.member(other).url();
        cluster.ctl_at(&url, &["put", "a", &after]);
        assert_eq!(newest(&mut cluster, at), before);
        cluster.heal();
        cluster.await_ready(at);
        assert_eq!(newest(&mut cluster, at), after);
    }
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
