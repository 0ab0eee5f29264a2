//! Reading what the operator tells a plug-in: a document of a kind of the plug-in's own.

use serde_json::Value;

/// Whether a document is of this kind, in whichever version of the group unless one is named with it, and says nothing
/// that nobody reads.
pub(super) fn check(document: &Value, group: &str, kind: &str, fields: &[&str]) -> Result<(), String> {
    let text = |field: &str| document[field].as_str().unwrap_or("");
    let names_version = group.split_once('/').is_some_and(|(_, version)| !version.is_empty());
    let is_of_group = if names_version { text("apiVersion") == group } else { text("apiVersion").starts_with(group) };
    if !is_of_group || text("kind") != kind {
        return Err(format!(
            "no kind \"{}\" is registered for version \"{}\": it must be {kind} of {}",
            text("kind"),
            text("apiVersion"),
            group.trim_end_matches('/')
        ));
    }
    let Some(found) = document.as_object() else { return Err("it is no object".into()) };
    let is_known = |field: &str| matches!(field, "apiVersion" | "kind") || fields.contains(&field);
    match found.keys().find(|field| !is_known(field)) {
        Some(field) => Err(format!("strict decoding error: unknown field \"{field}\"")),
        None => Ok(()),
    }
}
