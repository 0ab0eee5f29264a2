//! What controllers ask of a cloud, as data: calls, answers, and why a call came to nothing.
//!
//! A cloud is whoever keeps machines, load balancers and routes for a cluster. It offers some parts of this or all of it
//! ([`Offers`]). Every call may be made again: what is there already is left as it is, and what is gone may be deleted.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// For which cluster a call is made: its name, as `--cluster-name` has it, and the uid of its namespace `kube-system`.
/// Two clusters of one name are told apart by the uid.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cluster {
    pub name: String,
    pub uid: String,
}

/// Which parts a cloud offers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Offers {
    pub instances: bool,
    pub zones: bool,
    pub balancers: bool,
    pub routes: bool,
    pub clusters: bool,
}

/// One thing that is asked of a cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// The instance behind a node.
    Instance {
        cluster: Cluster,
        node: NodeRef,
    },
    /// Where the instance is, from clouds that do not say so with the instance.
    Zone {
        cluster: Cluster,
        node: NodeRef,
    },
    /// Makes a balancer, or brings it to what is wanted.
    EnsureBalancer {
        cluster: Cluster,
        wanted: Arc<Wanted>,
        hosts: Arc<[Host]>,
    },
    /// Brings the hosts of a balancer to these, and leaves the rest of it.
    UpdateHosts {
        cluster: Cluster,
        wanted: Arc<Wanted>,
        hosts: Arc<[Host]>,
    },
    /// Deletes a balancer with all that belongs to it.
    DeleteBalancer {
        cluster: Cluster,
        name: String,
        service: ServiceRef,
    },
    /// All routes of the cluster's network, whosever they are.
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
    /// The clusters that have something in this cloud.
    Clusters,
}

/// What a cloud answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Instance(Instance),
    Zone(Zone),
    Balancer(Balancer),
    Routes(Vec<Route>),
    Clusters(Vec<Cluster>),
    Done,
}

/// Which node an instance is asked about: by the id that the cloud gave it, or by name where it has none yet.
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

/// A machine of a cloud.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Instance {
    /// `PROVIDER://…`
    pub provider_id: String,
    pub kind: String,
    pub zone: Zone,
    pub addresses: Vec<Address>,
    /// Labels that its node gets besides.
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

/// A balancer as a Service wants it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The name of the balancer in the cloud.
    pub name: String,
    pub service: ServiceRef,
    pub annotations: BTreeMap<String, String>,
    pub ports: Vec<Port>,
    /// Who may send to it, as ranges of addresses; nobody is kept out where there is none.
    pub source_ranges: Vec<String>,
    /// The address that is asked for, if any.
    pub address: String,
    pub external_ips: Vec<String>,
    /// Whether traffic stays on the node that it comes to.
    pub local: bool,
    /// Where nodes tell whether they have somebody behind the Service; 0 for nowhere.
    pub health_check_port: u16,
    /// For how many seconds a client stays with one backend; 0 for not at all.
    pub affinity_seconds: u32,
    /// `IPv4`, `IPv6`, or both, the first one preferred.
    pub families: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Port {
    pub name: String,
    pub protocol: String,
    pub app_protocol: String,
    pub port: u16,
    /// The port of each node behind it; 0 where nodes have none.
    pub node_port: u16,
}

/// A node that a balancer sends to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Host {
    pub node: NodeRef,
    pub zone: String,
    pub addresses: Vec<Address>,
}

/// A balancer as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Balancer {
    pub name: String,
    /// Whose it is.
    pub cluster: Cluster,
    pub ingress: Vec<Ingress>,
}

/// Where a balancer takes traffic.
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
    /// What is wrong with it, as a word.
    pub error: String,
}

/// A way to the pods of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    pub name: String,
    /// Whose it is; an empty name where nobody knows.
    pub cluster: Cluster,
    pub node: String,
    pub destination: String,
    /// Whether what is sent there is dropped, because its node is gone.
    pub blackhole: bool,
}

/// Why a call came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub why: Why,
    pub message: String,
    /// When the cloud wants to be asked again.
    pub retry_millis: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// What was asked about is not there, and the cloud is sure of it.
    NotFound,
    /// The cloud has no such part.
    NotOffered,
    /// Somebody else cares for this Service.
    Elsewhere,
    /// What is asked cannot be, however often it is asked.
    Invalid,
    /// Something of somebody else's is in the way.
    Conflict,
    /// Too much is there, or too much was asked.
    Exhausted,
    /// The cloud did not answer, or not in time, or not what it was asked.
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
    /// What it is called in messages and metrics.
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

    /// The cluster that it is made for; none where it is about all of them.
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

    /// Whether it changes nothing.
    pub fn is_read(&self) -> bool {
        matches!(self, Call::Instance { .. } | Call::Zone { .. } | Call::Routes { .. } | Call::Clusters)
    }

    /// An answer to this call, or a fault where it is one to another.
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
