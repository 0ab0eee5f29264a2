//! Tables of access reviews, each with its expected answer.

use super::*;
use crate::authz::chain::{Chain, Way};
use crate::authz::role::RoleKind;
use crate::authz::{Consulted, Mode, RbacIndex};
use crate::kinds::registry;
use crate::refusal::BadRequest;
use std::sync::Arc;

fn index() -> RbacIndex {
    let mut index = RbacIndex::default();
    let rules = json!([
        {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["web"]},
        {"verbs": ["get"], "nonResourceURLs": ["/metrics"]}
    ]);
    index.put(RoleKind::ClusterRole, "", "reader", &json!({"rules": rules}));
    let binding = |subject: Value| json!({"roleRef": {"kind": "ClusterRole", "name": "reader"}, "subjects": [subject]});
    index.put(RoleKind::ClusterRoleBinding, "", "jane", &binding(json!({"kind": "User", "name": "jane"})));
    index.put(RoleKind::ClusterRoleBinding, "", "dev", &binding(json!({"kind": "Group", "name": "dev"})));
    index
}

fn ask(modes: &[Mode], kind: &str, body: Value) -> Result<Value, Refusal> {
    let index = index();
    let ways = modes.iter().map(|mode| match mode {
        Mode::Rbac => Way::Rbac,
        Mode::Node => Way::Node,
        Mode::AlwaysAllow => Way::AlwaysAllow,
        _ => Way::AlwaysDeny,
    });
    let (chain, consulted) = (Arc::new(Chain::new(ways.collect())), Consulted::default());
    let authorizer = Authorizer { chain: &chain, rbac: &index, nodes: None, consulted: &consulted };
    let kind = registry().iter().map(|(_, known)| known).find(|known| known.kind == kind).expect("a kind");
    review(kind, &body, &User::new("jane", &["system:authenticated"]), &authorizer)
}

#[test]
fn selectors_that_cannot_be_read_are_told_of() {
    let fields = |selector: Value| json!({"fieldSelector": selector});
    let labels = |selector: Value| json!({"labelSelector": selector});
    let requirement =
        |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
    let (whole, part) = ("ignored due to parse error", "partially ignored due to parse error");
    for (selector, name, told) in [
        (fields(json!({"rawSelector": "a=b"})), "fieldSelector", None),
        (fields(json!({"rawSelector": "a"})), "fieldSelector", Some(whole)),
        (labels(json!({"rawSelector": "a in (b"})), "labelSelector", Some(whole)),
        (labels(json!({"rawSelector": "a>1"})), "labelSelector", None),
        (fields(json!({"requirements": [requirement("a", "In", &["b"])]})), "fieldSelector", None),
        (fields(json!({"requirements": [requirement("a", "In", &["b", "c"])]})), "fieldSelector", Some(whole)),
        (fields(json!({"requirements": [requirement("a", "Exists", &[])]})), "fieldSelector", Some(whole)),
        (labels(json!({"requirements": [requirement("a", "Exists", &[])]})), "labelSelector", None),
        (labels(json!({"requirements": [requirement("a", "Like", &["b"])]})), "labelSelector", Some(whole)),
        (
            labels(json!({"requirements": [requirement("a", "In", &["b"]), requirement("a", "In", &["-"])]})),
            "labelSelector",
            Some(part),
        ),
    ] {
        let mut resource = json!({"verb": "list", "resource": "pods"});
        resource[name] = selector[name].clone();
        let answer = ask(&[Mode::Rbac], "SelfSubjectAccessReview", json!({"spec": {"resourceAttributes": resource}}));
        let status = &answer.expect("an answer")["status"];
        let expected = told.map(|told| format!("spec.resourceAttributes.{name} {told}"));
        assert_eq!(status["evaluationError"].as_str(), expected.as_deref(), "{selector}");
    }
    let both = json!({"verb": "list", "fieldSelector": {"rawSelector": "a"}, "labelSelector": {"rawSelector": "!"}});
    let answer = ask(&[Mode::Rbac], "SelfSubjectAccessReview", json!({"spec": {"resourceAttributes": both}}));
    let expected =
        format!("[spec.resourceAttributes.fieldSelector {whole}, spec.resourceAttributes.labelSelector {whole}]");
    assert_eq!(answer.expect("an answer")["status"]["evaluationError"], expected.as_str());
}

#[test]
fn access_reviews() {
    let pod = json!({"verb": "get", "resource": "pods", "name": "web", "namespace": "n"});
    let other = json!({"verb": "get", "resource": "pods", "name": "db", "namespace": "n"});
    let path = json!({"verb": "get", "path": "/metrics"});
    let jane = r#"RBAC: allowed by ClusterRoleBinding "jane" of ClusterRole "reader" to User "jane""#;
    let dev = r#"RBAC: allowed by ClusterRoleBinding "dev" of ClusterRole "reader" to Group "dev""#;
    let rows = [
        ("SelfSubjectAccessReview", json!({"resourceAttributes": pod}), json!({"allowed": true, "reason": jane})),
        ("SelfSubjectAccessReview", json!({"resourceAttributes": other}), json!({"allowed": false})),
        ("SelfSubjectAccessReview", json!({"nonResourceAttributes": path}), json!({"allowed": true, "reason": jane})),
        (
            "SubjectAccessReview",
            json!({"user": "joe", "groups": ["dev"], "resourceAttributes": pod}),
            json!({"allowed": true, "reason": dev}),
        ),
        ("SubjectAccessReview", json!({"user": "joe", "resourceAttributes": pod}), json!({"allowed": false})),
        (
            "SubjectAccessReview",
            json!({"groups": ["system:masters"], "nonResourceAttributes": path}),
            json!({"allowed": true}),
        ),
    ];
    for (kind, spec, status) in rows {
        let body = json!({"kind": kind, "spec": spec});
        let answer = ask(&[Mode::Rbac], kind, body).expect("a valid review");
        assert_eq!(answer, json!({"kind": kind, "spec": spec, "status": status}));
    }
    let local = json!({"metadata": {"namespace": "n"}, "spec": {"user": "jane", "resourceAttributes": pod}});
    let answer = ask(&[Mode::Rbac], "LocalSubjectAccessReview", local).expect("a valid review");
    assert_eq!(answer["status"]["allowed"], true);
    let denied = ask(&[Mode::AlwaysDeny], "SelfSubjectAccessReview", json!({"spec": {"resourceAttributes": pod}}));
    assert_eq!(denied.expect("valid")["status"], json!({"allowed": false, "reason": "Everything is forbidden."}));
}

#[test]
fn mistakes_are_named() {
    let pod = json!({"verb": "get", "resource": "pods", "namespace": "n"});
    let path = json!({"verb": "get", "path": "/x"});
    let rows = [
        (
            "SelfSubjectAccessReview",
            json!({"spec": {}}),
            vec![
                "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified",
            ],
        ),
        (
            "SelfSubjectAccessReview",
            json!({"spec": {"resourceAttributes": pod, "nonResourceAttributes": {}}}),
            vec![
                "spec.nonResourceAttributes: Invalid value: {\"Path\":\"\",\"Verb\":\"\"}: cannot be specified in combination with resourceAttributes",
            ],
        ),
        (
            "SubjectAccessReview",
            json!({"spec": {"resourceAttributes": pod}}),
            vec!["spec.user: Invalid value: \"\": at least one of user or group must be specified"],
        ),
        (
            "SubjectAccessReview",
            json!({"metadata": {"name": "x"}, "spec": {"user": "u", "resourceAttributes": pod}}),
            vec!["metadata: Invalid value: {\"name\":\"x\"}: must be empty"],
        ),
        (
            "SubjectAccessReview",
            json!({"spec": {"user": "u", "resourceAttributes": {"verb": "list", "fieldSelector": {}}}}),
            vec![
                "spec.resourceAttributes.fieldSelector.requirements: Required value: when spec.resourceAttributes.fieldSelector is specified, requirements or rawSelector is required",
            ],
        ),
        (
            "SubjectAccessReview",
            json!({"spec": {"user": "u", "resourceAttributes": {"verb": "list", "fieldSelector": {"rawSelector": "a=b",
                "requirements": [{"key": "", "operator": "Foo"}, {"key": "a", "operator": "In"}]}}}}),
            vec![
                "spec.resourceAttributes.fieldSelector.rawSelector: Invalid value: \"a=b\": may not specified at the same time as requirements",
                "spec.resourceAttributes.fieldSelector.requirements[0].key: Required value: must be specified",
                "spec.resourceAttributes.fieldSelector.requirements[1].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            ],
        ),
        (
            "SubjectAccessReview",
            json!({"spec": {"user": "u", "resourceAttributes": {"verb": "list", "labelSelector": {
                "requirements": [{"key": "a", "operator": "Exists", "values": ["b"]}, {"key": "a b", "operator": "Exists"}]}}}}),
            vec![
                "spec.resourceAttributes.labelSelector.requirements[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                "spec.resourceAttributes.labelSelector.requirements[1].key: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            ],
        ),
        (
            "LocalSubjectAccessReview",
            json!({"metadata": {"namespace": "m"}, "spec": {"user": "u", "resourceAttributes": pod}}),
            vec!["spec.resourceAttributes.namespace: Invalid value: \"n\": must match metadata.namespace"],
        ),
        (
            "LocalSubjectAccessReview",
            json!({"metadata": {"labels": {"a": "b"}, "namespace": "m"}, "spec": {"user": "u", "nonResourceAttributes": {}}}),
            vec![
                "metadata: Invalid value: {\"namespace\":\"m\",\"labels\":{\"a\":\"b\"}}: must be empty except for namespace",
                "spec.nonResourceAttributes: Invalid value: {\"Path\":\"\",\"Verb\":\"\"}: disallowed on this kind of request",
            ],
        ),
    ];
    for (kind, body, wanted) in rows {
        let Err(Refusal::Invalid { subject, causes }) = ask(&[Mode::Rbac], kind, body.clone()) else {
            panic!("{kind} {body} passes");
        };
        assert_eq!((subject.group.as_str(), subject.resource.as_str()), ("authorization.k8s.io", ""));
        assert_eq!(causes.iter().map(Cause::to_string).collect::<Vec<_>>(), wanted);
    }
    let fine = json!({"metadata": {"creationTimestamp": null}, "spec": {"nonResourceAttributes": path}});
    assert!(ask(&[Mode::Rbac], "SelfSubjectAccessReview", fine).is_ok(), "clients send empty metadata");
}

#[test]
fn rules_reviews() {
    let body = json!({"spec": {"namespace": "n"}});
    let status = ask(&[Mode::Rbac], "SelfSubjectRulesReview", body.clone()).expect("valid")["status"].clone();
    let pods = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["web"]});
    let metrics = json!({"verbs": ["get"], "nonResourceURLs": ["/metrics"]});
    assert_eq!(status, json!({"resourceRules": [pods], "nonResourceRules": [metrics], "incomplete": false}));
    let all = ask(&[Mode::AlwaysAllow], "SelfSubjectRulesReview", body).expect("valid")["status"].clone();
    assert_eq!(all["resourceRules"], json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]));
    assert_eq!(all["nonResourceRules"], json!([{"verbs": ["*"], "nonResourceURLs": ["*"]}]));
    assert_eq!(
        ask(&[Mode::Rbac], "SelfSubjectRulesReview", json!({"spec": {}})),
        Err(Refusal::BadRequest(BadRequest::NoNamespace))
    );
}

#[test]
fn who_am_i_and_whose_token() {
    let answer = ask(&[Mode::Rbac], "SelfSubjectReview", json!({"kind": "SelfSubjectReview"})).expect("valid");
    let info = json!({"username": "jane", "groups": ["system:authenticated"]});
    assert_eq!(answer, json!({"kind": "SelfSubjectReview", "status": {"userInfo": info}}));

    let body = json!({"spec": {"token": "t"}});
    let mut user = User::service_account("n", "bot", "u1");
    user.extra.insert("scopes".into(), vec!["a".into()]);
    let answer = token_review(&body, Ok((&user, &["api".to_owned()]))).expect("a token");
    assert_eq!(
        answer["status"],
        json!({"authenticated": true, "audiences": ["api"], "user": {
            "username": "system:serviceaccount:n:bot", "uid": "u1",
            "groups": ["system:serviceaccounts", "system:serviceaccounts:n", "system:authenticated"],
            "extra": {"scopes": ["a"]}
        }})
    );
    let status = json!({"user": {}, "error": "invalid bearer token"});
    assert_eq!(token_review(&body, Err("invalid bearer token")).expect("a token")["status"], status);
    let refused = token_review(&json!({"spec": {}}), Err("invalid bearer token"));
    assert_eq!(refused, Err(Refusal::BadRequest(BadRequest::NoToken)));
}
