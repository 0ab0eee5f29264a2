//! Tests the questions to authorization webhooks.

use super::*;
use crate::authz::{Requirement, ResourceTarget};

#[test]
fn questions_have_the_form_of_reviews() {
    let mut jane = User::new("jane", &["dev"]);
    jane.uid = "u".into();
    jane.extra.insert("k".into(), vec!["v".into()]);
    let who = json!({"user": "jane", "uid": "u", "groups": ["dev"], "extra": {"k": ["v"]}});
    let check = |attributes: &Attributes<'_>, asked: Value| {
        let mut expected = who.clone();
        let (field, asked) = asked.as_object().and_then(|asked| asked.iter().next()).expect("a field");
        expected[field] = asked.clone();
        assert_eq!(spec(&jane, attributes), expected);
    };
    check(&Attributes::path("get", "/x"), json!({"nonResourceAttributes": {"path": "/x", "verb": "get"}}));
    let selected = Selected::parse("spec.nodeName=n,metadata.name!=x", "a=b,c,!d,e notin (f,g),h>1");
    let target = ResourceTarget {
        group: "g",
        version: "v1",
        resource: "pods",
        subresource: "status",
        namespace: "n",
        name: "web",
        selected: Some(&selected),
    };
    let fields = json!([
        {"key": "metadata.name", "operator": "NotIn", "values": ["x"]},
        {"key": "spec.nodeName", "operator": "In", "values": ["n"]},
    ]);
    let labels = json!([
        {"key": "a", "operator": "In", "values": ["b"]},
        {"key": "c", "operator": "Exists"},
        {"key": "d", "operator": "DoesNotExist"},
        {"key": "e", "operator": "NotIn", "values": ["f", "g"]},
    ]);
    check(
        &Attributes::resource("list", target),
        json!({"resourceAttributes": {
            "verb": "list", "group": "g", "version": "v1", "resource": "pods", "subresource": "status",
            "namespace": "n", "name": "web",
            "fieldSelector": {"requirements": fields}, "labelSelector": {"requirements": labels},
        }}),
    );
    assert_eq!(Selected::parse("a", ",,="), Selected::default(), "what cannot be read says nothing");
    let few = Requirement { key: "a".into(), operator: "In", values: vec!["b".into(), "c".into()] };
    let selected = Selected { fields: vec![few], labels: Vec::new() };
    assert!(!selected.pins("a", "b"), "one of two is not pinned");
}

#[test]
fn long_questions_are_asked_each_time() {
    let webhook = Webhook { name: "w".into(), conditions: Vec::new(), on_failure: OnFailure::Deny };
    let jane = User::new("jane", &[]);
    let may_be_kept = |path: &str| match webhook.concern(&jane, &Attributes::path("get", path)) {
        Concern::Asked(question) => question.may_be_kept,
        _ => panic!("it is asked"),
    };
    assert!(may_be_kept("/x") && !may_be_kept(&"/x".repeat(5_000)));
}

#[test]
fn conditions_are_checked_when_they_are_read() {
    for (text, expected) in [
        ("request.user == 'a'", None),
        (
            "has(request.resourceAttributes) && request.resourceAttributes.fieldSelector.requirements.exists(r, r.key == 'a')",
            None,
        ),
        ("request.user", Some("must evaluate to bool")),
        ("request.nobody == 'a'", Some("compilation failed: ")),
        ("request.user ==", Some("compilation failed: ")),
        ("object.a", Some("compilation failed: ")),
    ] {
        match (Condition::new(text), expected) {
            (Ok(_), None) => {}
            (Err(why), Some(expected)) => assert!(why.starts_with(expected), "{text}: {why}"),
            (outcome, _) => panic!("{text}: {outcome:?}"),
        }
    }
}
