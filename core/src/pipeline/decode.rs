//! The first stage of a mutation: decodes the body into a document, and checks the document against its schema.

pub(super) use crate::kinds::{layout, layout_of};

use super::{Answers, Basis, Context, Settings, manage};
use crate::kinds::{self, Kind};
use crate::object::decode;
use crate::object::meta::{self, Document, text, type_name};
use crate::refusal::{BadRequest, Cause, Internal, KindFault, Refusal, Subject, Texts, Unfit, Unmarshal, Unrecognized};
use crate::request::{Body, FieldValidation, Format, Request};
use crate::schema::layout::Layout;
use crate::stamp::Stamp;
use crate::state::State;
use crate::wire::protobuf::codec;
use holdfast_value::Value;

/// The document in the body of a request on a kind that is not stored. It is checked against its schema and has
/// defaults and managed fields.
pub fn decode_body(state: &State, request: &Request, stamp: Stamp) -> Result<Document, Refusal> {
    let (settings, answers) = (Settings::default(), Answers::default());
    let context = Context::new(Basis::without_authorization(state, &settings), request, stamp, &answers);
    match posted(&context)? {
        Value::Object(document) => Ok(document),
        _ => Err(Refusal::Internal(Internal::BodyIsNoObject)),
    }
}

/// The document in the body, in the path's version, with defaults and managed fields.
pub(super) fn posted(context: &Context) -> Result<Value, Refusal> {
    let mut document = context.decode()?;
    kinds::default(context.layout()?, &mut document)?;
    meta::metadata_mut(meta::fields_mut(&mut document));
    manage::note_new(context, &mut document)?;
    Ok(document)
}

/// The document in a body of any kind, without checks; `None` if the body cannot be parsed.
pub fn parsed(body: &Body) -> Option<Value> {
    let decoded = match body.format {
        Format::Yaml | Format::ApplyPatch => body.content.yaml(),
        Format::Protobuf => protobuf(&body.content.bytes()),
        Format::Json | Format::JsonPatch | Format::MergePatch | Format::StrategicMergePatch => body.content.json(),
    };
    Some(decoded.ok()?.value)
}

/// The object in a body, with the defaults of its version and without unknown fields. Returns `None` if the body is not
/// an object of this kind and version; the pipeline refuses such a body.
pub fn requested(kind: &Kind, version: usize, body: &Body) -> Option<Value> {
    if !matches!(body.format, Format::Json | Format::Yaml | Format::Protobuf) {
        return None;
    }
    let (mut value, layout) = (parsed(body)?, layout(kind, version).ok()?);
    value.is_object().then(|| layout.check(&mut value).ok())??;
    match (version, &kind.custom) {
        (0, None) => kind.default_to_hub(0, &mut value, None).ok()?,
        _ => kinds::default(layout, &mut value).ok()?,
    }
    if kind.custom.is_none() {
        kinds::show_zeros(kind.message(version).ok()?, &mut value);
    }
    let fields = meta::fields_mut(&mut value);
    fields.insert("kind", kind.kind.as_str().into());
    fields.insert("apiVersion", kind.versions[version].api_version().into());
    Some(value)
}

impl Context<'_> {
    /// Decodes the body as an object of the path's kind and version, checks and prunes it. Unknown and duplicate fields
    /// are refused, reported as warnings or ignored, depending on the client's `fieldValidation`.
    pub(super) fn decode(&self) -> Result<Value, Refusal> {
        let version = self.version();
        self.decode_as(&version.group, &version.version, &self.kind.kind, self.layout()?)
    }

    /// Like [`decode`](Self::decode), for a body of another kind than the path's (`Scale`, `Eviction`).
    pub(super) fn decode_as(&self, group: &str, version: &str, kind: &str, layout: Layout) -> Result<Value, Refusal> {
        let body = &self.request.body;
        let decoded = match body.format {
            Format::Json => body.content.json(),
            Format::Yaml => body.content.yaml(),
            Format::Protobuf if self.kind.custom.is_some() && self.kind.kind == kind => {
                return Err(Refusal::UnsupportedMediaType { accepted: "application/json, application/yaml" });
            }
            Format::Protobuf => protobuf(&body.content.bytes()),
            Format::JsonPatch | Format::MergePatch | Format::StrategicMergePatch | Format::ApplyPatch => {
                return Err(Refusal::UnsupportedMediaType {
                    accepted: "application/json, application/yaml, application/vnd.kubernetes.protobuf",
                });
            }
        };
        let decoded = decoded.map_err(|error| self.unrecognized(kind, error.to_string()))?;
        let strict_errors = decoded.strict_errors();
        let repeated = decoded.duplicates;
        let mut value = decoded.value;
        if !value.is_object() && !value.is_null() {
            return Err(self.unrecognized(kind, not_an_object(&value).to_string()));
        }
        let api_version = crate::kinds::api_version(group, version);
        let found = identify(&value, &api_version, kind)?;
        if (found.0.as_str(), found.1.as_str()) != (api_version.as_str(), kind) {
            if matches!(layout, Layout::Custom(_)) {
                return Err(wrong_custom(&value, &found, &api_version, kind));
            }
            return Err(self.wrong_kind(&found.0, &found.1, group, version, kind));
        }
        let unfit = |why: Unfit| {
            let (kind, version) = (kind.to_owned(), version.to_owned());
            Refusal::BadRequest(BadRequest::Unfit { wanted: kind.clone(), kind, version, why })
        };
        // As in Go, a YAML body that is null or empty is an empty object of a built-in kind.
        if !value.is_object() && layout.message().is_none() {
            return Err(unfit(Unfit::NotAnObject));
        }
        let unknown = layout.check(&mut value).map_err(|error| unfit(Unfit::Layout(error.to_string())))?;
        let complaints = match body.format {
            // Kubernetes reports these fields in the order of the JSON. For a custom resource it sorts them
            // alphabetically instead.
            Format::Json if unknown.len() + repeated.len() > 1 && matches!(layout, Layout::Table(..)) => {
                let in_order = decode::order::complaints(&body.content.bytes(), &unknown, &repeated);
                let mut complaints = Texts::from_iter(in_order);
                complaints.add_more(unknown.more() + repeated.more());
                complaints
            }
            _ => complaints(strict_errors, unknown),
        };
        match self.request.options.field_validation {
            FieldValidation::Strict if !complaints.is_empty() => {
                return Err(unfit(Unfit::Strict(complaints.into_vec())));
            }
            FieldValidation::Warn => self.warn_of(decode::warnings(complaints)),
            FieldValidation::Strict | FieldValidation::Ignore => {}
        }
        Ok(value)
    }

    /// The refusal of a body that is not an object of the wanted kind.
    fn unrecognized(&self, kind: &str, fault: String) -> Refusal {
        let shown = summary(&self.request.body.content.bytes());
        let why = Unrecognized::Body { is_json: self.request.body.format == Format::Json, fault, shown };
        Refusal::BadRequest(BadRequest::Unrecognized { wanted: kind.into(), why })
    }

    /// The refusal of an object whose kind or version differs from the kind or version of the path.
    fn wrong_kind(&self, found_version: &str, found_kind: &str, group: &str, version: &str, kind: &str) -> Refusal {
        let (found_group, found_short) = split_version(found_version);
        let known = self.state.registry.find_kind(found_group, found_short, found_kind).is_some();
        let expected = crate::kinds::api_version(group, version);
        if known && found_version != expected && found_kind == kind {
            return Refusal::BadRequest(BadRequest::OtherVersion { found: found_version.into(), expected });
        }
        let why = Unfit::Kind(Box::new(self.cannot_become(found_version, found_kind, group, kind)));
        let (found_kind, version) = (found_kind.to_owned(), found_short.to_owned());
        Refusal::BadRequest(BadRequest::Unfit { kind: found_kind, version, wanted: kind.into(), why })
    }

    /// The fault of an object whose kind is not the kind of the path.
    pub(super) fn kind_fault(&self, found_version: &str, found_kind: &str) -> KindFault {
        self.cannot_become(found_version, found_kind, &self.version().group, &self.kind.kind)
    }

    fn cannot_become(&self, found_version: &str, found_kind: &str, group: &str, kind: &str) -> KindFault {
        let (found_group, found_short) = split_version(found_version);
        if self.state.registry.find_kind(found_group, found_short, found_kind).is_none() {
            return KindFault::Unregistered { kind: found_kind.into(), api_version: found_version.into() };
        }
        let to = group.split('.').next().filter(|group| !group.is_empty()).unwrap_or("core");
        KindFault::NoConversion { from: (found_short.into(), found_kind.into()), to: (to.into(), kind.into()) }
    }
}

/// The complaints about unknown and duplicate fields, in the words of strict decoding.
pub(super) fn complaints(duplicates: Texts, unknown: Texts) -> Texts {
    let mut complaints = unknown.map(|path| format!("unknown field \"{path}\""));
    complaints.append(duplicates);
    complaints
}

/// The refusal of an object of another kind or version than the path's custom kind. Any object can be decoded as a
/// custom kind, so Kubernetes words this refusal differently.
fn wrong_custom(value: &Value, (version, kind): &(String, String), expected: &str, wanted: &str) -> Refusal {
    if version != expected {
        let (found, expected) = (version.clone(), expected.to_owned());
        return Refusal::BadRequest(BadRequest::OtherVersion { found, expected });
    }
    let name = value["metadata"]["name"].as_str().unwrap_or_default();
    let cause = Cause::invalid("kind", &kind.as_str().into(), &format!("must be {wanted}"));
    Refusal::Invalid { subject: Subject::new(split_version(version).0, kind, name), causes: cause.into() }
}

fn split_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// The apiVersion and kind of a body. `api_version` and `kind` replace what the body omits.
fn identify(value: &Value, api_version: &str, kind: &str) -> Result<(String, String), Refusal> {
    let fault = |fault: Unmarshal| {
        let why = Unrecognized::TypeMeta(fault);
        Err(Refusal::BadRequest(BadRequest::Unrecognized { wanted: kind.into(), why }))
    };
    let Some(document) = value.as_object() else {
        if value.is_null() {
            return Ok((api_version.into(), kind.into()));
        }
        return fault(not_an_object(value));
    };
    for (field, shown) in [("apiVersion", ".apiVersion"), ("kind", ".kind")] {
        if document.get(field).is_some_and(|v| !v.is_string() && !v.is_null()) {
            return fault(Unmarshal { found: type_name(&document[field]), field: shown, expected: "string" });
        }
    }
    let or = |found: &str, default: &str| if found.is_empty() { default.to_owned() } else { found.to_owned() };
    Ok((or(text(document, "apiVersion"), api_version), or(text(document, "kind"), kind)))
}

/// The refusal in the words of Go's decoder, which reads `apiVersion` and `kind` before all other fields.
fn not_an_object(value: &Value) -> Unmarshal {
    const TYPE_META: &str = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; \
                             Kind string \"json:\\\"kind,omitempty\\\"\" }";
    Unmarshal::whole(type_name(value), TYPE_META)
}

/// Decodes a Protobuf body into a document.
fn protobuf(bytes: &[u8]) -> Result<decode::Decoded, decode::DecodeError> {
    let value = codec().decode_object(bytes).map_err(|error| decode::DecodeError(error.to_string()))?;
    Ok(decode::Decoded::without_duplicates(value))
}

/// The beginning of the body for an error message: text if it looks like JSON, otherwise hexadecimal.
fn summary(body: &[u8]) -> String {
    const SHOWN_BYTES: usize = 30;
    let cut = &body[..body.len().min(SHOWN_BYTES)];
    let more = if body.len() > SHOWN_BYTES { " ..." } else { "" };
    match body.first() {
        None => "<empty>".into(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(cut)),
        Some(_) => format!("{}{more}", cut.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
    }
}
