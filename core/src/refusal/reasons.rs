//! The details of refusals: for each reason, the values of the request, rule or state that caused it.
//!
//! A text inside a variant comes from another part of the server: a parser, the log, the network, or a kind's own rule.

use super::{Causes, Subject, Texts};
use crate::event::Offset;

/// The request is contradictory or cannot be parsed.
#[derive(Debug, Clone, PartialEq)]
pub enum BadRequest {
    /// The message of a parser about the body, a selector or a moment.
    Undecodable(String),
    Unmarshal(Unmarshal),
    /// The body is not an object of the wanted kind, and has no other kind that could be reported.
    Unrecognized {
        wanted: String,
        why: Unrecognized,
    },
    /// The body has a kind and version, but is malformed or of the wrong kind for the endpoint.
    Unfit {
        kind: String,
        version: String,
        wanted: String,
        why: Unfit,
    },
    /// The body has the right kind in a served version, but the path has another version.
    OtherVersion {
        found: String,
        expected: String,
    },
    /// The object cannot be converted to another version.
    Unconvertible {
        kind: String,
        from: String,
        to: String,
        fault: String,
    },
    /// The object is nested deeper than `depth_max`.
    TooDeep {
        subject: Subject,
        depth_max: usize,
    },
    /// The request creates an object, and the object in the body has a `resourceVersion`.
    VersionOnCreate,
    OtherNamespace,
    /// The path names an object, but the body has no name.
    NoName {
        path: String,
    },
    OtherName {
        body: String,
        path: String,
    },
    /// The patch is malformed.
    Patch(PatchFault),
    /// A strategic merge patch has an invalid directive.
    Directive(&'static str),
    NotAnObjectToMerge,
    Apply(ApplyFault),
    /// A field selector for a field that the kind does not support. `only_metadata` says that the kind supports only
    /// name and namespace.
    UnselectableField {
        field: String,
        only_metadata: bool,
        /// The kind, if Kubernetes puts its name into the message.
        kind: Option<String>,
    },
    Continue(ContinueFault),
    /// The `resourceVersion` of a list is not a number.
    NotAVersion(String),
    /// A list request has both a continue token and a resource version.
    VersionWithContinue,
    /// A SelfSubjectRulesReview names no namespace.
    NoNamespace,
    /// The path is of a subresource but does not contain the name of an object.
    NoNameInPath,
    /// A look-up of an object gives no name.
    NoNameParameter,
    /// A look-up of a namespaced object gives no namespace.
    NoNamespaceParameter,
    /// The request impersonates groups, a UID or extra fields, but no user.
    ImpersonationWithoutUser(String),
    /// A TokenReview has no token.
    NoToken,
    /// A token is requested for another account than the account of the pod to which it is to be bound.
    OtherAccount {
        account: String,
    },
    /// A token is to be bound to an object of a kind to which tokens cannot be bound.
    NotBindable {
        kind: String,
    },
    /// A request to connect to a pod that has no node.
    NoHost {
        pod: String,
    },
    /// A request to connect to a pod with several containers names none of them.
    NoContainer {
        pod: String,
        names: Vec<String>,
    },
    /// The pod does not have the named container.
    OtherContainer {
        pod: String,
        container: String,
    },
    /// In the path of a proxy, the name with its scheme and port cannot be parsed.
    BadWay {
        resource: String,
        name: String,
    },
    /// A request to connect has the option `dryRun`, which such requests cannot have.
    NoDryRun,
    /// The pod, Service or node to which a proxy should connect has no address, or has a forbidden address.
    NoAddress,
    /// The connection broke before the whole body was read.
    BrokenBody(String),
    OtherNameInEviction,
    OtherNameInBinding,
    /// The body is an object of another kind than the kind of options that this request takes.
    OtherOptions {
        wanted: &'static str,
        version: String,
        kind: String,
    },
    DryRunDisabled,
    UnknownIncludeObject(String),
    /// The `timeout` parameter is malformed.
    Timeout(String),
    /// A query parameter must be a number, but is not.
    NotANumber(String),
    /// A port that should be forwarded is not a number.
    NotAPort(String),
    MissingParameter(String),
    NoCount {
        parameter: String,
        text: String,
    },
    TooManyOffsets {
        found: usize,
        count_max: usize,
    },
    WebSocket(WebSocketFault),
    Fork(ForkFault),
}

/// A JSON value has another type than Go expects. If `field` is empty, the value is the whole document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unmarshal {
    pub found: &'static str,
    pub field: &'static str,
    pub expected: &'static str,
}

impl Unmarshal {
    pub const MAP: &'static str = "map[string]interface {}";

    pub fn whole(found: &'static str, expected: &'static str) -> Unmarshal {
        Unmarshal { found, field: "", expected }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Unrecognized {
    /// The body cannot be decoded. For JSON, Kubernetes reads the kind first, so the message mentions that step.
    Body {
        is_json: bool,
        fault: String,
        shown: String,
    },
    /// `apiVersion` or `kind` has a wrong type.
    TypeMeta(Unmarshal),
    /// The options in the body or in the query cannot be decoded.
    Options(String),
    OptionsAreNoObject,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Unfit {
    NotAnObject,
    /// The message of the schema's type check, or of the decoder.
    Layout(String),
    /// The fields that strict validation refuses: unknown fields, and fields that occur twice.
    Strict(Vec<String>),
    Kind(Box<KindFault>),
}

/// Why the kind of an object is not the expected kind.
#[derive(Debug, Clone, PartialEq)]
pub enum KindFault {
    Unregistered { kind: String, api_version: String },
    NoConversion { from: (String, String), to: (String, String) },
}

#[derive(Debug, Clone, PartialEq)]
pub enum PatchFault {
    Undecodable(String),
    Unmarshal(Unmarshal),
}

#[derive(Debug, Clone, PartialEq)]
pub enum ApplyFault {
    Undecodable(String),
    Unmarshal(Unmarshal),
    NotAnObject,
    /// The kind as Kubernetes shows it: `apps/v1, Kind=Deployment`.
    OtherKind {
        kind: String,
    },
    Strict(Vec<String>),
    OtherVersion {
        found: String,
        expected: String,
    },
    /// An applied configuration has managed fields, which it must not have.
    ManagedFields,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContinueFault {
    NotBase64 {
        at: usize,
    },
    /// The token is not JSON; the text is the parser's message.
    NotJson(String),
    OtherRelease,
    /// The version of the token's format is unknown.
    UnknownApi(String),
    NoVersion,
    NoStart,
    /// The key after which the list should continue has an empty part, or the part `.` or `..`.
    OddStart(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebSocketFault {
    NoUpgrade,
    OtherVersion,
    NoKey,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ForkFault {
    Undecodable(String),
    RelativeFolder(String),
    /// The file system cannot use the folder of the fork. The text is the message of the file system.
    Folder(String),
    NoneInMemory,
    TooDeep {
        depth_max: usize,
    },
}

/// Why the request is forbidden, to this user or to all users.
#[derive(Debug, Clone, PartialEq)]
pub enum Forbidden {
    /// No authorizer allows the request.
    Access(Box<Denied>),
    /// The message of a kind's own rule about who may make the write, such as the rule against privilege escalation.
    Author(String),
    /// The message of the admission plug-in that forbids the request.
    Admission(String),
    NamespaceTerminating {
        namespace: String,
    },
    /// The CustomResourceDefinition of the kind is being deleted, so no object of the kind can be created.
    DefinitionTerminating,
    /// No user can delete the object, such as the namespace `default`.
    Undeletable {
        kind: String,
    },
    /// The system itself needs the object, so it cannot be deleted.
    OfSystem {
        what: &'static str,
    },
    /// The number of disruptions that the PodDisruptionBudget allows is negative.
    NegativeBudget,
    /// The PodDisruptionBudget has too many evictions that its controller has not processed.
    TooManyEvictions,
    /// The request is a write to a view of the past, which cannot change.
    Past {
        at: Offset,
        newest: Offset,
    },
}

/// The verb that the user may not use, and the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    pub user: String,
    pub verb: String,
    pub target: DeniedTarget,
    /// The reason that the authorizers give; it may be empty.
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeniedTarget {
    Path(String),
    /// The parts of the name of a resource. A part that the request does not have is empty.
    Resource {
        group: String,
        resource: String,
        subresource: String,
        namespace: String,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub enum MethodNotAllowed {
    /// The path exists, but the verb cannot be used on it.
    OnResource,
    OnSubresource {
        verb: &'static str,
        subresource: String,
    },
}

/// Why the object does not meet the conditions that the request sets. The refusal's subject names the object.
#[derive(Debug, Clone, PartialEq)]
pub enum Conflict {
    Modified,
    /// The body has another uid than the object.
    Uid(Box<Mismatch>),
    /// A precondition that Kubernetes checks in its store, so the message names the object's key in the store.
    Stored {
        key: String,
        why: Box<Conflict>,
    },
    /// An applied configuration has a uid, but the object does not exist.
    NoObjectWithUid(String),
    /// The deletion has a precondition on the UID or the version, and the object does not fulfil it.
    UidPrecondition(Box<Mismatch>),
    VersionPrecondition(Box<Mismatch>),
    /// A deletion has a precondition that the object does not fulfil, and Kubernetes deletes its kind by separate code
    /// with another message.
    Precondition(Box<Conflict>),
    /// A token is to be bound to an object that has another UID than the request names.
    BoundUid(String),
    /// A token is requested for an account that has another UID than the request names.
    AccountUid(Box<Mismatch>),
    /// The pod that should be bound to a node is being deleted.
    PodDeleting,
    /// The pod that should be bound to a node has scheduling gates.
    PodGated,
    PodAssigned {
        node: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    pub wanted: String,
    pub found: String,
}

impl Mismatch {
    pub fn new(wanted: impl Into<String>, found: impl Into<String>) -> Box<Mismatch> {
        Box::new(Mismatch { wanted: wanted.into(), found: found.into() })
    }
}

/// The fields of an applied configuration that another manager owns, in the form in which `managedFields` writes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedFields {
    pub owner: String,
    pub fields: Texts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooLarge {
    Body {
        bytes_max: usize,
    },
    /// The object that a write would store is too large, although the write itself may be small.
    Object {
        bytes: usize,
        bytes_max: usize,
    },
    /// The defaults that would be added to the object are too large.
    Defaults {
        bytes_max: usize,
    },
    PatchOperations {
        found: usize,
        count_max: usize,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub enum Expired {
    /// Lists cannot be read at the requested version.
    List(Offset),
    /// The log has removed the events of the requested version.
    LetGo { asked: Offset, oldest: Offset },
    /// The requested version is older than the namespace that now has this name.
    BeforeNamespace { asked: Offset, namespace: String, start: Offset },
    /// Another server issued the continue token.
    ForeignContinue,
    /// The version at which a list began is no longer available. The token continues at the newest version.
    Inconsistent { continue_token: String },
    /// The message of the log, or of the search for a moment, about a version whose events the log has removed.
    Forgotten(String),
}

/// The resource of which too much is in use, by one user or by all users together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plenty {
    Requests,
    Watches,
    /// The selectors of one user's watches take too much memory. The numbers are in bytes.
    Selectors {
        held: u64,
        max: u64,
    },
    /// Reads take too much memory. The numbers are in bytes: the limit, the memory of all reads, and the memory of this
    /// user's reads.
    Memory {
        bytes_max: u64,
        bytes: u64,
        own: u64,
    },
    /// Too many forks are in memory.
    Forks,
    /// One user has too many connections. The number is the limit.
    OwnConnections {
        most: usize,
    },
    /// All users together have too many connections. The number is the limit.
    Connections {
        most: usize,
    },
    /// This server has too many connections to nodes and pods.
    NodeConnections,
}

/// Why a budget allows no disruption now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Withheld {
    /// The disruption controller has not processed the budget's newest generation.
    Unprocessed,
    Needed {
        healthy_needed: i64,
        healthy: i64,
    },
    /// The disruption controller could not compute the expected number of pods.
    NotSynced {
        why: String,
    },
    /// The budget's own condition says that no disruption is allowed, with a reason and a message if these are known.
    Condition {
        told: Option<(String, String)>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timeout {
    /// The server has not reached the requested version in time.
    Version {
        asked: Offset,
        newest: Offset,
    },
    Body {
        seconds: u64,
    },
    /// A server behind this server did not answer in time.
    Backend,
}

/// A fault for which the client is not responsible.
#[derive(Debug, Clone, PartialEq)]
pub enum Internal {
    /// A fault of the log or of a task. The text is its message.
    Fault(String),
    /// A value in a shared store cannot be decrypted.
    Unread(Unread),
    /// No value of a range is free. The text is the message of the allocator.
    Exhausted(String),
    Panicked,
    /// The authorizers could not decide whether the request is allowed.
    NotAuthorizable {
        why: String,
    },
    /// The audit backend must store every event, and storing this event failed.
    AuditNotStored,
    NoMessage {
        message: String,
    },
    NoReview {
        kind: String,
    },
    NotStored {
        kind: String,
    },
    NoDecision {
        verb: &'static str,
    },
    /// A decision needs an answer from outside (a webhook's, for example), but nothing that could give it is
    /// configured.
    NobodyToAsk {
        what: &'static str,
    },
    BodyIsNoObject,
    StoredIsNoDocument,
    NoReplicas {
        path: String,
    },
    NoSigningKey,
    NothingConverted,
    /// A decision relied on an old state and was not judged again, because of a bug in this server.
    StaleDecision,
    UnknownBuiltIn {
        name: String,
    },
    ImpersonationWithoutUser {
        header: String,
    },
}

/// The refusal of a webhook, a policy or a server behind this server.
#[derive(Debug, Clone, PartialEq)]
pub struct Ruling {
    pub kind: RulingKind,
    /// The `reason` of the `Status`: any text that a webhook chose, or empty.
    pub reason: String,
    pub message: String,
    /// The `details` of the `Status`, or null.
    pub details: holdfast_value::Value,
}

/// The kind of a ruling, from which a transport determines the code of the `Status`. The reason does not determine the
/// code: a webhook chooses both, and a mutating policy that fails gives the reason `Invalid` to a request that is
/// forbidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RulingKind {
    BadRequest,
    Unauthorized,
    Forbidden,
    TooLarge,
    Invalid,
    TooManyRequests,
    Internal,
    Unavailable,
    /// The refusal is the `Status` of a webhook or of a server behind this server, which also chose the code.
    Given(GivenCode),
}

/// The `code` in a `Status` that a webhook or a server behind this server gave. The core only passes it on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GivenCode(pub u16);

/// Values in a shared store that cannot be decrypted or decoded.
#[derive(Debug, Clone, PartialEq)]
pub struct Unread {
    /// The key of the value in the store.
    pub place: String,
    /// The fault of the value.
    pub why: String,
    /// The keys of the other unreadable values in the range that the request reads.
    pub others: Vec<String>,
}

/// Faults that Kubernetes passes on from lower layers in a `Status` without a reason.
#[derive(Debug, Clone, PartialEq)]
pub enum Unreasoned {
    /// A value in a shared store cannot be read as an object.
    Unread(Unread),
    /// An admission plug-in failed. The text is its message.
    Admission(String),
    /// A write has a resource version that is not a number.
    NotAVersion(String),
    /// A get or watch has a resource version that is not a number.
    NotAVersionToRead(String),
    /// An applied configuration does not match its schema. The configuration is named by its object and kind.
    Untyped {
        object: String,
        kind: String,
        faults: Vec<String>,
    },
    /// The result of applying a configuration does not match its schema.
    Unconverted {
        object: String,
        kind: String,
        fault: String,
    },
    Webhook {
        api_version: String,
        kind: String,
        why: WebhookFault,
    },
    Merge(Merging),
    /// Several PodDisruptionBudgets cover the pod that should be evicted.
    SeveralBudgets,
    /// The document is invalid, but Kubernetes does not report these causes as an `Invalid` refusal.
    Causes(Causes),
}

#[derive(Debug, Clone, PartialEq)]
pub enum WebhookFault {
    NobodyToCall,
    Call(String),
    /// The webhook's response cannot be used. The text says why.
    Returned(String),
}

/// Why a strategic merge patch cannot be merged. Maps and lists are shown as Go prints them.
#[derive(Debug, Clone, PartialEq)]
pub enum Merging {
    ListsWithoutKey,
    /// An element of a list has the directive `merge`, which is allowed only in maps.
    MergeDirective,
    UnknownDirective {
        directive: String,
        map: String,
    },
    MixedTypes {
        first: &'static str,
        other: &'static str,
    },
    NotAList {
        found: &'static str,
    },
    NoMergeKey {
        map: String,
        key: String,
    },
    OtherOrder {
        patch: String,
        wanted: String,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub enum Unavailable {
    /// The definition of the resource changed again and again while the request was judged.
    Redefined,
    /// The node is simulated, so no container runs on it.
    NodeNotConnected {
        node: String,
    },
    NoEndpoints {
        service: String,
    },
    NoServicePort {
        service: String,
        port: i64,
    },
    /// The writer cannot write to the log. The text is its message.
    Log(String),
}
