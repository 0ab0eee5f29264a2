//! Identifies a resource: group, version and plural, as in paths.

use crate::Meta;
use crate::view::AnyView;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Decodes the JSON of an object to its metadata and its view.
pub(crate) type Decode = fn(&[u8]) -> Option<(Meta, AnyView)>;

/// A resource of the API in one version, and the view of the resource's objects.
///
/// The order of resources has no meaning, but it is the same in every process. A world looks resources up many times
/// for each change, so a hash is compared before the names.
#[derive(Clone)]
pub struct Resource(Arc<ResourceNames>, Option<Decode>);

/// The identity of a resource.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ResourceNames {
    /// The hash of the group, the version, the plural and the kind.
    hash: u64,
    group: Box<str>,
    plural: Box<str>,
    version: Box<str>,
    kind: Box<str>,
    namespaced: bool,
}

impl Resource {
    pub fn new(group: &str, version: &str, plural: &str, kind: &str, namespaced: bool) -> Resource {
        let parts = ResourceNames {
            hash: hash_of(&[group, plural, version, kind]),
            group: group.into(),
            plural: plural.into(),
            version: version.into(),
            kind: kind.into(),
            namespaced,
        };
        Resource(Arc::new(parts), None)
    }

    /// This resource with a view of its objects. If a resource has no view, only the metadata of its objects is
    /// decoded.
    pub fn viewed_as<V: crate::View>(self) -> Resource {
        Resource(self.0, Some(crate::view::decode::<V>))
    }

    pub(crate) fn decode(&self) -> Option<Decode> {
        self.1
    }

    /// The API group; empty for the core group.
    pub fn group(&self) -> &str {
        &self.0.group
    }

    pub fn version(&self) -> &str {
        &self.0.version
    }

    pub fn plural(&self) -> &str {
        &self.0.plural
    }

    pub fn kind(&self) -> &str {
        &self.0.kind
    }

    /// Whether a reference with this `apiVersion` and this kind means the kind of this resource, in any version.
    /// Several groups may have kinds with equal names.
    pub fn is_named(&self, api_version: &str, kind: &str) -> bool {
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        kind == self.kind() && group == self.group()
    }

    pub fn namespaced(&self) -> bool {
        self.0.namespaced
    }

    /// The group and version as the field `apiVersion` of objects has them: `apps/v1`, or `v1`.
    pub fn api_version(&self) -> String {
        match self.group() {
            "" => self.version().to_owned(),
            group => format!("{group}/{}", self.version()),
        }
    }
}

/// The FNV-1a hash of the names. The hash is the same in every process, so that work which is done resource by resource
/// has the same order in every replay.
fn hash_of(names: &[&str]) -> u64 {
    let bytes = names.iter().flat_map(|name| name.bytes().chain([0xff]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

impl PartialEq for Resource {
    fn eq(&self, other: &Resource) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Eq for Resource {}

impl PartialOrd for Resource {
    fn partial_cmp(&self, other: &Resource) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Resource {
    fn cmp(&self, other: &Resource) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
    }
}

impl Hash for Resource {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group() {
            "" => f.write_str(self.plural()),
            group => write!(f, "{}.{group}", self.plural()),
        }
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}/{}", self.version())
    }
}
