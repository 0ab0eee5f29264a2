//! Tests of definitions with invalid rules.

use super::too_expensive;
use crate::kinds::rules::testing::{check_updates, faults};
use holdfast_value::{Value, json};

const SCHEMA: &str = "spec.validation.openAPIV3Schema";

/// A definition whose schema has one field, `x`, with the given schema.
fn with(x: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gizmos.example.test"},
        "spec": {
            "group": "example.test", "scope": "Namespaced", "names": {"plural": "gizmos", "kind": "Gizmo"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"x": x}}}}],
        },
    })
}

fn found(x: &Value) -> Vec<String> {
    let start = format!("{SCHEMA}.properties[x]");
    faults(&with(x.clone())).into_iter().map(|fault| fault.replace(&start, "").replace(SCHEMA, "")).collect()
}

fn text(rule: Value) -> Value {
    json!({"type": "string", "maxLength": 10, "x-kubernetes-validations": [rule]})
}

fn shown(rule: &str, message_expression: &str) -> String {
    format!(
        "{{\"Rule\":{},\"Message\":\"\",\"MessageExpression\":{},\"Reason\":null,\"FieldPath\":\"\",\
         \"OptionalOldSelf\":null}}",
        json!(rule),
        json!(message_expression)
    )
}

#[test]
fn bad_rules() {
    const AT: &str = ".x-kubernetes-validations[0]";
    let each = |list: Value, rule: &str| {
        let mut list = list;
        list["type"] = "array".into();
        list["maxItems"] = 10.into();
        list["items"] = text(json!({"rule": rule}));
        list
    };
    let cases: &[(Value, String)] = &[
        (
            text(json!({"rule": "self.y"})),
            format!("{AT}.rule: Invalid value: {}: compilation failed: ERROR: <input>:1:5: ", shown("self.y", "")),
        ),
        (
            text(json!({"rule": "1 + 1"})),
            format!("{AT}.rule: Invalid value: {}: cel expression must evaluate to a bool", shown("1 + 1", "")),
        ),
        (
            text(json!({"rule": "true", "messageExpression": "1"})),
            format!(
                "{AT}.messageExpression: Invalid value: {}: messageExpression must evaluate to a string",
                shown("true", "1")
            ),
        ),
        (
            text(json!({"rule": "true", "messageExpression": "self +"})),
            format!(
                "{AT}.messageExpression: Invalid value: {}: messageExpression compilation failed: ERROR: <input>:1:",
                shown("true", "self +")
            ),
        ),
        (
            text(json!({"rule": "true", "fieldPath": ".y"})),
            format!("{AT}.fieldPath: Invalid value: \".y\": must be a valid path"),
        ),
        (
            text(json!({"rule": "true", "optionalOldSelf": true})),
            format!("{AT}.optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule"),
        ),
        (
            each(json!({}), "self == oldSelf"),
            format!(
                ".items{AT}.rule: Invalid value: \"self == oldSelf\": oldSelf cannot be used on the uncorrelatable \
                 portion of the schema within {SCHEMA}.properties[x]"
            )
            .replace(&format!("{SCHEMA}.properties[x]"), ""),
        ),
        (each(json!({}), "self != ''"), String::new()),
        (
            json!({"type": "object", "allOf": [{"x-kubernetes-validations": [{"rule": "true"}]}]}),
            ".allOf[0].x-kubernetes-validations: Forbidden: must be empty to be structural".into(),
        ),
        (
            json!({"type": "string", "default": "a", "x-kubernetes-validations": [{"rule": "self != 'a'"}]}),
            ".default: Invalid value: \"a\": failed rule: self != 'a'".into(),
        ),
        (
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"metadata": {"type": "object", "properties": {
                    "name": {"type": "string", "default": "a/b"}}}}}),
            ".properties[metadata].properties[name].default: Invalid value: \"a/b\": must result in valid metadata: \
             metadata.name: Invalid value: \"a/b\": may not contain '/'"
                .into(),
        ),
    ];
    for (x, expected) in cases {
        let found = found(x);
        if expected.is_empty() {
            assert_eq!(found, [""; 0], "{x}");
        } else {
            assert_eq!(found.len(), 1, "{x}: {found:#?}");
            assert!(found[0].starts_with(expected.as_str()), "{x}:\n{}\n{expected}", found[0]);
        }
    }
}

#[test]
fn expensive_rules() {
    let list = |rules: Value| json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-validations": rules});
    let product = json!({"rule": "self.all(a, self.all(b, a == b))"});
    let advice = "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and \
                  strings are declared)";
    let one = format!("estimated rule cost exceeds budget by factor of more than 100x {advice}");
    let total = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by \
                 factor of more than 100x";
    assert_eq!(
        found(&list(json!([product]))),
        [
            format!(".x-kubernetes-validations[0].rule: Forbidden: {one}"),
            ".x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit \
             for entire OpenAPIv3 schema"
                .into(),
            format!(": Forbidden: {total} {advice}"),
        ]
    );
    let mut small = list(json!([product]));
    small["maxItems"] = 10.into();
    small["items"]["maxLength"] = 10.into();
    assert_eq!(found(&small), [""; 0]);
}

#[test]
fn factors() {
    for (cost, expected) in [(11_000_000, "1.100000x"), (15_000_000, "1.5x"), (1_000_000_001, "more than 100x")] {
        let found = too_expensive("cost", cost, 10_000_000);
        assert!(found.starts_with(&format!("cost exceeds budget by factor of {expected} (try")), "{found}");
    }
}

#[test]
fn an_unchanged_schema_may_stay_expensive() {
    let x = json!({"type": "array", "maxItems": 4000, "items": {"type": "integer"},
        "x-kubernetes-validations": [{"rule": "self.all(a, self.all(b, a == b))"}]});
    let mut old = with(x);
    old["status"] = json!({"storedVersions": ["v1"]});
    let x = "/spec/versions/0/schema/openAPIV3Schema/properties/x";
    let at = format!("{SCHEMA}.properties[x].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds");
    check_updates(
        &old,
        &[("/spec/names/shortNames", json!(["g"]), ""), (&format!("{x}/description"), json!("d"), &at)],
    );
}

/// Rules of widely used definitions, whose costs are just below Kubernetes' limits.
#[test]
fn rules_in_use() {
    let name = json!({"type": "string", "maxLength": 253, "minLength": 1});
    let rules = |rules: &[&str]| rules.iter().map(|rule| json!({"rule": rule})).collect::<Value>();
    let listeners = json!({"type": "array", "maxItems": 64, "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
    "items": {"type": "object", "required": ["name", "port", "protocol"], "properties": {
        "name": name, "hostname": name, "port": {"type": "integer"}, "protocol": {"type": "string", "maxLength": 255},
        "tls": {"type": "object", "properties": {"mode": {"type": "string", "enum": ["Terminate", "Passthrough"]}}}}},
    "x-kubernetes-validations": rules(&[
        "self.all(l, l.protocol in ['HTTP', 'TCP', 'UDP'] ? !has(l.tls) : true)",
        "self.all(l, (l.protocol == 'HTTPS' && has(l.tls)) ? (l.tls.mode == '' || l.tls.mode == 'Terminate') : true)",
        "self.all(l1, self.exists_one(l2, l1.name == l2.name))",
        "self.all(l1, self.exists_one(l2, l1.port == l2.port && l1.protocol == l2.protocol && (has(l1.hostname) && \
         has(l2.hostname) ? l1.hostname == l2.hostname : !has(l1.hostname) && !has(l2.hostname))))",
    ])});
    let filter = json!({"type": "object", "required": ["type"], "properties": {
        "type": {"type": "string", "enum": ["RequestRedirect", "URLRewrite"]}, "requestRedirect": {"type": "object"}}});
    let routes = json!({"type": "array", "maxItems": 16, "items": {"type": "object",
        "properties": {
            "matches": {"type": "array", "maxItems": 64, "items": {"type": "object", "properties": {
                "type": {"type": "string", "enum": ["Exact", "PathPrefix"]}, "value": {"type": "string", "maxLength": 1024}},
                "x-kubernetes-validations": rules(&[
                    "(self.type in ['Exact', 'PathPrefix']) ? !self.value.contains('//') : true",
                    r#"(self.type in ['Exact', 'PathPrefix']) ? self.value.matches(r"""^(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|[%][0-9a-fA-F]{2})+$""") : true"#,
                ])}},
            "filters": {"type": "array", "maxItems": 16, "items": filter, "x-kubernetes-validations": rules(&[
                "!(self.exists(f, f.type == 'RequestRedirect') && self.exists(f, f.type == 'URLRewrite'))",
                "self.filter(f, f.type == 'URLRewrite').size() <= 1",
            ])}},
        "x-kubernetes-validations": rules(&["!has(self.filters) || self.filters.all(f, !has(f.requestRedirect))"])}});
    let amount = json!({"x-kubernetes-int-or-string": true, "x-kubernetes-validations": rules(&[
        "isQuantity(string(self)) && quantity(string(self)).isGreaterThan(quantity('0'))",
        "quantity(string(self)) == quantity('1Gi') || sign(quantity(string(self))) > 0"])});
    let labels = json!({"type": "object", "maxProperties": 8, "additionalProperties": name, "x-kubernetes-validations": rules(&[
        r#"self.all(key, key.matches(r"""^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"""))"#,
        "self.all(key, key.split('/')[0].size() < 253)"])});
    let fixed = json!({"type": "object", "properties": {"a": name, "list": {"type": "array", "items": {"type": "string"}}},
        "x-kubernetes-validations": rules(&["self == oldSelf", "!has(oldSelf.list) || self.list == oldSelf.list"])});
    for x in [listeners, routes, amount, labels, fixed] {
        assert_eq!(found(&x), [""; 0], "{x}");
    }
}
