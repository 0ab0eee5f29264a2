//! The messages of refusals, all in this module. Clients match on many of them, so they are exactly Kubernetes'
//! messages.

mod bad_request;

use std::fmt::{self, Display, Formatter};

use super::causes::and_more;
use super::*;
use std::collections::BTreeSet;

/// The name that Kubernetes has in its messages for the registry of its kinds.
pub(crate) const SCHEME: &str = "pkg/api/legacyscheme/scheme.go:30";
/// The maximum number of bytes of the message of one refusal.
const ANSWER_BYTES_MAX: usize = 40 << 10;
const RECREATED: &str = "The object might have been deleted and then recreated";

impl Refusal {
    /// The message of the refusal's `Status`.
    ///
    /// Long parts of the request or of an object are cut in the message.
    pub fn message(&self) -> String {
        cut(self.words(), ANSWER_BYTES_MAX)
    }

    fn words(&self) -> String {
        match self {
            Self::BadRequest(why) => why.to_string(),
            Self::Unauthorized => "Unauthorized".into(),
            Self::Forbidden { subject, why } => match (subject.resource.is_empty(), subject.name.is_empty()) {
                (true, _) => format!("forbidden: {why}"),
                (false, true) => format!("{} is forbidden: {why}", subject.qualified()),
                (false, false) => format!("{subject} is forbidden: {why}"),
            },
            Self::NotFound(subject) => format!("{subject} not found"),
            Self::NoSuchPath => "the server could not find the requested resource".into(),
            Self::MethodNotAllowed(why) => why.to_string(),
            Self::AlreadyExists { subject, is_deleting: false } => format!("{subject} already exists"),
            Self::AlreadyExists { subject, is_deleting: true } => {
                format!("object is being deleted: {subject} already exists")
            }
            Self::Conflict { subject, why } => {
                format!("Operation cannot be fulfilled on {subject}: {}", why.words(&subject.name))
            }
            Self::ApplyConflict(owned) => apply_conflict(owned),
            Self::Invalid { subject, causes } => {
                format!("{} \"{}\" is invalid: {}", subject.qualified(), subject.name, aggregate(causes))
            }
            Self::Unprocessable => "the server rejected our request due to an error in our request".into(),
            Self::NotAcceptable { offered, is_offered: true } => {
                format!("only the following media types are accepted: {offered}")
            }
            Self::NotAcceptable { offered, is_offered: false } => {
                format!("406: Not Acceptable\n\nAvailable representations: {offered}")
            }
            Self::UnsupportedMediaType { accepted: "" } => "415: Unsupported Media Type".into(),
            Self::UnsupportedMediaType { accepted } => {
                format!("the body of the request was in an unknown format - accepted media types include: {accepted}")
            }
            Self::TooLarge(why) => why.to_string(),
            Self::Expired(why) => why.to_string(),
            Self::TooManyRequests { what, .. } => what.to_string(),
            Self::DisruptionBudget { .. } => "Cannot evict pod as it would violate the pod's disruption budget.".into(),
            Self::Timeout(why) => format!("Timeout: {why}"),
            Self::Internal(why) => format!("Internal error occurred: {why}"),
            Self::Unreasoned(why) => why.to_string(),
            Self::Unavailable(why) => why.to_string(),
            Self::StoreRead { subject, .. } => {
                format!("failed to read one or more {} from the storage", subject.qualified())
            }
            Self::Ruled(ruling) => ruling.message.clone(),
            Self::InsufficientStorage(why) => format!(
                "Internal error occurred: {why}: nothing was written; reads go on, and writes will once there is room"
            ),
        }
    }

    /// The causes that the `Status` contains. Most are about one invalid field each.
    pub fn causes(&self) -> Vec<Cause> {
        let told = |reason, message: String| vec![Cause::told(reason, "", message)];
        match self {
            Self::Invalid { causes, .. } | Self::StoreRead { causes, .. } => causes.to_vec(),
            Self::Forbidden { why: Forbidden::NamespaceTerminating { namespace }, .. } => vec![Cause::told(
                CauseReason::NamespaceTerminating,
                "metadata.namespace",
                format!("namespace {namespace} is being terminated"),
            )],
            Self::ApplyConflict(owned) => field_conflicts(owned).to_vec(),
            Self::DisruptionBudget { budget, why, .. } => {
                let message = match why {
                    Withheld::Unprocessed => {
                        format!("The disruption budget {budget} is still being processed by the server.")
                    }
                    Withheld::Needed { healthy_needed, healthy } => format!(
                        "The disruption budget {budget} needs {healthy_needed} healthy pods and has {healthy} currently"
                    ),
                    Withheld::NotSynced { why } => format!(
                        "The disruption budget {budget} does not allow evicting pods currently because it failed sync: \
                         {why}"
                    ),
                    Withheld::Condition { told: Some((reason, message)) } => {
                        format!(
                            "The disruption budget {budget} does not allow evicting pods currently ({reason}): {message}"
                        )
                    }
                    Withheld::Condition { told: None } => {
                        format!("The disruption budget {budget} does not allow evicting pods currently")
                    }
                };
                told(CauseReason::DisruptionBudget, message)
            }
            Self::Timeout(Timeout::Version { .. }) => {
                told(CauseReason::ResourceVersionTooLarge, "Too large resource version".into())
            }
            _ => Vec::new(),
        }
    }
}

/// Why a text is not a number, in the words of Go.
fn no_number(digits: &str) -> &'static str {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { "value out of range" } else { "invalid syntax" }
}

/// The text in double quotes, escaped as in Go.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            control if (control as u32) < 0x20 || control as u32 == 0x7f => {
                out.push_str(&format!("\\x{:02x}", control as u32));
            }
            control if control.is_control() => out.push_str(&format!("\\u{:04x}", control as u32)),
            plain => out.push(plain),
        }
    }
    out.push('"');
    out
}

/// Joins the texts of causes: one cause is written as it is, several are written in brackets without duplicates.
fn aggregate(causes: &Causes) -> String {
    let mut told = BTreeSet::new();
    let mut texts: Vec<String> = causes.iter().map(Cause::to_string).filter(|text| told.insert(text.clone())).collect();
    texts.extend(and_more(causes.more()));
    match texts.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

fn field_conflicts(owned: &[OwnedFields]) -> Causes {
    let of = |OwnedFields { owner, fields }: &OwnedFields, causes: &mut Causes| {
        let cause = |field: &String| {
            Cause::told(CauseReason::FieldManagerConflict, field.as_str(), format!("conflict with {owner}"))
        };
        fields.iter().for_each(|field| causes.push_with(|| cause(field)));
        causes.add_more(fields.more());
    };
    let mut causes = Causes::default();
    owned.iter().for_each(|owned| of(owned, &mut causes));
    causes
}

fn apply_conflict(owned: &[OwnedFields]) -> String {
    let causes = field_conflicts(owned);
    if let (1, [one]) = (causes.len(), &*causes) {
        return format!("Apply failed with 1 conflict: {}: {}", one.message, one.field);
    }
    let (mut lines, mut left) = (Vec::new(), causes.iter());
    for OwnedFields { owner, fields } in owned {
        let told: Vec<String> =
            left.by_ref().take(fields.iter().len()).map(|cause| format!("- {}", cause.field)).collect();
        if !told.is_empty() {
            lines.push(format!("conflicts with {owner}:"));
            lines.extend(told);
        }
    }
    lines.extend(and_more(causes.more()));
    format!("Apply failed with {} conflicts: {}", causes.len(), lines.join("\n"))
}

impl Display for Forbidden {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Access(denied) => write!(f, "{denied}"),
            Self::Author(why) | Self::Admission(why) => write!(f, "{why}"),
            Self::NamespaceTerminating { namespace } => {
                write!(f, "unable to create new content in namespace {namespace} because it is being terminated")
            }
            Self::DefinitionTerminating => {
                f.write_str("create not allowed while custom resource definition is terminating")
            }
            Self::OfSystem { what } => write!(f, "this is a {what} and cannot be deleted"),
            Self::Undeletable { kind } => write!(f, "this {kind} may not be deleted"),
            Self::NegativeBudget => f.write_str("pdb disruptions allowed is negative"),
            Self::TooManyEvictions => {
                f.write_str("DisruptedPods map too big - too many evictions not confirmed by PDB controller")
            }
            Self::Past { at, newest } => write!(
                f,
                "this is a read-only view of the cluster as it was at version {at}, of {newest} now: write to the server \
                 itself, or fork the cluster at that version (holdfast fork)"
            ),
        }
    }
}

impl Display for Denied {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "User {} cannot {} ", quoted(&self.user), self.verb)?;
        match &self.target {
            DeniedTarget::Path(path) => write!(f, "path {}", quoted(path))?,
            DeniedTarget::Resource { group, resource, subresource, namespace } => {
                let resource = match subresource.as_str() {
                    "" => quoted(resource),
                    subresource => quoted(&format!("{resource}/{subresource}")),
                };
                write!(f, "resource {resource} in API group {} ", quoted(group))?;
                match namespace.as_str() {
                    "" => f.write_str("at the cluster scope")?,
                    namespace => write!(f, "in the namespace {}", quoted(namespace))?,
                }
            }
        }
        if self.reason.is_empty() { Ok(()) } else { write!(f, ": {}", self.reason) }
    }
}

impl Display for MethodNotAllowed {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnResource => f.write_str("the server does not allow this method on the requested resource"),
            Self::OnSubresource { verb, subresource } => {
                write!(f, "{verb} is not supported on resources of kind \"{subresource}\"")
            }
        }
    }
}

impl Conflict {
    /// The part of the message that follows the name of the object.
    pub fn words(&self, name: &str) -> String {
        match self {
            Self::Modified => {
                "the object has been modified; please apply your changes to the latest version and try again".into()
            }
            Self::Uid(uids) => uids.unmet("UID"),
            Self::Stored { key, why } => format!(
                "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {}",
                why.unmet(name)
            ),
            Self::NoObjectWithUid(uid) => {
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found")
            }
            Self::UidPrecondition(uids) => {
                let Mismatch { wanted, found } = &**uids;
                format!(
                    "the UID in the precondition ({wanted}) does not match the UID in record ({found}). {RECREATED}"
                )
            }
            Self::VersionPrecondition(versions) => {
                let Mismatch { wanted, found } = &**versions;
                format!(
                    "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
                     ({found}). The object might have been modified"
                )
            }
            Self::Precondition(why) => why.unmet(name),
            Self::BoundUid(uid) => {
                format!("the UID in the bound object reference ({uid}) does not match the UID in record. {RECREATED}")
            }
            Self::AccountUid(uids) => {
                let Mismatch { wanted, found } = &**uids;
                format!(
                    "the UID in the token request ({wanted}) does not match the UID of the service account ({found})"
                )
            }
            Self::PodDeleting => format!("pod {name} is being deleted, cannot be assigned to a host"),
            Self::PodGated => format!("pod {name} has non-empty .spec.schedulingGates"),
            Self::PodAssigned { node } => format!("pod {name} is already assigned to node \"{node}\""),
        }
    }

    /// The message of Kubernetes' store for an unmet precondition.
    fn unmet(&self, name: &str) -> String {
        match self {
            Self::UidPrecondition(uids) => uids.unmet("UID"),
            Self::VersionPrecondition(versions) => versions.unmet("ResourceVersion"),
            other => other.words(name),
        }
    }
}

impl Mismatch {
    fn unmet(&self, what: &str) -> String {
        let Self { wanted, found } = self;
        format!("Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}")
    }
}

impl Display for TooLarge {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body { bytes_max } => write!(f, "Request entity too large: limit is {bytes_max}"),
            Self::Object { bytes, bytes_max } => {
                write!(f, "the object would be too large: it may have {bytes_max} bytes, and would have {bytes}")
            }
            Self::Defaults { bytes_max } => {
                write!(f, "the object would be too large: its defaults may add {bytes_max} bytes, and would add more")
            }
            Self::PatchOperations { found, count_max } => {
                write!(
                    f,
                    "Request entity too large: The allowed maximum operations in a JSON patch is {count_max}, got {found}"
                )
            }
        }
    }
}

impl Display for Expired {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::List(version) => write!(f, "The provided resource version {version} is too old to be listed at."),
            Self::LetGo { asked, oldest } => write!(
                f,
                "too old resource version: {asked} ({oldest}): the history begins at version {oldest}; request that \
                 version or a later one"
            ),
            Self::BeforeNamespace { asked, namespace, start } => write!(
                f,
                "too old resource version: {asked} ({start}): the present namespace {namespace:?} was created at version \
                 {start}"
            ),
            Self::ForeignContinue => f.write_str(
                "The provided continue parameter is not one that this server gave out: start a new list without the \
                 continue parameter.",
            ),
            Self::Inconsistent { .. } => f.write_str(
                "The provided continue parameter is too old to display a consistent list result. You can start a new \
                 list without the continue parameter, or use the continue token in this response to retrieve the \
                 remainder of the results. Continuing with the provided token results in an inconsistent list - objects \
                 that were created, modified, or deleted between the time the first chunk was returned and now may show \
                 up in the list.",
            ),
            Self::Forgotten(why) => write!(f, "{why}"),
        }
    }
}

impl Display for Plenty {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let words = match self {
            Self::Requests => "Too many requests, please try again later.",
            Self::Watches => "this user has too many watches, please try again later",
            Self::Selectors { held, max } => {
                return write!(
                    f,
                    "the selectors of this user's watches take {held} bytes of memory and may take {max}, please end \
                     some watches or name fewer values"
                );
            }
            Self::Memory { bytes_max, bytes, own } => {
                let mib = |bytes: &u64| bytes >> 20;
                return write!(
                    f,
                    "reads hold {} of the {} MiB of memory that --read-memory gives them, and {} MiB of that are this \
                     user's: read the answers that wait, or try again later",
                    mib(bytes),
                    mib(bytes_max),
                    mib(own)
                );
            }
            Self::NodeConnections => {
                "too many connections to nodes are open, or this user has too many of them: close some, or try again later"
            }
            Self::Forks => {
                "there are too many forks in memory: delete one, or start the server with a larger --forks-max"
            }
            Self::OwnConnections { most } => {
                return write!(
                    f,
                    "this user has {most} connections, as many as a user may have: close some, or start the server with \
                     a larger --connections-per-user-max"
                );
            }
            Self::Connections { most } => {
                return write!(
                    f,
                    "users have {most} connections, all that there are for them: try again later, or start the server \
                     with a larger --connections-max"
                );
            }
        };
        f.write_str(words)
    }
}

impl Display for Timeout {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { asked, newest } => write!(f, "Too large resource version: {asked}, current: {newest}"),
            Self::Body { seconds } => write!(f, "the body of the request did not come within {seconds} seconds"),
            Self::Backend => f.write_str("request did not complete within the allotted timeout"),
        }
    }
}

impl Display for Internal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fault(fault) | Self::Exhausted(fault) => write!(f, "{fault}"),
            Self::Unread(unread) => write!(f, "unable to transform key {unread}"),
            Self::NotAuthorizable { why } => f.write_str(why),
            Self::AuditNotStored => f.write_str("failed to store audit event"),
            Self::Panicked => f.write_str("this request caused the server to panic: look in its log for details"),
            Self::NoMessage { message } => write!(f, "the schema has no message {message}"),
            Self::NoReview { kind } => write!(f, "{kind} is not an access review"),
            Self::NotStored { kind } => write!(f, "objects of kind {kind} are not stored, so they cannot be written"),
            Self::NoDecision { verb } => write!(f, "{verb} is not a write"),
            Self::NobodyToAsk { what } => write!(f, "the server cannot {what} for this request"),
            Self::BodyIsNoObject => f.write_str("a body that passed the checks is not an object"),
            Self::StoredIsNoDocument => f.write_str("a stored object cannot be decoded"),
            Self::NoReplicas { path } => write!(f, "the spec replicas field \".{path}\" does not exist"),
            Self::NoSigningKey => f.write_str("the server has no key to sign tokens with"),
            Self::NothingConverted => f.write_str("the conversion webhook returned no object"),
            Self::StaleDecision => f.write_str("the request was decided on an old state: please try again"),
            Self::UnknownBuiltIn { name } => write!(f, "no kind for the built-in object {name}"),
            Self::ImpersonationWithoutUser { header } => {
                write!(f, "requested {header} without impersonating a user")
            }
        }
    }
}

impl Display for Unread {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Unread { place, why, others } = self;
        write!(f, "{}: {why}", quoted(place))?;
        match others.is_empty() {
            true => Ok(()),
            false => write!(f, " (and others: {})", others.join(", ")),
        }
    }
}

impl Display for Unreasoned {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unread(unread) => write!(f, "unable to decode key {unread}"),
            Self::SeveralBudgets => f.write_str(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ),
            Self::Admission(why) => write!(f, "{why}"),
            Self::NotAVersion(text) => {
                write!(f, "strconv.ParseUint: parsing {}: {}", quoted(text), no_number(text))
            }
            Self::NotAVersionToRead(text) => {
                write!(f, "resourceVersion: Invalid value: {}: ", quoted(text))?;
                Self::NotAVersion(text.clone()).fmt(f)
            }
            Self::Untyped { object, kind, faults } => {
                write!(f, "failed to create typed patch object ({object}; {kind}): ")?;
                match faults.as_slice() {
                    [fault] => write!(f, "{fault}"),
                    faults => write!(f, "errors:\n  {}", faults.join("\n  ")),
                }
            }
            Self::Unconverted { object, kind, fault } => write!(
                f,
                "failed to convert new object ({object}; {kind}) to proper version: unable to convert unstructured \
                 object to {}: {fault}",
                kind.trim_start_matches('/')
            ),
            Self::Webhook { api_version, kind, why } => {
                write!(f, "conversion webhook for {api_version}, Kind={kind} {why}")
            }
            Self::Merge(fault) => write!(f, "{fault}"),
            Self::Causes(causes) => f.write_str(&aggregate(causes)),
        }
    }
}

impl Display for WebhookFault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NobodyToCall => f.write_str("failed: no webhook can be called from here"),
            Self::Call(fault) => write!(f, "failed: {fault}"),
            Self::Returned(what) => write!(f, "returned {what}"),
        }
    }
}

impl Display for Merging {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::ListsWithoutKey => f.write_str("cannot merge lists without merge key for type struct"),
            Self::MergeDirective => f.write_str("merging lists cannot yet be specified in the patch"),
            Self::UnknownDirective { directive, map } => write!(f, "unknown patch type: {directive} in map: {map}"),
            Self::MixedTypes { first, other } => write!(f, "list element types are not identical: {first} {other}"),
            Self::NotAList { found } => write!(f, "expected a []interface {{}}, but received a {found}"),
            Self::NoMergeKey { map, key } => write!(f, "map: {map} does not contain declared merge key: {key}"),
            Self::OtherOrder { patch, wanted } => {
                write!(f, "The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{wanted}\n")
            }
        }
    }
}

impl Display for Unavailable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redefined => f.write_str("the resource is being redefined; please try again"),
            Self::NodeNotConnected { node } => {
                write!(f, "error trying to reach service: no container runs on the node {node:?}, which is simulated")
            }
            Self::NoServicePort { service, port } => {
                write!(f, "no service port {port} found for service {service:?}")
            }
            Self::NoEndpoints { service } => write!(f, "no endpoints available for service {service:?}"),
            Self::Log(fault) => write!(f, "{fault}"),
        }
    }
}
