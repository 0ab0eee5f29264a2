//! ConfigMaps and Secrets: keys, size, and what the types of secrets promise.

use crate::kinds::rules::{At, config_key, immutable};
use crate::refusal::Cause;
use serde_json::Value;

/// Bytes that the values may take together.
const BYTES_MAX: usize = 1024 * 1024;

pub fn config_map(new: &Value, _: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let root = At::root(new);
    let (data, binary) = (root.get("data"), root.get("binaryData"));
    keys(data, &mut causes);
    keys(binary, &mut causes);
    for (key, at) in binary.entries() {
        if data.value.get(key).is_some() {
            causes.push(Cause::invalid(at.path(), &Value::from(key), "duplicate of key present in data"));
        }
    }
    let bytes = data.entries().map(|(_, at)| at.text().len()).sum::<usize>() + decoded_bytes(binary);
    if bytes > BYTES_MAX {
        causes.push(Cause::too_long("", BYTES_MAX));
    }
    causes
}

pub fn secret(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let root = At::root(new);
    if let Some(old) = old {
        immutable(root.get("type"), &old["type"], &mut causes);
    }
    let data = root.get("data");
    keys(data, &mut causes);
    if decoded_bytes(data) > BYTES_MAX {
        causes.push(Cause::too_long("data", BYTES_MAX));
    }
    let mut need = |key: &str| {
        if data.value.get(key).is_none() {
            causes.push(data.key(key).required(""));
        }
    };
    match root.get("type").text() {
        "kubernetes.io/dockercfg" => need(".dockercfg"),
        "kubernetes.io/dockerconfigjson" => need(".dockerconfigjson"),
        "kubernetes.io/ssh-auth" => need("ssh-privatekey"),
        "kubernetes.io/tls" => {
            need("tls.crt");
            need("tls.key");
        }
        "kubernetes.io/basic-auth" if data.value.get("username").is_none() && data.value.get("password").is_none() => {
            need("username");
            need("password");
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

fn keys(map: At, causes: &mut Vec<Cause>) {
    for (key, at) in map.entries() {
        let shown = Value::from(key);
        causes.extend(config_key(key).iter().map(|message| Cause::invalid(at.path(), &shown, message)));
    }
}

/// How many bytes the values hold, which are base64 here.
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
    use serde_json::json;

    #[test]
    fn each_rule_of_config() {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a.b": "c"}});
        check_rows(
            &map,
            &[
                ("/data/bad key", json!(""), "data[bad key]: Invalid value: \"bad key\": a valid config key must con"),
                ("/data/..", json!(""), "data[..]: Invalid value: \"..\": must not be '..'"),
                ("/binaryData", json!({"a.b": "AAAA"}), "binaryData[a.b]: Invalid value: \"a.b\": duplicate of key"),
                ("/data/a.b", json!("x".repeat(1 << 20)), ""),
                ("/data/a.b", json!("x".repeat((1 << 20) + 1)), ": Too long: may not be more than 1048576 bytes"),
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
            ],
        );
        check_updates(
            &secret,
            &[("/type", json!("mine/own"), "type: Invalid value: \"mine/own\": field is immutable")],
        );
    }
}
