//! Responses in the form that the client accepts.
//!
//! The stored bytes of an object are sent unchanged; every other form (YAML, Table, metadata only) is made on demand.

use crate::held::{CutOff, Held};
use crate::status::Status;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::Stream;
use futures_util::stream;
use holdfast_core::Refusal;
use holdfast_core::kinds::Kind;
use holdfast_core::kinds::autoscaling::scale;
use holdfast_core::kinds::known::SCALE;
use holdfast_core::object::encode;
use holdfast_core::object::meta::{self, Document};
use holdfast_core::refusal::{BadRequest, Forbidden, Plenty};
use holdfast_core::state::Entry;
use holdfast_core::wire::table::{self, IncludeObject, ListMeta, MetaVersion};
use holdfast_core::wire::{ordered::ordered, pretty, protobuf, yaml};
use holdfast_service::Draft;
use holdfast_value::Value;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, RETRY_AFTER, VARY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, StatusCode};
use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use warp::Reply as _;

pub type Response = warp::reply::Response;
pub type Frames = Pin<Box<dyn Stream<Item = Result<Bytes, CutOff>> + Send + Sync>>;

/// Responses with more than this many bytes are compressed for clients that accept compression.
const GZIP_BYTES_MIN: usize = 128 << 10;
/// Bytes that are made for one reader count as the reader's memory if there are more bytes than this number.
pub const OWN_BYTES_MIN: usize = 2 << 10;
/// Large responses are sent in pieces of about this many bytes.
pub const PIECE_BYTES: usize = 64 << 10;

pub const JSON: &str = "application/json";
pub const YAML: &str = "application/yaml";
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// The media types in which watches are available, as refusals list them.
const STREAMS: &str = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
/// The media types in which objects are available, as refusals list them.
pub const OBJECTS: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// The form and the encoding of objects that the client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub form: Form,
    pub encoding: Encoding,
    pub pretty: bool,
    pub gzip: bool,
    /// Whether objects and lists are sent with a `selfLink`.
    pub links: bool,
    /// Whether the client accepts `application/*` and names no media type.
    pub wild: bool,
}

/// The encoding in which a document is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Json,
    Yaml,
    /// Protobuf in Kubernetes' envelope. Tables and objects without a Protobuf schema are JSON nevertheless.
    Protobuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Object,
    Table(MetaVersion, IncludeObject),
    /// The form `PartialObjectMetadata`, or a list of this form.
    Metadata(MetaVersion),
}

impl Shape {
    pub const PLAIN: Shape =
        Shape { form: Form::Object, encoding: Encoding::Json, pretty: false, gzip: false, links: false, wild: false };

    /// Chooses the shape by the headers, and by `pretty` and `includeObject` of the query.
    pub fn negotiate(headers: &HeaderMap, pretty: Option<&str>, include: Option<&str>) -> Result<Shape, Refusal> {
        let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
        let include = match include {
            Some("None") => IncludeObject::None,
            Some("Object") => IncludeObject::Object,
            // An unknown value matters only for a table; see `unknown_include`.
            _ => IncludeObject::Metadata,
        };
        let wild = accept.contains(WILD) && !accept.split(',').any(|clause| media(clause) != WILD && is_known(clause));
        let (form, encoding) = choose(accept, include)
            .ok_or(Refusal::NotAcceptable { offered: OBJECTS, is_offered: accept.split(',').any(is_known) })?;
        let agent = headers.get(http::header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or("");
        let person = ["curl", "Wget", "Mozilla/5.0"].iter().any(|tool| agent.starts_with(tool));
        let pretty = match pretty {
            Some(value) => !matches!(value, "false" | "0"),
            None => person,
        };
        let encodings = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or("");
        let gzip = encodings.split(',').any(|coding| {
            let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
            name.trim() == "gzip" && weight.trim().replace(' ', "") != "q=0"
        });
        Ok(Shape { form, encoding, pretty, gzip, links: false, wild })
    }

    /// The refusal of an unknown `includeObject`. Kubernetes checks the parameter when the table is made.
    pub fn unknown_include(self, include: Option<&str>) -> Option<Refusal> {
        let other = include.filter(|include| !matches!(*include, "" | "Metadata" | "None" | "Object"))?;
        let is_table = matches!(self.form, Form::Table(..));
        is_table.then(|| Refusal::BadRequest(BadRequest::UnknownIncludeObject(other.to_owned())))
    }

    /// The next form that the client accepts, for an object that has no Protobuf form.
    pub fn without_protobuf(self, headers: &HeaderMap) -> Result<Shape, Refusal> {
        if self.encoding != Encoding::Protobuf {
            return Ok(self);
        }
        let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
        let others: Vec<&str> = accept.split(',').filter(|clause| !clause.trim().starts_with(PROTOBUF)).collect();
        let choice = if others.is_empty() { None } else { choose(&others.join(","), IncludeObject::Metadata) };
        let (form, encoding) = choice
            .ok_or(Refusal::NotAcceptable { offered: "application/json, application/yaml", is_offered: false })?;
        Ok(Shape { form, encoding, ..self })
    }

    /// The next form that the client accepts, for a watch, which has no YAML form.
    pub fn for_stream(self, headers: &HeaderMap) -> Result<Shape, Refusal> {
        if self.encoding != Encoding::Yaml {
            return Ok(self);
        }
        let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
        let others: Vec<&str> = accept.split(',').filter(|clause| !clause.contains("yaml")).collect();
        let choice = if others.is_empty() { None } else { choose(&others.join(","), IncludeObject::Metadata) };
        let (form, encoding) = choice.ok_or(Refusal::NotAcceptable { offered: STREAMS, is_offered: true })?;
        Ok(Shape { form, encoding, ..self })
    }

    /// Refuses a client that accepts `application/*` and names no media type. Call it for built-in kinds.
    pub fn refuse_wild(self) -> Result<(), Refusal> {
        if self.wild { Err(Refusal::NotAcceptable { offered: OBJECTS, is_offered: false }) } else { Ok(()) }
    }

    /// The next form that the client accepts, for an object that has no columns.
    pub fn without_table(self, headers: &HeaderMap) -> Result<Shape, Refusal> {
        if !matches!(self.form, Form::Table(..)) {
            return Ok(self);
        }
        let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
        let is_other = |clause: &&str| !clause.split(';').any(|part| part.trim() == "as=Table");
        let others: Vec<&str> = accept.split(',').filter(is_other).collect();
        let choice = if others.is_empty() { None } else { choose(&others.join(","), IncludeObject::Metadata) };
        let (form, encoding) = choice.ok_or(Refusal::NotAcceptable { offered: OBJECTS, is_offered: true })?;
        Ok(Shape { form, encoding, ..self })
    }

    pub fn is_raw(self) -> bool {
        self.encoding == Encoding::Json && !self.pretty
    }
}

/// As in Kubernetes, a client that accepts this media type gets JSON for custom resources, and is refused for built-in
/// resources.
const WILD: &str = "application/*";

fn media(clause: &str) -> &str {
    clause.split(';').next().unwrap_or("").trim()
}

/// Whether a clause of `Accept` names a media type of objects.
fn is_known(clause: &str) -> bool {
    matches!(media(clause), JSON | YAML | PROTOBUF | "application/x-yaml" | WILD | "*/*")
}

/// The acceptable form with the highest weight; of equal weights the first.
fn choose(accept: &str, include: IncludeObject) -> Option<(Form, Encoding)> {
    if accept.trim().is_empty() {
        return Some((Form::Object, Encoding::Json));
    }
    let mut best: Option<(f32, (Form, Encoding))> = None;
    for clause in accept.split(',') {
        let mut parts = clause.split(';').map(str::trim);
        let media = parts.next().unwrap_or("");
        let mut parameter = [None; 4];
        let names = ["as", "g", "v", "q"];
        for part in parts {
            if let Some((name, value)) = part.split_once('=')
                && let Some(index) = names.iter().position(|known| *known == name.trim())
            {
                parameter[index] = Some(value.trim());
            }
        }
        let [form, group, version, weight] = parameter;
        let weight: f32 = weight.and_then(|weight| weight.parse().ok()).unwrap_or(1.0);
        let encoding = match media {
            "application/json" | WILD | "*/*" => Encoding::Json,
            "application/yaml" | "application/x-yaml" => Encoding::Yaml,
            PROTOBUF => Encoding::Protobuf,
            _ => continue,
        };
        let version = match version {
            None | Some("v1") => MetaVersion::V1,
            Some("v1beta1") => MetaVersion::V1Beta1,
            Some(_) => continue,
        };
        let form = match (form, group.unwrap_or("meta.k8s.io")) {
            (None, _) => Form::Object,
            // Tables have no Protobuf form, so the client's next choice counts.
            (Some("Table"), _) if encoding == Encoding::Protobuf => continue,
            (Some("Table"), "meta.k8s.io") => Form::Table(version, include),
            (Some("PartialObjectMetadata" | "PartialObjectMetadataList"), "meta.k8s.io") => Form::Metadata(version),
            _ => continue,
        };
        if weight > 0.0 && best.is_none_or(|(heaviest, _)| weight > heaviest) {
            best = Some((weight, (form, encoding)));
        }
    }
    best.map(|(_, choice)| choice)
}

/// The response that shows one stored object.
pub fn object(kind: &Kind, version: usize, entry: &Arc<Entry>, code: u16, shape: Shape, now: i64) -> Response {
    if shape.form == Form::Object && !shape.links {
        if shape.encoding == Encoding::Protobuf
            && let Some(message) = entry.message_in(kind, version)
        {
            let body = protobuf::wrap(&kind.versions[version].api_version(), &kind.kind, &message.bytes());
            return content(code, body.into(), PROTOBUF, shape.gzip);
        }
        return bytes(code, entry.json_in(kind, version), shape);
    }
    let json = form(kind, version, entry, shape, now, true);
    bytes(code, json.into(), shape)
}

/// The response with a document that is not a stored object. Of these documents only scales have a table.
pub fn document(code: u16, document: &Document, shape: Shape, now: i64) -> Response {
    match shape.form {
        Form::Metadata(meta) if document.get("items").is_none() => {
            let json = encode::document(document);
            bytes(code, table::partial_object_metadata(&json, None, meta).into(), shape)
        }
        Form::Table(meta, include) if is_scale(document) => {
            let resource_version = meta::text(meta::metadata(document), "resourceVersion").to_owned();
            let list = ListMeta { resource_version: &resource_version, ..ListMeta::default() };
            let form = table::Form { version: meta, include, headers: true };
            let served = Bytes::from(encode::document(document));
            let source = table::Source { hub: served.clone(), served };
            bytes(code, table::table(&scale::SHOWN, [source], now, form, &list).into(), shape)
        }
        _ => bytes(code, ordered(document).into(), shape),
    }
}

fn is_scale(document: &Document) -> bool {
    let says = |field: &str, text: &str| document.get(field).is_some_and(|value| value == text);
    says("kind", SCALE.kind) && says("apiVersion", &SCALE.api_version())
}

/// The response with an object that was not stored: the result of a dry run.
pub fn draft(draft: &Draft, code: u16, shape: Shape, now: i64) -> Response {
    let Draft { kind, version, hub, document: served, .. } = draft;
    let (meta, include) = match shape.form {
        Form::Table(meta, include) => (meta, include),
        Form::Metadata(meta) => {
            let json = encode::document(if kind.custom.is_some() { served } else { hub });
            let json = table::partial_object_metadata(&json, kind.shown(*version).left_out, meta);
            return bytes(code, json.into(), shape);
        }
        Form::Object => return document(code, served, shape, now),
    };
    let served: Bytes = encode::document(served).into();
    let hub = if kind.custom.is_some() { served.clone() } else { encode::document(hub).into() };
    let form = table::Form { version: meta, include, headers: true };
    let json = table::table(kind.shown(*version), [table::Source { hub, served }], now, form, &ListMeta::default());
    bytes(code, json.into(), shape)
}

/// One object in the form that the client accepts.
pub fn form(kind: &Kind, version: usize, entry: &Entry, shape: Shape, now: i64, headers: bool) -> Vec<u8> {
    let served = served(kind, version, entry, shape.links);
    match shape.form {
        Form::Table(meta, include) => {
            let resource_version = entry.offset.to_string();
            let list = ListMeta { resource_version: &resource_version, ..ListMeta::default() };
            let source = source(kind, entry, served);
            table::table(kind.shown(version), [source], now, table::Form { version: meta, include, headers }, &list)
        }
        Form::Metadata(meta) => {
            // Annotations that a version uses to keep its fields belong only to the metadata of that version.
            let of = if kind.custom.is_some() || shape.links { served } else { entry.json() };
            table::partial_object_metadata(&of, kind.shown(version).left_out, meta)
        }
        Form::Object => served.into(),
    }
}

/// The documents from which a table is made. The columns of a custom resource read the requested version.
pub fn source(kind: &Kind, entry: &Entry, served: Bytes) -> table::Source {
    let hub = if kind.custom.is_some() { served.clone() } else { entry.json() };
    table::Source { hub, served }
}

pub fn served(kind: &Kind, version: usize, entry: &Entry, links: bool) -> Bytes {
    if !links {
        return entry.json_in(kind, version);
    }
    match entry.document_in(kind, version) {
        Value::Object(mut document) => {
            link(kind, version, &mut document);
            encode::document(&document).into()
        }
        _ => entry.json(),
    }
}

fn link(kind: &Kind, version: usize, document: &mut Document) {
    let metadata = meta::metadata_mut(document);
    let namespace = meta::text(metadata, "namespace");
    let path = format!("{}/{}", self_link(kind, version, namespace), meta::text(metadata, "name"));
    metadata.insert("selfLink", path.into());
}

/// The path of the objects in a namespace, or in the cluster.
pub fn self_link(kind: &Kind, version: usize, namespace: &str) -> String {
    let served = &kind.versions[version];
    let root = if served.group.is_empty() { "/api" } else { "/apis" };
    let within = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
    format!("{root}/{}{within}/{}", served.api_version(), kind.resource)
}

/// A body in pieces. `own` means that the pieces are in memory only for this reader.
pub fn pieces(pieces: Vec<Bytes>, content_type: &'static str, gzip: bool, own: bool) -> Response {
    let size = pieces.iter().map(Bytes::len).sum();
    if size <= PIECE_BYTES {
        return content(200, pieces.concat().into(), content_type, gzip);
    }
    counted(pieces.into_iter(), if own { size } else { 0 }, size, content_type, gzip)
}

/// A body in pieces. `own` bytes and one piece are in memory only for this reader, until they are sent.
pub fn counted(
    pieces: impl Iterator<Item = Bytes> + Send + Sync + 'static,
    own: usize,
    size: usize,
    content_type: &'static str,
    gzip: bool,
) -> Response {
    let held = Held::new(own + size.min(PIECE_BYTES), size > PIECE_BYTES);
    let mut response = in_pieces((held.clone().over(pieces), held.end()), size, content_type, gzip);
    response.extensions_mut().insert(held);
    response
}

/// A body that is made while it is sent. A short body is made at once, with its length.
fn in_pieces(
    (mut pieces, end): (
        impl Iterator<Item = Bytes> + Send + Sync + 'static,
        impl Iterator<Item = Result<Bytes, CutOff>> + Send + Sync + 'static,
    ),
    size: usize,
    content_type: &'static str,
    gzip: bool,
) -> Response {
    if size <= PIECE_BYTES {
        return content(200, pieces.next().unwrap_or_default(), content_type, false);
    }
    if gzip && size >= GZIP_BYTES_MIN {
        return streamed(200, gzipped(pieces.flat_map(slices), end), content_type, true);
    }
    streamed(200, Box::pin(stream::iter(pieces.flat_map(slices).map(Ok).chain(end))), content_type, false)
}

fn gzipped(
    pieces: impl Iterator<Item = Bytes> + Send + Sync + 'static,
    end: impl Iterator<Item = Result<Bytes, CutOff>> + Send + Sync + 'static,
) -> Frames {
    let mut encoder = Some(GzEncoder::new(Vec::new(), Compression::fast()));
    let mut pieces = pieces;
    let compressed = std::iter::from_fn(move || {
        loop {
            let active = encoder.as_mut()?;
            match pieces.next() {
                Some(piece) => {
                    // Writing to a Vec cannot fail.
                    let _ = active.write_all(&piece);
                    let out = std::mem::take(active.get_mut());
                    if !out.is_empty() {
                        return Some(Ok(Bytes::from(out)));
                    }
                }
                None => return encoder.take()?.finish().ok().map(|out| Ok(Bytes::from(out))),
            }
        }
    });
    Box::pin(stream::iter(compressed.chain(end)))
}

/// The response with a document, given as JSON, in the encoding of the shape.
pub fn bytes(code: u16, json: Bytes, shape: Shape) -> Response {
    let (body, content_type) = if shape.is_raw() { (json, JSON) } else { rewritten(json, shape) };
    content(code, body, content_type, shape.gzip)
}

fn rewritten(json: Bytes, shape: Shape) -> (Bytes, &'static str) {
    let value = || serde_json::from_slice::<Value>(&json).ok();
    let text = match shape.encoding {
        Encoding::Yaml => value().map(|value| (yaml::yaml(&value).into(), YAML)),
        Encoding::Protobuf => value().and_then(|value| protobuf_of(&value)).map(|body| (body.into(), PROTOBUF)),
        Encoding::Json => Some(([&pretty::indented(&json)[..], b"\n"].concat().into(), JSON)),
    };
    text.unwrap_or((json, JSON))
}

/// The Protobuf form of a document; `None` when the schema does not have it.
pub fn protobuf_of(value: &Value) -> Option<Vec<u8>> {
    let text = |field: &str| value[field].as_str().unwrap_or("");
    let codec = protobuf::codec();
    let message = codec.find(text("apiVersion"), text("kind"))?;
    codec.encode_object(message, value).ok()
}

/// A finished body of any type, compressed if it is large and the client accepts compression. A large body is sent in
/// slices, so that the connection does not keep a copy of the body.
pub fn content(code: u16, body: Bytes, content_type: &'static str, gzip: bool) -> Response {
    // Bytes that the state shares do not count as the reader's memory.
    let own = if body.len() > OWN_BYTES_MIN && body.is_unique() { body.len() } else { 0 };
    if own == 0 && body.len() <= PIECE_BYTES {
        let mut response = warp::reply::Response::new(body.into());
        finish(&mut response, code, content_type);
        return response;
    }
    let (size, held) = (body.len(), Held::new(own, false));
    let (pieces, end) = (held.clone().over(slices(body)), held.end());
    let mut response = if gzip && size >= GZIP_BYTES_MIN {
        streamed(code, gzipped(pieces, end), content_type, true)
    } else {
        let mut response = streamed(code, Box::pin(stream::iter(pieces.map(Ok).chain(end))), content_type, false);
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(size));
        response
    };
    if own > 0 {
        response.extensions_mut().insert(held);
    }
    response
}

/// Splits the bytes into slices without copying them.
pub fn slices(mut bytes: Bytes) -> impl Iterator<Item = Bytes> {
    std::iter::from_fn(move || (!bytes.is_empty()).then(|| bytes.split_to(PIECE_BYTES.min(bytes.len()))))
}

const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");

/// Forbids browsers to guess another content type than the type that the response names.
pub fn unsniffed(mut response: Response) -> Response {
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    response
}

pub fn text(code: u16, body: impl Into<String>) -> Response {
    content(code, body.into().into(), "text/plain; charset=utf-8", false)
}

/// The response when authorization failed with an error. The request's path is escaped, because a browser may show it.
pub fn unauthorizable(path: &str, query: &str, why: &str) -> Response {
    let query = if query.is_empty() { String::new() } else { format!("?{query}") };
    let message = format!("Internal Server Error: {:?}: {why}", format!("{path}{query}"));
    let escaped = message.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    plain_error(500, &escaped)
}

/// The response that reports a failure as plain text, like Go's `http.Error`.
pub fn plain_error(code: u16, message: &str) -> Response {
    unsniffed(text(code, format!("{message}\n")))
}

/// The response with a body that is sent while it is made.
pub fn streamed(code: u16, frames: Frames, content_type: &'static str, gzip: bool) -> Response {
    let mut response = warp::reply::stream(frames).into_response();
    finish(&mut response, code, content_type);
    if gzip {
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    response
}

fn finish(response: &mut Response, code: u16, content_type: &'static str) {
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
}

pub fn refusal(refusal: &Refusal, shape: Shape) -> Response {
    let status = Status::from(refusal);
    if let Refusal::TooManyRequests { what: Plenty::Requests, retry_after_seconds } = refusal {
        // Refusals that protect the server are made before the request is parsed, so the client's form is unknown.
        let mut response = plain_error(status.code, &refusal.message());
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(*retry_after_seconds));
        return response;
    }
    let shape = Shape { form: Form::Object, ..shape };
    let mut body = Vec::new();
    if let Value::Object(document) = &status.document {
        body = ordered(document);
    }
    let mut response = bytes(status.code, body.into(), shape);
    if let Some(seconds) = status.retry_after_seconds {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    // The text repeats names of the user and the path, which the client chose.
    match refusal {
        Refusal::Forbidden { why: Forbidden::Access(_), .. } => unsniffed(response),
        _ => response,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_names_no_form_at_all_is_told_so_where_kinds_are_built_in() {
        for (accept, wild) in [
            ("application/*", true),
            ("text/html, application/*;q=0.5", true),
            ("application/*, application/json", false),
            ("application/*, */*", false),
            ("*/*", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            let shape = Shape::negotiate(&headers, None, None).expect("a form");
            assert_eq!((shape.encoding, shape.wild), (Encoding::Json, wild), "{accept}");
            assert_eq!(
                shape.refuse_wild().err().map(|refusal| crate::status::code(Err(&refusal))),
                wild.then_some(406),
                "{accept}"
            );
        }
    }

    #[test]
    fn the_best_acceptable_form_is_chosen() {
        let table = Form::Table(MetaVersion::V1, IncludeObject::Metadata);
        let cases = [
            ("", Some((Form::Object, Encoding::Json))),
            ("*/*", Some((Form::Object, Encoding::Json))),
            ("application/yaml", Some((Form::Object, Encoding::Yaml))),
            ("application/vnd.kubernetes.protobuf, application/json", Some((Form::Object, Encoding::Protobuf))),
            ("application/vnd.kubernetes.protobuf", Some((Form::Object, Encoding::Protobuf))),
            ("text/html", None),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
                Some((table, Encoding::Json)),
            ),
            ("application/json;as=Table;v=v9;g=meta.k8s.io, application/json", Some((Form::Object, Encoding::Json))),
            ("application/json;q=0.5,application/yaml;q=0.9", Some((Form::Object, Encoding::Yaml))),
            (
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                Some((Form::Metadata(MetaVersion::V1), Encoding::Json)),
            ),
            ("application/json;as=Nothing;g=meta.k8s.io;v=v1", None),
        ];
        for (accept, expected) in cases {
            assert_eq!(choose(accept, IncludeObject::Metadata), expected, "{accept}");
        }
    }
}
