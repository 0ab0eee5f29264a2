//! The selection of a watcher, a list or a mass deletion, with a simple implementation of what it selects.

use crate::random::Dice;
use crate::shape::{SORTS, Sort};
use crate::twin::{ObjectVersion, Twin};
use holdfast_core::kinds::KindId;
use holdfast_core::request::{Body, Options, Request, Target, Verb};
use holdfast_core::state::State;
use std::sync::{Arc, OnceLock};

/// The namespaces of the simulation. Clients create, fill and delete them, except for `default`, which always exists.
pub const NAMESPACES: [&str; 4] = ["default", "n1", "n2", "n3"];
pub const NAMES: [&str; 3] = ["a", "b", "c"];
pub const VALUES: [&str; 3] = ["red", "green", "blue"];
pub const NODES: [&str; 2] = ["node-1", "node-2"];
const PHASES: [&str; 3] = ["Pending", "Running", "Succeeded"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    All,
    In(&'static str),
    One(&'static str, &'static str),
    Label(&'static str),
    NotLabel(&'static str),
    AnyOf(&'static str, &'static str),
    LabelIn(&'static str, &'static str),
    Node(&'static str),
    Phase(&'static str),
}

/// The kind and version that the state serves for this sort; `None` while the kind is not defined.
pub fn kind_of(state: &State, sort: Sort) -> Option<(KindId, usize)> {
    let find = |sort: Sort| {
        let (group, resource) = sort.path();
        state.registry.find(group, "v1", resource)
    };
    // Only CustomResourceDefinitions change which kinds are served, because all servers start with the same registry.
    static BUILT_IN: OnceLock<[Option<(KindId, usize)>; SORTS.len()]> = OnceLock::new();
    if sort.is_custom() { find(sort) } else { BUILT_IN.get_or_init(|| SORTS.map(find))[sort as usize] }
}

impl Pick {
    pub fn draw(dice: &mut Dice, sort: Sort) -> Pick {
        let namespace = dice.pick(&NAMESPACES);
        let value = dice.pick(&VALUES);
        let namespaced = sort.is_namespaced();
        match dice.below(10) {
            0 | 1 if namespaced => Pick::In(namespace),
            2 if namespaced => Pick::One(namespace, dice.pick(&NAMES)),
            3 => Pick::Label(value),
            4 if namespaced => Pick::LabelIn(namespace, value),
            5 => Pick::NotLabel(value),
            6 => Pick::AnyOf(value, dice.pick(&VALUES)),
            7 if sort == Sort::Pod => Pick::Node(dice.pick(&NODES)),
            8 if sort == Sort::Pod => Pick::Phase(dice.pick(&PHASES)),
            _ => Pick::All,
        }
    }

    /// The options of a request for this selection. If the selection is in a single namespace, also this namespace.
    pub fn terms(&self) -> (Options, Option<String>) {
        let mut options = Options::default();
        let mut namespace = None;
        match self {
            Pick::All => {}
            Pick::In(name) => namespace = Some((*name).to_owned()),
            Pick::One(place, name) => {
                namespace = Some((*place).to_owned());
                options.field_selector = Some(format!("metadata.name={name}"));
            }
            Pick::Label(value) => options.label_selector = Some(format!("app={value}")),
            Pick::LabelIn(place, value) => {
                namespace = Some((*place).to_owned());
                options.label_selector = Some(format!("app={value}"));
            }
            Pick::NotLabel(value) => options.label_selector = Some(format!("app!={value}")),
            Pick::AnyOf(one, other) => options.label_selector = Some(format!("app in ({one},{other})")),
            Pick::Node(node) => options.field_selector = Some(format!("spec.nodeName={node}")),
            Pick::Phase(phase) => options.field_selector = Some(format!("status.phase={phase}")),
        }
        (options, namespace)
    }

    /// A request for this selection; `None` while the kind is not served.
    pub fn request(&self, sort: Sort, state: &State, verb: Verb) -> Option<Request> {
        let (kind, version) = kind_of(state, sort)?;
        let (options, namespace) = self.terms();
        let target = Target { kind, version, namespace, name: None, subresource: None };
        Some(Request { user: Arc::default(), verb, target, options, body: Body::default(), id: String::new() })
    }

    /// Whether the selection contains an object.
    pub fn matches(&self, key: &str, version: &ObjectVersion) -> bool {
        let label = || version.shape.as_ref().and_then(|shape| shape.labels.get("app")).map(String::as_str);
        let within = |namespace: &str| key.split_once('/').is_some_and(|(found, _)| found == namespace);
        match self {
            Pick::All => true,
            Pick::In(namespace) => within(namespace),
            Pick::One(namespace, name) => key.split_once('/') == Some((namespace, name)),
            Pick::Label(value) => label() == Some(value),
            Pick::LabelIn(namespace, value) => within(namespace) && label() == Some(value),
            Pick::NotLabel(value) => label() != Some(value),
            Pick::AnyOf(one, other) => label() == Some(one) || label() == Some(other),
            Pick::Node(node) => version.document["spec"]["nodeName"] == **node,
            Pick::Phase(phase) => version.document["status"]["phase"] == **phase,
        }
    }
}

/// The objects of the twin that a selection contains, by key.
pub fn picked<'a>(
    twin: &'a Twin,
    sort: Sort,
    pick: &Pick,
    offset: u64,
) -> impl Iterator<Item = (&'a str, &'a ObjectVersion)> {
    twin.at(sort.storage(), offset).filter(|(key, version)| pick.matches(key, version))
}
