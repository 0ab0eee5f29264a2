//! From a reply to an HTTP answer.

use crate::respond::{self, Encoding, Form, Head, Response, Shape};
use crate::route::Route;
use crate::status;
use crate::transport::{Transport, Understood};
use crate::watch;
use crate::websocket::Socket;
use holdfast_core::Refusal;
use holdfast_core::kinds::Kind;
use holdfast_core::object::export::export;
use holdfast_core::refusal::Internal;
use holdfast_core::request::Verb;
use holdfast_service::{Listed, Reply, Shown};
use serde_json::Value;
use std::sync::Arc;

/// Writes what the door replied in the form that the client accepts.
pub fn reply(transport: &Arc<Transport>, reply: Reply, understood: &Understood, socket: Option<Socket>) -> Response {
    let shape = understood.shape;
    let now = transport.engine().stamp().seconds();
    let code = reply.code();
    match reply {
        Reply::Object(shown) if is_export(understood) => exported(&shown, understood),
        Reply::Object(Shown { kind, version, entry, .. }) => {
            respond::object(&kind, version, &entry, code, fitting(&kind, shape), now)
        }
        Reply::List(Listed { kind, version, mut page, continue_token, namespace }) => {
            page.remaining = page.remaining.filter(|_| transport.features.remaining_item_count);
            let self_link = match shape.links {
                true => respond::self_link(&kind, version, &namespace),
                false => String::new(),
            };
            let head = Head { continue_token, self_link };
            respond::list(&kind, version, page, &head, fitting(&kind, shape), now)
        }
        Reply::Watch(watched) => {
            let shape = fitting(&watched.kind, shape);
            watch::answer(transport, *watched, shape, socket)
        }
        Reply::Draft(draft) => respond::draft(&draft, code, fitting(&draft.kind, shape), now),
        Reply::Document { document, .. } => respond::document(code, &document, shape),
        Reply::Success { .. } => respond::document(code, &status::success(code), plain(shape)),
        Reply::Deleted { subject, uid } => respond::document(code, &status::deleted(&subject, &uid), plain(shape)),
        // The caller has answered that.
        Reply::Granted(_) => respond::refusal(&Refusal::NoSuchPath, shape),
    }
}

fn plain(shape: Shape) -> Shape {
    Shape { form: Form::Object, ..shape }
}

/// Nobody knows the numbers of a custom resource's fields, be it one of the past.
fn fitting(kind: &Kind, shape: Shape) -> Shape {
    match shape.encoding {
        Encoding::Protobuf if kind.custom.is_some() => Shape { encoding: Encoding::Json, ..shape },
        _ => shape,
    }
}

/// Whether an object is asked for without what the cluster put into it.
fn is_export(understood: &Understood) -> bool {
    let get = matches!(
        &understood.route,
        Route::Resource { verb: Some(Verb::Get), path } if path.subresource.is_empty()
    );
    get && understood.query.flag("export")
}

fn exported(shown: &Shown, understood: &Understood) -> Response {
    match shown.entry.document_in(&shown.kind, shown.version) {
        Value::Object(mut document) => {
            export(&mut document, understood.query.flag("exact"), shown.kind.hooks.export);
            respond::document(200, &document, plain(understood.shape))
        }
        _ => respond::refusal(&Refusal::Internal(Internal::StoredIsNoDocument), understood.shape),
    }
}
