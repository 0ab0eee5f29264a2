//! The bounds and settings of connections to nodes and to what runs in the cluster.

use super::counts::Counts;
use holdfast_outbound::kubelets::Kubelets;
use holdfast_service::Shares;
use std::sync::Arc;

/// What goes out behind the API.
pub struct Connections {
    pub kubelets: Arc<Kubelets>,
    /// How fast one connection may be, in bytes a second each way.
    pub bytes_a_second: Option<u64>,
    pub(super) gates: KubeletGates,
    /// A place for each connection there is, so that no user keeps others from their nodes.
    pub(super) places: Shares,
    pub(crate) counts: Counts,
}

/// What is done with requests for kubelets, as feature gates say.
#[derive(Debug, Clone, Copy)]
pub struct KubeletGates {
    /// WebSockets of version 5 are translated to SPDY for kubelets that speak nothing else.
    pub translates: bool,
    /// SPDY in a WebSocket is unpacked for such kubelets.
    pub tunnels: bool,
    /// Kubelets that declare that they speak both get them as clients send them.
    pub passes_on: bool,
    /// Whoever reads a log may leave the kubelet's certificate unverified.
    pub may_trust_any: bool,
}

impl Default for KubeletGates {
    fn default() -> KubeletGates {
        KubeletGates { translates: true, tunnels: true, passes_on: true, may_trust_any: true }
    }
}

/// How many connections there may be, where nobody says.
const PLACES: u64 = 4096;

impl Default for Connections {
    fn default() -> Connections {
        let kubelets = Kubelets::new(Default::default(), Default::default(), Default::default());
        Connections::new(Arc::new(kubelets), None, PLACES)
    }
}

impl Connections {
    /// At most so many at a time, of which no user has more than a share.
    pub fn new(kubelets: Arc<Kubelets>, bytes_a_second: Option<u64>, most: u64) -> Connections {
        let (places, gates) = (Shares::new(most), KubeletGates::default());
        Connections { kubelets, bytes_a_second, gates, places, counts: Counts::default() }
    }

    pub fn obeying(self, gates: KubeletGates) -> Connections {
        Connections { gates, ..self }
    }
}
