//! The details of refusals: the request, rule or state that caused them, and its values.
//!
//! A text inside a variant comes from a lower layer: a parser, the log, the network, or a kind's own rule.

use super::{Causes, Subject, Texts};
use crate::event::Offset;

/// The request is contradictory or cannot be parsed.
#[derive(Debug, Clone, PartialEq)]
pub enum BadRequest {
    /// A parser's message about the body, a selector or a moment.
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
    /// A new object with a `resourceVersion`.
    VersionOnCreate,
    OtherNamespace,
    /// The path has a name but the body has none.
    NoName {
        path: String,
    },
    OtherName {
        body: String,
        path: String,
    },
    /// The patch is malformed.
    Patch(PatchFault),
    /// An invalid directive of a strategic merge patch.
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
    /// A list request with both a continue token and a resource version.
    VersionWithContinue,
    /// A SelfSubjectRulesReview without a namespace.
    NoNamespace,
    /// A path to a subresource without the object's name.
    NoNameInPath,
    /// A look-up of an object without a name.
    NoNameParameter,
    /// A look-up of a namespaced object without a namespace.
    NoNamespaceParameter,
    /// Impersonated groups, uid or extra fields without an impersonated user.
    ImpersonationWithoutUser(String),
    /// A TokenReview without a token.
    NoToken,
    /// A token bound to a pod that runs under another account.
    OtherAccount {
        account: String,
    },
    /// A token bound to a kind that tokens cannot be bound to.
    NotBindable {
        kind: String,
    },
    /// A connect request to a pod that has no node.
    NoHost {
        pod: String,
    },
    /// A connect request that must name a container.
    NoContainer {
        pod: String,
        names: Vec<String>,
    },
    /// The pod does not have the named container.
    OtherContainer {
        pod: String,
        container: String,
    },
    /// The name in a proxy path cannot be parsed.
    BadWay {
        resource: String,
        name: String,
    },
    /// A connect request with `dryRun`.
    NoDryRun,
    /// The proxy's destination has no address, or a forbidden address.
    NoAddress,
    /// The connection broke before the whole body was read.
    BrokenBody(String),
    OtherNameInEviction,
    OtherNameInBinding,
    /// The body is an object of another kind than the options of this request.
    OtherOptions {
        wanted: &'static str,
        version: String,
        kind: String,
    },
    DryRunDisabled,
    UnknownIncludeObject(String),
    /// The `timeout` parameter is malformed.
    Timeout(String),
    /// A query parameter that must be a number.
    NotANumber(String),
    /// A port to forward that is not a number.
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

/// A JSON value of another type than Go expects. If `field` is empty, the value is the whole document.
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
    /// The options cannot be decoded.
    Options(String),
    OptionsAreNoObject,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Unfit {
    NotAnObject,
    /// The message of the schema or the decoder.
    Layout(String),
    /// Unknown and repeated fields under strict validation.
    Strict(Vec<String>),
    Kind(Box<KindFault>),
}

/// The reason why an object is not of the expected kind.
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
    /// An applied configuration must not have managed fields.
    ManagedFields,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContinueFault {
    NotBase64 {
        at: usize,
    },
    /// The parser's message.
    NotJson(String),
    OtherRelease,
    /// The token's format has an unknown version.
    UnknownApi(String),
    NoVersion,
    NoStart,
    /// The start key has an empty part, `.` or `..`.
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
    /// The file system's message about the folder.
    Folder(String),
    NoneInMemory,
    TooDeep {
        depth_max: usize,
    },
}

/// The request is forbidden to this user, or to all users.
#[derive(Debug, Clone, PartialEq)]
pub enum Forbidden {
    /// No authorizer allows the request.
    Access(Box<Denied>),
    /// The message of a kind's own rule about its author, such as privilege escalation.
    Author(String),
    /// The message of an admission plug-in.
    Admission(String),
    NamespaceTerminating {
        namespace: String,
    },
    /// The CustomResourceDefinition is being deleted.
    DefinitionTerminating,
    /// The object can never be deleted, such as the namespace `default`.
    Undeletable {
        kind: String,
    },
    /// The system needs the object.
    OfSystem {
        what: &'static str,
    },
    /// The budget's allowed disruptions are negative.
    NegativeBudget,
    /// The budget has too many unfinished evictions.
    TooManyEvictions,
    /// A write to a view of the past.
    Past {
        at: Offset,
        newest: Offset,
    },
}

/// A verb that the user may not use on the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    pub user: String,
    pub verb: String,
    pub target: DeniedTarget,
    /// The authorizer's reason; may be empty.
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeniedTarget {
    Path(String),
    /// A resource in the request. Absent parts are empty.
    Resource {
        group: String,
        resource: String,
        subresource: String,
        namespace: String,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub enum MethodNotAllowed {
    /// The path exists, but not for this verb.
    OnResource,
    OnSubresource {
        verb: &'static str,
        subresource: String,
    },
}

/// Why the object does not meet the request's conditions. The refusal's subject names the object.
#[derive(Debug, Clone, PartialEq)]
pub enum Conflict {
    Modified,
    /// The body has another uid than the object.
    Uid(Box<Mismatch>),
    /// A precondition that Kubernetes checks in its store; the message names the store's key.
    Stored {
        key: String,
        why: Box<Conflict>,
    },
    /// An applied configuration has a uid, but the object does not exist.
    NoObjectWithUid(String),
    /// Preconditions of a deletion.
    UidPrecondition(Box<Mismatch>),
    VersionPrecondition(Box<Mismatch>),
    /// A precondition of a deletion, for kinds whose deletion has its own code path.
    Precondition(Box<Conflict>),
    /// A token is bound to an object with another uid.
    BoundUid(String),
    /// A token is requested for an account with another uid.
    AccountUid(Box<Mismatch>),
    /// A binding of a pod that is being deleted.
    PodDeleting,
    /// A binding of a pod that has scheduling gates.
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

/// Fields of an applied configuration that another manager owns, in the spelling of `managedFields`.
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
    /// The object that a write would store; the write itself may be small.
    Object {
        bytes: usize,
        bytes_max: usize,
    },
    /// The defaults that would be added to the object.
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
    /// A version that lists cannot show.
    List(Offset),
    /// The log has removed the events of this version.
    LetGo { asked: Offset, oldest: Offset },
    /// The version is older than the present namespace.
    BeforeNamespace { asked: Offset, namespace: String, start: Offset },
    /// The continue token was issued by another server.
    ForeignContinue,
    /// The version at which a list began is no longer available. The token continues at the newest version.
    Inconsistent { continue_token: String },
    /// The message of the log, or of the search for a moment, about a version whose events the log has removed.
    Forgotten(String),
}

/// A resource that is used too much, by one user or by all users together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plenty {
    Requests,
    Watches,
    /// Selectors of one user's watches, in bytes.
    Selectors {
        held: u64,
        max: u64,
    },
    /// Memory in use by reads, in bytes: the limit, the total, and this user's part.
    Memory {
        bytes_max: u64,
        bytes: u64,
        own: u64,
    },
    /// Forks in memory.
    Forks,
    /// Connections of one user, and the limit.
    OwnConnections {
        most: usize,
    },
    /// Connections of all users, and the limit.
    Connections {
        most: usize,
    },
    /// Connections from this server to nodes and pods.
    NodeConnections,
}

/// Why a budget allows no disruption now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Withheld {
    /// The controller has not processed the budget's newest generation.
    Unprocessed,
    Needed {
        healthy_needed: i64,
        healthy: i64,
    },
    /// The controller could not compute the expected number of pods.
    NotSynced {
        why: String,
    },
    /// The budget's condition, with its reason and message if these are known.
    Condition {
        told: Option<(String, String)>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timeout {
    /// A version that was not reached in time.
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

/// Faults that the client cannot avoid.
#[derive(Debug, Clone, PartialEq)]
pub enum Internal {
    /// The message of the log or a task about its failure.
    Fault(String),
    /// A value in a shared store that cannot be decrypted.
    Unread(Unread),
    /// An allocator's message that its range is exhausted.
    Exhausted(String),
    Panicked,
    /// The authorizers failed to decide.
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
    /// A decision needs an answer from outside, but no configured component can give it.
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
    /// A decision on an old state was not judged again. This is a bug in this server.
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
    /// The store's key, and the fault of its value.
    pub place: String,
    pub why: String,
    /// The keys of further unreadable values in the request's range.
    pub others: Vec<String>,
}

/// Faults that Kubernetes passes on from lower layers, without a reason.
#[derive(Debug, Clone, PartialEq)]
pub enum Unreasoned {
    /// A value in a shared store that is not an object.
    Unread(Unread),
    /// An admission plug-in's message about its own failure.
    Admission(String),
    /// A resource version that is not a number.
    NotAVersion(String),
    /// A resource version that is not a number, in a get or watch.
    NotAVersionToRead(String),
    /// An applied configuration, named by object and kind, that does not match its schema.
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
    /// The pod to evict has several budgets.
    SeveralBudgets,
    /// Causes of an invalid document for which Kubernetes makes no Invalid refusal.
    Causes(Causes),
}

#[derive(Debug, Clone, PartialEq)]
pub enum WebhookFault {
    NobodyToCall,
    Call(String),
    /// The webhook's response is unusable.
    Returned(String),
}

/// A strategic merge patch that cannot be merged. Maps and lists are shown as Go prints them.
#[derive(Debug, Clone, PartialEq)]
pub enum Merging {
    ListsWithoutKey,
    /// The directive `merge`, in a list.
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
    /// The resource kept being redefined while the request was decided.
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
    /// The writer's message that it cannot write to the log.
    Log(String),
}
