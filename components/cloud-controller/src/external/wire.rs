//! The messages of `proto/cloud.proto`, and their conversion from and to the types of `holdfast-world`. `tests/wire.rs`
//! compares them with that file.

use holdfast_world::cloud;
use prost::Message;
use std::collections::{BTreeMap, HashMap};

#[derive(Clone, PartialEq, Message)]
pub struct HelloRequest {
    #[prost(string, repeated, tag = "1")]
    pub versions: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct HelloResponse {
    #[prost(string, tag = "1")]
    pub version: String,
    #[prost(string, tag = "2")]
    pub provider: String,
    #[prost(bool, tag = "3")]
    pub instances: bool,
    #[prost(bool, tag = "4")]
    pub zones: bool,
    #[prost(bool, tag = "5")]
    pub balancers: bool,
    #[prost(bool, tag = "6")]
    pub routes: bool,
    #[prost(bool, tag = "7")]
    pub clusters: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Cluster {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub uid: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct NodeRef {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub provider_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct NodeRequest {
    #[prost(message, optional, tag = "1")]
    pub cluster: Option<Cluster>,
    #[prost(message, optional, tag = "2")]
    pub node: Option<NodeRef>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Instance {
    #[prost(string, tag = "1")]
    pub provider_id: String,
    #[prost(string, tag = "2")]
    pub r#type: String,
    #[prost(message, optional, tag = "3")]
    pub zone: Option<Zone>,
    #[prost(message, repeated, tag = "4")]
    pub addresses: Vec<Address>,
    #[prost(map = "string, string", tag = "5")]
    pub labels: HashMap<String, String>,
    #[prost(bool, tag = "6")]
    pub shut_down: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Zone {
    #[prost(string, tag = "1")]
    pub zone: String,
    #[prost(string, tag = "2")]
    pub region: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Address {
    #[prost(string, tag = "1")]
    pub r#type: String,
    #[prost(string, tag = "2")]
    pub address: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ServiceRef {
    #[prost(string, tag = "1")]
    pub namespace: String,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub uid: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct BalancerRequest {
    #[prost(message, optional, tag = "1")]
    pub cluster: Option<Cluster>,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(message, optional, tag = "3")]
    pub service: Option<ServiceRef>,
    #[prost(btree_map = "string, string", tag = "4")]
    pub annotations: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "5")]
    pub ports: Vec<Port>,
    #[prost(string, repeated, tag = "6")]
    pub source_ranges: Vec<String>,
    #[prost(string, tag = "7")]
    pub address: String,
    #[prost(string, repeated, tag = "8")]
    pub external_ips: Vec<String>,
    #[prost(bool, tag = "9")]
    pub local: bool,
    #[prost(uint32, tag = "10")]
    pub health_check_port: u32,
    #[prost(uint32, tag = "11")]
    pub affinity_seconds: u32,
    #[prost(string, repeated, tag = "12")]
    pub families: Vec<String>,
    #[prost(message, repeated, tag = "13")]
    pub hosts: Vec<Host>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Port {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub protocol: String,
    #[prost(string, tag = "3")]
    pub app_protocol: String,
    #[prost(uint32, tag = "4")]
    pub port: u32,
    #[prost(uint32, tag = "5")]
    pub node_port: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Host {
    #[prost(message, optional, tag = "1")]
    pub node: Option<NodeRef>,
    #[prost(string, tag = "2")]
    pub zone: String,
    #[prost(message, repeated, tag = "3")]
    pub addresses: Vec<Address>,
}

#[derive(Clone, PartialEq, Message)]
pub struct DeleteBalancerRequest {
    #[prost(message, optional, tag = "1")]
    pub cluster: Option<Cluster>,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(message, optional, tag = "3")]
    pub service: Option<ServiceRef>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Balancer {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub cluster: Option<Cluster>,
    #[prost(message, repeated, tag = "3")]
    pub ingress: Vec<Ingress>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Ingress {
    #[prost(string, tag = "1")]
    pub ip: String,
    #[prost(string, tag = "2")]
    pub hostname: String,
    #[prost(string, tag = "3")]
    pub ip_mode: String,
    #[prost(message, repeated, tag = "4")]
    pub ports: Vec<IngressPort>,
}

#[derive(Clone, PartialEq, Message)]
pub struct IngressPort {
    #[prost(uint32, tag = "1")]
    pub port: u32,
    #[prost(string, tag = "2")]
    pub protocol: String,
    #[prost(string, tag = "3")]
    pub error: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ListRoutesRequest {
    #[prost(message, optional, tag = "1")]
    pub cluster: Option<Cluster>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ListRoutesResponse {
    #[prost(message, repeated, tag = "1")]
    pub routes: Vec<Route>,
}

#[derive(Clone, PartialEq, Message)]
pub struct RouteRequest {
    #[prost(message, optional, tag = "1")]
    pub cluster: Option<Cluster>,
    #[prost(message, optional, tag = "2")]
    pub route: Option<Route>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Route {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub cluster: Option<Cluster>,
    #[prost(string, tag = "3")]
    pub node: String,
    #[prost(string, tag = "4")]
    pub destination: String,
    #[prost(bool, tag = "5")]
    pub blackhole: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct ListClustersRequest {}

#[derive(Clone, PartialEq, Message)]
pub struct ListClustersResponse {
    #[prost(message, repeated, tag = "1")]
    pub clusters: Vec<Cluster>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Done {}

impl From<&cloud::ClusterRef> for Cluster {
    fn from(cluster: &cloud::ClusterRef) -> Cluster {
        Cluster { name: cluster.name.clone(), uid: cluster.uid.clone() }
    }
}

impl From<Option<Cluster>> for NamedCluster {
    fn from(cluster: Option<Cluster>) -> NamedCluster {
        let Cluster { name, uid } = cluster.unwrap_or_default();
        NamedCluster(cloud::ClusterRef { name, uid })
    }
}

/// The cluster that an answer of the provider names.
pub struct NamedCluster(pub cloud::ClusterRef);

impl From<&cloud::NodeRef> for NodeRef {
    fn from(node: &cloud::NodeRef) -> NodeRef {
        NodeRef { name: node.name.clone(), provider_id: node.provider_id.clone() }
    }
}

impl From<&cloud::ServiceRef> for ServiceRef {
    fn from(service: &cloud::ServiceRef) -> ServiceRef {
        let cloud::ServiceRef { namespace, name, uid } = service.clone();
        ServiceRef { namespace, name, uid }
    }
}

impl From<&cloud::Route> for Route {
    fn from(route: &cloud::Route) -> Route {
        let cloud::Route { name, cluster, node, destination, blackhole } = route.clone();
        Route { name, cluster: Some(Cluster::from(&cluster)), node, destination, blackhole }
    }
}

impl From<Route> for cloud::Route {
    fn from(route: Route) -> cloud::Route {
        let Route { name, cluster, node, destination, blackhole } = route;
        cloud::Route { name, cluster: NamedCluster::from(cluster).0, node, destination, blackhole }
    }
}

impl From<&cloud::Host> for Host {
    fn from(host: &cloud::Host) -> Host {
        let address =
            |address: &cloud::NodeAddress| Address { r#type: address.kind.clone(), address: address.address.clone() };
        Host {
            node: Some(NodeRef::from(&host.node)),
            zone: host.zone.clone(),
            addresses: host.addresses.iter().map(address).collect(),
        }
    }
}

impl From<Zone> for cloud::Zone {
    fn from(Zone { zone, region }: Zone) -> cloud::Zone {
        cloud::Zone { zone, region }
    }
}

impl From<Instance> for cloud::Instance {
    fn from(instance: Instance) -> cloud::Instance {
        let address = |Address { r#type: kind, address }: Address| cloud::NodeAddress { kind, address };
        cloud::Instance {
            provider_id: instance.provider_id,
            kind: instance.r#type,
            zone: instance.zone.unwrap_or_default().into(),
            addresses: instance.addresses.into_iter().map(address).collect(),
            labels: instance.labels.into_iter().collect(),
            is_shut_down: instance.shut_down,
        }
    }
}

impl From<Balancer> for cloud::Balancer {
    fn from(balancer: Balancer) -> cloud::Balancer {
        let port = |IngressPort { port, protocol, error }: IngressPort| cloud::IngressPort {
            port: u16::try_from(port).unwrap_or_default(),
            protocol,
            error,
        };
        let ingress = |Ingress { ip, hostname, ip_mode, ports }: Ingress| cloud::Ingress {
            ip,
            hostname,
            ip_mode,
            ports: ports.into_iter().map(port).collect(),
        };
        cloud::Balancer {
            name: balancer.name,
            cluster: NamedCluster::from(balancer.cluster).0,
            ingress: balancer.ingress.into_iter().map(ingress).collect(),
        }
    }
}

/// The request for a balancer, with the hosts to which the balancer sends traffic.
pub fn balancer(cluster: &cloud::ClusterRef, wanted: &cloud::BalancerSpec, hosts: &[cloud::Host]) -> BalancerRequest {
    let port = |port: &cloud::Port| Port {
        name: port.name.clone(),
        protocol: port.protocol.clone(),
        app_protocol: port.app_protocol.clone(),
        port: port.port.into(),
        node_port: port.node_port.into(),
    };
    BalancerRequest {
        cluster: Some(cluster.into()),
        name: wanted.name.clone(),
        service: Some((&wanted.service).into()),
        annotations: wanted.annotations.clone(),
        ports: wanted.ports.iter().map(port).collect(),
        source_ranges: wanted.source_ranges.clone(),
        address: wanted.address.clone(),
        external_ips: wanted.external_ips.clone(),
        local: wanted.local,
        health_check_port: wanted.health_check_port.into(),
        affinity_seconds: wanted.affinity_seconds,
        families: wanted.families.clone(),
        hosts: hosts.iter().map(Host::from).collect(),
    }
}
