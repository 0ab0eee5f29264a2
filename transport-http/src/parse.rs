//! Makes a [`ResourceRequest`] of an HTTP request: options, body, impersonation, request id.

use crate::body::{self, Bodies};
use crate::query::Query;
use crate::respond::{self, Form};
use crate::route::decode_key;
use crate::transport::Features;
use crate::understood::{Head, Kept, Understood};
use crate::websocket::Socket;
use bytes::Buf;
use futures_util::Stream;
use holdfast_core::Refusal;
use holdfast_core::authz::{ActingAs, User};
use holdfast_core::kinds::Subresource;
use holdfast_core::refusal::{BadRequest, Cause, Internal, Subject};
use holdfast_core::request::{Body, Format, Options, Verb};
use holdfast_engine::Engine;
use holdfast_service::{RequestId, ResourcePath, ResourceRequest};
use holdfast_tls::front_proxy::text;
use http::HeaderMap;
use http::header::{CONTENT_TYPE, USER_AGENT};
use std::sync::Arc;

/// The request on a path, with the moment in the query. The other parts are read later.
pub fn named(verb: Verb, path: Arc<ResourcePath>, query: &Query) -> ResourceRequest {
    let at = query.get("at").map(str::to_owned);
    ResourceRequest { verb, path, options: Options::default(), body: Body::default(), at }
}

/// The client's id for the request, if it has a valid form.
pub fn request_id(headers: &HeaderMap) -> Option<RequestId> {
    headers.get("audit-id").and_then(|id| id.to_str().ok()).and_then(RequestId::given)
}

/// The user that the client wants to act as. How groups without a user are refused depends on whether constrained
/// impersonation is on.
pub fn acting_as(headers: &HeaderMap, is_constrained: bool) -> Result<Option<ActingAs>, Refusal> {
    // If a name with non-ASCII letters were ignored, the request would run as the caller.
    let values = |name: &str| -> Vec<String> { headers.get_all(name).iter().map(text).collect() };
    let first = |name: &str| values(name).into_iter().next().filter(|value| !value.is_empty());
    let name = first("impersonate-user").unwrap_or_default();
    let mut other = ActingAs { name, groups: values("impersonate-group"), ..ActingAs::default() };
    other.uid = first("impersonate-uid");
    for key in headers.keys() {
        if let Some(extra) = key.as_str().strip_prefix("impersonate-extra-") {
            other.extra.entry(decode_key(extra)).or_default().extend(values(key.as_str()));
        }
    }
    if !other.name.is_empty() {
        return Ok(Some(other));
    }
    // A request with groups or extra fields and no user must not run as the caller either.
    let others = headers.keys().filter(|name| *name != "impersonate-user");
    match others.into_iter().find(|name| name.as_str().starts_with("impersonate-")) {
        None => Ok(None),
        Some(_) if is_constrained => Err(Refusal::BadRequest(BadRequest::ImpersonationWithoutUser(other.printed()))),
        Some(name) => Err(Refusal::Internal(Internal::ImpersonationWithoutUser { header: name.to_string() })),
    }
}

/// Reads those parts of requests on objects whose meaning depends on the server's state and settings.
pub struct CallParser<'a> {
    pub engine: &'a Engine,
    pub bodies: &'a Bodies,
    pub features: Features,
}

impl CallParser<'_> {
    /// Reads the rest of a request on objects, including its body. The error is the refusal for a malformed request.
    pub async fn fill<B, D, E>(
        &self,
        named: &mut ResourceRequest,
        head: &mut Head,
        understood: &mut Understood,
        kept: &mut Kept,
        user: &User,
        body: Option<B>,
    ) -> Result<(), Refusal>
    where
        B: Stream<Item = Result<D, E>> + Send,
        D: Buf,
        E: std::fmt::Display,
    {
        understood.negotiated.clone()?;
        if named.verb == Verb::Watch {
            understood.shape = understood.shape.for_stream(&head.headers)?;
        }
        self.fit_shape(named, head, understood)?;
        let verb = named.verb;
        named.options = understood.query.options(options_kind(verb))?;
        let deletes = matches!(verb, Verb::Delete | Verb::DeleteCollection);
        // The content type of a deletion matters only if the deletion has a body.
        let (format, unreadable) = match format_of(&head.headers, verb) {
            Err(refusal) if deletes => (Format::Json, Some(refusal)),
            format => (format?, None),
        };
        named.body.format = format;
        if named.options.field_manager.is_none() && named.body.format != Format::ApplyPatch && verb.is_mutating() {
            let agent = head.headers.get(USER_AGENT).map(text).unwrap_or_default();
            named.options.field_manager = Some(default_manager(&agent));
        }
        if verb == Verb::Watch {
            kept.socket = Socket::asked(&head.headers, head.upgrade.take())?;
        }
        if let Some(body) = body.filter(|_| verb.is_mutating()) {
            // The read is boxed, because otherwise the future of every request would have room for the future that
            // reads a body.
            kept.body = Box::pin(self.bodies.read(user, body)).await?;
            named.body.content = kept.body.bytes.clone().into();
        }
        if let Some(refusal) = unreadable
            && !kept.body.bytes.is_empty()
        {
            return Err(refusal);
        }
        let bytes = kept.body.bytes.len();
        if deletes {
            self.engine.by_size(&user.name, bytes, || body::delete_options(named)).await?;
        }
        if verb == Verb::Create && named.path.subresource == "eviction" {
            self.engine.by_size(&user.name, bytes, || body::eviction(named)).await?;
        }
        self.gate(named)
    }

    /// Chooses the next form that the client accepts, if the kind cannot be shown in the form that the client prefers.
    fn fit_shape(&self, named: &ResourceRequest, head: &Head, understood: &mut Understood) -> Result<(), Refusal> {
        let state = self.engine.snapshot();
        let ResourcePath { group, version, resource, .. } = &*named.path;
        let Some((id, served)) = state.registry.find(group, version, resource) else { return Ok(()) };
        let kind = state.kind(id);
        if kind.custom.is_none() {
            understood.shape.refuse_wild()?;
        }
        if kind.custom.is_some() && understood.shape.form == Form::Object {
            // The fields of a custom resource have no Protobuf numbers.
            understood.shape = understood.shape.without_protobuf(&head.headers)?;
        }
        let part = kind.subresource(served, &named.path.subresource);
        let has_own_body = |part: &Subresource| part.body.is_some() && part.scale.is_none();
        if !kind.stored && named.verb == Verb::Create || part.is_some_and(has_own_body) {
            // Kinds that support only POST have no columns.
            understood.shape = understood.shape.without_table(&head.headers)?;
        }
        Ok(())
    }

    /// Refuses or ignores the options that feature gates turn off.
    fn gate(&self, named: &mut ResourceRequest) -> Result<(), Refusal> {
        if named.options.dry_run && !self.features.dry_run {
            return Err(Refusal::BadRequest(BadRequest::DryRunDisabled));
        }
        if named.body.format == Format::ApplyPatch && !self.features.server_side_apply {
            return Err(Refusal::UnsupportedMediaType {
                accepted: "application/json-patch+json, application/merge-patch+json, \
                           application/strategic-merge-patch+json",
            });
        }
        if named.verb == Verb::Watch && named.options.send_initial_events.is_some() && !self.features.watch_list {
            let why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
            return Err(Refusal::Invalid {
                subject: Subject::new("meta.k8s.io", "ListOptions", ""),
                causes: Cause::forbidden("sendInitialEvents", why).into(),
            });
        }
        if !self.features.list_chunking && matches!(named.verb, Verb::List | Verb::DeleteCollection) {
            named.options.limit = None;
            named.options.continue_token = None;
        }
        Ok(())
    }
}

/// Reads the rest of a connect request. Its body and most parameters are for the server behind the API that answers
/// it.
pub fn fill_connect(named: &mut ResourceRequest, understood: &Understood) -> Result<(), Refusal> {
    if named.path.subresource == "log" {
        named.options = understood.query.options("GetOptions")?;
    }
    named.options.connect.container = understood.query.get("container").map(str::to_owned);
    named.options.connect.parameters = understood.query.pairs().to_vec();
    Ok(())
}

/// The kind of the options document in the query, as refusals name it.
fn options_kind(verb: Verb) -> &'static str {
    match verb {
        Verb::Create => "CreateOptions",
        Verb::Update => "UpdateOptions",
        Verb::Patch => "PatchOptions",
        Verb::Delete | Verb::DeleteCollection => "DeleteOptions",
        Verb::Get => "GetOptions",
        Verb::List | Verb::Watch => "ListOptions",
    }
}

/// The format of the body, by the content type in the headers.
fn format_of(headers: &HeaderMap, verb: Verb) -> Result<Format, Refusal> {
    let media = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let media = media.split(';').next().unwrap_or("").trim();
    // Kubernetes compares the media types of patches exactly, and other media types without case.
    let media = if verb == Verb::Patch { media.to_owned() } else { media.to_ascii_lowercase() };
    let accepted: &str = match (verb, media.as_str()) {
        (Verb::Patch, "application/json-patch+json") => return Ok(Format::JsonPatch),
        (Verb::Patch, "application/merge-patch+json") => return Ok(Format::MergePatch),
        (Verb::Patch, "application/strategic-merge-patch+json") => return Ok(Format::StrategicMergePatch),
        (Verb::Patch, "application/apply-patch+yaml" | "application/apply-patch") => return Ok(Format::ApplyPatch),
        (Verb::Patch, "*/*") => {
            "application/json-patch+json, application/merge-patch+json, \
             application/strategic-merge-patch+json, application/apply-patch+yaml"
        }
        (Verb::Patch, _) => "",
        (_, "" | "application/json") => return Ok(Format::Json),
        (_, "application/yaml") => return Ok(Format::Yaml),
        (_, respond::PROTOBUF) => return Ok(Format::Protobuf),
        (Verb::Get | Verb::List | Verb::Watch, _) => return Ok(Format::Json),
        _ => "application/json, application/yaml, application/vnd.kubernetes.protobuf",
    };
    Err(Refusal::UnsupportedMediaType { accepted })
}

/// The maximum length of a field manager's name in bytes.
const MANAGER_BYTES_MAX: usize = 128;

/// The field manager of a client that names no field manager, made from its user agent.
fn default_manager(agent: &str) -> String {
    let letters = agent.split('/').next().unwrap_or("").chars().filter(|letter| !letter.is_control());
    let mut name = String::new();
    for letter in letters {
        if name.len() + letter.len_utf8() > MANAGER_BYTES_MAX {
            break;
        }
        name.push(letter);
    }
    if name.is_empty() { "unknown".into() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::code;
    use http::HeaderValue;

    #[test]
    fn a_body_of_any_type_is_of_none() {
        let format = |verb: Verb, media: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
            format_of(&headers, verb)
                .map_err(|refusal| (code(Err(&refusal)), refusal.message().contains("media types include")))
        };
        for (verb, media, expected) in [
            (Verb::Create, "application/json; charset=utf-8", Ok(Format::Json)),
            (Verb::Create, "", Ok(Format::Json)),
            (Verb::Create, "*/*", Err((415, true))),
            (Verb::Update, "text/plain", Err((415, true))),
            (Verb::Patch, "*/*", Err((415, true))),
            (Verb::Patch, "application/json", Err((415, false))),
            (Verb::List, "text/plain", Ok(Format::Json)),
        ] {
            assert_eq!(format(verb, media), expected, "{verb:?} {media}");
        }
    }

    #[test]
    fn who_says_nothing_of_managers_is_one_by_its_own_name() {
        let long = "ü".repeat(100);
        for (agent, expected) in
            [("kubectl/v1", "kubectl"), ("bü\tcher/1", "bücher"), ("", "unknown"), (&long, &long[..128])]
        {
            assert_eq!(default_manager(agent), expected);
        }
    }

    #[test]
    fn names_of_any_letters_are_names() {
        let asked = |lines: &[(&'static str, &[u8])]| {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                headers.append(*name, HeaderValue::from_bytes(value).expect("a value"));
            }
            acting_as(&headers, false)
        };
        let user = asked(&[
            ("impersonate-user", "jürgen".as_bytes()),
            ("impersonate-uid", "ü".as_bytes()),
            ("impersonate-group", "größe".as_bytes()),
            ("impersonate-group", b"b"),
            ("impersonate-extra-scopes", "é".as_bytes()),
        ]);
        let user = user.expect("it is understood").expect("somebody");
        let (uid, extra) = (user.uid.as_deref(), &user.extra["scopes"]);
        assert_eq!((user.name.as_str(), uid, &*user.groups), ("jürgen", Some("ü"), &["größe".into(), "b".into()][..]));
        assert_eq!(extra, &["é"]);
        let other = asked(&[("impersonate-user", b"j\xff")]).expect("it is understood").expect("somebody");
        assert_eq!(other.name, "j\u{fffd}");
        assert!(asked(&[("impersonate-group", "ö".as_bytes())]).is_err());
        assert_eq!(asked(&[("impersonate-user", b"")]).expect("it is understood"), None);
    }
}
