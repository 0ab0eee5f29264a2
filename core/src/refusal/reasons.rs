//! What stands behind the refusals: which request, rule or state, and the values concerned.
//!
//! A text inside a variant comes from below: from a parser, the log, the network, or a kind's own rule.

use super::{Causes, Subject, Texts};
use crate::event::Offset;

/// The request contradicts itself or cannot be understood (400).
#[derive(Debug, Clone, PartialEq)]
pub enum BadRequest {
    /// What a parser says of the body, of a selector or of a moment.
    Undecodable(String),
    Unmarshal(Unmarshal),
    /// The body is no object of the kind that is wanted here, and cannot be told to be one of another.
    Unrecognized {
        wanted: String,
        why: Unrecognized,
    },
    /// The body is an object of a kind and version, and not as one must be, or not what is wanted here.
    Unfit {
        kind: String,
        version: String,
        wanted: String,
        why: Unfit,
    },
    /// The kind is the right one, the version is served, and the path names another.
    OtherVersion {
        found: String,
        expected: String,
    },
    /// What the client wrote cannot be carried from one version into another.
    Unconvertible {
        kind: String,
        from: String,
        to: String,
        fault: String,
    },
    /// An object that is nested deeper than that.
    TooDeep {
        subject: Subject,
        depth_max: usize,
    },
    /// A new object with a version of its own.
    VersionOnCreate,
    OtherNamespace,
    /// The body has no name, which the path has.
    NoName {
        path: String,
    },
    OtherName {
        body: String,
        path: String,
    },
    /// A patch that is no patch of its format.
    Patch(PatchFault),
    /// A directive of a strategic merge patch that is not as it must be.
    Directive(&'static str),
    NotAnObjectToMerge,
    Apply(ApplyFault),
    /// A field that lists and watches cannot be selected by; some kinds have only those of the metadata.
    UnselectableField {
        field: String,
        only_metadata: bool,
        /// Where Kubernetes names it.
        kind: Option<String>,
    },
    Continue(ContinueFault),
    /// The resource version of a list is no number.
    NotAVersion(String),
    /// A list that goes on, and names a version besides.
    VersionWithContinue,
    /// A SelfSubjectRulesReview without a namespace.
    NoNamespace,
    /// A path to a part of an object names no object.
    NoNameInPath,
    /// An object is looked up by no name.
    NoNameParameter,
    /// An object of a namespace is looked up in none.
    NoNamespaceParameter,
    /// Groups and the like of another user who is not named.
    ImpersonationWithoutUser(String),
    /// A TokenReview without a token.
    NoToken,
    /// A token bound to a pod that runs as another account.
    OtherAccount {
        account: String,
    },
    /// A token bound to a kind of object that tokens are not bound to.
    NotBindable {
        kind: String,
    },
    /// A path into a pod that runs nowhere.
    NoHost {
        pod: String,
    },
    /// A path into a container of a pod that has several, or none.
    NoContainer {
        pod: String,
        names: Vec<String>,
    },
    /// A path into a container that the pod has not.
    OtherContainer {
        pod: String,
        container: String,
    },
    /// The name in the path of a proxy says in no way where to go.
    BadWay {
        resource: String,
        name: String,
    },
    /// A way leads somewhere or it does not.
    NoDryRun,
    /// What a proxy would ask has no address that it may ask.
    NoAddress,
    /// The body broke off.
    BrokenBody(String),
    OtherNameInEviction,
    OtherNameInBinding,
    /// The body is an object of another kind than the options that may be there.
    OtherOptions {
        wanted: &'static str,
        version: String,
        kind: String,
    },
    DryRunDisabled,
    UnknownIncludeObject(String),
    /// The time that a client gives its request is none.
    Timeout(String),
    /// A parameter of the path that is no number.
    NotANumber(String),
    /// One of the ports that are to be forwarded is none.
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

/// A JSON value where Go expects one of another type. With an empty `field` it is the whole document.
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
    /// The body cannot be decoded. JSON is looked at for its kind first; the other forms tell of themselves.
    Body {
        is_json: bool,
        fault: String,
        shown: String,
    },
    /// `apiVersion` or `kind` are not there to be read.
    TypeMeta(Unmarshal),
    /// Options that cannot be decoded.
    Options(String),
    OptionsAreNoObject,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Unfit {
    NotAnObject,
    /// What the schema, or a decoder, says.
    Layout(String),
    /// Unknown and repeated fields, where the client wants none.
    Strict(Vec<String>),
    Kind(Box<KindFault>),
}

/// Why an object of one kind is none of another.
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
    /// `kind` as Kubernetes shows it: `apps/v1, Kind=Deployment`.
    OtherKind {
        kind: String,
    },
    Strict(Vec<String>),
    OtherVersion {
        found: String,
        expected: String,
    },
    /// The applied configuration says who owns what.
    ManagedFields,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContinueFault {
    NotBase64 {
        at: usize,
    },
    /// What a parser says of the content.
    NotJson(String),
    OtherRelease,
    /// It says that it is of another API of tokens.
    UnknownApi(String),
    NoVersion,
    NoStart,
    /// Its key is no clean path.
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
    /// What the file system says of the folder.
    Folder(String),
    NoneInMemory,
    TooDeep {
        depth_max: usize,
    },
}

/// What the one who asks may not do, or nobody may (403).
#[derive(Debug, Clone, PartialEq)]
pub enum Forbidden {
    /// No authorizer allows it.
    Access(Box<Denied>),
    /// What a kind's own rule says of the author: that more would be granted than is held, for example.
    Author(String),
    /// What an admission plug-in says.
    Admission(String),
    NamespaceTerminating {
        namespace: String,
    },
    /// The definition of a custom kind that is on its way out.
    DefinitionTerminating,
    /// One of the objects without which the cluster cannot be.
    Undeletable {
        kind: String,
    },
    /// An object that the system itself needs.
    OfSystem {
        what: &'static str,
    },
    /// A budget whose count of disruptions is below zero.
    NegativeBudget,
    /// A budget with too many evictions on the way.
    TooManyEvictions,
    /// A write into a view of the past.
    Past {
        at: Offset,
        newest: Offset,
    },
}

/// A verb that its user may not use there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    pub user: String,
    pub verb: String,
    pub target: DeniedTarget,
    /// What the authorizer adds, if anything.
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeniedTarget {
    Path(String),
    /// Empty text stands for absent.
    Resource {
        group: String,
        resource: String,
        subresource: String,
        namespace: String,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub enum MethodNotAllowed {
    /// The path is there, and not for this verb.
    OnResource,
    OnSubresource {
        verb: &'static str,
        subresource: String,
    },
}

/// What the object is by now. The subject of the refusal names it (409).
#[derive(Debug, Clone, PartialEq)]
pub enum Conflict {
    Modified,
    /// A body that means the object with another uid.
    Uid(Box<Mismatch>),
    /// Preconditions of a write, which Kubernetes' store finds unmet under this key.
    Stored {
        key: String,
        why: Box<Conflict>,
    },
    /// An applied configuration with the uid of an object that is not there.
    NoObjectWithUid(String),
    /// Preconditions of a deletion.
    UidPrecondition(Box<Mismatch>),
    VersionPrecondition(Box<Mismatch>),
    /// The same of a kind whose deletion goes an own way.
    Precondition(Box<Conflict>),
    /// A token bound to an object that is not the one with this uid.
    BoundUid(String),
    /// A token asked for the account with another uid.
    AccountUid(Box<Mismatch>),
    /// A binding of a pod that is being deleted, or that has its node.
    PodDeleting,
    /// A pod that waits for its gates, and is bound.
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

/// Fields of an applied configuration that another manager owns, as `managedFields` names both.
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
    /// The object that a write, which may be small, would make.
    Object {
        bytes: usize,
        bytes_max: usize,
    },
    /// What the defaults of an object would add to it.
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
    /// A version that lists cannot be made of.
    List(Offset),
    /// A version from before the log's memory.
    LetGo { asked: Offset, oldest: Offset },
    /// A version from before the namespace of now began.
    BeforeNamespace { asked: Offset, namespace: String, start: Offset },
    /// A token that this server did not give out.
    ForeignContinue,
    /// The version that a list began at is gone; the token goes on with the newest one.
    Inconsistent { continue_token: String },
    /// What the log, or the search for a moment in it, says of a version that it let go.
    Forgotten(String),
}

/// What somebody has too much of (429).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plenty {
    Requests,
    Watches,
    /// Selectors of watches, in bytes: so many one user holds, and may hold.
    Selectors {
        held: u64,
        max: u64,
    },
    /// Memory that reads hold, in bytes: the bound, what all hold together, and what this user does.
    Memory {
        bytes_max: u64,
        bytes: u64,
        own: u64,
    },
    /// Forks in memory.
    Forks,
    /// Connections of one user, who may have so many.
    OwnConnections {
        most: usize,
    },
    /// Connections of all users together.
    Connections {
        most: usize,
    },
    /// Connections that this server has to nodes and to what runs there.
    NodeConnections,
}

/// Why a budget allows no disruption now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Withheld {
    /// Its controller has not seen its newest generation.
    Unprocessed,
    Needed {
        healthy_needed: i64,
        healthy: i64,
    },
    /// Its controller does not know how many pods there should be.
    NotSynced {
        why: String,
    },
    /// Its condition says why, where that is known.
    Condition {
        told: Option<(String, String)>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timeout {
    /// A version that did not come in time, or never will.
    Version {
        asked: Offset,
        newest: Offset,
    },
    Body {
        seconds: u64,
    },
    /// A server behind this one did not answer.
    Backend,
}

/// What a client can do nothing about (500).
#[derive(Debug, Clone, PartialEq)]
pub enum Internal {
    /// What the log or a task says of its failure.
    Fault(String),
    /// A value in a shared store that cannot be decrypted.
    Unread(Unread),
    /// What an allocator says that has nothing left.
    Exhausted(String),
    Panicked,
    /// Whether the user may do this nobody could say.
    NotAuthorizable {
        why: String,
    },
    /// The audit trail must have every request, and this one could not be told of.
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
    /// Something is needed from the outside, where nobody listens.
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
    /// A decision on an old state that nobody made anew.
    StaleDecision,
    UnknownBuiltIn {
        name: String,
    },
    ImpersonationWithoutUser {
        header: String,
    },
}

/// What somebody outside decided, in words and with a code of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Ruling {
    pub code: u16,
    pub reason: String,
    pub message: String,
    /// The `details` of the `Status`, or null.
    pub details: holdfast_value::Value,
}

/// Values in a shared store that cannot be read.
#[derive(Debug, Clone, PartialEq)]
pub struct Unread {
    /// The store's key, and what is wrong with its value.
    pub place: String,
    pub why: String,
    /// The keys of others that the request includes.
    pub others: Vec<String>,
}

/// Faults that Kubernetes hands on from deep inside (500 without a reason).
#[derive(Debug, Clone, PartialEq)]
pub enum Unreasoned {
    /// A value in a shared store that is no object.
    Unread(Unread),
    /// What an admission plug-in says of its own failure.
    Admission(String),
    /// A resource version that is no number.
    NotAVersion(String),
    /// The same, where an object is read or watched.
    NotAVersionToRead(String),
    /// An applied configuration, by object and kind, that does not fit its schema.
    Untyped {
        object: String,
        kind: String,
        faults: Vec<String>,
    },
    /// The same of what came out of applying it.
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
    /// A pod that is to be evicted has more than one budget.
    SeveralBudgets,
    /// What is wrong with a document whose rules nobody made a refusal of.
    Causes(Causes),
}

#[derive(Debug, Clone, PartialEq)]
pub enum WebhookFault {
    NobodyToCall,
    Call(String),
    /// What it returned cannot be taken.
    Returned(String),
}

/// A strategic merge patch that meets something it cannot be merged with. Maps and lists are shown as Go prints them.
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
    /// The resource was redefined again and again while this was decided.
    Redefined,
    /// No container runs on the node, which is simulated.
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
    /// What the writer says of the log that it cannot write to.
    Log(String),
}
