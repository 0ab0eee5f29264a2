//! Methods of a kind: its versions, subresources, columns and selectable fields.

use super::{Kind, Read, Scope, Selectable, Shown, Subresource, Version, api_version};
use crate::event::Offset;
use crate::object::meta::Document;
use crate::quota::Counted;
use crate::schema::layout::Layout;
use crate::schema::schema;
use holdfast_value::Value;
use std::sync::{Arc, LazyLock, OnceLock};

/// The number of entries of a removed kind's version table. It exceeds the number of versions of any kind, so that old
/// version indexes stay valid.
const GONE_VERSIONS: usize = 256;

impl Kind {
    /// The version that objects are stored in.
    pub fn hub(&self) -> &Version {
        &self.versions[0]
    }

    pub fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    /// The kind as quotas name it, with the group of one of its versions.
    pub fn counted(&self, version: usize) -> Counted {
        Counted::named(&self.resource, &self.versions[version].group, self.content.measure)
    }

    /// The subresources of one version. The versions of a custom kind may have different subresources.
    pub fn subresources(&self, version: usize) -> &[Subresource] {
        self.versions[version].custom.as_ref().map_or(&self.subresources, |custom| &custom.subresources)
    }

    pub fn subresource(&self, version: usize, name: &str) -> Option<&Subresource> {
        self.subresources(version).iter().find(|subresource| subresource.name == name)
    }

    /// Whether the objects of one version have a status that is written as a subresource.
    pub fn has_status(&self, version: usize) -> bool {
        self.subresource(version, "status").is_some()
    }

    /// How a version is shown in a Table.
    pub fn shown(&self, version: usize) -> &Shown {
        self.versions[version].custom.as_ref().map_or(&self.shown, |custom| &custom.shown)
    }

    /// A placeholder for a kind that is no longer served, for callers that still have the kind's number.
    pub fn retired(&self) -> Kind {
        let mut retired = Kind::new(&self.kind, &self.resource, self.scope);
        retired.singular.clone_from(&self.singular);
        retired.storage.path.clone_from(&self.storage.path);
        retired.stored = self.stored;
        let version = |version: &Version| Version {
            group: version.group.clone(),
            version: version.version.clone(),
            message: version.message.clone(),
            message_id: OnceLock::new(),
            convert: version.convert,
            validate: None,
            orphans_dependents: version.orphans_dependents,
            deprecation: version.deprecation,
            custom: None,
        };
        retired.versions = self.versions.iter().map(version).collect();
        let selectable =
            |field: &Selectable| Selectable { field: field.field.clone(), group: None, read: Read::at("", "") };
        retired.selectors.fields = self.selectors.fields.iter().map(selectable).collect();
        retired
    }

    /// One placeholder for all kinds that were removed long ago.
    pub fn gone() -> Arc<Kind> {
        static GONE: LazyLock<Arc<Kind>> = LazyLock::new(|| {
            let mut gone = Kind::cluster("", "").verbs([]);
            gone.stored = false;
            for _ in 0..GONE_VERSIONS {
                gone.push_version("", "", "", None);
            }
            Arc::new(gone)
        });
        Arc::clone(&GONE)
    }

    /// The index of the selectable field that has this name in requests of the version.
    pub fn selectable_in(&self, version: usize, field: &str) -> Option<usize> {
        let Version { group, custom, .. } = &self.versions[version];
        if custom.as_ref().is_some_and(|custom| custom.selectable.iter().all(|known| known != field)) {
            return None;
        }
        self.selectors.position(group, field)
    }

    /// Whether an object that was last written at this offset may be stored under another schema or version.
    pub fn is_stale(&self, offset: Offset) -> bool {
        self.custom.as_ref().is_some_and(|custom| custom.is_stale(offset))
    }

    /// The kind of lists, which a CustomResourceDefinition may choose.
    pub fn list_kind(&self) -> String {
        let chosen = self.custom.as_ref().and_then(|custom| custom.names["listKind"].as_str());
        chosen.filter(|chosen| !chosen.is_empty()).map_or_else(|| format!("{}List", self.kind), str::to_owned)
    }

    /// Removes the fields of a webhook-converted object that its version's schema lacks. Defaults are set elsewhere: on
    /// requests, and when stored objects are read.
    pub fn fit(&self, api_version: &str, document: &mut Document) {
        let Some(Layout::Custom(custom)) = self.version_named(api_version).and_then(|version| self.layout(version))
        else {
            return;
        };
        let mut value = Value::Object(std::mem::take(document));
        custom.prune(&mut value);
        if let Value::Object(fitted) = value {
            *document = fitted;
        }
    }

    /// Whether a webhook converts objects to versions other than the stored one.
    pub fn converts_elsewhere(&self) -> bool {
        self.custom.as_ref().is_some_and(|custom| custom.webhook.is_some())
    }

    /// The offset of the definition that this kind was made from; zero for a built-in kind.
    pub fn since(&self) -> Offset {
        self.custom.as_ref().map_or(Offset::ZERO, |custom| custom.since)
    }

    /// The index of the version with this name: `apps/v1`.
    pub fn version_named(&self, api_version: &str) -> Option<usize> {
        self.versions.iter().position(|version| api_version_is(version, api_version))
    }

    /// The layout of a version's documents.
    pub fn layout(&self, version: usize) -> Option<Layout<'_>> {
        let version = &self.versions[version];
        match &version.custom {
            Some(custom) => Some(Layout::Custom(custom.layout())),
            None => schema().id(&version.message).map(Layout::of),
        }
    }
}

impl Version {
    /// The apiVersion in documents: `apps/v1`, or `v1` in the core group.
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    pub fn is_served(&self) -> bool {
        self.custom.as_ref().is_none_or(|custom| custom.served)
    }

    /// The deprecation warning for this version of the kind. [`Registry`](super::Registry) decides whether the emulated
    /// release sends it.
    pub(super) fn warning(&self, kind: &str) -> Option<String> {
        match &self.custom {
            Some(custom) => custom.warning.clone(),
            None => self.deprecation.map(|deprecation| deprecation.warning(kind)),
        }
    }
}

impl Read {
    pub fn at(path: &str, unset: &'static str) -> Read {
        Read::At { path: path.split('.').map(str::to_owned).collect(), unset }
    }

    pub fn of(&self, object: &Value) -> String {
        self.near(object, &mut Near::default())
    }

    /// Like [`Read::of`], but starts from the container of the field that was read last in the same object.
    pub fn near<'a>(&'a self, object: &'a Value, near: &mut Near<'a>) -> String {
        let (path, unset) = match self {
            Self::With(read) => return read(object),
            Self::At { path, unset } => (path, *unset),
        };
        let Some((field, above)) = path.split_last() else { return unset.to_owned() };
        let holder = match near.0 {
            Some((path, holder)) if path == above => holder,
            _ => above.iter().try_fold(object, |value, field| value.get(field)),
        };
        near.0 = Some((above, holder));
        let found = holder.and_then(|holder| holder.get(field)).map(scalar);
        found.filter(|found| !found.is_empty()).unwrap_or_else(|| unset.to_owned())
    }
}

/// The container of the field that was read last, with the container's path. A kind's selectable fields are often
/// siblings, so the next field is often in the same container.
#[derive(Default)]
pub struct Near<'a>(Option<(&'a [String], Option<&'a Value>)>);

pub(super) fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.to_string(),
        scalar @ (Value::Bool(_) | Value::Number(_)) => scalar.to_string(),
        _ => String::new(),
    }
}

pub(super) fn api_version_is(version: &Version, api_version: &str) -> bool {
    match api_version.rsplit_once('/') {
        Some((group, name)) => version.group == group && version.version == name,
        None => version.group.is_empty() && version.version == api_version,
    }
}
