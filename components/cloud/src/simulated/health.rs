//! Determines which backends of balancers are healthy. A backend is healthy if its instance runs and answers, and if
//! the Service's health-check node port, if there is one, answers 200.

use super::Simulated;
use holdfast_world::Time;
use holdfast_world::cloud::{BalancerSpec, FaultReason, NodeRef, ServiceRef};
use std::collections::BTreeMap;

const OK: u16 = 200;

/// The health of a backend of a balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BackendHealth {
    Healthy,
    ShutDown,
    /// The backend's instance no longer exists.
    Gone,
    /// The backend's instance does not answer.
    Failing,
    /// The backend's health-check node port reports that the node has no ready backend of the Service.
    CheckFailed,
}

impl BackendHealth {
    pub fn as_str(self) -> &'static str {
        match self {
            BackendHealth::Healthy => "healthy",
            BackendHealth::ShutDown => "shutDown",
            BackendHealth::Gone => "gone",
            BackendHealth::Failing => "failing",
            BackendHealth::CheckFailed => "checkFailed",
        }
    }
}

/// The number of backends of one balancer, by their health.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backends {
    pub balancer: String,
    pub service: ServiceRef,
    /// The number of backends by health. Healthy backends always have an entry, even if their number is zero.
    pub counts: BTreeMap<BackendHealth, u64>,
}

impl Simulated {
    /// The backends of all balancers at the time `now`.
    pub fn backends(&mut self, now: Time) -> Vec<Backends> {
        self.play(now);
        // All balancers have the same nodes, so the health of each node is determined only once.
        let mut seen: BTreeMap<&str, (BackendHealth, Option<&str>)> = BTreeMap::new();
        let mut all = Vec::new();
        for kept in self.balancers() {
            let mut counts = BTreeMap::from([(BackendHealth::Healthy, 0)]);
            let service = kept.wanted.service.clone();
            for host in kept.hosts.iter() {
                let (health, instance) = *seen.entry(&host.node.name).or_insert_with(|| self.look_at(&host.node));
                let health = match (health, instance) {
                    (BackendHealth::Healthy, Some(instance)) if self.check(instance, &kept.wanted) != OK => {
                        BackendHealth::CheckFailed
                    }
                    _ => health,
                };
                *counts.entry(health).or_default() += 1;
            }
            all.push(Backends { balancer: kept.balancer.name.clone(), service, counts });
        }
        all
    }

    /// The health of the instance behind a node, and the instance's name.
    fn look_at(&self, node: &NodeRef) -> (BackendHealth, Option<&str>) {
        match self.instance(node) {
            Ok((name, instance)) if instance.is_shut_down => (BackendHealth::ShutDown, Some(name)),
            Ok((name, _)) => (BackendHealth::Healthy, Some(name)),
            Err(fault) if fault.is(FaultReason::NotFound) => (BackendHealth::Gone, None),
            Err(_) => (BackendHealth::Failing, None),
        }
    }

    /// The HTTP status with which the health-check node port of a Service answers on an instance.
    fn check(&self, instance: &str, wanted: &BalancerSpec) -> u16 {
        if !wanted.local || wanted.health_check_port == 0 {
            return OK;
        }
        let service = format!("{}/{}", wanted.service.namespace, wanted.service.name);
        let checks = self.description.health_checks.get(instance);
        checks.and_then(|checks| checks.get(&service)).copied().unwrap_or(OK)
    }
}
