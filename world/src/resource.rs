//! Which objects: group, version and plural, as paths name them.

use std::fmt;
use std::sync::Arc;

/// A resource of the API in one version.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource(Arc<Parts>);

#[derive(PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Parts {
    group: Box<str>,
    plural: Box<str>,
    version: Box<str>,
    kind: Box<str>,
    namespaced: bool,
}

impl Resource {
    pub fn new(group: &str, version: &str, plural: &str, kind: &str, namespaced: bool) -> Resource {
        Resource(Arc::new(Parts {
            group: group.into(),
            plural: plural.into(),
            version: version.into(),
            kind: kind.into(),
            namespaced,
        }))
    }

    /// Empty for the core group.
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

    pub fn namespaced(&self) -> bool {
        self.0.namespaced
    }

    /// `apps/v1`, or `v1`.
    pub fn api_version(&self) -> String {
        match self.group() {
            "" => self.version().to_owned(),
            group => format!("{group}/{}", self.version()),
        }
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
