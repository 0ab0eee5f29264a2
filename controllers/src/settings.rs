//! What operators may choose about controllers, as their flags say it.

/// The defaults are those of Kubernetes.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `--root-ca-file`: what clients of the API trust, as PEM. Without it nobody publishes any.
    pub root_ca: Option<String>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { root_ca: None }
    }
}
