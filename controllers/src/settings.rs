//! What operators may choose about controllers, as their flags say it.

/// The defaults are those of Kubernetes.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `--root-ca-file`: what clients of the API trust, as PEM. Without it nobody publishes any.
    pub root_ca: Option<String>,
    /// `--pvclaimbinder-sync-period`
    pub claim_binder_period_seconds: i64,
    /// `--enable-dynamic-provisioning`
    pub dynamic_provisioning: bool,
    /// `--enable-hostpath-provisioner`: classes of `kubernetes.io/host-path` get volumes, which are folders on nodes;
    /// on simulated ones they are but objects.
    pub host_path_provisioner: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            root_ca: None,
            claim_binder_period_seconds: 15,
            dynamic_provisioning: true,
            host_path_provisioner: false,
        }
    }
}
