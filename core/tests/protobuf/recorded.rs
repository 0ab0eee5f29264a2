//! Compares the codec with recordings of Kubernetes: objects of 183 kinds and versions with every field set, in JSON
//! and Protobuf, in `tests/data/protobuf.jsonl.gz`. Each form is converted to the other byte for byte.

use crate::facts;
use base64::{Engine, engine::general_purpose::STANDARD};
use holdfast_core::wire::protobuf::{codec, unwrap};
use holdfast_value::Value;

#[test]
fn each_form_is_read_and_written_as_the_other() {
    let mut cases = facts::lines::<Value>("protobuf");
    let about = cases.remove(0);
    assert_eq!(about["form"], "protobuf facts");
    assert_eq!(cases.len(), 183);
    let faults: Vec<String> = cases.iter().flat_map(faults).collect();
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

fn faults(case: &Value) -> Vec<String> {
    let name = case["name"].as_str().expect("a name");
    let json = &case["json"];
    let bytes = STANDARD.decode(case["pb"].as_str().expect("Protobuf")).expect("base64");
    let envelope = unwrap(&bytes).expect("an envelope");
    let found = match envelope.kind.as_str() {
        // The envelope of a watch event names no kind.
        "" => codec().find("v1", "WatchEvent"),
        kind => codec().find(&envelope.api_version, kind),
    };
    let Some(message) = found else { return vec![format!("{name} is unknown")] };
    let read = match envelope.kind.is_empty() {
        true => codec().decode(message, envelope.raw),
        false => codec().decode_object(&bytes),
    };
    let mut faults = Vec::new();
    match read {
        Ok(read) if read == *json => {}
        Ok(read) => faults.push(format!("{name} is read otherwise: {}", difference("", json, &read))),
        Err(error) => return vec![format!("{name} is not read: {error}")],
    }
    match codec().encode_object(message, json) {
        Ok(written) if written == bytes => {}
        Ok(written) => {
            let read = codec().decode_object(&written).expect("our own bytes");
            faults.push(format!("{name} is written otherwise: {}", difference("", json, &read)));
        }
        Err(error) => faults.push(format!("{name} is not written: {error}")),
    }
    faults
}

/// Where and how two documents differ first, as text.
fn difference(path: &str, expected: &Value, found: &Value) -> String {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            let nothing = Value::from("(nothing)");
            let keys = expected.keys().chain(found.keys().filter(|key| !expected.contains_key(key.as_str())));
            let of = |map: &holdfast_value::Map, key: &str| map.get(key).unwrap_or(&nothing).clone();
            let parts = keys.map(|key| difference(&format!("{path}.{key}"), &of(expected, key), &of(found, key)));
            parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
        }
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
            let pairs = expected.iter().zip(found).enumerate();
            let parts = pairs.map(|(index, (one, other))| difference(&format!("{path}[{index}]"), one, other));
            parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
        }
        _ if expected == found => String::new(),
        _ => format!("{path}: {found} instead of {expected}"),
    }
}
