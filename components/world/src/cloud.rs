//! Requests of controllers to a cloud, as data: calls, answers and the reasons of failed calls.
//!
//! A cloud provides machines, load balancers and routes for a cluster. It offers some or all of these parts
//! ([`Offers`]). Every call may be repeated: creating an existing object changes nothing, and deleting an absent object
//! succeeds.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The cluster for which a call is made: its `--cluster-name`, and the uid of its namespace `kube-system`. The uid
/// distinguishes two clusters of one name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cluster {
    pub name: String,
    pub uid: String,
}

/// The parts that a cloud offers.
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
pub enum Call {
    /// Reads the instance of a node.
    Instance {
        cluster: Cluster,
        node: NodeRef,
    },
    /// Reads the zone of a node's instance, for clouds whose instances do not contain their zone.
    Zone {
        cluster: Cluster,
        node: NodeRef,
    },
    /// Creates a load balancer, or changes it to match `wanted`.
    EnsureBalancer {
        cluster: Cluster,
        wanted: Arc<Wanted>,
        hosts: Arc<[Host]>,
    },
    /// Replaces the hosts of a load balancer, and leaves its other properties unchanged.
    UpdateHosts {
        cluster: Cluster,
        wanted: Arc<Wanted>,
        hosts: Arc<[Host]>,
    },
    /// Deletes a load balancer with all its parts.
    DeleteBalancer {
        cluster: Cluster,
        name: String,
        service: ServiceRef,
    },
    /// Lists all routes of the cluster's network, including other clusters' routes.
    Routes {
        cluster: Cluster,
    },
    CreateRoute {
        cluster: Cluster,
        route: Route,
    },
    DeleteRoute {
        cluster: Cluster,
        route: Route,
    },
    /// Lists the clusters that have objects in this cloud.
    Clusters,
}

/// A cloud's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Instance(Instance),
    Zone(Zone),
    Balancer(Balancer),
    Routes(Vec<Route>),
    Clusters(Vec<Cluster>),
    Done,
}

/// Identifies the node of an instance: by the id that the cloud gave it, or by name if it has no id yet.
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

/// A machine in a cloud.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Instance {
    /// The provider ID: `PROVIDER://…`.
    pub provider_id: String,
    pub kind: String,
    pub zone: Zone,
    pub addresses: Vec<Address>,
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
pub struct Address {
    #[serde(rename = "type", default)]
    pub kind: String,
    #[serde(default)]
    pub address: String,
}

/// A load balancer as a Service wants it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The load balancer's name in the cloud.
    pub name: String,
    pub service: ServiceRef,
    pub annotations: BTreeMap<String, String>,
    pub ports: Vec<Port>,
    /// The addresses that may send to the load balancer, as ranges. If there is no range, all addresses may.
    pub source_ranges: Vec<String>,
    /// The requested address, if any.
    pub address: String,
    pub external_ips: Vec<String>,
    /// Whether traffic stays on the node at which it arrives.
    pub local: bool,
    /// The port at which nodes report whether they have a ready backend of the Service; 0 if there is none.
    pub health_check_port: u16,
    /// For how many seconds a client stays with one backend; 0 for no affinity.
    pub affinity_seconds: u32,
    /// The IP families: `IPv4`, `IPv6`, or both with the preferred one first.
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
    pub addresses: Vec<Address>,
}

/// A load balancer as it is in the cloud.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Balancer {
    pub name: String,
    /// The cluster to which the load balancer belongs.
    pub cluster: Cluster,
    pub ingress: Vec<Ingress>,
}

/// An address at which a load balancer receives traffic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ingress {
    pub ip: String,
    pub hostname: String,
    /// `VIP`, `Proxy`, or nothing.
    pub ip_mode: String,
    pub ports: Vec<IngressPort>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IngressPort {
    pub port: u16,
    pub protocol: String,
    /// The reason why the port does not work, as one word; empty if it works.
    pub error: String,
}

/// A route to the pods of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    pub name: String,
    /// The cluster to which the route belongs. The cluster's name is empty if it is unknown.
    pub cluster: Cluster,
    pub node: String,
    pub destination: String,
    /// Whether traffic to this destination is dropped because its node no longer exists.
    pub blackhole: bool,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub why: Why,
    pub message: String,
    /// The time after which the cloud wants the call to be repeated.
    pub retry_millis: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The object does not exist, and the cloud is sure of it.
    NotFound,
    /// The cloud does not offer this part.
    NotOffered,
    /// Another controller or program is responsible for this Service.
    Elsewhere,
    /// The call can never succeed, however often it is repeated.
    Invalid,
    /// An object of another owner conflicts with the call.
    Conflict,
    /// A limit of the cloud is reached: of objects or of calls.
    Exhausted,
    /// The cloud did not answer in time, or its answer does not fit the call.
    Unavailable,
}

impl Why {
    pub const ALL: [(Why, &'static str); 7] = [
        (Why::NotFound, "NotFound"),
        (Why::NotOffered, "NotOffered"),
        (Why::Elsewhere, "Elsewhere"),
        (Why::Invalid, "Invalid"),
        (Why::Conflict, "Conflict"),
        (Why::Exhausted, "Exhausted"),
        (Why::Unavailable, "Unavailable"),
    ];

    pub fn as_str(self) -> &'static str {
        Why::ALL.iter().find(|(why, _)| *why == self).map_or("Unavailable", |(_, word)| word)
    }

    pub fn of(word: &str) -> Option<Why> {
        Why::ALL.iter().find(|(_, known)| *known == word).map(|(why, _)| *why)
    }
}

impl Fault {
    pub fn new(why: Why, message: impl Into<String>) -> Fault {
        Fault { why, message: message.into(), retry_millis: None }
    }

    pub fn unavailable(message: impl Into<String>) -> Fault {
        Fault::new(Why::Unavailable, message)
    }

    pub fn is(&self, why: Why) -> bool {
        self.why == why
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Call {
    /// The call's name in messages and metrics.
    pub fn method(&self) -> &'static str {
        match self {
            Call::Instance { .. } => "Instance",
            Call::Zone { .. } => "Zone",
            Call::EnsureBalancer { .. } => "EnsureBalancer",
            Call::UpdateHosts { .. } => "UpdateHosts",
            Call::DeleteBalancer { .. } => "DeleteBalancer",
            Call::Routes { .. } => "Routes",
            Call::CreateRoute { .. } => "CreateRoute",
            Call::DeleteRoute { .. } => "DeleteRoute",
            Call::Clusters => "Clusters",
        }
    }

    /// The cluster for which the call is made; `None` if the call is about all clusters.
    pub fn cluster(&self) -> Option<&Cluster> {
        match self {
            Call::Instance { cluster, .. }
            | Call::Zone { cluster, .. }
            | Call::EnsureBalancer { cluster, .. }
            | Call::UpdateHosts { cluster, .. }
            | Call::DeleteBalancer { cluster, .. }
            | Call::Routes { cluster }
            | Call::CreateRoute { cluster, .. }
            | Call::DeleteRoute { cluster, .. } => Some(cluster),
            Call::Clusters => None,
        }
    }

    /// Whether the call changes nothing.
    pub fn is_read(&self) -> bool {
        matches!(self, Call::Instance { .. } | Call::Zone { .. } | Call::Routes { .. } | Call::Clusters)
    }

    /// The answer, or a fault if it is not an answer to this call.
    pub fn judge(&self, answer: Answer) -> Result<Answer, Fault> {
        let fits = match (self, &answer) {
            (Call::Instance { .. }, Answer::Instance(_))
            | (Call::Zone { .. }, Answer::Zone(_))
            | (Call::Routes { .. }, Answer::Routes(_))
            | (Call::Clusters, Answer::Clusters(_))
            | (
                Call::UpdateHosts { .. }
                | Call::DeleteBalancer { .. }
                | Call::CreateRoute { .. }
                | Call::DeleteRoute { .. },
                Answer::Done,
            ) => true,
            (Call::EnsureBalancer { cluster, wanted, .. }, Answer::Balancer(balancer)) => {
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
