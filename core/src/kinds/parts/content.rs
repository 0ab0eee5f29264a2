//! The fields of objects that rules for many kinds read.

use crate::object::meta::Document;
use crate::quota::{Measure, NOTHING_BUT_ITS_NUMBER};

/// Where a kind's objects have pod specs, countable amounts and values specific to a cluster. Admission uses this data
/// to judge pod specs and to count quotas, validation to judge pod specs, and a read with `?export` to leave fields
/// out.
pub struct ObjectContent {
    /// The JSON pointer to the pod spec in objects of this kind.
    pub pods_at: Option<&'static str>,
    /// The amounts that quotas count in addition to the number of objects.
    pub measure: &'static Measure,
    /// Removes values specific to this cluster from an export.
    pub export: Option<fn(&mut Document)>,
}

impl Default for ObjectContent {
    fn default() -> ObjectContent {
        ObjectContent { pods_at: None, measure: &NOTHING_BUT_ITS_NUMBER, export: None }
    }
}
