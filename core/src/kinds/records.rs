//! What servers keep in a shared store beside the objects of the API: which addresses and ports of services are taken,
//! and where the servers are.

/// One sort of these records: a document of a kind of the API, which no resource shows.
#[derive(Debug, PartialEq, Eq)]
pub struct Record {
    /// Below the storage prefix: `ranges/servicenodeports`.
    pub storage: &'static str,
    /// Each record has a name below that; else there is one.
    pub is_named: bool,
    /// As an EncryptionConfiguration names them.
    pub resource: &'static str,
    pub api_version: &'static str,
    pub kind: &'static str,
    pub(crate) message: &'static str,
}

/// Which addresses of services are taken. Servers since release 1.34 tell it by IPAddress objects alone.
pub const SERVICE_ADDRESSES: Record = allocation("ranges/serviceips", "serviceipallocations");
/// The same for the second family of addresses.
pub const SECOND_SERVICE_ADDRESSES: Record = allocation("ranges/secondaryserviceips", "serviceipallocations");
/// Which ports of nodes are taken by services.
pub const NODE_PORTS: Record = allocation("ranges/servicenodeports", "servicenodeportallocations");
/// Which servers there are, by their addresses.
pub const SERVERS: Record = addresses("masterleases", "apiServerIPInfo");
/// Where other servers reach a server, by its identity.
pub const PEERS: Record = addresses("peerserverleases", "apiServerPeerIPInfo");

pub const ALL: [&Record; 5] = [&SERVICE_ADDRESSES, &SECOND_SERVICE_ADDRESSES, &NODE_PORTS, &SERVERS, &PEERS];

const fn allocation(storage: &'static str, resource: &'static str) -> Record {
    let message = "io.k8s.api.core.v1.RangeAllocation";
    Record { storage, is_named: false, resource, api_version: "v1", kind: "RangeAllocation", message }
}

const fn addresses(storage: &'static str, resource: &'static str) -> Record {
    let message = "io.k8s.api.core.v1.Endpoints";
    Record { storage, is_named: true, resource, api_version: "v1", kind: "Endpoints", message }
}
