//! The options of the cloud controllers.

/// The options of the cloud controllers. The defaults are the same as in Kubernetes.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The scheme of the cloud's provider IDs: the text before `://`.
    pub provider: String,
    /// The value of `--cluster-name`.
    pub cluster_name: String,
    /// The CIDRs in `--cluster-cidr`.
    pub cluster_ranges: Vec<String>,
    /// The value of `--allocate-node-cidrs`.
    pub allocate_ranges: bool,
    /// The value of `--configure-cloud-routes`.
    pub routes: bool,
    /// The value of `--node-status-update-frequency`, in milliseconds.
    pub addresses_millis: i64,
    /// The value of `--node-monitor-period`, in milliseconds.
    pub monitor_millis: i64,
    /// The value of `--route-reconciliation-period`, in milliseconds.
    pub routes_millis: i64,
    /// The value of `--min-resync-period`, in milliseconds. A confirmed request is sent again after this time or up to
    /// twice as long.
    pub resync_millis: i64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            provider: String::new(),
            cluster_name: "kubernetes".into(),
            cluster_ranges: Vec::new(),
            allocate_ranges: false,
            routes: true,
            addresses_millis: 300_000,
            monitor_millis: 5_000,
            routes_millis: 10_000,
            resync_millis: 12 * 3_600_000,
        }
    }
}
