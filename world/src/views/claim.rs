//! Claims of storage, as controllers look at them.

use serde::Deserialize;

/// The metadata is all that the keepers of claims look at; who binds them adds what it needs.
#[derive(Debug, Default, Deserialize)]
pub struct PersistentVolumeClaim {}

crate::resource!(PersistentVolumeClaim, "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", namespaced);
