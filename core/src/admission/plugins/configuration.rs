//! Reads the operator's configuration of a plug-in: a document of the plug-in's own kind, read strictly.

use crate::object::reader::Reader;

/// Records a fault unless the document has this kind and group; `group` may include a version, otherwise any version
/// fits.
pub(super) fn check(document: &Reader, group: &str, kind: &str) {
    let text = |field: &str| document.text(field).unwrap_or("");
    let names_version = group.split_once('/').is_some_and(|(_, version)| !version.is_empty());
    let is_of_group = if names_version { text("apiVersion") == group } else { text("apiVersion").starts_with(group) };
    if !is_of_group || text("kind") != kind {
        let message = format!(
            "no kind \"{}\" is registered for version \"{}\": it must be {kind} of {}",
            text("kind"),
            text("apiVersion"),
            group.trim_end_matches('/')
        );
        document.fault("", message);
    }
}
