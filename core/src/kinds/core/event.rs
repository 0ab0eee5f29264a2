//! The kind Event, which two groups serve. Each group has its own names for the same fields.

use super::columns;
use crate::kinds::build::{text, text_or};
use crate::kinds::events::convert::RENAMED;
use crate::kinds::{Kind, MetadataOnUpdate};
use crate::object::names::NameRule;
use holdfast_value::Value;

const EVENTS: &str = "events.k8s.io";
const PACKAGE: &str = "io.k8s.api.events";

pub fn kind() -> Kind {
    let kind = Kind::namespaced("Event", "events")
        .versions("", super::PACKAGE, ["v1"])
        .converted(EVENTS, PACKAGE, "v1", RENAMED)
        .converted(EVENTS, PACKAGE, "v1beta1", RENAMED)
        .short(["ev"])
        .create_on_update()
        .expires()
        .independent()
        .columns(columns::of("Event"))
        .names(NameRule::PathSegment)
        .validate(crate::kinds::events::validate::event)
        .validate_in(["events.k8s.io/v1"], crate::kinds::events::validate::newer_event)
        .any_finalizers()
        .metadata_on_update(MetadataOnUpdate::Nothing)
        .select("reason")
        .select("type")
        .select_with(Some(""), "source", &["source.component", "reportingComponent"], source)
        .select_in("", "reportingComponent", "reportingComponent")
        .select_in(EVENTS, "reportingController", "reportingComponent");
    OBJECT_FIELDS.iter().fold(kind, |kind, path| {
        let kind = kind.select_in("", path, path);
        kind.select_in(EVENTS, &path.replace("involvedObject", "regarding"), path)
    })
}

/// Fields of an event's reference to its object.
const OBJECT_FIELDS: [&str; 7] = [
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
];

/// The source of an event. Newer clients leave `source` empty and name themselves as the reporting component.
fn source(event: &Value) -> String {
    let reporting = text(event, "/reportingComponent");
    text_or(event, "/source/component", &reporting)
}
