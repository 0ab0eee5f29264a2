//! The four controllers of Kubernetes' cloud controller manager as pure plans, and a simulated cloud.
//!
//! Calls to a cloud are data ([`holdfast_world::cloud`]). A plan that needs an answer contains calls and no steps;
//! after the answer has arrived, its controller plans the key again. Nothing is deleted while its state is in doubt: a
//! resource stays if the cloud has no information about it or does not answer.

pub mod lifecycle;
pub mod names;
pub mod node;
pub mod planted;
pub mod route;
pub mod service;
pub mod settings;
pub mod simulated;

use holdfast_controllers::names::Choice;
use holdfast_world::cloud::{ClusterRef, Offers};
use holdfast_world::{Controller, Key, Resource, World};
pub use settings::Settings;
use std::sync::LazyLock;

/// The name of a controller that cannot run, and the reason why it cannot run.
pub type Absent = (&'static str, &'static str);

/// The controllers that can run with the parts that a cloud offers, and the controllers that cannot run, each with the
/// reason.
pub fn all(settings: &Settings, offers: Offers, choice: &Choice) -> (Vec<Box<dyn Controller>>, Vec<Absent>) {
    let mut controllers: Vec<Box<dyn Controller>> = Vec::new();
    let mut absent = Vec::new();
    let mut add = |name, lacks: Option<&'static str>, make: &dyn Fn() -> Box<dyn Controller>| match lacks {
        _ if !choice.runs(name) => {}
        Some(why) => absent.push((name, why)),
        None => controllers.push(make()),
    };
    let without = |offered: bool, why: &'static str| (!offered).then_some(why);
    add(names::NODE, without(offers.instances, names::NO_INSTANCES), &|| Box::new(node::CloudNodes::new(settings)));
    let lacks = without(offers.instances, names::NO_INSTANCES);
    add(names::LIFECYCLE, lacks, &|| Box::new(lifecycle::Lifecycle::new(settings)));
    let lacks = without(offers.balancers, "cloud provider does not support load balancers");
    add(names::SERVICE, lacks, &|| Box::new(service::Services::new(settings)));
    let lacks = without(settings.routes, "--configure-cloud-routes is false")
        .or(without(settings.allocate_ranges, "--allocate-node-cidrs is false: nodes have no ranges to lead to"))
        .or(without(offers.routes, "cloud provider does not support routes"));
    add(names::ROUTE, lacks, &|| Box::new(route::Routes::new(settings)));
    (controllers, absent)
}

/// The resource of namespaces. The UID of the namespace `kube-system` identifies the cluster.
pub(crate) static NAMESPACES: LazyLock<Resource> =
    LazyLock::new(|| Resource::new("", "v1", "namespaces", "Namespace", false));

/// The cluster for which calls are made; `None` until the namespace `kube-system` exists.
pub(crate) fn cluster(world: &World, settings: &Settings) -> Option<ClusterRef> {
    let system = world.object(&NAMESPACES, &Key::cluster("kube-system"))?;
    Some(ClusterRef { name: settings.cluster_name.clone(), uid: system.meta.uid.clone() })
}

/// Whether the scheme of a provider ID is the name of this provider.
pub(crate) fn is_of_provider(provider_id: &str, provider: &str) -> bool {
    provider_id.split_once("://").is_some_and(|(scheme, _)| scheme == provider)
}
