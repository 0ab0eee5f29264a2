//! Lists and gets: reads of a snapshot.

use crate::event::Offset;
use crate::kinds::{Kind, KindId};
use crate::object::{decode, meta};
use crate::refusal::{BadRequest, Cause, Causes, ContinueFault, Expired, Refusal, Subject, Unreasoned};
use crate::request::{Options, Request};
use crate::select::{FieldSelector, LabelSelector};
use crate::state::{Entry, State, prefix};
use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, URL_SAFE_NO_PAD};
use hmac::{Hmac, Mac};
use holdfast_value::Value;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use std::sync::Arc;

/// The objects that a list or watch selects: a part of the key space, and conditions on labels and fields.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Selection {
    pub kind: KindId,
    pub version: usize,
    /// The prefix of the keys of selected objects: `namespace/`, or empty for cluster-scoped kinds and for all
    /// namespaces.
    pub prefix: String,
    /// The object's whole key, if a field selector names one object.
    pub key: Option<String>,
    pub labels: LabelSelector,
    pub fields: FieldSelector,
}

/// One page of a list.
pub struct Page {
    pub offset: Offset,
    pub entries: Vec<Arc<Entry>>,
    /// The point at which the next page begins; `None` on the last page.
    pub next: Option<Continue>,
    pub remaining: Option<u64>,
}

impl Selection {
    pub fn new(state: &State, request: &Request) -> Result<Selection, Refusal> {
        let target = &request.target;
        let kind = state.kind(target.kind);
        let options = &request.options;
        let labels = LabelSelector::parse(options.label_selector.as_deref().unwrap_or(""));
        let labels = labels.map_err(undecodable)?;
        let fields = FieldSelector::parse(options.field_selector.as_deref().unwrap_or(""));
        let fields = fields.map_err(undecodable)?;
        let mut selection = Selection {
            kind: target.kind,
            version: target.version,
            prefix: prefix(request.namespace()),
            key: None,
            labels,
            fields,
        };
        for requirement in selection.fields.requirements() {
            if field_index(kind, target.version, &requirement.field).is_none() {
                return Err(unknown_field(kind, target.version, &requirement.field));
            }
        }
        let exact = |field: &str| selection.fields.exact(field).map(str::to_owned);
        let name = request.target.name.clone().or_else(|| exact("metadata.name"));
        let namespace = request.namespace().map(str::to_owned).or_else(|| exact("metadata.namespace"));
        if let Some(namespace) = &namespace {
            selection.prefix = prefix(Some(namespace));
        }
        selection.key = match (name, kind.is_namespaced(), namespace) {
            (Some(name), false, _) => Some(name),
            (Some(name), true, Some(namespace)) => Some(meta::key(Some(&namespace), &name)),
            _ => None,
        };
        Ok(selection)
    }

    /// Whether the selection contains the object.
    pub fn matches(&self, kind: &Kind, key: &str, entry: &Entry) -> bool {
        if let Some(wanted) = &self.key
            && wanted != key
        {
            return false;
        }
        key.starts_with(&self.prefix) && self.conditions_hold(kind, key, entry)
    }

    fn conditions_hold(&self, kind: &Kind, key: &str, entry: &Entry) -> bool {
        (self.labels.is_everything() || self.labels.matches_sorted(&entry.index.labels))
            && (self.fields.is_everything()
                || self.fields.matches(|field| field_value(kind, self.version, key, entry, field)))
    }

    /// Whether every object under the prefix is selected.
    pub fn is_everything(&self) -> bool {
        self.key.is_none() && self.labels.is_everything() && self.fields.is_everything()
    }
}

/// The refusal of an unknown field. Its message for kinds with selectable fields of their own differs from the message
/// for kinds that select only by metadata.
fn unknown_field(kind: &Kind, version: usize, field: &str) -> Refusal {
    let group = &kind.versions[version].group;
    let only_metadata = !kind.selectors.exist_in(group);
    let kind = kind.selectors.names_itself.then(|| kind.kind.clone());
    Refusal::BadRequest(BadRequest::UnselectableField { field: field.into(), only_metadata, kind })
}

fn undecodable(fault: String) -> Refusal {
    Refusal::BadRequest(BadRequest::Undecodable(fault))
}

enum FieldIndex {
    Name,
    Namespace,
    Kind(usize),
}

fn field_index(kind: &Kind, version: usize, field: &str) -> Option<FieldIndex> {
    match field {
        "metadata.name" => Some(FieldIndex::Name),
        "metadata.namespace" => Some(FieldIndex::Namespace),
        _ => kind.selectable_in(version, field).map(FieldIndex::Kind),
    }
}

fn field_value<'a>(kind: &Kind, version: usize, key: &'a str, entry: &'a Entry, field: &str) -> &'a str {
    let (namespace, name) = meta::split_key(key);
    match field_index(kind, version, field) {
        Some(FieldIndex::Name) => name,
        Some(FieldIndex::Namespace) => namespace.unwrap_or(""),
        Some(FieldIndex::Kind(index)) => &entry.index.fields[index],
        None => "",
    }
}

/// A continue token: the version of the first page and the last key that was read so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Continue {
    #[serde(rename = "v")]
    api: String,
    #[serde(rename = "rv")]
    pub version: u64,
    #[serde(rename = "start")]
    pub after: String,
    /// The number of objects of an unfiltered list that remain.
    #[serde(rename = "left", default, skip_serializing_if = "Option::is_none")]
    left: Option<u64>,
    /// Whether the first page requested a past version. The token is then valid for as long as the log has that
    /// version.
    #[serde(rename = "past", default, skip_serializing_if = "std::ops::Not::not")]
    pub past: bool,
}

/// Decodes unpadded base64 as Go does: spare bits after the last byte are ignored.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone),
);

/// The position of the first character outside the base64 alphabet, or the length of a token that is too short.
fn fault_at(token: &str, fault: base64::DecodeError) -> usize {
    match fault {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
        base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => token.len(),
    }
}

const CONTINUE_API: &str = "meta.k8s.io/v1";
/// The number of bytes of the seal that a token contains.
const SEAL_BYTES: usize = 16;

/// The key that seals the continue tokens of one cluster. A token that was made or changed without the key is invalid.
#[derive(Clone, Default)]
pub struct TokenKey(pub [u8; 32]);

impl std::fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenKey(..)")
    }
}

impl TokenKey {
    fn seal(&self, content: &[u8]) -> Option<Hmac<Sha256>> {
        let seal = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        Some(seal.chain_update(content))
    }

    /// A secret that is derived from this key and a name, and that does not reveal the key. No token's content equals
    /// the name, so no token's seal is a derived secret.
    pub fn derived(&self, name: &str) -> TokenKey {
        let seal = self.seal(name.as_bytes()).unwrap_or_else(|| unreachable!("keys of every length will do"));
        TokenKey(seal.finalize().into_bytes().into())
    }
}

/// The reason why Kubernetes refuses a continue token that this server did not make; `None` if Kubernetes' checks of
/// the token's form find no fault.
fn foreign_fault(token: &Value) -> Option<ContinueFault> {
    let api = token["v"].as_str().unwrap_or_default();
    if api != CONTINUE_API {
        return Some(ContinueFault::UnknownApi(api.to_owned()));
    }
    if token["rv"].as_i64().unwrap_or(0) == 0 {
        return Some(ContinueFault::NoVersion);
    }
    let start = token["start"].as_str().unwrap_or_default();
    if start.is_empty() {
        return Some(ContinueFault::NoStart);
    }
    // A start key with an empty part, `.` or `..` would be outside the listed range.
    let mut parts = start.strip_prefix('/').unwrap_or(start).split('/');
    parts.any(|part| matches!(part, "" | "." | "..")).then(|| ContinueFault::OddStart(start.to_owned()))
}

impl Continue {
    /// Checks the seal of a continue token that a server of this cluster made, and decodes the token.
    pub fn open(token: &str, key: &TokenKey) -> Result<Continue, Refusal> {
        let bad = |fault: ContinueFault| Refusal::BadRequest(BadRequest::Continue(fault));
        let bytes =
            LENIENT.decode(token).map_err(|fault| bad(ContinueFault::NotBase64 { at: fault_at(token, fault) }))?;
        let (seal, content) = bytes.split_at_checked(SEAL_BYTES).unwrap_or((&bytes, &[]));
        let Ok(token) = serde_json::from_slice::<Continue>(content) else {
            // This server did not make the token, so the client gets the answer that Kubernetes gives to such a token.
            return Err(match decode::json(&bytes) {
                Err(fault) => bad(ContinueFault::NotJson(fault.to_string())),
                Ok(foreign) => foreign_fault(&foreign.value).map_or(Refusal::Expired(Expired::ForeignContinue), bad),
            });
        };
        if key.seal(content).is_none_or(|expected| expected.verify_truncated_left(seal).is_err()) {
            return Err(Refusal::Expired(Expired::ForeignContinue));
        }
        if token.api != CONTINUE_API || token.version == 0 {
            return Err(bad(ContinueFault::OtherRelease));
        }
        Ok(token)
    }

    /// A token for the state of this version that continues after a key. The token has no count of the remaining
    /// objects.
    pub fn fresh(version: Offset, after: String) -> Continue {
        Continue { api: CONTINUE_API.into(), version: version.0, after, left: None, past: false }
    }

    /// The token of the next page, after `given` more objects were returned.
    pub fn next(&self, after: String, given: u64) -> Continue {
        Continue { after, left: self.left.map(|left| left.saturating_sub(given)), ..self.clone() }
    }

    /// The number of objects of an unfiltered list that remain, if they were counted.
    pub fn left(&self) -> Option<u64> {
        self.left
    }

    /// The token as clients receive it.
    pub fn seal(&self, key: &TokenKey) -> String {
        // Serializing strings and numbers cannot fail.
        let content = serde_json::to_vec(self).unwrap_or_default();
        let seal = key.seal(&content).map(|seal| seal.finalize().into_bytes());
        let mut bytes = seal.map(|seal| seal[..SEAL_BYTES].to_vec()).unwrap_or_default();
        bytes.extend(content);
        URL_SAFE_NO_PAD.encode(bytes)
    }
}

/// One page of the objects that `selection` selects from the snapshot. The page starts after the last key that was read
/// for the page before.
pub fn page(state: &State, selection: &Selection, limit: Option<u64>, from: Option<&Continue>) -> Page {
    let kind = state.kind(selection.kind);
    let limit = limit.filter(|limit| *limit > 0).unwrap_or(u64::MAX);
    let mut page = Page { offset: state.offset, entries: Vec::new(), next: None, remaining: None };
    if let Some(key) = &selection.key {
        let found = state.get(selection.kind, key).filter(|entry| selection.matches(kind, key, entry));
        page.entries.extend(found.cloned());
        return page;
    }
    let everything = selection.is_everything();
    let after = from.map(|token| token.after.as_str());
    let mut last = after;
    for (key, entry) in state.scan(selection.kind, &selection.prefix, after) {
        if page.entries.len() as u64 >= limit {
            // As in Kubernetes, a filtered list has no `remainingItemCount`.
            let left = everything.then(|| state.count_of(selection.kind, &selection.prefix, last) as u64);
            let after = last.unwrap_or_default().to_owned();
            page.next = Some(Continue { left, ..Continue::fresh(state.offset, after) });
            page.remaining = left;
            return page;
        }
        if everything || selection.conditions_hold(kind, key, entry) {
            page.entries.push(entry.clone());
        }
        last = Some(&**key);
    }
    page
}

/// The object that the path names.
pub fn get<'a>(state: &'a State, request: &Request) -> Result<&'a Arc<Entry>, Refusal> {
    state.get(request.target.kind, &request.key()).ok_or_else(|| missing(state, request))
}

/// The NotFound refusal for the object that the path names.
pub fn missing(state: &State, request: &Request) -> Refusal {
    let kind = state.kind(request.target.kind);
    let group = &kind.versions[request.target.version].group;
    Refusal::NotFound(Subject::new(group, &kind.resource, request.name()))
}

/// The version that a list requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// The newest state.
    Newest,
    /// Any state that is at least as new as this version.
    NotOlderThan(Offset),
    /// This version and no other.
    Exact(Offset),
}

/// Parses the version of a list. As in Kubernetes, a malformed version is a BadRequest.
fn parse_list_version(version: &str) -> Result<Offset, Refusal> {
    parse_version(version).map_err(|_| Refusal::BadRequest(BadRequest::NotAVersion(version.into())))
}

/// Checks that the options of a list or watch are compatible. The refusal names every conflict.
pub fn check_options(options: &Options, watches: bool) -> Result<(), Refusal> {
    let causes = if watches { causes_against_watch(options) } else { causes_against_list(options) };
    if causes.is_empty() {
        return Ok(());
    }
    Err(Refusal::Invalid { subject: Subject::new("meta.k8s.io", "ListOptions", ""), causes })
}

fn causes_against_list(options: &Options) -> Causes {
    const FIELD: &str = "resourceVersionMatch";
    let version = options.resource_version.as_deref().unwrap_or("");
    let matching = options.resource_version_match.as_deref().unwrap_or("");
    let mut causes = Causes::default();
    if !matching.is_empty() {
        if version.is_empty() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            causes.push(Cause::forbidden(FIELD, why));
        }
        if continues(options) {
            causes.push(Cause::forbidden(FIELD, "resourceVersionMatch is forbidden when continue is provided"));
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            causes.push(Cause::not_supported(FIELD, &matching.into(), &["Exact", "NotOlderThan", ""]));
        }
        if matching == "Exact" && version == "0" {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            causes.push(Cause::forbidden(FIELD, why));
        }
    }
    if options.send_initial_events.is_some() {
        causes.push(Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    causes
}

fn causes_against_watch(options: &Options) -> Causes {
    const FIELD: &str = "resourceVersionMatch";
    let initial = initial_events(options);
    let matching = match options.resource_version_match.as_deref().unwrap_or("") {
        // A watch that begins with the existing objects although the client did not set `sendInitialEvents` counts as
        // NotOlderThan.
        "" if options.send_initial_events.is_none() && initial == Some(true) => "NotOlderThan",
        given => given,
    };
    let mut causes = Causes::default();
    if initial.is_some() && matching != "NotOlderThan" {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        causes.push(Cause::forbidden(FIELD, why));
    }
    if !matching.is_empty() {
        if initial.is_none() {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            causes.push(Cause::forbidden(FIELD, why));
        }
        if matching != "NotOlderThan" {
            causes.push(Cause::not_supported(FIELD, &matching.into(), &["NotOlderThan"]));
        }
        if continues(options) {
            causes.push(Cause::forbidden(FIELD, "resourceVersionMatch is forbidden when continue is provided"));
        }
    }
    causes
}

fn continues(options: &Options) -> bool {
    options.continue_token.as_deref().is_some_and(|token| !token.is_empty())
}

/// Whether a watch begins with the existing objects as events. Returns `None` if the watch continues from a version.
pub fn initial_events(options: &Options) -> Option<bool> {
    let is_old_form = options.resource_version_match.as_deref().unwrap_or("").is_empty()
        && matches!(options.resource_version.as_deref().unwrap_or(""), "" | "0");
    options.send_initial_events.or(is_old_form.then_some(true))
}

/// Reads `resourceVersion`, `resourceVersionMatch`, `limit` and `continue` together.
pub fn freshness(options: &Options) -> Result<Freshness, Refusal> {
    check_options(options, options.watch)?;
    let version = options.resource_version.as_deref().unwrap_or("");
    let matching = options.resource_version_match.as_deref().unwrap_or("");
    if version.is_empty() || version == "0" && options.watch {
        return Ok(Freshness::Newest);
    }
    if version == "0" {
        // Any state is new enough, even if other servers have a newer state.
        return Ok(Freshness::NotOlderThan(Offset::ZERO));
    }
    let offset = parse_list_version(version)?;
    let limited = options.limit.is_some_and(|limit| limit > 0);
    Ok(match matching {
        "Exact" => Freshness::Exact(offset),
        "NotOlderThan" => Freshness::NotOlderThan(offset),
        _ if limited && !options.watch => Freshness::Exact(offset),
        _ => Freshness::NotOlderThan(offset),
    })
}

/// Parses a client's resource version. As in Kubernetes, the refusal of a get or a watch with a malformed version has
/// the parse error as its message, and no reason.
pub fn parse_version(version: &str) -> Result<Offset, Refusal> {
    version.parse().map(Offset).map_err(|_| Refusal::Unreasoned(Unreasoned::NotAVersionToRead(version.into())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn options_of_lists_and_watches_fit_together() {
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let (needed, unless) = (
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        );
        let continued = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided";
        let alone =
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided";
        let newer = "resourceVersionMatch: Unsupported value: \"Exact\": supported values: \"NotOlderThan\"";
        let for_list = "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list";
        // Columns: watch or list, sendInitialEvents, resourceVersionMatch, resourceVersion, continue; the expected
        // faults, and whether a watch begins with the existing objects.
        for (watches, initial, matching, version, token, faults, begins) in [
            (true, None, "", "", "", &[][..], Some(true)),
            (true, None, "", "0", "", &[], Some(true)),
            (true, None, "", "5", "", &[], None),
            (true, None, "", "", "abc", &[continued], Some(true)),
            (true, None, "", "5", "abc", &[], None),
            (true, Some(true), "", "", "", &[needed], Some(true)),
            (true, Some(false), "", "", "", &[needed], Some(false)),
            (true, Some(true), "NotOlderThan", "", "", &[], Some(true)),
            (true, Some(false), "NotOlderThan", "5", "", &[], Some(false)),
            (true, Some(true), "Exact", "1", "", &[needed, newer], Some(true)),
            (true, None, "NotOlderThan", "", "", &[unless], None),
            (true, None, "Exact", "1", "abc", &[unless, newer, continued], None),
            (false, None, "Exact", "", "abc", &[alone, continued], None),
            (false, Some(false), "Exact", "", "", &[alone, for_list], Some(false)),
            (false, None, "NotOlderThan", "5", "", &[], None),
        ] {
            let options = Options {
                send_initial_events: initial,
                resource_version_match: text(matching),
                resource_version: text(version),
                continue_token: text(token),
                ..Options::default()
            };
            let told = check_options(&options, watches).err().map(|refusal| refusal.message()).unwrap_or_default();
            let expected = match faults {
                [] => String::new(),
                [only] => format!("ListOptions.meta.k8s.io \"\" is invalid: {only}"),
                many => format!("ListOptions.meta.k8s.io \"\" is invalid: [{}]", many.join(", ")),
            };
            assert_eq!(told, expected, "{options:?}");
            assert_eq!(initial_events(&options), begins, "{options:?}");
        }
    }

    #[test]
    fn tokens_that_no_server_gave_out_are_refused_in_its_words() {
        let key = TokenKey::default();
        for (token, reason, words) in [
            (json!({"v": "meta.k8s.io/v9", "rv": 5, "start": "x"}), "BadRequest", "encoded version \"meta.k8s.io/v9\""),
            (
                json!({"v": "meta.k8s.io/v1", "rv": 0, "start": "x"}),
                "BadRequest",
                "incorrect encoded start resourceVersion",
            ),
            (json!({"v": "meta.k8s.io/v1", "rv": 5, "start": ""}), "BadRequest", "encoded start key empty"),
            (json!({"v": "meta.k8s.io/v1", "rv": 5, "start": "../a"}), "BadRequest", "continue key is not valid: ../a"),
            (json!({"v": "meta.k8s.io/v1", "rv": 5, "start": "a//b"}), "BadRequest", "continue key is not valid: a//b"),
            (json!({"v": "meta.k8s.io/v1", "rv": 5, "start": "a/b"}), "Expired", "not one that this server gave out"),
            (json!([]), "BadRequest", "encoded version \"\""),
        ] {
            let sealed = URL_SAFE_NO_PAD.encode(token.to_string());
            let refusal = Continue::open(&sealed, &key).expect_err("it is refused");
            assert_eq!(refusal.reason(), reason, "{token}");
            assert!(refusal.message().contains(words), "{token}: {}", refusal.message());
        }
        assert!(matches!(Continue::open("abc", &key), Err(Refusal::BadRequest(_))));
    }
}
