//! The subresources of a kind.

use super::Validate;

#[derive(Clone)]
pub struct Subresource {
    /// The name in paths: `status`, `scale`, `log`, `binding`.
    pub name: String,
    /// The group, version and kind of the body, if they differ from the parent's: `Scale` in `autoscaling/v1`.
    pub body: Option<(String, String, String)>,
    /// The verbs in discovery: `get`, `patch`, `update`, `create`.
    pub verbs: Vec<&'static str>,
    /// The fields that `scale` shows; `None` for other subresources.
    pub scale: Option<ScalePaths>,
    /// The rules for a write through the subresource, if they differ from the rules for a new object.
    pub validate: Option<Validate>,
    /// The fields that a write through the subresource resets, so that the writer does not become their owner.
    pub reset_fields: FieldPaths,
}

/// Paths of fields: `&[&["metadata", "labels"]]`.
pub type FieldPaths = &'static [&'static [&'static str]];

/// The fields shown in `/scale`, as dotted paths.
#[derive(Debug, Clone)]
pub struct ScalePaths {
    pub spec_replicas: String,
    pub status_replicas: String,
    /// The label selector of the status, as an object or a map of labels; `None` if there is no selector.
    pub selector: Option<String>,
}
