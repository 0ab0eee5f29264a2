//! Defaults of custom resource definitions.

use crate::schema::defaults::{Rule, is_empty, object, object_or_new, set_absent, set_empty, text};
use holdfast_value::{Map, Value, json};

const PACKAGE: &str = "apiextensions-apiserver.pkg.apis.apiextensions";
const VERSIONS: &[&str] = &["v1", "v1beta1"];

pub fn rules() -> Vec<Rule> {
    vec![
        Rule::in_versions(PACKAGE, &["v1beta1"], "CustomResourceDefinitionSpec")
            .set("scope", "Namespaced")
            .set("preserveUnknownFields", true)
            .run(single_version),
        Rule::in_versions(PACKAGE, VERSIONS, "CustomResourceDefinition").run(definition),
        Rule::in_versions(PACKAGE, VERSIONS, "CustomResourceConversion").set("strategy", "None"),
        Rule::in_versions(PACKAGE, &["v1beta1"], "CustomResourceConversion").run(review_versions),
        Rule::in_versions(PACKAGE, VERSIONS, "ServiceReference").set("port", 443),
    ]
}

fn definition(definition: &mut Map) {
    let Some(spec) = object(definition, "spec") else { return };
    set_absent(spec, "conversion", json!({"strategy": "None"}));
    if let Some(names) = object(spec, "names") {
        let kind = text(names, "kind").to_owned();
        if !kind.is_empty() {
            set_empty(names, "singular", kind.to_lowercase());
            set_empty(names, "listKind", format!("{kind}List"));
        }
    }
    stored_versions(definition);
}

/// Sets an absent or empty `status.storedVersions` to the storage version.
fn stored_versions(definition: &mut Map) {
    let versions = definition.get("spec").and_then(|spec| spec.get("versions")).and_then(Value::as_array);
    let stored = |version: &&Value| version.get("storage") == Some(&Value::Bool(true));
    // A `v1beta1` definition may have its only version in `spec.version`; `single_version` runs later than this
    // function, so this function checks `spec.version` too.
    let name = match versions.filter(|versions| !versions.is_empty()) {
        Some(versions) => versions.iter().find(stored).and_then(|version| version.get("name")).cloned(),
        None => definition.get("spec").and_then(|spec| spec.get("version")).cloned(),
    };
    if let Some(name) = name.filter(|name| !is_empty(name))
        && let Some(status) = object_or_new(definition, "status")
    {
        set_empty(status, "storedVersions", vec![name]);
    }
}

/// Makes `version` equal to the name of the first item of `versions`: if one of the two is unset, it gets the value of
/// the other.
fn single_version(spec: &mut Map) {
    let version = text(spec, "version").to_owned();
    if !version.is_empty() {
        set_empty(spec, "versions", json!([{"name": version, "served": true, "storage": true}]));
    } else if let Some(first) = spec.get("versions").and_then(|versions| versions.get(0)?.get("name")).cloned()
        && !is_empty(&first)
    {
        spec.insert("version".to_owned(), first);
    }
}

fn review_versions(conversion: &mut Map) {
    if text(conversion, "strategy") == "Webhook" {
        set_empty(conversion, "conversionReviewVersions", json!(["v1beta1"]));
    }
}

#[cfg(test)]
mod tests {
    use crate::schema::defaults::testing::check;
    use expect_test::expect;
    use holdfast_value::json;

    #[test]
    fn a_definition() {
        check(
            "apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
            json!({
                "spec": {
                    "group": "example.com", "names": {"kind": "CronTab", "plural": "crontabs"},
                    "scope": "Cluster",
                    "versions": [
                        {"name": "v1", "served": true, "storage": false},
                        {"name": "v2", "served": true, "storage": true},
                    ],
                },
            }),
            expect![[r#"
                spec.conversion.strategy = "None"
                spec.names.listKind = "CronTabList"
                spec.names.singular = "crontab"
                status.acceptedNames.kind = ""
                status.acceptedNames.plural = ""
                status.conditions = null
                status.storedVersions = ["v2"]"#]],
        );
    }

    #[test]
    fn a_definition_with_a_webhook() {
        check(
            "apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionSpec",
            json!({
                "names": {},
                "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"service": {"name": "s"}}}},
            }),
            expect![[r#"
                conversion.webhook.clientConfig.service.namespace = ""
                conversion.webhook.clientConfig.service.port = 443
                conversion.webhook.conversionReviewVersions = null
                group = ""
                names.kind = ""
                names.plural = ""
                scope = ""
                versions = null"#]],
        );
    }

    #[test]
    fn an_old_definition() {
        check(
            "apiextensions-apiserver.pkg.apis.apiextensions.v1beta1.CustomResourceDefinition",
            json!({"spec": {"names": {"kind": "K"}, "version": "v1"}}),
            expect![[r#"
                spec.conversion.strategy = "None"
                spec.group = ""
                spec.names.listKind = "KList"
                spec.names.plural = ""
                spec.names.singular = "k"
                spec.preserveUnknownFields = true
                spec.scope = "Namespaced"
                spec.versions = [{"name":"v1","served":true,"storage":true}]
                status.acceptedNames.kind = ""
                status.acceptedNames.plural = ""
                status.conditions = null
                status.storedVersions = ["v1"]"#]],
        );
    }

    #[test]
    fn an_old_definition_with_versions() {
        check(
            "apiextensions-apiserver.pkg.apis.apiextensions.v1beta1.CustomResourceDefinition",
            json!({
                "spec": {
                    "names": {}, "preserveUnknownFields": false, "conversion": {"strategy": "Webhook"},
                    "versions": [{"name": "v1", "storage": true}],
                },
            }),
            expect![[r#"
                spec.conversion.conversionReviewVersions = ["v1beta1"]
                spec.group = ""
                spec.names.kind = ""
                spec.names.plural = ""
                spec.scope = "Namespaced"
                spec.version = "v1"
                spec.versions[0].served = false
                status.acceptedNames.kind = ""
                status.acceptedNames.plural = ""
                status.conditions = null
                status.storedVersions = ["v1"]"#]],
        );
    }
}
