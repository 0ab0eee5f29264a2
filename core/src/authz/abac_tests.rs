//! Tests of ABAC policies. Each row has one request and its expected decision.

use super::*;
use crate::authz::ResourceTarget;

const FILE: &str = r##"
# comment

{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"alice","namespace":"*","resource":"*","apiGroup":"*"}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"bob","namespace":"team","resource":"pods","readonly":true}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"group":"devs","namespace":"team","resource":"configmaps"}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"group":"system:authenticated","nonResourcePath":"/api*","readonly":true}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"*","nonResourcePath":"/version"}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"carol","group":"ops","namespace":"","resource":"nodes"}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"ö\"\u0000 x","namespace":"team","resource":"pods"}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"namespace":"*","resource":"*","apiGroup":"*"}}
{"user":"frank","resource":"services","namespace":"team"}
{"user":"grace"}
{"group":"old","readonly":true}
{"readonly":true,"resource":"endpoints"}
"##;

#[test]
fn lines_allow_whom_they_are_about() {
    let policies = Policies::read("f", FILE).expect("a policy file");
    assert!(policies.has_unversioned);
    let pods = ("team", "pods", "");
    for (user, groups, verb, (namespace, resource, group), allowed) in [
        ("alice", "", "frob", ("", "nodes", ""), true),
        ("alice", "", "get", ("a", "deployments", "apps"), true),
        ("bob", "", "get", pods, true),
        ("bob", "", "watch", pods, true),
        ("bob", "", "delete", pods, false),
        ("bob", "", "list", ("", "pods", ""), false),
        ("bob", "", "list", ("rest", "pods", ""), false),
        ("zoe", "devs", "create", ("team", "configmaps", ""), true),
        ("zoe", "devs", "create", ("team", "configmaps", "x"), false),
        ("zoe", "", "create", ("team", "configmaps", ""), false),
        ("carol", "ops", "delete", ("", "nodes", ""), true),
        ("carol", "", "delete", ("", "nodes", ""), false),
        ("dora", "ops", "delete", ("", "nodes", ""), false),
        ("ö\"\0 x", "", "get", pods, true),
        ("ö\" x", "", "get", pods, false),
        ("*", "", "get", pods, false),
        ("", "", "get", pods, false),
        ("frank", "", "create", ("team", "services", "g"), true),
        ("frank", "", "create", ("rest", "services", ""), false),
        ("grace", "", "create", ("rest", "services", "g"), true),
        ("joe", "old", "get", ("rest", "services", "g"), true),
        ("joe", "old", "create", ("rest", "services", "g"), false),
        ("joe", "system:authenticated", "get", ("rest", "endpoints", ""), true),
        ("joe", "", "get", ("rest", "endpoints", ""), false),
    ] {
        let user = User::new(user, &[groups]);
        let target = ResourceTarget { group, resource, namespace, subresource: "status", ..Default::default() };
        let verdict = policies.authorize(&user, &Attributes::resource(verb, target));
        assert_eq!(verdict.is_allowed(), allowed, "{user:?} {verb} {resource}");
        let reason = if allowed { "" } else { "No policy matched." };
        assert_eq!(verdict.reason(), reason);
    }
    for (user, groups, verb, path, allowed) in [
        ("joe", "system:authenticated", "get", "/apis", true),
        ("joe", "system:authenticated", "post", "/apis", false),
        ("joe", "system:authenticated", "post", "/version", true),
        ("system:anonymous", "system:unauthenticated", "get", "/version", false),
        ("alice", "", "get", "/metrics", false),
        ("grace", "", "post", "/metrics", true),
        ("frank", "", "get", "/metrics", false),
        ("joe", "old", "get", "/metrics", true),
        ("joe", "old", "list", "/metrics", false),
    ] {
        let user = User::new(user, &[groups]);
        let verdict = policies.authorize(&user, &Attributes::path(verb, path));
        assert_eq!(verdict.is_allowed(), allowed, "{user:?} {verb} {path}");
    }
}

#[test]
fn rules_are_told_in_the_order_of_the_file() {
    let policies = Policies::read("f", FILE).expect("a policy file");
    let bob = User::new("bob", &["system:authenticated", "devs"]);
    let told = |namespace: &str| {
        let rules = policies.rules_for(&bob, namespace).into_iter();
        rules
            .map(|rule| (rule.verbs.join(","), rule.resources.join(","), rule.non_resource_urls.join(",")))
            .collect::<Vec<_>>()
    };
    let row = |verbs: &str, resource: &str, path: &str| (verbs.to_owned(), resource.to_owned(), path.to_owned());
    assert_eq!(
        told("team"),
        [row("get,list,watch", "pods", ""), row("*", "configmaps", ""), row("get,list,watch", "endpoints", "")]
    );
    assert_eq!(
        told(""),
        [row("get,list,watch", "", "/api*"), row("*", "", "/version"), row("get,list,watch", "endpoints", "")]
    );
}

#[test]
fn bad_lines_are_told_by_number() {
    for (file, expected) in [
        ("\n{\"user\":1}", "error reading policy file f, line 2: {\"user\":1}: the field \"user\" must be a string"),
        ("{}\n{", "error reading policy file f, line 2: {: EOF while parsing an object at line 1 column 1"),
        ("[]", "error reading policy file f, line 1: []: a policy must be an object"),
        (
            "{\"apiVersion\":\"v9\",\"kind\":\"Policy\"}",
            "error reading policy file f, line 1: {\"apiVersion\":\"v9\",\"kind\":\"Policy\"}: no kind \"Policy\" is registered \
             for version \"v9\"",
        ),
    ] {
        assert_eq!(Policies::read("f", file).map(|_| ()), Err(expected.into()));
    }
    let long = format!("{{\"user\":\"{}\"}}", "x".repeat(LINE_BYTES_MAX));
    assert_eq!(Policies::read("f", &long).map(|_| ()), Err("error reading policy file f: line 1 is too long".into()));
}

/// Only the lines about the user of a request are examined, so all other lines of a large file cost nothing.
#[test]
fn large_files_cost_nothing_for_those_they_are_not_about() {
    let mut text = String::new();
    for number in 0..20_000 {
        text.push_str(&format!("{{\"user\":\"u{number}\",\"resource\":\"pods\"}}\n"));
    }
    let policies = Policies::read("f", &text).expect("a policy file");
    assert_eq!(policies.about(&User::new("u7", &["g"])).len(), 1);
    assert_eq!(policies.about(&User::new("jane", &["g"])).len(), 0);
}
