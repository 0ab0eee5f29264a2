//! The options of controllers, named after their flags.

use crate::account_tokens::TokenSigner;
use crate::certificates::Signer;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The options. The defaults are the same as in Kubernetes.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `--root-ca-file`: the CA certificates of the API server, as PEM. Without it they are not published.
    pub root_ca: Option<String>,
    /// `--cluster-signing-*-file`: the signers by name. Requests for other signers are ignored.
    pub signers: BTreeMap<String, Arc<dyn Signer>>,
    /// `--cluster-signing-duration`
    pub signing_seconds: i64,
    /// `--service-account-private-key-file`: signs the tokens in Secrets. Without it no Secret gets a token.
    pub account_tokens: Option<Arc<dyn TokenSigner>>,
    /// `--legacy-service-account-token-clean-up-period`
    pub account_token_period_seconds: i64,
    /// `--allocate-node-cidrs`
    pub allocate_node_ranges: bool,
    /// `--cluster-cidr`
    pub cluster_ranges: Vec<String>,
    /// `--service-cluster-ip-range`
    pub service_ranges: Vec<String>,
    /// `--node-cidr-mask-size`, `--node-cidr-mask-size-ipv4`
    pub node_bits_v4: u32,
    /// `--node-cidr-mask-size-ipv6`
    pub node_bits_v6: u32,
    /// The opposite of `--disable-force-detach-on-timeout`: whether a volume is detached after six minutes from a node
    /// that is not ready, though the node's status shows it in use.
    pub force_detach: bool,
    /// The feature gate DRADeviceTaints.
    pub device_taints: bool,
    /// The feature gate PodCertificateRequest.
    pub pod_certificates: bool,
    pub nodes: NodeSettings,
    pub services: ServiceSettings,
    pub autoscaling: AutoscalingSettings,
    /// `--terminated-pod-gc-threshold`
    pub terminated_pod_threshold: i64,
    /// `--pvclaimbinder-sync-period`
    pub claim_binder_period_seconds: i64,
    /// `--enable-dynamic-provisioning`
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

/// How many addresses an object holds, and how long a change of pods may wait for further changes, so that one write
/// covers several changes.
#[derive(Debug, Clone, Copy)]
pub struct ServiceSettings {
    /// `--max-endpoints-per-slice`
    pub endpoints_per_slice: usize,
    /// `--mirroring-max-endpoints-per-subset`
    pub mirrored_per_subset: usize,
    /// `--endpoint-updates-batch-period`
    pub endpoints_batch_millis: i64,
    /// `--endpointslice-updates-batch-period`
    pub slices_batch_millis: i64,
    /// `--mirroring-endpointslice-updates-batch-period`
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

/// `--horizontal-pod-autoscaler-*`
#[derive(Debug, Clone, Copy)]
pub struct AutoscalingSettings {
    /// `sync-period`
    pub period_millis: i64,
    /// `downscale-stabilization`
    pub down_window_seconds: i64,
    /// `tolerance`
    pub tolerance: f64,
    /// `cpu-initialization-period`
    pub cpu_start_seconds: i64,
    /// `initial-readiness-delay`
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
    /// `--node-monitor-grace-period`
    pub monitor_grace_seconds: i64,
    /// `--node-startup-grace-period`
    pub startup_grace_seconds: i64,
    /// `--node-eviction-rate`: nodes a second whose pods are evicted.
    pub eviction_rate: f64,
    /// `--secondary-node-eviction-rate`: nodes a second whose pods are evicted in a zone where many nodes are lost.
    pub secondary_eviction_rate: f64,
    /// `--large-cluster-size-threshold`: a zone where many nodes are lost and that has at most this many nodes loses no
    /// pods by eviction.
    pub large_cluster: usize,
    /// `--unhealthy-zone-threshold`: the fraction of lost nodes that counts as many.
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
