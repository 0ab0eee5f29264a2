//! Discovery and OpenAPI documents into which the parts of other servers are merged.
//!
//! A merged document is cached together with this server's own document, and made again when this server's own document
//! or the table of other servers has changed.

use super::{Table, whole};
use crate::paths;
use crate::query::Query;
use crate::respond::{self, Response, Shape};
use crate::route::{Discovery, Route};
use crate::transport::Transport;
use crate::understood::Head;
use bytes::Bytes;
use holdfast_core::apiservices::GroupVersion;
use holdfast_core::authz::User;
use holdfast_core::wire::discovery::Aggregated;
use holdfast_core::wire::merged::{self, Merge};
use holdfast_core::wire::openapi;
use holdfast_service::{Granted, Scene};
use http::header::{ACCEPT, HeaderValue};
use http::{HeaderMap, Method};
use std::sync::{Arc, PoisonError};

/// A merged document, with the values from which it was made, which show whether it is outdated.
pub(super) struct Merged {
    own: Bytes,
    generation: u64,
    document: Bytes,
}

/// A requested document that may have parts of other servers.
enum MergedDocument<'a> {
    Groups(Option<Aggregated>),
    Group(&'a str),
    OpenApiV2 { protobuf: bool },
    OpenApiV3Index,
}

/// Answers a path whose document has parts of other servers; `None` if the document has no such parts.
pub async fn answer(
    transport: &Arc<Transport>,
    user: &Arc<User>,
    head: &Head,
    route: &Route,
    shape: Shape,
) -> Option<Response> {
    let Head { method, headers, .. } = head;
    let table = transport.aggregator().table.load_full();
    if table.servers.is_empty() && table.priorities.is_empty() || !matches!(*method, Method::GET | Method::HEAD) {
        return None;
    }
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    let asked = match route {
        Route::Discovery(Discovery::Groups) => MergedDocument::Groups(paths::aggregated_form(accept)),
        Route::Discovery(Discovery::Group(group)) => MergedDocument::Group(group),
        Route::OpenApiV2 => MergedDocument::OpenApiV2 { protobuf: paths::asks_protobuf(accept) },
        Route::OpenApiV3(path) if path.is_empty() => MergedDocument::OpenApiV3Index,
        _ => return None,
    };
    let own_route = match asked {
        MergedDocument::Group(_) => Route::Discovery(Discovery::Groups),
        _ => route.clone(),
    };
    let mut own_headers = HeaderMap::new();
    if let MergedDocument::Groups(Some(form)) = asked {
        own_headers.insert(ACCEPT, HeaderValue::from_static(form.content_type()));
    }
    let query = Query::parse("");
    let own = Granted { user: user.clone(), scene: Scene::Present(transport.engine().snapshot()) };
    let asked_of_own = (&Method::GET, &own_route);
    let own = paths::answer(transport, &own, asked_of_own, &own_headers, &query, Shape::PLAIN).await;
    let own = whole(own).await?;
    let group = if let MergedDocument::Group(group) = &asked { *group } else { "" };
    let protobuf = matches!(asked, MergedDocument::OpenApiV2 { protobuf: true });
    let name = format!("{own_route:?} {group} {:?} {protobuf}", own_headers.get(ACCEPT));
    let document = document(transport, &table, &name, own, &asked)?;
    Some(match asked {
        MergedDocument::Groups(Some(form)) => paths::tagged(document, form.content_type(), headers, shape),
        MergedDocument::Groups(None) | MergedDocument::Group(_) | MergedDocument::OpenApiV3Index => {
            respond::bytes(200, document, shape)
        }
        MergedDocument::OpenApiV2 { protobuf: true } => paths::tagged(document, openapi::V2_PROTOBUF, headers, shape),
        MergedDocument::OpenApiV2 { protobuf: false } => paths::tagged(document, respond::JSON, headers, shape),
    })
}

fn document(transport: &Transport, table: &Table, name: &str, own: Bytes, asked: &MergedDocument) -> Option<Bytes> {
    let lock = || transport.aggregator().merged.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(kept) = lock().get(name).filter(|kept| kept.generation == table.generation && kept.own == own) {
        return Some(kept.document.clone());
    }
    let document = merge(table, &own, asked)?;
    let merged = Merged { own, generation: table.generation, document: document.clone() };
    lock().insert(name.to_owned(), merged);
    Some(document)
}

fn merge(table: &Table, own: &[u8], asked: &MergedDocument) -> Option<Bytes> {
    let (remotes, priorities) = (table.remotes(), |served: &GroupVersion| table.priorities(served));
    let merge = Merge { remotes: &remotes, priorities: &priorities };
    let servers = || table.servers.iter();
    match asked {
        MergedDocument::Groups(Some(_)) => merge.aggregated(own),
        MergedDocument::Groups(None) => merge.group_list(own),
        MergedDocument::Group(group) => merge.api_group(own, group),
        MergedDocument::OpenApiV3Index => {
            let hashes = servers().filter_map(|(served, server)| Some((served, server.told.openapi_v3.as_deref()?)));
            let own = serde_json::from_slice(own).ok()?;
            Some(merged::openapi_v3_index(own, hashes).to_string().into())
        }
        MergedDocument::OpenApiV2 { protobuf } => {
            let others = servers().filter_map(|(_, server)| Some(&server.told.openapi_v2.as_ref()?.part));
            let document = merged::openapi_v2(serde_json::from_slice(own).ok()?, others);
            Some(if *protobuf { openapi::v2_protobuf_of(&document) } else { document.to_string().into() })
        }
    }
}
