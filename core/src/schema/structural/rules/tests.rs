//! Tests of the messages of violated rules.

use super::super::Structural;
use crate::refusal::{Cause, CauseReason, Causes};
use holdfast_value::{Value, json};

fn found(schema: &Value, value: &Value, old: Option<&Value>) -> Causes {
    Structural::parse(schema).expect("a good schema").validate(value, old)
}

fn causes(schema: &Value, value: &Value, old: Option<&Value>) -> String {
    found(schema, value, old).iter().map(Cause::to_string).collect::<Vec<_>>().join("\n")
}

/// A schema whose `spec` has one field, `x`, with the given schema.
fn with(x: Value) -> Value {
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"x": x}}}})
}

fn spec(x: Value) -> Value {
    json!({"spec": {"x": x}})
}

fn rule(rule: &str) -> Value {
    json!([{"rule": rule}])
}

#[test]
fn places_and_messages() {
    let text = |rules: Value| json!({"type": "string", "x-kubernetes-validations": rules});
    let pair = |rules: Value| {
        json!({"type": "object", "x-kubernetes-validations": rules, "properties": {
            "min": {"type": "integer"}, "max": {"type": "integer"},
            "names": {"type": "object", "additionalProperties": {"type": "string"}}}})
    };
    let cases: &[(Value, Value, &str)] = &[
        (text(rule("self != 'bad'")), json!("good"), ""),
        (text(rule("self != 'bad'")), json!("bad"), r#"spec.x: Invalid value: "bad": failed rule: self != 'bad'"#),
        (
            text(json!([{"rule": "self != 'bad'", "message": " must be good "}])),
            json!("bad"),
            r#"spec.x: Invalid value: "bad": must be good"#,
        ),
        (
            text(json!([{"rule": "self != 'bad'", "message": "m", "messageExpression": "'not ' + self"}])),
            json!("bad"),
            r#"spec.x: Invalid value: "bad": not bad"#,
        ),
        (
            text(json!([{"rule": "self != 'bad'", "message": "m", "messageExpression": "self.substring(9)"}])),
            json!("bad"),
            r#"spec.x: Invalid value: "bad": m"#,
        ),
        (
            text(json!([{"rule": "self != 'bad'", "message": "m", "messageExpression": "' '"}])),
            json!("bad"),
            r#"spec.x: Invalid value: "bad": m"#,
        ),
        (
            text(json!([{"rule": "self != 'bad'", "message": "m", "messageExpression": "oldSelf"}])),
            json!("bad"),
            r#"spec.x: Invalid value: "bad": m"#,
        ),
        (
            text(json!([{"rule": "self != 'bad'", "reason": "FieldValueForbidden", "message": "m"}])),
            json!("bad"),
            "spec.x: Forbidden: m",
        ),
        (
            text(json!([{"rule": "self != 'bad'", "reason": "FieldValueRequired", "message": "m"}])),
            json!("bad"),
            "spec.x: Required value: m",
        ),
        (
            text(json!([{"rule": "self != 'bad'", "reason": "FieldValueDuplicate", "message": "m"}])),
            json!("bad"),
            r#"spec.x: Duplicate value: "bad""#,
        ),
        (
            pair(rule("self.min <= self.max")),
            json!({"min": 2, "max": 1}),
            "spec.x: Invalid value: failed rule: self.min <= self.max",
        ),
        (
            pair(json!([{"rule": "self.min <= self.max", "message": "m", "fieldPath": ".min"}])),
            json!({"min": 2, "max": 1}),
            "spec.x.min: Invalid value: m",
        ),
        (
            pair(json!([{"rule": "!('a' in self.names)", "message": "m", "fieldPath": ".names['a b']"}])),
            json!({"names": {"a": "b"}}),
            "spec.x.names[a b]: Invalid value: m",
        ),
        (
            pair(rule("self.min <= self.max")),
            json!({"min": 2}),
            r#"spec.x: Invalid value: "object": no such key: max evaluating rule: self.min <= self.max"#,
        ),
        (pair(rule("!has(self.max) || self.min <= self.max")), json!({"min": 2}), ""),
        (
            json!({"type": "array", "items": text(rule("self != 'bad'"))}),
            json!(["good", "bad"]),
            r#"spec.x[1]: Invalid value: "bad": failed rule: self != 'bad'"#,
        ),
        (
            json!({"type": "object", "additionalProperties": text(rule("self != 'bad'"))}),
            json!({"a": "bad"}),
            r#"spec.x[a]: Invalid value: "bad": failed rule: self != 'bad'"#,
        ),
        (
            json!({"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": rule("self.sum() < 5 && self.isSorted()")}),
            json!([1, 2, 3]),
            "spec.x: Invalid value: failed rule: self.sum() < 5 && self.isSorted()",
        ),
        (
            json!({"x-kubernetes-int-or-string": true, "x-kubernetes-validations":
            rule("type(self) == int ? self < 5 : self.endsWith('%')")}),
            json!("5"),
            r#"spec.x: Invalid value: "5": failed rule: type(self) == int ? self < 5 : self.endsWith('%')"#,
        ),
        (json!({"type": "string", "nullable": true, "x-kubernetes-validations": rule("false")}), json!(null), ""),
        (
            json!({"type": "object", "properties": {"namespace": {"type": "string"}, "a-b": {"type": "string"}},
            "x-kubernetes-validations": rule("self.__namespace__ == self.a__dash__b")}),
            json!({"namespace": "n", "a-b": "n"}),
            "",
        ),
        (
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
            "x-kubernetes-validations": rule("self.kind == 'Pod' && self.metadata.name == 'n'")}),
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "n"}}),
            "",
        ),
    ];
    for (schema, value, expected) in cases {
        assert_eq!(causes(&with(schema.clone()), &spec(value.clone()), None), *expected, "{schema} {value}");
    }
}

#[test]
fn the_root() {
    let schema = json!({"type": "object", "x-kubernetes-validations": [
        {"rule": "self.metadata.name.startsWith('a')"}, {"rule": "self.n > 1", "fieldPath": ".n"}],
        "properties": {"n": {"type": "integer"}}});
    let expected = "<nil>: Invalid value: failed rule: self.metadata.name.startsWith('a')\n\
                    n: Invalid value: failed rule: self.n > 1";
    assert_eq!(causes(&schema, &json!({"metadata": {"name": "b"}, "n": 1}), None), expected);
    assert_eq!(causes(&schema, &json!({"metadata": {"name": "a"}, "n": 2}), None), "");
}

#[test]
fn rules_about_changes() {
    let fixed = json!({"type": "string", "x-kubernetes-validations": rule("self == oldSelf")});
    let once = json!({"type": "string", "x-kubernetes-validations":
        [{"rule": "oldSelf.hasValue() || self == 'first'", "optionalOldSelf": true, "message": "m"}]});
    let keyed = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
        "items": {"type": "object", "properties": {"n": {"type": "string"}, "v": fixed}}});
    let map = json!({"type": "object", "additionalProperties": fixed});
    let cases: &[(&Value, Value, Option<Value>, &str)] = &[
        (&fixed, json!("a"), None, ""),
        (&fixed, json!("a"), Some(json!("a")), ""),
        (&fixed, json!("a"), Some(json!("b")), r#"spec.x: Invalid value: "a": failed rule: self == oldSelf"#),
        (&once, json!("other"), None, r#"spec.x: Invalid value: "other": m"#),
        (&once, json!("first"), None, ""),
        (&once, json!("other"), Some(json!("first")), ""),
        (
            &keyed,
            json!([{"n": "b", "v": "2"}, {"n": "c", "v": "3"}]),
            Some(json!([{"n": "a", "v": "1"}, {"n": "b", "v": "2"}])),
            "",
        ),
        (
            &keyed,
            json!([{"n": "b", "v": "3"}]),
            Some(json!([{"n": "a", "v": "1"}, {"n": "b", "v": "2"}])),
            r#"spec.x[0].v: Invalid value: "3": failed rule: self == oldSelf"#,
        ),
        (
            &map,
            json!({"a": "1", "b": "2"}),
            Some(json!({"a": "2"})),
            r#"spec.x[a]: Invalid value: "1": failed rule: self == oldSelf"#,
        ),
    ];
    for (schema, new, old, expected) in cases {
        let old = old.clone().map(spec);
        assert_eq!(causes(&with((*schema).clone()), &spec(new.clone()), old.as_ref()), *expected, "{schema} {new}");
    }
}

#[test]
fn what_was_wrong_before() {
    let good = json!({"type": "string", "x-kubernetes-validations": rule("self == 'good'")});
    let wrong = |at: &str, value: &str| format!("{at}: Invalid value: {value:?}: failed rule: self == 'good'");
    let object = json!({"type": "object", "properties": {"a": good, "b": {"type": "string"}}});
    let in_order = json!({"type": "array", "items": good});
    let atomic = json!({"type": "array", "x-kubernetes-list-type": "atomic", "items": good});
    let cases: &[(&Value, Value, Value, String)] = &[
        (&object, json!({"a": "x", "b": "1"}), json!({"a": "x", "b": "2"}), String::new()),
        (&object, json!({"a": "x"}), json!({"a": "y"}), wrong("spec.x.a", "y")),
        (&object, json!({"b": "1"}), json!({"a": "y", "b": "1"}), wrong("spec.x.a", "y")),
        (&in_order, json!(["x"]), json!(["x", "good"]), wrong("spec.x[0]", "x")),
        (&in_order, json!(["x"]), json!(["x"]), String::new()),
        (&in_order, json!(["good", "x"]), json!(["x"]), wrong("spec.x[0]", "x")),
        (&atomic, json!(["x"]), json!(["x", "good"]), wrong("spec.x[0]", "x")),
        (&atomic, json!(["x"]), json!(["x"]), String::new()),
    ];
    for (schema, old, new, expected) in cases {
        let found = causes(&with((*schema).clone()), &spec(new.clone()), Some(&spec(old.clone())));
        assert_eq!(found, *expected, "{schema} {new}");
    }
    let broken_change = json!({"type": "string", "x-kubernetes-validations": rule("self != oldSelf")});
    let found = causes(&with(broken_change), &spec(json!("a")), Some(&spec(json!("a"))));
    assert_eq!(found, r#"spec.x: Invalid value: "a": failed rule: self != oldSelf"#);
}

#[test]
fn rules_wait_until_the_shape_is_right() {
    let schema = with(
        json!({"type": "string", "maxLength": 3, "pattern": "^b", "x-kubernetes-validations": rule("self == 'good'")}),
    );
    let unchecked = "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; \
                     correct the existing errors to complete validation";
    let expected = format!("spec.x: Too long: may not be more than 3 bytes\n{unchecked}");
    assert_eq!(causes(&schema, &spec(json!("blong")), None), expected);
    let reasons: Vec<_> = found(&schema, &spec(json!("a")), None).iter().map(|cause| cause.reason).collect();
    assert_eq!(reasons, [CauseReason::Invalid; 2], "a pattern hides no rules");
}

#[test]
fn costs_end() {
    let all = "self.all(a, self.all(b, self.all(c, a != b || b != c || a == c)))";
    let numbers =
        |rules: Value| json!({"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": rules});
    let many: Vec<u32> = (0..200).collect();
    let found = causes(&with(numbers(rule(all))), &spec(json!(many)), None);
    let expected = format!(
        "spec.x: Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': no further validation \
         rules will be run due to call cost exceeds limit for rule: {all}"
    );
    assert_eq!(found, expected);
    // Each rule stays within the limit for one evaluation, but all rules together exceed the limit for the object.
    let pairs: Vec<Value> = (0..100).map(|_| json!({"rule": "self.all(a, self.all(b, a < 500 && b < 500))"})).collect();
    let found = causes(&with(numbers(json!(pairs))), &spec(json!(many)), None);
    let end = "validation failed due to running out of cost budget, no further validation rules will be run";
    assert_eq!(found, format!("spec.x: Invalid value: \"array\": {end}"));
}

#[test]
fn schemas_are_shared_between_threads() {
    fn is_shared<T: Send + Sync + Clone>() {}
    is_shared::<Structural>();
}

#[test]
fn only_schemas_with_rules_are_walked() {
    let schema = Structural::parse(&with(json!({"type": "string"}))).expect("a good schema");
    assert!(!schema.has_rules());
    let schema = Structural::parse(&with(json!({"type": "array", "items":
        {"type": "string", "x-kubernetes-validations": rule("true")}})));
    assert!(schema.expect("a good schema").has_rules());
}
