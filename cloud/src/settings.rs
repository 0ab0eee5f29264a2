//! What operators may choose about these controllers, as their flags say it.

/// The defaults are those of Kubernetes.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What the ids of the cloud's machines begin with.
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
    /// `--min-resync-period`: what a cloud was told is told it again after this time or up to twice as long.
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
