//! What a cloud does for a cluster: the four controllers of Kubernetes' cloud controller manager, as pure plans, and a cloud
//! that is simulated.
//!
//! What is asked of a cloud is data ([`holdfast_world::cloud`]): a plan that needs an answer makes calls and has no steps,
//! and the key is planned again when its controller was told. Nothing is deleted on doubt: what a cloud does not know, or
//! does not say, stays as it is.

pub mod lifecycle;
pub mod names;
pub mod node;
pub mod planted;
pub mod route;
pub mod service;
pub mod settings;
pub mod simulated;

use holdfast_controllers::names::Choice;
use holdfast_world::cloud::{Cluster, Offers};
use holdfast_world::{Controller, Key, Resource, World};
pub use settings::Settings;
use std::sync::LazyLock;

/// A controller that cannot run, and why.
pub type Absent = (&'static str, &'static str);

/// The controllers that are to run with what a cloud offers, and those that cannot, each with why.
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

/// Namespaces, for the uid of the one that every cluster has.
pub(crate) static NAMESPACES: LazyLock<Resource> =
    LazyLock::new(|| Resource::new("", "v1", "namespaces", "Namespace", false));

/// For which cluster calls are made: nobody can say so before the namespace `kube-system` is there.
pub(crate) fn cluster(world: &World, settings: &Settings) -> Option<Cluster> {
    let system = world.object(&NAMESPACES, &Key::cluster("kube-system"))?;
    Some(Cluster { name: settings.cluster_name.clone(), uid: system.meta.uid.clone() })
}

/// Whether an id is one of a cloud's machines.
pub(crate) fn is_of_provider(provider_id: &str, provider: &str) -> bool {
    provider_id.split_once("://").is_some_and(|(scheme, _)| scheme == provider)
}
