//! Tests of the simulated cloud without controllers.

use holdfast_cloud::simulated::{Description, Simulated};
use holdfast_world::Time;
use holdfast_world::cloud::{
    BalancerSpec, CloudAnswer, CloudCall, ClusterRef, Fault, FaultReason, Host, NodeRef, Port, Route, ServiceRef,
};
use std::sync::Arc;

fn cluster(uid: &str) -> ClusterRef {
    ClusterRef { name: "kubernetes".into(), uid: uid.into() }
}

fn ensure(name: &str, uid: &str) -> CloudCall {
    let wanted = BalancerSpec {
        name: name.into(),
        service: ServiceRef { namespace: "n".into(), name: name.into(), uid: name.into() },
        ports: vec![Port { protocol: "TCP".into(), port: 80, ..Port::default() }],
        ..BalancerSpec::default()
    };
    EnsureOf(wanted).call(uid)
}

struct EnsureOf(BalancerSpec);

impl EnsureOf {
    fn call(self, uid: &str) -> CloudCall {
        CloudCall::EnsureBalancer { cluster: cluster(uid), wanted: Arc::new(self.0), hosts: Arc::<[Host]>::from([]) }
    }
}

fn at(millis: i64) -> Time {
    Time::from_second(1000).plus_millis(millis)
}

fn cloud(text: &str) -> Simulated {
    Simulated::new(Description::parse(text).expect("a description"))
}

#[test]
fn a_balancer_keeps_its_address_until_the_pool_is_empty() {
    let mut cloud = cloud("addresses: [192.0.2.8/31]");
    let mut ip = |name: &str| match cloud.answer(&ensure(name, "u"), at(0))? {
        CloudAnswer::Balancer(balancer) => Ok(balancer.ingress[0].ip.clone()),
        _ => Ok(String::new()),
    };
    let first: Result<String, Fault> = ip("a");
    let first = first.expect("an address");
    assert_eq!(ip("a").as_ref(), Ok(&first));
    assert_ne!(ip("b").as_ref(), Ok(&first));
    let fault = ip("c").expect_err("two are all");
    assert_eq!(
        (fault.reason, fault.message.as_str()),
        (FaultReason::Exhausted, "no IPv4 address is left in the pool of addresses")
    );
}

#[test]
fn no_balancer_gets_the_first_or_the_last_address_of_a_network() {
    let mut cloud = cloud("addresses: [192.0.2.8/30]");
    let mut ips: Vec<String> = (0..3)
        .filter_map(|number| match cloud.answer(&ensure(&format!("b{number}"), "u"), at(0)) {
            Ok(CloudAnswer::Balancer(balancer)) => Some(balancer.ingress[0].ip.clone()),
            _ => None,
        })
        .collect();
    ips.sort();
    assert_eq!(ips, ["192.0.2.10", "192.0.2.9"]);
}

#[test]
fn two_clusters_of_one_name_are_told_apart() {
    let mut cloud = cloud("");
    cloud.answer(&ensure("a", "one"), at(0)).expect("the first");
    let fault = cloud.answer(&ensure("b", "other"), at(0)).expect_err("the name is taken");
    assert!(fault.is(FaultReason::Conflict) && fault.message.contains("--cluster-name"), "{fault}");
    let name = "a".to_owned();
    let delete = CloudCall::DeleteBalancer { cluster: cluster("other"), name, service: ServiceRef::default() };
    assert!(cloud.answer(&delete, at(0)).is_err() && cloud.balancers().count() == 1);
}

#[test]
fn lists_are_late_and_quotas_hold() {
    let mut cloud = cloud("{consistency: 2s, quotas: {routes: 1, balancers: 0}}");
    let route = |node: &str, destination: &str| Route {
        cluster: cluster("u"),
        node: node.into(),
        destination: destination.into(),
        ..Route::default()
    };
    let mut create = |node: &str, destination: &str| {
        cloud.answer(&CloudCall::CreateRoute { cluster: cluster("u"), route: route(node, destination) }, at(0))
    };
    assert_eq!(create("a", "10.0.0.0/24"), Ok(CloudAnswer::Done));
    assert_eq!(create("a", "10.0.0.0/24"), Ok(CloudAnswer::Done), "it is there");
    assert!(create("b", "10.0.0.0/24").expect_err("another's").is(FaultReason::Conflict));
    assert!(create("b", "10.0.1.0/24").expect_err("the quota").is(FaultReason::Exhausted));
    let list = CloudCall::Routes { cluster: cluster("u") };
    assert_eq!(cloud.answer(&list, at(1999)), Ok(CloudAnswer::Routes(Vec::new())));
    assert!(matches!(cloud.answer(&list, at(2000)), Ok(CloudAnswer::Routes(routes)) if routes.len() == 1));
    assert!(cloud.answer(&ensure("a", "u"), at(0)).expect_err("the quota").is(FaultReason::Exhausted));
}

#[test]
fn the_script_is_played_and_seeds_decide() {
    let text = "
        seed: 7
        failuresPerThousand: 500
        latency: {least: 10ms, most: 20ms}
        throttle: {perSecond: 1, burst: 2}
        instances: [{name: a}]
        script: [{at: 1s, instance: a, do: shutDown}, {at: 2s, instance: a, do: vanish}]
    ";
    let node = NodeRef { name: "a".into(), provider_id: "simulated://a".into() };
    let call = CloudCall::Instance { cluster: cluster("u"), node };
    let run = || {
        let mut cloud = cloud(text);
        (0..40).map(|step| format!("{:?}", cloud.call(&call, at(step * 100)))).collect::<Vec<_>>()
    };
    assert_eq!(run(), run());
    assert!(run().iter().any(|line| line.contains("too many calls")));
    let mut cloud = cloud(
        "{instances: [{name: a}], script: [{at: 1s, instance: a, do: shutDown}, {at: 2s, instance: a, do: vanish}]}",
    );
    let mut state = |millis| cloud.call(&call, at(millis)).answer;
    assert!(matches!(state(0), Ok(CloudAnswer::Instance(found)) if !found.is_shut_down));
    assert!(matches!(state(1000), Ok(CloudAnswer::Instance(found)) if found.is_shut_down));
    assert!(state(2000).expect_err("gone").is(FaultReason::NotFound));
}

#[test]
fn protocols_and_addresses_that_are_not_offered_are_refused() {
    let mut cloud = cloud("{mixedProtocols: false, addresses: [192.0.2.0/30]}");
    let port = |protocol: &str| Port { protocol: protocol.into(), port: 53, ..Port::default() };
    let mixed = BalancerSpec { name: "a".into(), ports: vec![port("TCP"), port("UDP")], ..BalancerSpec::default() };
    let fault = cloud.answer(&EnsureOf(mixed).call("u"), at(0)).expect_err("mixed");
    assert_eq!(fault.message, "ports of several protocols on one load balancer (TCP, UDP) are not offered");
    let asked =
        |address: &str| BalancerSpec { name: address.into(), address: address.into(), ..BalancerSpec::default() };
    assert!(
        cloud.answer(&EnsureOf(asked("192.0.2.9")).call("u"), at(0)).expect_err("foreign").is(FaultReason::Invalid)
    );
    assert!(cloud.answer(&EnsureOf(asked("192.0.2.1")).call("u"), at(0)).is_ok());
    let again = BalancerSpec { name: "b".into(), ..asked("192.0.2.1") };
    assert!(cloud.answer(&EnsureOf(again).call("u"), at(0)).expect_err("taken").is(FaultReason::Conflict));
}

#[test]
fn an_answer_to_something_else_counts_as_none() {
    let call = ensure("a", "u");
    let balancer = |name: &str, uid: &str| {
        let name = name.to_owned();
        CloudAnswer::Balancer(holdfast_world::cloud::Balancer { name, cluster: cluster(uid), ingress: Vec::new() })
    };
    assert!(call.check_answer(balancer("a", "u")).is_ok());
    for other in [balancer("b", "u"), balancer("a", "other"), CloudAnswer::Done, CloudAnswer::Routes(Vec::new())] {
        let fault = call.check_answer(other).expect_err("about something else");
        assert!(fault.is(FaultReason::Unavailable) && fault.message.contains("the cloud answers"), "{fault}");
    }
    assert!(CloudCall::Clusters.check_answer(CloudAnswer::Done).is_err());
}
