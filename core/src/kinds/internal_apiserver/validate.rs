//! Validation of StorageVersions.

use crate::kinds::rules::{At, distinct, named};
use crate::kinds::shapes::texts;
use crate::object::names;
use crate::refusal::{Cause, Causes};
use holdfast_value::Value;
use std::collections::BTreeMap;

const FAULTS_MAX: usize = 10;

pub fn storage_version(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    if old.is_some() {
        return causes;
    }
    let root = At::root(new);
    let metadata = root.get("metadata");
    let name = metadata.get("name");
    match name.text().rsplit_once('.') {
        None => causes.push(name.invalid("name must be in the form of <group>.<resource>")),
        Some((group, resource)) => {
            let group = names::subdomain(group).into_iter().map(|why| format!("the group segment {why}"));
            let resource = names::label_1035(resource).into_iter().map(|why| format!("the resource segment {why}"));
            causes.extend(group.chain(resource).map(|message| Cause::from(name.invalid(&message))));
        }
    }
    causes.append(status(new, None));
    causes
}

pub fn status(new: &Value, _: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let status = root.get("status");
    let servers = status.get("storageVersions");
    distinct(servers, "apiServerID", &mut causes);
    for server in servers.items() {
        of_server(server, &mut causes);
    }
    common(status, &mut causes);
    let mut seen = BTreeMap::new();
    // Kubernetes omits `conditions` from these paths.
    for (index, condition) in status.get("conditions").items().enumerate() {
        let path = format!("status[{index}]");
        let text = |field: &str| condition.value[field].as_str().unwrap_or("");
        for field in ["type", "status"] {
            let wrong = names::qualified_name(text(field));
            causes.extend(wrong.iter().map(|why| Cause::invalid(format!("{path}.{field}"), &text(field).into(), why)));
        }
        if let Some(first) = seen.insert(text("type"), index) {
            let why = format!("the type of the condition is not unique, it also appears in conditions[{first}]");
            causes.push(Cause::invalid(format!("{path}.type"), &text("type").into(), &why));
        }
        for field in ["reason", "message"] {
            if text(field).is_empty() {
                causes.push(Cause::required(format!("{path}.{field}"), &format!("{field} cannot be empty")));
            }
        }
    }
    causes
}

fn of_server(server: At, causes: &mut Causes) {
    named(server.get("apiServerID"), names::subdomain, causes);
    let (encoded, decodable) = (server.get("encodingVersion"), server.get("decodableVersions"));
    api_version(encoded, causes);
    for version in decodable.items() {
        api_version(version, causes);
    }
    let known = texts(decodable);
    if !known.contains(encoded.text()) {
        let why = format!("decodableVersions must include encodingVersion {}", encoded.text());
        causes.push(decodable.invalid(&why));
    }
    // Each fault shows the whole list, so only the first faults are reported.
    let mut faults_left = FAULTS_MAX;
    for version in server.get("servedVersions").items() {
        api_version(version, causes);
        if faults_left > 0 && !known.contains(version.text()) {
            faults_left -= 1;
            let all: Vec<&str> = decodable.items().map(|version| version.value.as_str().unwrap_or("")).collect();
            let why = format!(
                "individual served version : {} must be included in decodableVersions : [{}]",
                version.text(),
                all.join(" ")
            );
            causes.push(version.invalid(&why));
        }
    }
}

/// Validates the common version, which must be set if all servers have the same version, and only then.
fn common(status: At, causes: &mut Causes) {
    let said = status.get("commonEncodingVersion");
    let servers = status.get("storageVersions");
    let mut versions = servers.items().map(|server| server.get("encodingVersion").text().to_owned());
    let first = versions.next();
    let agreed = first.filter(|first| versions.all(|version| version == *first));
    match agreed {
        None if said.is_set() => causes.push(said.invalid(
            "should be nil if servers do not agree on the same encoding version, or if there is no server reporting \
             the supported versions yet",
        )),
        Some(version) if !said.is_set() => {
            causes.push(Cause::invalid(
                said.path(),
                &"null".into(),
                &format!("the common encoding version is {version}"),
            ));
        }
        Some(version) if version != said.text() => {
            causes.push(said.invalid(&format!("the actual common encoding version is {version}")));
        }
        _ => {}
    }
}

fn api_version(at: At, causes: &mut Causes) {
    const EMPTY: &str = "must be non-empty";
    let parts: Vec<&str> = at.text().split('/').collect();
    let part = |what: &str, text: &str, check: fn(&str) -> Vec<String>| -> Vec<String> {
        let wrong = if text.is_empty() { vec![EMPTY.to_owned()] } else { check(text) };
        wrong.into_iter().map(|why| format!("{what} part: {why}")).collect()
    };
    let wrong = match parts[..] {
        [version] => part("version", version, names::label_1035),
        [group, version] => {
            let mut wrong = part("group", group, names::subdomain);
            wrong.extend(part("version", version, names::label_1035));
            wrong
        }
        _ => {
            let rule = "a DNS-1035 label, which must consist of lower case alphanumeric characters or '-', start with an \
                        alphabetic character, and end with an alphanumeric character";
            let shape = names::pattern(rule, &["my-name", "abc-123"], "[a-z]([-a-z0-9]*[a-z0-9])?");
            let suffix = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyVersion')";
            vec![format!("an apiVersion is {shape} {suffix}")]
        }
    };
    if !wrong.is_empty() {
        causes.push(at.invalid(&wrong.join(",")));
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::{check_part, check_rows};
    use holdfast_value::{Value, json};

    #[test]
    fn each_rule() {
        let server = |id: &str, version: &str| {
            json!({
                "apiServerID": id, "encodingVersion": version, "decodableVersions": ["v1", "apps/v1"],
                "servedVersions": ["v1"],
            })
        };
        let good = json!({
            "apiVersion": "internal.apiserver.k8s.io/v1alpha1", "kind": "StorageVersion",
            "metadata": {"name": "apps.deployments"}, "spec": {},
            "status": {"storageVersions": [server("a", "v1"), server("b", "v1")], "commonEncodingVersion": "v1"},
        });
        let mut fresh = good.clone();
        fresh["status"] = json!({});
        check_rows(
            &fresh,
            &[
                (
                    "/metadata/name",
                    json!("pods"),
                    "metadata.name: Invalid value: \"pods\": name must be in the form of",
                ),
                (
                    "/metadata/name",
                    json!("core.Pods"),
                    "metadata.name: Invalid value: \"core.Pods\": the resource segme",
                ),
            ],
        );
        let first = "status.storageVersions[0]";
        check_part(
            &good,
            "status",
            &[
                (
                    "/status/storageVersions/1/apiServerID",
                    json!("a"),
                    "status.storageVersions[1].apiServerID: Duplicate",
                ),
                (
                    "/status/storageVersions/0/encodingVersion",
                    json!("v2"),
                    &format!("{first}.decodableVersions: Invalid"),
                ),
                (
                    "/status/storageVersions/0/encodingVersion",
                    json!("/"),
                    &format!("{first}.encodingVersion: Invalid va"),
                ),
                (
                    "/status/storageVersions/0/servedVersions",
                    json!(["v3"]),
                    &format!("{first}.servedVersions[0]: Invalid"),
                ),
                (
                    "/status/commonEncodingVersion",
                    Value::Null,
                    "status.commonEncodingVersion: Invalid value: \"null\": the",
                ),
                (
                    "/status/commonEncodingVersion",
                    json!("v2"),
                    "status.commonEncodingVersion: Invalid value: \"v2\": the",
                ),
                (
                    "/status/storageVersions/0",
                    server("a", "apps/v1"),
                    "status.commonEncodingVersion: Invalid value: \"v1\": should be nil if servers do not agree on the sam",
                ),
                (
                    "/status/conditions",
                    json!([{"type": "A", "status": "True"}]),
                    "status[0].reason: Required value: reas",
                ),
            ],
        );
    }
}
