//! Tests how objects are read from and written to Kubernetes' stores. The values were written by kube-apiserver 1.36 to
//! an etcd, and recorded with its answers in `tests/data/etcd.jsonl.gz`.
//!
//! Each value is read, compared with the recorded answer in the version of the answer's path, and written again. The
//! written key, version, encoding and content must be the recorded ones.

#![expect(clippy::disallowed_types, reason = "tests that measure memory run one after another")]

#[path = "../../tests/src/facts.rs"]
mod facts;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use holdfast_core::etcd::{Keys, Media, Place, read, read_record, write, write_record};
use holdfast_core::event::Offset;
use holdfast_core::kinds::{Kind, Registry, custom, registry};
use holdfast_core::wire::protobuf::{unwrap, wrap};
use holdfast_value::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::sync::Mutex;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Allocations are counted for the whole process, so these tests must run one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// The minor version of the Kubernetes release that wrote the recorded values.
const RELEASE: u32 = 36;

/// The key of a Lease that was renewed after its value was recorded and before its answer was, so that the two differ.
const RENEWED: &str = "/registry/leases/kube-system/apiserver-wlv32tlttr4jl3gtroqexyxapa";

/// The keys of cases that differ because release 1.36 has other kinds, versions or fields. Here the built-in API is the
/// API of release 1.35. `docs/DIFFERENCES.md` lists the differences.
const OF_LATER_RELEASES: [&str; 5] = [
    "/registry/csidrivers/csid2",
    "/registry/podcertificaterequests/etcdstoragepathtestnamespace/req-1",
    "/registry/podgroups/etcdstoragepathtestnamespace/pg1",
    "/registry/resourcepoolstatusrequests/rpsr1name",
    "/registry/workloads/etcdstoragepathtestnamespace/w1",
];
/// The number of Protobuf values that are written byte for byte as they were recorded. Other values contain JSON that
/// other programs wrote in another order or with spaces. The number must not decrease.
const ALIKE: usize = 137;

#[test]
fn values_are_read_and_written_as_recorded() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (registry, cases) = (with_definitions(), cases());
    let keys = Keys::new("/registry");
    let outcomes: Vec<Result<bool, String>> = cases.iter().map(|case| outcome(&registry, &keys, case)).collect();
    let differs = |(case, outcome): (&Value, &Result<bool, String>)| outcome.is_err().then(|| case["key"].clone());
    let differing: Vec<Value> = cases.iter().zip(&outcomes).filter_map(differs).collect();
    let alike = outcomes.iter().filter(|outcome| **outcome == Ok(true)).count();
    let faults: Vec<String> = outcomes.into_iter().filter_map(Result::err).collect();
    println!("{} cases, {} differ, {alike} agree byte for byte", cases.len(), differing.len());
    assert!(differing == OF_LATER_RELEASES && alike >= ALIKE, "{alike} byte for byte:\n{}", faults.join("\n"));
}

fn cases() -> Vec<Value> {
    let mut cases = facts::lines::<Value>("etcd");
    assert_eq!(cases.remove(0)["form"], "etcd facts");
    cases
}

fn bytes(case: &Value) -> Vec<u8> {
    STANDARD.decode(case["value"].as_str().expect("a value")).expect("base64")
}

/// The built-in kinds, and the two custom kinds whose objects were recorded. For one of them the definition was
/// recorded, too.
fn with_definitions() -> Registry {
    let mut registry = registry().clone();
    let recorded = cases().into_iter().find(|case| case["kind"] == "CustomResourceDefinition").expect("a definition");
    let key = recorded["key"].as_str().expect("a key");
    let definitions = registry.share(registry.definitions().expect("a kind"));
    let gadgets = read(&definitions, key, &bytes(&recorded)).expect("a definition");
    let mut racks = gadgets.clone();
    racks["spec"]["scope"] = "Cluster".into();
    racks["status"]["acceptedNames"] =
        json!({"plural": "racks", "singular": "rack", "kind": "Rack", "listKind": "RackList"});
    for definition in [gadgets, racks] {
        let stored = Bytes::from(definition.to_string());
        registry.add(custom::kind_of(&stored, Offset(1), &definition).expect("an established definition"));
    }
    registry
}

/// Whether the value is written byte for byte as it was recorded. The error says how the object differs.
fn outcome(registry: &Registry, keys: &Keys, case: &Value) -> Result<bool, String> {
    let key = case["key"].as_str().expect("a key");
    let value = bytes(case);
    let told = |problem: String| format!("{key}: {problem}");
    match keys.place(registry, key.as_bytes()).map_err(|fault| fault.to_string())? {
        Place::Strange => Err(told("of no kind".into())),
        Place::Record { record, name } => {
            let document = read_record(record, key, &value).map_err(|fault| fault.to_string())?;
            let again = write_record(record, key, &document, Media::Protobuf).map_err(|fault| fault.to_string())?;
            assert_eq!(keys.of_record(record, name), key);
            match read_record(record, key, &again).as_ref() == Ok(&document) {
                true => Ok(again == value),
                false => Err(told("it does not return".into())),
            }
        }
        Place::Object { kind, key: own } => {
            let kind = registry.get(kind);
            assert_eq!(keys.of(kind, own), key);
            let document = read(kind, key, &value).map_err(|fault| fault.to_string())?;
            shown(kind, case, &document).map_err(told)?;
            let again =
                write(kind, key, document.clone(), Media::Protobuf, RELEASE).map_err(|fault| fault.to_string())?;
            let read_again = read(kind, key, &again).map_err(|fault| fault.to_string())?;
            if read_again != document {
                return Err(told(format!("read again as\n  {read_again}\ninstead of\n  {document}")));
            }
            if !has_names(&value, &again) {
                return Err(told(format!("written as {}", again.escape_ascii())));
            }
            Ok(value == again)
        }
    }
}

/// Compares the object, in the version of the path, with the recorded answer.
fn shown(kind: &Kind, case: &Value, document: &Value) -> Result<(), String> {
    let expected = &case["object"];
    if expected.is_null() {
        return Ok(());
    }
    let api_version = expected["apiVersion"].as_str().expect("a version");
    let version = kind.version_named(api_version).ok_or_else(|| format!("not in {api_version}"))?;
    let mut shown = document.clone();
    if kind.custom.is_none() {
        kind.from_hub(version, shown.as_object_mut().expect("an object"));
    }
    shown["metadata"]["resourceVersion"] = case["mod"].to_string().into();
    match shown == *expected || case["key"] == RENEWED {
        true => Ok(()),
        false => Err(format!("shown as\n  {shown}\ninstead of\n  {expected}")),
    }
}

/// Whether the two values name the same kind and version. Values that were recorded in CBOR are not compared:
/// Kubernetes wrote them with the feature gate `CBORServingAndStorage`, which is always off in Holdfast.
fn has_names(recorded: &[u8], written: &[u8]) -> bool {
    let names = |bytes: &[u8]| match unwrap(bytes) {
        Ok(envelope) => Some((envelope.api_version, envelope.kind)),
        Err(_) => {
            let document: Value = serde_json::from_slice(bytes).ok()?;
            Some((document["apiVersion"].as_str()?.to_owned(), document["kind"].as_str()?.to_owned()))
        }
    };
    recorded.starts_with(b"\xd9\xd9\xf7") || names(recorded) == names(written)
}

/// Reading a value that is four times as long must take at most six times the work.
#[test]
fn work_is_in_proportion_to_what_is_stored() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let registry = registry();
    let kind = |group: &str, resource: &str| registry.get(registry.find(group, "v1", resource).expect(resource).0);
    let (maps, policies) = (kind("", "configmaps"), kind("networking.k8s.io", "networkpolicies"));
    let head = br#"{"apiVersion":"v1","kind":"ConfigMap","data":{"#;
    let json = |many: usize| {
        let entries: Vec<String> = (0..many).map(|key| format!("\"{key}\":\"\"")).collect();
        [head.as_slice(), entries.join(",").as_bytes(), b"}}"].concat()
    };
    let cbor = |many: usize| {
        let mut value = b"\xd9\xd9\xf7\xa3JapiVersionBv1DkindIConfigMapDdata\xbf".to_vec();
        (0..many).for_each(|key| value.extend_from_slice(format!("\x68{key:08}\x60").as_bytes()));
        value.push(0xff);
        value
    };
    let yaml =
        |many: usize| format!("apiVersion: v1\nkind: ConfigMap\nbinaryData: [{}]", "a,".repeat(many)).into_bytes();
    let protobuf = |many: usize| {
        wrap("networking.k8s.io/v1", "NetworkPolicy", &{
            let rules = b"\x12\x00".repeat(many);
            let mut spec = vec![0x12];
            let mut length = rules.len();
            while length >= 0x80 {
                spec.push(length as u8 | 0x80);
                length >>= 7;
            }
            spec.push(length as u8);
            [spec, rules].concat()
        })
    };
    let base64 = |many: usize| STANDARD.encode(json(many)).into_bytes();
    type Make<'m> = &'m dyn Fn(usize) -> Vec<u8>;
    let forms: [(&Kind, Make); 5] =
        [(maps, &json), (maps, &cbor), (maps, &yaml), (policies, &protobuf), (maps, &base64)];
    for (number, (kind, make)) in forms.into_iter().enumerate() {
        let work = |many: usize| {
            let value = make(many);
            let region = Region::new(ALLOCATOR);
            _ = read(kind, "k", &value);
            region.change().bytes_allocated
        };
        let (few, many) = (work(2_000), work(8_000));
        assert!(
            many < 6 * few + (1 << 20),
            "form {number}: {few} bytes for a value, {many} for one four times as long"
        );
    }
}
