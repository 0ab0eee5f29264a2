//! The names of the cloud controllers, for the option `--controllers` of Kubernetes' cloud controller manager.

use holdfast_controllers::names::{ControllerName, named};

pub const NODE: &str = "cloud-node-controller";
pub const LIFECYCLE: &str = "cloud-node-lifecycle-controller";
pub const SERVICE: &str = "service-lb-controller";
pub const ROUTE: &str = "node-route-controller";

pub const NO_INSTANCES: &str = "cloud provider does not support instances";

/// All controllers of Kubernetes' cloud controller manager, each with the name that it had before 1.27.
pub const ALL: [ControllerName; 4] = [
    named(NODE, "cloud-node"),
    named(LIFECYCLE, "cloud-node-lifecycle"),
    named(SERVICE, "service"),
    named(ROUTE, "route"),
];
