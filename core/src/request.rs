//! A client's request, independent of the transport.

use crate::authz::user::User;
use crate::kinds::{ConnectOptions, Kind, KindId, Registry};
use crate::object::decode::{self, DecodeError, Decoded};
use crate::refusal::Refusal;
use bytes::Bytes;
use holdfast_value::Value;
use std::borrow::Cow;
use std::sync::Arc;

/// One request on a resource.
#[derive(Debug, Clone)]
pub struct Request {
    pub user: Arc<User>,
    pub verb: Verb,
    pub target: Target,
    pub options: Options,
    pub body: Body,
    /// Identifies the request in logs and in the event's actor.
    pub id: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    pub fn is_mutating(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// The target of a request. Its kind and version were found in the registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub kind: KindId,
    /// The index of the path's version among the kind's versions.
    pub version: usize,
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub subresource: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    pub dry_run: bool,
    pub field_manager: Option<String>,
    /// Whether the client set the field manager.
    pub names_manager: bool,
    pub field_validation: FieldValidation,
    /// Whether the client set the field validation.
    pub names_validation: bool,
    pub force: Option<bool>,
    pub label_selector: Option<String>,
    pub field_selector: Option<String>,
    pub limit: Option<u64>,
    pub continue_token: Option<String>,
    pub resource_version: Option<String>,
    pub resource_version_match: Option<String>,
    pub timeout_seconds: Option<u64>,
    pub watch: bool,
    pub allow_watch_bookmarks: bool,
    pub send_initial_events: Option<bool>,
    pub delete: DeleteOptions,
    pub connect: ConnectOptions,
}

/// The treatment of unknown and duplicate fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

impl FieldValidation {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ignore => "Ignore",
            Self::Warn => "Warn",
            Self::Strict => "Strict",
        }
    }
}

/// The name, in a client's DeleteOptions, of the field that sets [`DeleteOptions::ignores_read_errors`].
pub const IGNORES_READ_ERRORS: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    pub grace_period_seconds: Option<i64>,
    pub orphan_dependents: Option<bool>,
    pub propagation_policy: Option<String>,
    pub precondition_uid: Option<String>,
    pub precondition_resource_version: Option<String>,
    /// Whether an object that cannot be read from the store is removed without being read
    /// (`ignoreStoreReadErrorWithClusterBreakingPotential`). The option has no effect while the feature gate is off.
    pub ignores_read_errors: bool,
    /// Whether the delete is part of a `deletecollection`. Admission then gets an empty name for the object.
    pub is_collective: bool,
}

#[derive(Debug, Clone, Default)]
pub struct Body {
    pub content: Content,
    pub format: Format,
}

/// The body of a request: bytes from a network client, or a document from a component in this process.
#[derive(Debug, Clone)]
pub enum Content {
    Bytes(Bytes),
    Document(Arc<Value>),
}

impl Content {
    pub fn is_empty(&self) -> bool {
        matches!(self, Content::Bytes(bytes) if bytes.is_empty())
    }

    /// The number of bytes received; zero for a document.
    pub fn len(&self) -> usize {
        match self {
            Content::Bytes(bytes) => bytes.len(),
            Content::Document(_) => 0,
        }
    }

    /// The bytes; for a document, its JSON.
    pub fn bytes(&self) -> Bytes {
        match self {
            Content::Bytes(bytes) => bytes.clone(),
            Content::Document(document) => document.to_string().into(),
        }
    }

    /// The body parsed as JSON.
    pub fn json(&self) -> Result<Decoded, DecodeError> {
        self.decode(decode::json)
    }

    /// The body parsed as YAML.
    pub fn yaml(&self) -> Result<Decoded, DecodeError> {
        self.decode(decode::yaml)
    }

    fn decode(&self, decode: fn(&[u8]) -> Result<Decoded, DecodeError>) -> Result<Decoded, DecodeError> {
        match self {
            Content::Bytes(bytes) => decode(bytes),
            Content::Document(document) => Ok(Decoded::without_duplicates(Value::clone(document))),
        }
    }
}

impl Default for Content {
    fn default() -> Self {
        Content::Bytes(Bytes::new())
    }
}

impl<B: Into<Bytes>> From<B> for Content {
    fn from(bytes: B) -> Self {
        Content::Bytes(bytes.into())
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Json,
    Yaml,
    Protobuf,
    JsonPatch,
    MergePatch,
    StrategicMergePatch,
    ApplyPatch,
}

impl Request {
    pub fn name(&self) -> &str {
        self.target.name.as_deref().unwrap_or("")
    }

    pub fn namespace(&self) -> Option<&str> {
        self.target.namespace.as_deref()
    }

    /// The request with its target resolved in `registry`. The target was resolved to `kind` before; since then the
    /// kind's definition may have changed, or this registry may belong to another version.
    pub fn retarget(&self, registry: &Registry, kind: &Arc<Kind>) -> Result<Cow<'_, Request>, Refusal> {
        let target = &self.target;
        if registry.serves(target.kind) && Arc::ptr_eq(&registry.share(target.kind), kind) {
            return Ok(Cow::Borrowed(self));
        }
        let version = kind.versions.get(target.version).ok_or(Refusal::NoSuchPath)?;
        let found = registry.find(&version.group, &version.version, &kind.resource).ok_or(Refusal::NoSuchPath)?;
        let mut request = self.clone();
        (request.target.kind, request.target.version) = found;
        Ok(Cow::Owned(request))
    }

    /// The object's key within its kind.
    pub fn key(&self) -> String {
        self.key_of(self.name())
    }

    /// The key of the object with this name in the request's namespace.
    pub fn key_of(&self, name: &str) -> String {
        crate::object::meta::key(self.namespace(), name)
    }
}
