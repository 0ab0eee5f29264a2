//! The connections to servers behind the API, with their limits and settings.

use super::counts::Counts;
use holdfast_outbound::kubelets::Kubelets;
use holdfast_service::Shares;
use std::sync::Arc;

/// The connections to servers behind the API, and their limits.
pub struct Connections {
    pub kubelets: Arc<Kubelets>,
    /// The speed limit of one connection, in bytes a second in each direction.
    pub bytes_a_second: Option<u64>,
    pub(super) gates: KubeletGates,
    /// A place for each open connection, so that one user cannot block the connections of others.
    pub(super) places: Shares,
    pub(crate) counts: Counts,
}

/// How requests to kubelets are handled, according to feature gates.
#[derive(Debug, Clone, Copy)]
pub struct KubeletGates {
    /// Whether WebSockets of protocol version 5 are translated to SPDY for kubelets without WebSockets.
    pub translates: bool,
    /// Whether SPDY in a WebSocket is unpacked for kubelets without WebSockets.
    pub tunnels: bool,
    /// Whether kubelets that declare support for WebSockets get the clients' requests unchanged.
    pub passes_on: bool,
    /// Whether a client that reads a log may ask not to verify the kubelet's certificate.
    pub may_trust_any: bool,
}

impl Default for KubeletGates {
    fn default() -> KubeletGates {
        KubeletGates { translates: true, tunnels: true, passes_on: true, may_trust_any: true }
    }
}

/// The default of the maximum number of open connections to servers behind the API.
const PLACES: u64 = 4096;

impl Default for Connections {
    fn default() -> Connections {
        let kubelets = Kubelets::new(Default::default(), Default::default(), Default::default());
        Connections::new(Arc::new(kubelets), None, PLACES)
    }
}

impl Connections {
    /// Allows at most `most` open connections at a time, of which no user may have more than a fair share.
    pub fn new(kubelets: Arc<Kubelets>, bytes_a_second: Option<u64>, most: u64) -> Connections {
        let (places, gates) = (Shares::new(most), KubeletGates::default());
        Connections { kubelets, bytes_a_second, gates, places, counts: Counts::default() }
    }

    pub fn obeying(self, gates: KubeletGates) -> Connections {
        Connections { gates, ..self }
    }
}
