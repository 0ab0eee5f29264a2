//! Fuzz targets for all input from clients, with the invariants that must hold for any input.
//!
//! Each target is a function of bytes that panics if an invariant is violated. `cargo fuzz` runs the targets one by one
//! (`fuzz_targets/`). A test in `core` runs all of them over the seeds in `corpus-seeds/` and over mutations of the
//! seeds (`smoke.rs`). The targets of the crate `http2` are in `http2.rs`, for a test in that crate, because `core`
//! does not depend on the crate `http2`. No target depends on how its input was made.

mod edges;
mod expressions;
mod input;
mod world;

pub use expressions::{cel, cel_made, structural, structural_made};

use base64::Engine as _;
use holdfast_core::authz::chain::Way;
use holdfast_core::authz::escalation::{self, Authorize, Grant};
use holdfast_core::authz::rbac::RbacIndex;
use holdfast_core::authz::role::RoleKind;
use holdfast_core::authz::{Attributes, Authorizer, Chain, Consulted, User};
use holdfast_core::etcd::{self, Keys, Media, Place};
use holdfast_core::event::{Offset, Record};
use holdfast_core::kinds::apply_defaults;
use holdfast_core::kinds::offered::NEWEST;
use holdfast_core::kinds::registry;
use holdfast_core::list::{self, Continue, Selection, TokenKey};
use holdfast_core::merge::{FieldSet, apply, json as patches, managed, strategic};
use holdfast_core::object::meta::{DEPTH_MAX, depth};
use holdfast_core::object::{Draft, decode, encode};
use holdfast_core::request::{Options, Request};
use holdfast_core::schema::{check as check_types, quantity as quantities, schema, timestamp as times};
use holdfast_core::select::{FieldSelector, LabelSelector};
use holdfast_core::state::Index;
use holdfast_core::wire::jsonpath::JsonPath;
use holdfast_core::wire::protobuf::codec;
use holdfast_core::wire::table::cells;
use holdfast_value::Value;
use input::{Choices, document, kind, line, text};

pub type FuzzTarget = fn(&[u8]);

/// Every target and the name of its folder of seeds.
pub const TARGETS: [(&str, FuzzTarget); 26] = [
    ("json", json),
    ("yaml", yaml),
    ("protobuf", protobuf),
    ("stored", stored),
    ("check", check),
    ("check_made", check_made),
    ("json_patch", json_patch),
    ("merge_patch", merge_patch),
    ("strategic_merge", strategic_merge),
    ("apply", server_side_apply),
    ("field_set", field_set),
    ("label_selector", label_selector),
    ("field_selector", field_selector),
    ("continue_token", continue_token),
    ("resource_version", resource_version),
    ("quantity", quantity),
    ("timestamp", timestamp),
    ("record", record),
    ("decide", decide),
    ("decide_made", decide_made),
    ("rbac", rbac),
    ("jsonpath", jsonpath),
    ("cel", cel),
    ("cel_made", cel_made),
    ("structural", structural),
    ("structural_made", structural_made),
];

/// JSON: a decoded document is encoded and decoded again without a change.
pub fn json(bytes: &[u8]) {
    if let Ok(decoded) = decode::json(bytes) {
        decoded.strict_errors();
        reads_back(&decoded.value);
    }
}

/// YAML: the same check as for JSON.
pub fn yaml(bytes: &[u8]) {
    if let Ok(decoded) = decode::yaml(bytes) {
        decoded.strict_errors();
        reads_back(&decoded.value);
    }
}

/// Protobuf: the first line names the kind, the rest is its message. The input is also decoded as an enveloped body.
pub fn protobuf(bytes: &[u8]) {
    let _ = codec().decode_object(bytes);
    let (named, rest) = line(bytes);
    let (_, kind, version) = kind(registry(), &text(named));
    let message = schema().id(&kind.versions[version].message).expect("every version has a message");
    let Ok(decoded) = codec().decode(message, rest) else { return };
    let mut checked = decoded.clone();
    if check_types(schema(), message, &mut checked).is_err() {
        return;
    }
    let encoded = codec().encode(message, &checked).expect("a checked document has a Protobuf form");
    let mut again = codec().decode(message, &encoded).expect("what is encoded is decoded");
    assert!(check_types(schema(), message, &mut again).is_ok(), "what was checked is right");
    assert_eq!(codec().encode(message, &again), Ok(encoded), "encoding is stable");
}

/// Reads a key of a shared store from the first line, and its value from the rest. Writes the result in every encoding;
/// reading it again must change nothing.
pub fn stored(bytes: &[u8]) {
    let (key, value) = line(bytes);
    let keys = Keys::new("/registry");
    let Ok(Place::Object { kind, key: own }) = keys.place(registry(), key) else {
        let _ = keys.place(registry(), bytes);
        return;
    };
    let kind = registry().get(kind);
    let key = keys.of(kind, own);
    let Ok(document) = etcd::read(kind, &key, value) else { return };
    for (_, media) in Media::ALL {
        let written = etcd::write(kind, &key, document.clone(), media, NEWEST).expect("what is read can be written");
        let again = etcd::read(kind, &key, &written).expect("what is written can be read");
        let twice = etcd::write(kind, &key, again, media, NEWEST).expect("what is read can be written");
        assert_eq!(twice.escape_ascii().to_string(), written.escape_ascii().to_string(), "writing is stable");
    }
}

fn reads_back(value: &Value) {
    // Deeper documents are refused before the server stores them.
    if depth(value) > DEPTH_MAX {
        return;
    }
    let mut bytes = Vec::new();
    encode::encode(&mut bytes, value);
    let again: Value = serde_json::from_slice(&bytes).expect("canonical JSON is JSON");
    assert_eq!(&again, value);
}

/// Checks types, defaults, index and columns of a document. The first line names the kind, the rest is the document.
pub fn check(bytes: &[u8]) {
    let (named, rest) = line(bytes);
    if let Some(document) = document(rest) {
        check_document(&text(named), document);
    }
}

/// Like [`check`], with a generated, mostly valid document. The first two bytes choose the kind.
pub fn check_made(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let (_, kind, version) = input::nth_kind(registry(), choices.below(1 << 16));
    let message = schema().id(&kind.versions[version].message).expect("every version has a message");
    let made = choices.document(schema(), message);
    let named = format!("{} {}", kind.versions[version].api_version(), kind.kind);
    check_document(&named, Value::Object(made));
}

fn check_document(named: &str, document: Value) {
    let (_, kind, version) = kind(registry(), named);
    let message = schema().id(&kind.versions[version].message).expect("every version has a message");
    // The server also calls the functions below, up to the draft, with documents that have not been checked; they must
    // treat invalid fields as absent.
    Index::new(kind, &document);
    cells(&kind.shown.columns, &document, 1_795_000_000);
    if let Value::Object(map) = &document {
        let sealed = Draft::new("v1", "Any", map).seal(Offset(7));
        if depth(&document) < DEPTH_MAX {
            serde_json::from_slice::<Value>(&sealed).expect("a draft is JSON");
        }
    }
    let mut checked = document;
    if check_types(schema(), message, &mut checked).is_err() {
        return;
    }
    let mut again = checked.clone();
    assert_eq!(check_types(schema(), message, &mut again).as_deref(), Ok(&[][..]), "what was checked is right");
    assert_eq!(again, checked, "checking twice changes nothing more");
    let mut defaulted = checked;
    if apply_defaults(message, &mut defaulted).is_err() {
        return;
    }
    let mut again = defaulted.clone();
    apply_defaults(message, &mut again).expect("nothing more is added");
    assert_eq!(again, defaulted, "defaulting twice changes nothing more");
    let unknown = check_types(schema(), message, &mut again);
    assert_eq!(unknown.as_deref(), Ok(&[][..]), "defaults fit the schema: {defaulted}");
    if version == 0 {
        Index::new(kind, &defaulted);
        let seen = kind.shown.glance.look(defaulted.to_string().as_bytes()).document;
        let shown = |document| cells(&kind.shown.columns, document, 1_795_000_000);
        assert_eq!(shown(&seen), shown(&defaulted), "a glance is enough");
    }
}

/// Applies the JSON patch, which follows the first line of the input, to the document in the first line.
pub fn json_patch(bytes: &[u8]) {
    let (original, patch) = line(bytes);
    if let (Some(original), Some(patch)) = (document(original), document(patch))
        && let Ok(patched) = patches::json_patch(original, &patch)
    {
        reads_back(&patched);
    }
}

/// Applies the merge patch, which follows the first line of the input, to the document in the first line.
pub fn merge_patch(bytes: &[u8]) {
    let (original, patch) = line(bytes);
    if let (Some(original), Some(patch)) = (document(original), document(patch))
        && let Ok(patched) = patches::merge_patch(original, patch.clone())
    {
        assert_eq!(patches::merge_patch(patched.clone(), patch), Ok(patched.clone()), "merging twice is merging once");
        reads_back(&patched);
    }
}

/// Reads a kind, a document and a strategic merge patch from three lines.
pub fn strategic_merge(bytes: &[u8]) {
    let (named, rest) = line(bytes);
    let (original, patch) = line(rest);
    let (_, kind, version) = kind(registry(), &text(named));
    let message = schema().id(&kind.versions[version].message).expect("every version has a message");
    let (Some(mut original), Some(patch)) = (document(original), document(patch)) else { return };
    if check_types(schema(), message, &mut original).is_err() {
        return;
    }
    if let Ok(patched) = strategic::strategic_merge(&original, &patch, schema(), message) {
        reads_back(&patched);
    }
}

/// Reads a kind, a live document with its managed fields, and the applied document from three lines. If the kind's line
/// ends in `!`, the apply is forced.
pub fn server_side_apply(bytes: &[u8]) {
    let (named, rest) = line(bytes);
    let (live, config) = line(rest);
    let named = text(named);
    let (force, named) = named.strip_suffix('!').map_or((false, &*named), |named| (true, named));
    let (_, kind, version) = kind(registry(), named);
    let api_version = kind.versions[version].api_version();
    let message = schema().id(&kind.versions[version].message).expect("every version has a message");
    let (Some(mut live), Some(mut config)) = (document(live), document(config)) else { return };
    for document in [&mut live, &mut config] {
        if check_types(schema(), message, document).is_err() {
            return;
        }
    }
    let writer = managed::Writer {
        layout: holdfast_core::schema::layout::Layout::of(message),
        api_version: &api_version,
        manager: if force { "kubectl" } else { "fuzz" },
        subresource: "",
        now: "2026-11-21T10:00:00Z",
        reset: &[&["status"]],
        convert: None,
    };
    let mut updated = config.clone();
    managed::track_update(Some(&live), &mut updated, &writer);
    reads_back(&updated);
    let mut request = apply::ApplyRequest { live: Some(&live), config: &config, force, writer };
    let Ok(once) = apply::apply(request) else { return };
    reads_back(&once);
    request.live = Some(&once);
    apply::apply(request).expect("what was applied once is applied again without a conflict");
}

/// Decodes the `fieldsV1` of a managed fields entry.
pub fn field_set(bytes: &[u8]) {
    let Some(set) = document(bytes).as_ref().and_then(FieldSet::parse) else { return };
    set.paths();
    assert_eq!(FieldSet::parse(&set.clone().into_value()).as_ref(), Some(&set), "what is written is read back");
    let mut union = set.clone();
    union.union(set.clone());
    assert_eq!(union, set);
    assert_eq!(set.intersection(&set), set);
    let mut nothing = set.clone();
    nothing.subtract(&set);
    assert!(nothing.is_empty());
}

pub fn label_selector(bytes: &[u8]) {
    let written = text(bytes);
    if let Ok(selector) = LabelSelector::parse(&written) {
        selector.matches(&[("app".to_owned(), Value::from("web"))].into_iter().collect());
        assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector));
    }
    if let Some(selector) = document(bytes).and_then(|object| LabelSelector::from_object(&object).ok()) {
        selector.matches(&[("app".to_owned(), Value::from("web"))].into_iter().collect());
    }
}

pub fn field_selector(bytes: &[u8]) {
    if let Ok(selector) = FieldSelector::parse(&text(bytes)) {
        selector.matches(|_| "web");
        assert_eq!(FieldSelector::parse(&selector.to_string()), Ok(selector));
    }
}

/// Decodes the bytes as a token, and as the content of a well-formed token.
pub fn continue_token(bytes: &[u8]) {
    let wrapped = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
    let sealed = serde_json::from_slice(bytes).map(|token: Continue| token.seal(&TokenKey::default()));
    for token in [Some(text(bytes)), Some(wrapped), sealed.ok()].into_iter().flatten() {
        let Ok(from) = Continue::open(&token, &TokenKey::default()) else { continue };
        let state = world::world().state;
        for path in ["get - v1 pods default", "get - v1 namespaces"] {
            let request = world::request(&state, path, b"");
            let request =
                Request { target: holdfast_core::request::Target { name: None, ..request.target }, ..request };
            let selection = Selection::new(&state, &request).expect("nothing is selected by");
            list::page(&state, &selection, Some(1), Some(&from));
        }
    }
}

/// Reads the options that select a list's version from three lines: resource version, match and continue token.
pub fn resource_version(bytes: &[u8]) {
    let (version, rest) = line(bytes);
    let (matching, token) = line(rest);
    let some = |bytes: &[u8]| (!bytes.is_empty()).then(|| text(bytes));
    for watch in [false, true] {
        let options = Options {
            resource_version: some(version),
            resource_version_match: some(matching),
            continue_token: some(token),
            limit: Some(token.len() as u64),
            watch,
            ..Options::default()
        };
        let _ = list::freshness(&options);
    }
}

pub fn quantity(bytes: &[u8]) {
    if let Ok(canonical) = quantities::canonical(&text(bytes)) {
        // A quantity with a binary suffix that is not divisible by a power of two loses the suffix and stays decimal.
        let canonical = quantities::canonical(&canonical).expect("what is canonical is a quantity");
        assert_eq!(quantities::canonical(&canonical).as_ref(), Ok(&canonical), "canonical is stable");
    }
}

pub fn timestamp(bytes: &[u8]) {
    let written = text(bytes);
    if let Ok(Some(canonical)) = times::seconds(&written) {
        assert_eq!(times::seconds(&canonical), Ok(None), "canonical is stable: {canonical}");
    }
    if let Ok(Some(canonical)) = times::micros(&written) {
        assert_eq!(times::micros(&canonical), Ok(None), "canonical is stable: {canonical}");
    }
}

/// Decodes the bytes as a record of the log, and decodes them again as a record's body behind a correct checksum.
pub fn record(bytes: &[u8]) {
    let _ = Record::decode_record(bytes);
    let mut sealed = vec![holdfast_core::event::FORMAT];
    sealed.extend_from_slice(&crc32c::crc32c(bytes).to_le_bytes());
    sealed.extend_from_slice(bytes);
    if let Ok(record) = Record::decode_record(&sealed) {
        assert_eq!(Record::decode_record(&record.encode_record()).as_ref(), Ok(&record));
    }
}

/// Sends requests to a small cluster. Each request is a request line and a body; lines `---` separate requests.
pub fn decide(bytes: &[u8]) {
    let mut world = world::world();
    let mut last = None;
    for part in input::parts(bytes) {
        let (first, body) = line(part);
        let request = world::request(&world.state, &text(first), body);
        let _ = world.submit(&request);
        last = Some(request);
    }
    // The last request is submitted again, because its first decision has changed the state.
    if let Some(request) = last {
        let _ = world.submit(&request);
    }
}

/// Sends several generated requests to a small cluster.
pub fn decide_made(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let mut world = world::world();
    for _ in 0..8 {
        if choices.is_empty() {
            return;
        }
        let request = world::chosen_request(&world.state, &mut choices);
        let _ = world.submit(&request);
    }
}

/// Checks a role or a binding. The first line names its kind.
pub fn rbac(bytes: &[u8]) {
    let (named, rest) = line(bytes);
    let Some(document) = document(rest) else { return };
    let (kind, namespace) = match named {
        b"ClusterRole" => (RoleKind::ClusterRole, ""),
        b"ClusterRoleBinding" => (RoleKind::ClusterRoleBinding, ""),
        b"RoleBinding" => (RoleKind::RoleBinding, "default"),
        _ => (RoleKind::Role, "default"),
    };
    let state = &world::world().state;
    let mut index = state.rbac.clone();
    index.put(kind, namespace, "web", &document);
    index.put(RoleKind::ClusterRole, "", "other", &document);
    index.aggregate("web");
    index.stale_aggregates();
    let user = User::new("jane", &["system:authenticated"]);
    let (chain, consulted) = (std::sync::Arc::new(Chain::new(vec![Way::Rbac])), Consulted::default());
    let authorizer = Authorizer { chain: &chain, rbac: &index, nodes: None, consulted: &consulted };
    authorizer.authorize(&user, &Attributes::path("get", "/healthz"));
    authorizer.rules_for(&user, "default");
    let hooks: [Authorize; 3] = [escalation::cluster_role, escalation::namespaced_role, escalation::binding];
    for hook in hooks {
        let subject = holdfast_core::refusal::Subject::new("", "", "");
        let (user, new) = (&user, &document);
        let _ = hook(&Grant {
            elsewhere: state,
            authorizer,
            user,
            namespace: "default",
            name: "web",
            subresource: "",
            subject,
            kind: "Role",
            new,
            old: None,
        });
    }
    index.delete(kind, namespace, "web");
    index.delete(RoleKind::ClusterRole, "", "other");
    let _: &RbacIndex = &index;
}

/// Evaluates the path in the first line of the input on the document in the rest.
pub fn jsonpath(bytes: &[u8]) {
    let (path, rest) = line(bytes);
    let Ok(path) = JsonPath::parse(&text(path)) else { return };
    path.find(&document(rest).unwrap_or_default(), &mut 200_000);
}
