//! Validation of ConfigMaps and Secrets: keys, size, and the data that a secret's type requires.

use crate::kinds::rules::{At, config_key, immutable, need};
use crate::refusal::{Cause, Causes};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use holdfast_value::Value;

/// The maximum number of bytes of all values together.
const BYTES_MAX: usize = 1024 * 1024;

pub fn config_map(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = frozen(new, old);
    let root = At::root(new);
    let (data, binary) = (root.get("data"), root.get("binaryData"));
    keys(data, &mut causes);
    keys(binary, &mut causes);
    for (key, at) in data.entries() {
        if binary.value.get(key).is_some() {
            causes.push(at.invalid_as(key, "duplicate of key present in binaryData"));
        }
    }
    let bytes = data.entries().map(|(_, at)| at.text().len()).sum::<usize>() + decoded_bytes(binary);
    if bytes > BYTES_MAX {
        // Kubernetes reports a fault of the whole object at the path `[]`.
        causes.push(Cause::too_long("[]", BYTES_MAX));
    }
    causes
}

/// Reports changes of the data and of the field `immutable` of a ConfigMap or Secret, if that field was true.
fn frozen(new: &Value, old: Option<&Value>) -> Causes {
    const DETAIL: &str = "field is immutable when `immutable` is set";
    let Some(old) = old.filter(|old| old["immutable"] == true) else { return Causes::default() };
    let changed = ["immutable", "data", "binaryData"].into_iter().filter(|field| new.get(*field) != old.get(*field));
    changed.map(|field| Cause::forbidden(field, DETAIL)).collect()
}

pub fn secret(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = frozen(new, old);
    let root = At::root(new);
    if let Some(old) = old {
        immutable(root.get("type"), &old["type"], &mut causes);
    }
    let data = root.get("data");
    keys(data, &mut causes);
    if decoded_bytes(data) > BYTES_MAX {
        causes.push(Cause::too_long("data", BYTES_MAX));
    }
    match root.get("type").text() {
        "kubernetes.io/dockercfg" => docker_config(data.key(".dockercfg"), &mut causes),
        "kubernetes.io/dockerconfigjson" => docker_config(data.key(".dockerconfigjson"), &mut causes),
        "kubernetes.io/ssh-auth" => need(data.key("ssh-privatekey"), &mut causes),
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"].iter().filter(|key| data.value.get(**key).is_none()) {
                causes.push(data.key(key).required(""));
            }
        }
        "kubernetes.io/basic-auth" if data.value.get("username").is_none() && data.value.get("password").is_none() => {
            causes.extend(["username", "password"].map(|key| data.key(key).required("")));
        }
        "kubernetes.io/service-account-token" => {
            const ACCOUNT: &str = "kubernetes.io/service-account.name";
            let metadata = root.get("metadata");
            let annotations = metadata.get("annotations");
            let account = annotations.key(ACCOUNT);
            if account.is_empty() {
                causes.push(account.required(""));
            }
        }
        _ => {}
    }
    causes
}

/// Validates that the value is a JSON object or null, in base64. The contents of the object are not validated.
fn docker_config(at: At, causes: &mut Causes) {
    let Some(text) = at.value.as_str() else {
        causes.push(at.required(""));
        return;
    };
    let bytes = STANDARD.decode(text).unwrap_or_default();
    if let Err(problem) = go_json_object(&bytes) {
        causes.push(at.invalid_as("<secret contents redacted>", &problem));
    }
}

/// Checks that the bytes are one JSON object or null. The error is Go's message.
fn go_json_object(bytes: &[u8]) -> Result<(), String> {
    let found = match serde_json::from_slice(bytes) {
        Ok(Value::Object(_) | Value::Null) => return Ok(()),
        Ok(Value::Array(_)) => "array",
        Ok(Value::String(_)) => "string",
        Ok(Value::Number(_)) => "number",
        Ok(Value::Bool(_)) => "bool",
        Err(problem) if problem.is_eof() => return Err("unexpected end of JSON input".into()),
        Err(problem) => {
            let at = problem.column().saturating_sub(1) + line_start(bytes, problem.line());
            let found = bytes.get(at).map_or(' ', |byte| char::from(*byte));
            return Err(format!("invalid character '{found}' looking for beginning of value"));
        }
    };
    Err(format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"))
}

/// The offset at which a line starts; lines are counted from 1.
fn line_start(bytes: &[u8], line: usize) -> usize {
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    std::iter::once(0).chain(ends).nth(line.saturating_sub(1)).unwrap_or(0)
}

fn keys(map: At, causes: &mut Causes) {
    for (key, at) in map.entries() {
        let shown = Value::from(key);
        causes.extend(config_key(key).iter().map(|message| Cause::invalid(at.path(), &shown, message)));
    }
}

/// The number of decoded bytes in the base64 values.
fn decoded_bytes(map: At) -> usize {
    let bytes = |text: &str| {
        let padding = text.bytes().rev().take_while(|byte| *byte == b'=').count();
        (text.len() / 4 * 3).saturating_sub(padding)
    };
    map.entries().map(|(_, at)| bytes(at.text())).sum()
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::{check_rows, check_updates};
    use holdfast_value::json;

    #[test]
    fn each_rule_of_config() {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a.b": "c"}});
        check_rows(
            &map,
            &[
                ("/data/bad key", json!(""), "data[bad key]: Invalid value: \"bad key\": a valid config key must con"),
                ("/data/..", json!(""), "data[..]: Invalid value: \"..\": must not be '..'"),
                ("/binaryData", json!({"a.b": "AAAA"}), "data[a.b]: Invalid value: \"a.b\": duplicate of key present"),
                ("/binaryData", json!({"a c": "AAAA"}), "binaryData[a c]: Invalid value: \"a c\": a valid config key"),
                ("/data/a.b", json!("x".repeat(1 << 20)), ""),
                ("/data/a.b", json!("x".repeat((1 << 20) + 1)), "[]: Too long: may not be more than 1048576 bytes"),
            ],
        );
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": {"a": "AAAA"}});
        check_rows(
            &secret,
            &[
                ("/data/a b", json!("AAAA"), "data[a b]: Invalid value: \"a b\": a valid config key"),
                ("/data/a", json!("A".repeat(1_398_108)), "data: Too long: may not be more than 1048576 bytes"),
                ("/type", json!("kubernetes.io/tls"), "data[tls.crt]: Required value"),
                ("/type", json!("kubernetes.io/basic-auth"), "data[username]: Required value"),
                ("/type", json!("mine/own"), ""),
                ("/type", json!("kubernetes.io/dockerconfigjson"), "data[.dockerconfigjson]: Required value"),
                ("/type", json!("kubernetes.io/ssh-auth"), "data[ssh-privatekey]: Required value"),
                (
                    "/type",
                    json!("kubernetes.io/service-account-token"),
                    "metadata.annotations[kubernetes.io/service-account.name]: Required value",
                ),
            ],
        );
        let docker = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"},
            "type": "kubernetes.io/dockercfg", "data": {".dockercfg": "e30="}});
        check_rows(
            &docker,
            &[
                (
                    "/data/.dockercfg",
                    json!("eA=="),
                    "data[.dockercfg]: Invalid value: \"<secret contents redacted>\": invalid character 'x' looking",
                ),
                (
                    "/data/.dockercfg",
                    json!(""),
                    "data[.dockercfg]: Invalid value: \"<secret contents redacted>\": unexpected end of JSON input",
                ),
                (
                    "/data/.dockercfg",
                    json!("W10="),
                    "data[.dockercfg]: Invalid value: \"<secret contents redacted>\": json: cannot unmarshal array",
                ),
            ],
        );
        check_updates(
            &secret,
            &[("/type", json!("mine/own"), "type: Invalid value: \"mine/own\": field is immutable")],
        );
    }
}
