//! The built-in groups, one line for each. The rest of a group is in its folder.

use super::Kind;
use crate::refusal::{Refusal, TooLarge};
use crate::schema::defaults::{ADDED_BYTES_MAX, Defaults, Rule, Swollen};
use crate::schema::layout::{Custom, Layout};
use crate::schema::{MessageId, schema};
use holdfast_value::Value;
use std::sync::LazyLock;

/// A built-in group.
pub struct ApiGroup {
    pub name: &'static str,
    pub kinds: fn() -> Vec<Kind>,
    pub defaults: fn() -> Vec<Rule>,
    /// Kinds that are only bodies of subresources: each has version, kind and message.
    pub bodies: &'static [[&'static str; 3]],
    /// Whether the group comes after the groups of custom kinds in discovery.
    pub behind_custom: bool,
    /// The group priority of its APIServices: higher comes first in discovery.
    pub group_priority: i64,
    /// Versions with an APIService, and their priorities within the group.
    pub version_priorities: &'static [(&'static str, i64)],
}

impl ApiGroup {
    pub const fn new(name: &'static str, kinds: fn() -> Vec<Kind>, defaults: fn() -> Vec<Rule>) -> Self {
        let (bodies, version_priorities): (&[_], &[_]) = (&[], &[]);
        ApiGroup { name, kinds, defaults, bodies, behind_custom: false, group_priority: 0, version_priorities }
    }

    pub const fn prioritized(self, group_priority: i64, version_priorities: &'static [(&'static str, i64)]) -> Self {
        ApiGroup { group_priority, version_priorities, ..self }
    }
}

/// The groups in discovery order. A client that knows only the plural name of a resource uses the first group that has
/// such a resource.
pub(super) const GROUPS: &[ApiGroup] = &[
    super::core::API_GROUP,
    super::apiregistration::API_GROUP,
    super::apps::API_GROUP,
    super::events::API_GROUP,
    super::authentication::API_GROUP,
    super::authorization::API_GROUP,
    super::autoscaling::API_GROUP,
    super::batch::API_GROUP,
    super::certificates::API_GROUP,
    super::networking::API_GROUP,
    super::policy::API_GROUP,
    super::rbac::API_GROUP,
    super::storage::API_GROUP,
    super::admissionregistration::API_GROUP,
    super::apiextensions::API_GROUP,
    super::scheduling::API_GROUP,
    super::coordination::API_GROUP,
    super::node::API_GROUP,
    super::discovery::API_GROUP,
    super::resource::API_GROUP,
    super::flowcontrol::API_GROUP,
    super::storagemigration::API_GROUP,
    super::internal_apiserver::API_GROUP,
    super::extensions::API_GROUP,
];

/// Group and version priority of a built-in group version's APIService, if it has one.
pub(crate) fn priorities(group: &str, version: &str) -> Option<(i64, i64)> {
    let group = GROUPS.iter().find(|known| known.name == group)?;
    let (_, priority) = group.version_priorities.iter().find(|(name, _)| *name == version)?;
    Some((group.group_priority, *priority))
}

/// The rank of a group in discovery. All custom groups have the same rank.
pub(super) fn rank(group: &str) -> usize {
    match GROUPS.iter().position(|known| known.name == group) {
        Some(place) if GROUPS[place].behind_custom => GROUPS.len() + 1 + place,
        Some(place) => place,
        None => GROUPS.len(),
    }
}

/// The name of the schema message of a kind that is only a body of a subresource.
pub fn body_message(group: &str, version: &str, kind: &str) -> Option<&'static str> {
    let bodies = GROUPS.iter().find(|known| known.name == group)?.bodies;
    bodies.iter().find(|[v, k, _]| *v == version && *k == kind).map(|[_, _, message]| *message)
}

static BUILT_IN: LazyLock<Defaults> = LazyLock::new(|| Defaults::new(schema(), &default_rules()));

/// Sets all defaults of a built-in message's document. A second call changes nothing.
pub fn apply_defaults(message: MessageId, document: &mut Value) -> Result<(), Refusal> {
    default_change(message, document, None)
}

/// Like [`apply_defaults`], for a document derived from a stored document. Parts that both documents share have their
/// defaults already and are skipped.
pub fn default_change(message: MessageId, document: &mut Value, stored: Option<&Value>) -> Result<(), Refusal> {
    BUILT_IN.apply(message, document, stored).map_err(too_large)
}

/// Sets only the zeros that Kubernetes always writes: `status: {}`, `rules: null`.
pub fn show_zeros(message: MessageId, document: &mut Value) {
    BUILT_IN.show_all_zeros(message, document);
}

/// Like [`show_zeros`], for a document that will be stored and may be derived from a stored document.
pub fn show_zeros_of_change(message: MessageId, document: &mut Value, stored: Option<&Value>) -> Result<(), Refusal> {
    BUILT_IN.show_zeros(message, document, stored).map_err(too_large)
}

/// Sets all defaults of a document of any kind.
pub fn default(layout: Layout, document: &mut Value) -> Result<(), Refusal> {
    match layout {
        Layout::Table(_, message) => apply_defaults(message, document),
        Layout::Custom(custom) => custom.schema.apply_defaults(document).map_err(too_large),
    }
}

/// Like [`default`], for a custom object from server-side apply. Nulls of fields without a default stay, so that
/// validation judges them.
pub fn default_beside_nulls(custom: Custom, document: &mut Value) -> Result<(), Refusal> {
    custom.schema.apply_defaults_beside_nulls(document).map_err(too_large)
}

fn too_large(Swollen: Swollen) -> Refusal {
    Refusal::TooLarge(TooLarge::Defaults { bytes_max: ADDED_BYTES_MAX })
}

pub(crate) fn default_rules() -> Vec<Rule> {
    GROUPS.iter().flat_map(|group| (group.defaults)()).collect()
}
