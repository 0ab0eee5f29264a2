//! Event: one kind that two groups show, each with its own names for the same fields.

use super::columns;
use crate::kinds::Kind;
use crate::kinds::build::{text, text_or};
use crate::kinds::events::convert::RENAMED;
use serde_json::Value;

const EVENTS: &str = "events.k8s.io";
const PACKAGE: &str = "io.k8s.api.events";

pub fn kind() -> Kind {
    let kind = Kind::namespaced("Event", "events")
        .versions("", super::PACKAGE, ["v1"])
        .converted(EVENTS, PACKAGE, "v1", RENAMED)
        .converted(EVENTS, PACKAGE, "v1beta1", RENAMED)
        .short(["ev"])
        .create_on_update()
        .columns(columns::of("Event"))
        .validate(crate::kinds::events::validate::event)
        .select("reason", |event| text(event, "/reason"))
        .select("type", |event| text(event, "/type"))
        .select_in("", "source", source)
        .select_in("", "reportingComponent", |event| text(event, "/reportingComponent"))
        .select_in(EVENTS, "reportingController", |event| text(event, "/reportingComponent"));
    OBJECT_FIELDS.iter().fold(kind, |kind, (field, read)| {
        let kind = kind.select_in("", &format!("involvedObject.{field}"), *read);
        kind.select_in(EVENTS, &format!("regarding.{field}"), *read)
    })
}

type Reader = fn(&Value) -> String;

/// Fields of the object that an event speaks of.
const OBJECT_FIELDS: [(&str, Reader); 7] = [
    ("kind", |event| text(event, "/involvedObject/kind")),
    ("namespace", |event| text(event, "/involvedObject/namespace")),
    ("name", |event| text(event, "/involvedObject/name")),
    ("uid", |event| text(event, "/involvedObject/uid")),
    ("apiVersion", |event| text(event, "/involvedObject/apiVersion")),
    ("resourceVersion", |event| text(event, "/involvedObject/resourceVersion")),
    ("fieldPath", |event| text(event, "/involvedObject/fieldPath")),
];

/// Newer clients leave `source` empty and name themselves as the reporting component.
fn source(event: &Value) -> String {
    let reporting = text(event, "/reportingComponent");
    text_or(event, "/source/component", &reporting)
}
