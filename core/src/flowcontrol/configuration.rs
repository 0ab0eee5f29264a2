//! The configuration that FlowSchemas and PriorityLevelConfigurations define.

use super::queues::Queuing;
use super::schemas::{CATCH_ALL, EXEMPT, Metadata, Schema, Schemas};
use crate::authz::bootstrap_objects::flow_control_objects;
use crate::kinds::{KindId, Known, known};
use crate::state::State;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// All flow schemas and priority levels.
#[derive(Debug)]
pub struct Configuration {
    pub schemas: Schemas,
    pub levels: BTreeMap<String, Level>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Level {
    pub name: String,
    pub uid: Arc<str>,
    /// Requests of this level never wait and are never refused.
    pub exempt: bool,
    pub shares: u32,
    pub lendable_percent: u32,
    /// The maximum number of borrowed seats, as a percentage of the level's nominal seats; `None` means that the level
    /// may borrow all seats that other levels lend.
    pub borrowing_percent: Option<u32>,
    /// How the level queues requests; `None` if it refuses requests that find no free seat.
    pub queuing: Option<Queuing>,
}

impl Configuration {
    /// The configuration from the objects in the state. Mandatory objects are always added. A server that has no
    /// FlowSchemas yet uses the built-in objects, which it is about to create.
    pub fn of(state: &State) -> Configuration {
        let none = |(kind, _): (KindId, usize)| state.count(kind) == 0;
        if state.registry.known(known::FLOW_SCHEMA).is_none_or(none) {
            return Configuration::built_in();
        }
        let mut levels: BTreeMap<String, Level> = stored::<LevelSpec>(state, known::PRIORITY_LEVEL_CONFIGURATION)
            .map(|object| (object.metadata.name.clone(), object.into()))
            .collect();
        let mut schemas: Vec<Schema> =
            stored(state, known::FLOW_SCHEMA).map(|object| Schema::new(&object.metadata, object.spec)).collect();
        for name in [EXEMPT, CATCH_ALL] {
            levels.entry(name.to_owned()).or_insert_with(|| mandatory::<LevelSpec, _>(name));
            if !schemas.iter().any(|schema| schema.name == name) {
                schemas.push(mandatory::<_, Schema>(name));
            }
        }
        schemas.retain(|schema| levels.contains_key(&schema.level));
        Configuration { schemas: Schemas::new(schemas), levels }
    }

    /// The configuration of a server with only the built-in objects.
    pub fn built_in() -> Configuration {
        let levels = built_in::<LevelSpec, Level>(known::PRIORITY_LEVEL_CONFIGURATION);
        let schemas = built_in(known::FLOW_SCHEMA).collect();
        let levels = levels.map(|level| (level.name.clone(), level)).collect();
        Configuration { schemas: Schemas::new(schemas), levels }
    }
}

fn stored<S: for<'a> Deserialize<'a>>(state: &State, known: Known) -> impl Iterator<Item = Object<S>> {
    let entries = state.registry.known(known).into_iter().flat_map(|(kind, _)| state.scan(kind, "", None));
    entries.filter_map(|(_, entry)| serde_json::from_slice(&entry.json()).ok())
}

fn built_in<S: for<'a> Deserialize<'a>, T: From<Object<S>>>(known: Known) -> impl Iterator<Item = T> {
    let objects = flow_control_objects().into_iter().filter(move |object| known.is_kind_of(object));
    objects.filter_map(|object| Some(holdfast_value::from_value::<Object<S>>(object).ok()?.into()))
}

fn mandatory<S: for<'a> Deserialize<'a>, T: From<Object<S>> + Named>(name: &str) -> T {
    built_in(T::KNOWN).find(|one: &T| one.name() == name).expect("the table has what is mandatory")
}

trait Named {
    const KNOWN: Known;
    fn name(&self) -> &str;
}

impl Named for Level {
    const KNOWN: Known = known::PRIORITY_LEVEL_CONFIGURATION;

    fn name(&self) -> &str {
        &self.name
    }
}

impl Named for Schema {
    const KNOWN: Known = known::FLOW_SCHEMA;

    fn name(&self) -> &str {
        &self.name
    }
}

/// An object of the group `flowcontrol.apiserver.k8s.io`, as stored.
#[derive(Deserialize)]
pub(super) struct Object<S> {
    metadata: Metadata,
    spec: S,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LevelSpec {
    r#type: String,
    limited: Limited,
    exempt: Exempt,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Limited {
    nominal_concurrency_shares: Number,
    lendable_percent: Number,
    borrowing_limit_percent: Option<Number>,
    limit_response: LimitResponse,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Exempt {
    nominal_concurrency_shares: Number,
    lendable_percent: Number,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct LimitResponse {
    queuing: Option<QueuingSpec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct QueuingSpec {
    queues: Number,
    hand_size: Number,
    queue_length_limit: Number,
}

/// A number in an object's spec. Validation refuses negative numbers, and a negative number in the store counts as
/// zero.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
struct Number(i64);

impl Number {
    fn get(self) -> u32 {
        u32::try_from(self.0.max(0)).unwrap_or(u32::MAX)
    }
}

impl From<Object<LevelSpec>> for Level {
    fn from(Object { metadata, spec }: Object<LevelSpec>) -> Level {
        let LevelSpec { r#type, limited, exempt } = spec;
        let is_exempt = r#type == "Exempt";
        let (shares, lendable) = match is_exempt {
            true => (exempt.nominal_concurrency_shares, exempt.lendable_percent),
            false => (limited.nominal_concurrency_shares, limited.lendable_percent),
        };
        let queuing = limited.limit_response.queuing.filter(|_| !is_exempt).map(|queuing| Queuing {
            queues: queuing.queues.get().max(1),
            hand_size: queuing.hand_size.get(),
            length_max: queuing.queue_length_limit.get(),
        });
        Level {
            name: metadata.name,
            uid: metadata.uid.into(),
            exempt: is_exempt,
            shares: shares.get(),
            lendable_percent: lendable.get().min(100),
            borrowing_percent: limited.borrowing_limit_percent.map(Number::get),
            queuing,
        }
    }
}

impl From<Object<super::schemas::Spec>> for Schema {
    fn from(object: Object<super::schemas::Spec>) -> Schema {
        Schema::new(&object.metadata, object.spec)
    }
}
