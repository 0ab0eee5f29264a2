//! Views: the fields of a kind that components read.

use crate::{Meta, Object, Resource};
use holdfast_core::object::stored;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::any::Any;
use std::ops::Deref;
use std::sync::Arc;

/// The fields of one kind that components read. If no component reads a field, the field does not belong in the view.
///
/// Decoding a view must not fail for any object that an API server stores: fields are `#[serde(default)]`, and lists
/// and maps that may be null use [`crate::object::or_default`].
pub trait View: DeserializeOwned + Any + Send + Sync {
    fn resource() -> &'static Resource;
}

/// The view of an object of any kind.
pub(crate) type AnyView = Box<dyn Any + Send + Sync>;

/// Decodes the metadata and the view of an object. The JSON of other servers may have another format than stored
/// objects, so a slower parser is used if the fast parser fails. If the view of an object cannot be decoded, the object
/// has only its metadata.
pub(crate) fn decode<V: View>(bytes: &[u8]) -> Option<(Meta, AnyView)> {
    if let Ok((meta, view)) = stored::read_apart::<Meta, V>(bytes) {
        return Some((meta, Box::new(view)));
    }
    let view: AnyView = match serde_json::from_slice::<V>(bytes) {
        Ok(view) => Box::new(view),
        Err(_) => Box::new(()),
    };
    Some((meta(bytes)?, view))
}

/// Decodes only those parts of the metadata that link objects to each other. It is used for resources that no
/// controller has in [`Controller::resources`](crate::Controller::resources).
pub(crate) fn decode_meta_only(bytes: &[u8]) -> Option<(Meta, AnyView)> {
    let (labels, annotations) = Default::default();
    Some((Meta { labels, annotations, ..meta(bytes)? }, Box::new(())))
}

fn meta(bytes: &[u8]) -> Option<Meta> {
    #[derive(Deserialize)]
    struct OnlyMeta {
        #[serde(default)]
        metadata: Meta,
    }
    let OnlyMeta { metadata } = stored::read(bytes).or_else(|_| serde_json::from_slice(bytes)).ok()?;
    Some(metadata)
}

/// An object with its view. This type dereferences to the view, so that the view's fields can be read directly:
/// `pod.spec.node_name`.
#[derive(Debug)]
pub struct Viewed<'a, V> {
    pub object: &'a Arc<Object>,
    pub view: &'a V,
}

impl<'a, V: View> Viewed<'a, V> {
    pub fn of(object: &'a Arc<Object>) -> Option<Viewed<'a, V>> {
        Some(Viewed { view: object.view()?, object })
    }

    pub fn meta(&self) -> &'a Meta {
        &self.object.meta
    }
}

impl<V> Clone for Viewed<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Viewed<'_, V> {}

impl<V> Deref for Viewed<'_, V> {
    type Target = V;

    fn deref(&self) -> &V {
        self.view
    }
}

/// Declares the resource of a view: `resource!(Pod, "", "v1", "pods", "Pod", namespaced)`.
#[macro_export]
macro_rules! resource {
    ($view:ty, $group:literal, $version:literal, $plural:literal, $kind:literal, $scope:ident) => {
        impl $crate::View for $view {
            fn resource() -> &'static $crate::Resource {
                static RESOURCE: std::sync::LazyLock<$crate::Resource> = std::sync::LazyLock::new(|| {
                    $crate::Resource::new($group, $version, $plural, $kind, stringify!($scope) == "namespaced")
                        .viewed_as::<$view>()
                });
                &RESOURCE
            }
        }
    };
}
