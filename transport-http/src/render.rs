//! Makes an HTTP response from a reply.

use crate::answers::QUICK_BYTES_MAX;
use crate::lists::{self, Head};
use crate::respond::{self, Encoding, Form, Response, Shape};
use crate::route::Route;
use crate::status;
use crate::transport::Transport;
use crate::understood::Understood;
use crate::watch;
use crate::websocket::Socket;
use holdfast_core::Refusal;
use holdfast_core::authz::User;
use holdfast_core::kinds::Kind;
use holdfast_core::object::export::export;
use holdfast_core::refusal::Internal;
use holdfast_core::request::Verb;
use holdfast_core::state::Entry;
use holdfast_service::{Listed, Reply, RequestSlot, Shown};
use holdfast_value::Value;
use std::sync::Arc;

/// Writes a reply in the form that the client accepts. The call keeps its place until the reply is written.
pub async fn reply(
    transport: &Arc<Transport>,
    reply: Reply,
    understood: &Understood,
    reader: Arc<User>,
    socket: Option<Socket>,
    place: Option<RequestSlot>,
) -> Response {
    let shape = understood.shape;
    let now = transport.engine().stamp().seconds();
    let code = status::code(Ok(&reply));
    match reply {
        Reply::Object(shown) if is_export(understood) => exported(&shown, understood),
        Reply::Object(Shown { kind, version, entry, .. }) => {
            let shape = fitting(&kind, shape);
            let made = made_bytes(&kind, version, std::slice::from_ref(&entry), shape);
            transport
                .answers
                .make(&reader, made, move || respond::object(&kind, version, &entry, code, shape, now))
                .await
        }
        // The future is boxed, because otherwise the future of every reply would be as large as the future of a list.
        Reply::List(listed) => Box::pin(list(transport, &reader, listed, shape, now)).await,
        Reply::Watch(watched) => {
            let shape = fitting(&watched.kind, shape);
            watch::answer(transport, *watched, shape, reader, socket, place)
        }
        Reply::Draft(draft) => respond::draft(&draft, code, fitting(&draft.kind, shape), now),
        Reply::Document { document, .. } => {
            let mut bytes = 0;
            let _is_quick = document.values().all(|value| count(value, &mut bytes));
            transport.answers.make(&reader, bytes, move || respond::document(code, &document, shape, now)).await
        }
        Reply::Success { .. } => respond::document(code, &status::success(code), plain(shape), now),
        Reply::Deleted { subject, uid } => respond::document(code, &status::deleted(&subject, &uid), plain(shape), now),
        // The caller answers these replies itself, and does not pass them to this function.
        Reply::Granted(_) | Reply::Connect(_) => respond::refusal(&Refusal::NoSuchPath, shape),
    }
}

async fn list(transport: &Transport, reader: &User, listed: Listed, shape: Shape, now: i64) -> Response {
    let Listed { kind, version, mut page, continue_token, namespace, .. } = listed;
    page.remaining = page.remaining.filter(|_| transport.features.remaining_item_count);
    let self_link = if shape.links { respond::self_link(&kind, version, &namespace) } else { String::new() };
    let (head, shape) = (Head { continue_token, self_link }, fitting(&kind, shape));
    let made = match shape.form {
        // The rows of a table are made while they are sent.
        Form::Table(..) if shape.is_raw() => 0,
        _ => made_bytes(&kind, version, &page.entries, shape),
    };
    transport.answers.make(reader, made, move || lists::list(&kind, version, page, &head, shape, now)).await
}

/// Counts approximately the bytes of a written value. It stops and returns false when the value is so large that
/// writing it takes long.
fn count(value: &Value, bytes: &mut usize) -> bool {
    *bytes += match value {
        Value::String(text) => text.len() + 3,
        _ => 5,
    };
    *bytes <= QUICK_BYTES_MAX
        && match value {
            Value::Array(items) => items.iter().all(|item| count(item, bytes)),
            Value::Object(fields) => fields.values().all(|field| count(field, bytes)),
            _ => true,
        }
}

/// How many bytes of objects are written in another form than the stored form.
fn made_bytes(kind: &Kind, version: usize, entries: &[Arc<Entry>], shape: Shape) -> usize {
    let stored = |entry: &Entry| version == 0 && !kind.is_stale(entry.offset);
    let as_it_is = shape.is_raw() && shape.form == Form::Object && !shape.links;
    entries.iter().filter(|entry| !as_it_is || !stored(entry)).map(|entry| entry.size()).sum()
}

fn plain(shape: Shape) -> Shape {
    Shape { form: Form::Object, ..shape }
}

/// The shape in which objects of this kind are sent. Custom resources, including kinds of the past, are sent as JSON
/// instead of Protobuf, because their fields have no Protobuf numbers.
fn fitting(kind: &Kind, shape: Shape) -> Shape {
    match shape.encoding {
        Encoding::Protobuf if kind.custom.is_some() => Shape { encoding: Encoding::Json, ..shape },
        _ => shape,
    }
}

/// Whether the request wants an object without the fields that the cluster added.
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
            export(&mut document, understood.query.flag("exact"), shown.kind.content.export);
            respond::document(200, &document, plain(understood.shape), 0)
        }
        _ => respond::refusal(&Refusal::Internal(Internal::StoredIsNoDocument), understood.shape),
    }
}
