//! The options of these controllers.

/// The options. The defaults are the same as in Kubernetes.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The scheme of the cloud's provider IDs.
    pub provider: String,
    /// `--cluster-name`
    pub cluster_name: String,
    /// `--cluster-cidr`
    pub cluster_ranges: Vec<String>,
    /// `--allocate-node-cidrs`
    pub allocate_ranges: bool,
    /// `--configure-cloud-routes`
    pub routes: bool,
    /// `--node-status-update-frequency`
    pub addresses_millis: i64,
    /// `--node-monitor-period`
    pub monitor_millis: i64,
    /// `--route-reconciliation-period`
    pub routes_millis: i64,
    /// `--min-resync-period`: a confirmed request is sent again after this time or up to twice as long.
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
