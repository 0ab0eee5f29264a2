//! The options of controllers. The documentation of each option names its flag.

use crate::account_tokens::TokenSigner;
use crate::certificates::Signer;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The options. The defaults are the same as in Kubernetes.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `--root-ca-file`: the CA certificates of the API server, as PEM. Without it they are not published.
    pub root_ca: Option<String>,
    /// `--cluster-signing-*-file`: the signers of certificates, by name. Requests that name another signer are ignored.
    pub signers: BTreeMap<String, Arc<dyn Signer>>,
    /// `--cluster-signing-duration`: the longest validity of a signed certificate.
    pub signing_seconds: i64,
    /// `--service-account-private-key-file`: signs the tokens in Secrets. Without it no Secret gets a token.
    pub account_tokens: Option<Arc<dyn TokenSigner>>,
    /// `--legacy-service-account-token-clean-up-period`: how long a token must be unused before it becomes invalid, and
    /// then how long until its Secret is deleted.
    pub account_token_period_seconds: i64,
    /// `--allocate-node-cidrs`: whether nodes get ranges of pod addresses.
    pub allocate_node_ranges: bool,
    /// `--cluster-cidr`: the ranges of pod addresses, one for each address family.
    pub cluster_ranges: Vec<String>,
    /// `--service-cluster-ip-range`: the ranges of Services' addresses, which nodes do not get.
    pub service_ranges: Vec<String>,
    /// `--node-cidr-mask-size`, `--node-cidr-mask-size-ipv4`: the prefix length of a node's IPv4 range.
    pub node_bits_v4: u32,
    /// `--node-cidr-mask-size-ipv6`: the prefix length of a node's IPv6 range.
    pub node_bits_v6: u32,
    /// The opposite of `--disable-force-detach-on-timeout`: whether a volume that has been unused for six minutes is
    /// detached from a node that is not ready, even if the node's status still shows the volume in use.
    pub force_detach: bool,
    /// The feature gate DRADeviceTaints: whether pods are deleted because of taints of their devices.
    pub device_taints: bool,
    /// The feature gate PodCertificateRequest: whether old PodCertificateRequests are deleted.
    pub pod_certificates: bool,
    pub nodes: NodeSettings,
    pub services: ServiceSettings,
    pub autoscaling: AutoscalingSettings,
    /// `--terminated-pod-gc-threshold`: how many finished pods are kept.
    pub terminated_pod_threshold: i64,
    /// `--pvclaimbinder-sync-period`: after how many seconds an unbound claim is planned again.
    pub claim_binder_period_seconds: i64,
    /// `--enable-dynamic-provisioning`: whether volumes are provisioned for claims for which no volume exists.
    pub dynamic_provisioning: bool,
    /// `--enable-hostpath-provisioner`: provisions volumes for classes of `kubernetes.io/host-path`. Such a volume is a
    /// folder on a node; on simulated nodes it is only an object.
    pub host_path_provisioner: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            root_ca: None,
            signers: BTreeMap::new(),
            signing_seconds: 8_760 * 3_600,
            account_tokens: None,
            account_token_period_seconds: 8_760 * 3_600,
            allocate_node_ranges: false,
            cluster_ranges: Vec::new(),
            service_ranges: Vec::new(),
            node_bits_v4: 24,
            node_bits_v6: 64,
            force_detach: true,
            device_taints: false,
            pod_certificates: false,
            nodes: NodeSettings::default(),
            services: ServiceSettings::default(),
            autoscaling: AutoscalingSettings::default(),
            terminated_pod_threshold: 12_500,
            claim_binder_period_seconds: 15,
            dynamic_provisioning: true,
            host_path_provisioner: false,
        }
    }
}

/// How many addresses one object lists, and how long a change of pods waits for further changes, so that one write
/// covers several changes.
#[derive(Debug, Clone, Copy)]
pub struct ServiceSettings {
    /// `--max-endpoints-per-slice`: how many endpoints one EndpointSlice has at most.
    pub endpoints_per_slice: usize,
    /// `--mirroring-max-endpoints-per-subset`: how many addresses of one subset of Endpoints are copied into
    /// EndpointSlices at most.
    pub mirrored_per_subset: usize,
    /// `--endpoint-updates-batch-period`: how long the write of Endpoints waits for further changes of pods.
    pub endpoints_batch_millis: i64,
    /// `--endpointslice-updates-batch-period`: how long the write of EndpointSlices waits for further changes of pods.
    pub slices_batch_millis: i64,
    /// `--mirroring-endpointslice-updates-batch-period`: how long the copying of Endpoints into EndpointSlices waits
    /// for further changes.
    pub mirrored_batch_millis: i64,
}

impl Default for ServiceSettings {
    fn default() -> ServiceSettings {
        ServiceSettings {
            endpoints_per_slice: 100,
            mirrored_per_subset: 1000,
            endpoints_batch_millis: 0,
            slices_batch_millis: 0,
            mirrored_batch_millis: 0,
        }
    }
}

/// The values of the flags `--horizontal-pod-autoscaler-*`. The comment of each field begins with the rest of its flag.
#[derive(Debug, Clone, Copy)]
pub struct AutoscalingSettings {
    /// `sync-period`: the interval between two evaluations of an autoscaler.
    pub period_millis: i64,
    /// `downscale-stabilization`: how long a recommended size keeps an autoscaler from scaling to a smaller size.
    pub down_window_seconds: i64,
    /// `tolerance`: how far the ratio of usage to target may be from 1 without a change of the size.
    pub tolerance: f64,
    /// `cpu-initialization-period`: how long after a pod's start its CPU usage may be ignored.
    pub cpu_start_seconds: i64,
    /// `initial-readiness-delay`: how long after a pod's start a pod that is not ready counts as never having been
    /// ready.
    pub readiness_seconds: i64,
}

impl Default for AutoscalingSettings {
    fn default() -> AutoscalingSettings {
        AutoscalingSettings {
            period_millis: 15_000,
            down_window_seconds: 300,
            tolerance: 0.1,
            cpu_start_seconds: 300,
            readiness_seconds: 30,
        }
    }
}

/// When nodes count as lost, and how fast their pods are evicted.
#[derive(Debug, Clone)]
pub struct NodeSettings {
    /// `--node-monitor-grace-period`: a node without heartbeats for this long counts as lost.
    pub monitor_grace_seconds: i64,
    /// `--node-startup-grace-period`: a node without the Ready condition counts as lost after this long.
    pub startup_grace_seconds: i64,
    /// `--node-eviction-rate`: in a zone where few nodes or all nodes are lost, how many lost nodes lose their pods in
    /// a second.
    pub eviction_rate: f64,
    /// `--secondary-node-eviction-rate`: in a large zone with many lost nodes, how many lost nodes lose their pods in a
    /// second.
    pub secondary_eviction_rate: f64,
    /// `--large-cluster-size-threshold`: a zone with at most this many nodes is small. If many nodes of a small zone
    /// are lost, no pods of the zone are evicted.
    pub large_cluster: usize,
    /// `--unhealthy-zone-threshold`: the fraction of lost nodes, from 0 to 1, from which a zone counts as a zone with
    /// many lost nodes.
    pub unhealthy_zone: f64,
}

impl Default for NodeSettings {
    fn default() -> NodeSettings {
        NodeSettings {
            monitor_grace_seconds: 50,
            startup_grace_seconds: 60,
            eviction_rate: 0.1,
            secondary_eviction_rate: 0.01,
            large_cluster: 50,
            unhealthy_zone: 0.55,
        }
    }
}
