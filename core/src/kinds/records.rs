//! Records that API servers keep in a shared store in addition to objects: allocated service addresses and ports, and
//! the servers' endpoints.

/// One type of record: a document of an API kind that no resource has.
#[derive(Debug, PartialEq, Eq)]
pub struct Record {
    /// The storage path below the prefix: `ranges/servicenodeports`.
    pub storage: &'static str,
    /// Whether there are several records with names; otherwise there is a single record.
    pub is_named: bool,
    /// The name of the record's resource in an EncryptionConfiguration.
    pub resource: &'static str,
    pub api_version: &'static str,
    pub kind: &'static str,
    pub(crate) message: &'static str,
}

/// Allocated service addresses. Servers since release 1.34 use only IPAddress objects.
pub const SERVICE_ADDRESSES: Record = allocation("ranges/serviceips", "serviceipallocations");
/// Allocated service addresses of the second address family.
pub const SECOND_SERVICE_ADDRESSES: Record = allocation("ranges/secondaryserviceips", "serviceipallocations");
/// Allocated node ports of services.
pub const NODE_PORTS: Record = allocation("ranges/servicenodeports", "servicenodeportallocations");
/// The API servers: one record for each server, named by its address.
pub const SERVERS: Record = addresses("masterleases", "apiServerIPInfo");
/// The addresses at which API servers reach each other, by the server's identity.
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
