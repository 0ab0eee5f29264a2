//! Requests of controllers to a cloud, as data: calls, answers and the reasons of failed calls.
//!
//! A cloud provides machines, load balancers and routes for a cluster. It offers some or all of these parts
//! ([`Offers`]). Every call may be repeated: creating an existing object changes nothing, and deleting an absent object
//! succeeds.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The cluster for which a call is made: its `--cluster-name`, and the UID of its namespace `kube-system`. The UID
/// distinguishes two clusters that have the same name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClusterRef {
    pub name: String,
    pub uid: String,
}

/// The parts that a cloud offers to controllers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Offers {
    pub instances: bool,
    pub zones: bool,
    pub balancers: bool,
    pub routes: bool,
    pub clusters: bool,
}

/// One request to a cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CloudCall {
    /// Reads the instance of a node.
    Instance {
        cluster: ClusterRef,
        node: NodeRef,
    },
    /// Reads the zone of a node's instance, for clouds whose instances do not contain their zone.
    Zone {
        cluster: ClusterRef,
        node: NodeRef,
    },
    /// Creates a load balancer, or changes it to match `wanted`.
    EnsureBalancer {
        cluster: ClusterRef,
        wanted: Arc<BalancerSpec>,
        hosts: Arc<[Host]>,
    },
    /// Replaces the hosts of a load balancer, and leaves its other properties unchanged.
    UpdateHosts {
        cluster: ClusterRef,
        wanted: Arc<BalancerSpec>,
        hosts: Arc<[Host]>,
    },
    /// Deletes a load balancer with all its parts.
    DeleteBalancer {
        cluster: ClusterRef,
        name: String,
        service: ServiceRef,
    },
    /// Lists all routes of the cluster's network, including other clusters' routes.
    Routes {
        cluster: ClusterRef,
    },
    CreateRoute {
        cluster: ClusterRef,
        route: Route,
    },
    DeleteRoute {
        cluster: ClusterRef,
        route: Route,
    },
    /// Lists the clusters that have objects in this cloud.
    Clusters,
}

/// The answer of a cloud to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CloudAnswer {
    Instance(Instance),
    Zone(Zone),
    Balancer(Balancer),
    Routes(Vec<Route>),
    Clusters(Vec<ClusterRef>),
    Done,
}

/// Identifies the node of an instance: by the node's provider ID, or by the node's name if it has no provider ID yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeRef {
    pub name: String,
    pub provider_id: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceRef {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// A machine in a cloud, which may be the machine of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Instance {
    /// The provider ID of the instance: `PROVIDER://…`.
    pub provider_id: String,
    pub kind: String,
    pub zone: Zone,
    pub addresses: Vec<NodeAddress>,
    /// Additional labels for the instance's node.
    pub labels: BTreeMap<String, String>,
    pub is_shut_down: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Zone {
    pub zone: String,
    pub region: String,
}

/// An address of a node, with its type as Kubernetes names it: `InternalIP`, `ExternalIP`, `Hostname` …
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeAddress {
    #[serde(rename = "type", default)]
    pub kind: String,
    #[serde(default)]
    pub address: String,
}

/// The load balancer that a Service requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BalancerSpec {
    /// The load balancer's name in the cloud.
    pub name: String,
    pub service: ServiceRef,
    pub annotations: BTreeMap<String, String>,
    pub ports: Vec<Port>,
    /// The addresses that may send to the load balancer, as ranges. If there is no range, all addresses may send to it.
    pub source_ranges: Vec<String>,
    /// The IP address that the Service requests; empty if it requests none.
    pub address: String,
    pub external_ips: Vec<String>,
    /// Whether a node sends the traffic that reaches it only to backends on this node.
    pub local: bool,
    /// The node port at which each node reports whether it has a ready backend of the Service; 0 if there is no such
    /// port.
    pub health_check_port: u16,
    /// For how many seconds a client is always sent to the same backend; 0 for no affinity.
    pub affinity_seconds: u32,
    /// The IP families of the load balancer: `IPv4`, `IPv6`, or both, with the preferred family first.
    pub families: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Port {
    pub name: String,
    pub protocol: String,
    pub app_protocol: String,
    pub port: u16,
    /// The port of each node that receives the load balancer's traffic; 0 if nodes have no port.
    pub node_port: u16,
}

/// A node to which a load balancer sends traffic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Host {
    pub node: NodeRef,
    pub zone: String,
    pub addresses: Vec<NodeAddress>,
}

/// A load balancer that exists in the cloud.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Balancer {
    pub name: String,
    /// The cluster to which the load balancer belongs.
    pub cluster: ClusterRef,
    pub ingress: Vec<Ingress>,
}

/// An address at which a load balancer receives traffic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ingress {
    pub ip: String,
    pub hostname: String,
    /// The mode of the address: `VIP`, `Proxy`, or empty.
    pub ip_mode: String,
    pub ports: Vec<IngressPort>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IngressPort {
    pub port: u16,
    pub protocol: String,
    /// The reason why the port does not work, as one word; empty if the port works.
    pub error: String,
}

/// A route to the pods of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    pub name: String,
    /// The cluster to which the route belongs. The cluster's name is empty if the cluster is unknown.
    pub cluster: ClusterRef,
    pub node: String,
    pub destination: String,
    /// Whether traffic to this destination is dropped because its node no longer exists.
    pub blackhole: bool,
}

/// Why a call to a cloud failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub reason: FaultReason,
    pub message: String,
    /// How long, in milliseconds, the caller is to wait before it repeats the call; `None` if the cloud has not said
    /// so.
    pub retry_millis: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultReason {
    /// The cloud has determined that the object does not exist.
    NotFound,
    /// The cloud does not offer the part to which the call belongs.
    NotOffered,
    /// Another controller or program is responsible for this Service.
    Elsewhere,
    /// The call can never succeed, however often it is repeated.
    Invalid,
    /// An object of another owner conflicts with the call.
    Conflict,
    /// A limit of the cloud is reached: a limit of objects, or a limit of calls.
    Exhausted,
    /// The cloud did not answer in time, or its answer does not fit the call.
    Unavailable,
}

impl FaultReason {
    pub const ALL: [(FaultReason, &'static str); 7] = [
        (FaultReason::NotFound, "NotFound"),
        (FaultReason::NotOffered, "NotOffered"),
        (FaultReason::Elsewhere, "Elsewhere"),
        (FaultReason::Invalid, "Invalid"),
        (FaultReason::Conflict, "Conflict"),
        (FaultReason::Exhausted, "Exhausted"),
        (FaultReason::Unavailable, "Unavailable"),
    ];

    pub fn as_str(self) -> &'static str {
        FaultReason::ALL.iter().find(|(why, _)| *why == self).map_or("Unavailable", |(_, word)| word)
    }

    pub fn of(word: &str) -> Option<FaultReason> {
        FaultReason::ALL.iter().find(|(_, known)| *known == word).map(|(why, _)| *why)
    }
}

impl Fault {
    pub fn new(why: FaultReason, message: impl Into<String>) -> Fault {
        Fault { reason: why, message: message.into(), retry_millis: None }
    }

    pub fn unavailable(message: impl Into<String>) -> Fault {
        Fault::new(FaultReason::Unavailable, message)
    }

    pub fn is(&self, why: FaultReason) -> bool {
        self.reason == why
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl CloudCall {
    /// The name of the call in messages and metrics.
    pub fn method(&self) -> &'static str {
        match self {
            CloudCall::Instance { .. } => "Instance",
            CloudCall::Zone { .. } => "Zone",
            CloudCall::EnsureBalancer { .. } => "EnsureBalancer",
            CloudCall::UpdateHosts { .. } => "UpdateHosts",
            CloudCall::DeleteBalancer { .. } => "DeleteBalancer",
            CloudCall::Routes { .. } => "Routes",
            CloudCall::CreateRoute { .. } => "CreateRoute",
            CloudCall::DeleteRoute { .. } => "DeleteRoute",
            CloudCall::Clusters => "Clusters",
        }
    }

    /// The cluster for which the call is made; `None` if the call is about all clusters.
    pub fn cluster(&self) -> Option<&ClusterRef> {
        match self {
            CloudCall::Instance { cluster, .. }
            | CloudCall::Zone { cluster, .. }
            | CloudCall::EnsureBalancer { cluster, .. }
            | CloudCall::UpdateHosts { cluster, .. }
            | CloudCall::DeleteBalancer { cluster, .. }
            | CloudCall::Routes { cluster }
            | CloudCall::CreateRoute { cluster, .. }
            | CloudCall::DeleteRoute { cluster, .. } => Some(cluster),
            CloudCall::Clusters => None,
        }
    }

    /// Whether the call changes nothing.
    pub fn is_read(&self) -> bool {
        matches!(
            self,
            CloudCall::Instance { .. } | CloudCall::Zone { .. } | CloudCall::Routes { .. } | CloudCall::Clusters
        )
    }

    /// Returns the answer, or a fault if the answer does not belong to this call.
    pub fn check_answer(&self, answer: CloudAnswer) -> Result<CloudAnswer, Fault> {
        let fits = match (self, &answer) {
            (CloudCall::Instance { .. }, CloudAnswer::Instance(_))
            | (CloudCall::Zone { .. }, CloudAnswer::Zone(_))
            | (CloudCall::Routes { .. }, CloudAnswer::Routes(_))
            | (CloudCall::Clusters, CloudAnswer::Clusters(_))
            | (
                CloudCall::UpdateHosts { .. }
                | CloudCall::DeleteBalancer { .. }
                | CloudCall::CreateRoute { .. }
                | CloudCall::DeleteRoute { .. },
                CloudAnswer::Done,
            ) => true,
            (CloudCall::EnsureBalancer { cluster, wanted, .. }, CloudAnswer::Balancer(balancer)) => {
                if balancer.cluster != *cluster || balancer.name != wanted.name {
                    let (theirs, ours) = (&balancer.cluster, cluster);
                    return Err(Fault::unavailable(format!(
                        "the cloud answers with balancer {} of cluster {} ({}), and was asked for {} of cluster {} ({})",
                        balancer.name, theirs.name, theirs.uid, wanted.name, ours.name, ours.uid
                    )));
                }
                true
            }
            _ => false,
        };
        if fits {
            Ok(answer)
        } else {
            Err(Fault::unavailable(format!("the cloud answers {} with something else", self.method())))
        }
    }
}
