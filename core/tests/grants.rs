//! Privilege escalation: a user tries to get more permissions through roles, bindings and certificate requests.

#[path = "custom_resources/world.rs"]
#[allow(dead_code)]
mod world;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_core::Refusal;
use holdfast_core::authz::chain::Way;
use holdfast_core::authz::{Chain, User};
use holdfast_value::{Value, json};
use std::sync::Arc;
use world::{DEFINITIONS, World};

const CLUSTER_ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const CLUSTER_ROLE_BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/roles";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// A cluster in which `jane` has the permissions in `rules` everywhere, and an administrator has every permission.
fn cluster(rules: Value) -> World {
    let mut world = World::new();
    world.chain = Arc::new(Chain::new(vec![Way::Rbac]));
    world.user = Arc::new(User::new("root", &["system:masters"]));
    let everything = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
    let gathering = json!({"clusterRoleSelectors": [{"matchLabels": {"to-admin": "true"}}]});
    for role in [
        json!({"metadata": {"name": "jane"}, "rules": rules}),
        json!({"metadata": {"name": "everything"}, "rules": everything}),
        json!({"metadata": {"name": "admin"}, "aggregationRule": gathering, "rules": []}),
    ] {
        world.create(CLUSTER_ROLES, &role).expect("a role");
    }
    for (name, role) in [("jane", "jane"), ("admin", "admin")] {
        world.create(CLUSTER_ROLE_BINDINGS, &binding(name, role, "jane")).expect("a binding");
    }
    world.user = Arc::new(User::new("jane", &["system:authenticated"]));
    world
}

fn binding(name: &str, role: &str, user: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    })
}

#[track_caller]
fn assert_forbidden<T: std::fmt::Debug>(answer: Result<T, Refusal>, words: &str) {
    match answer {
        Err(Refusal::Forbidden { why, .. }) => assert!(why.to_string().contains(words), "{why}"),
        other => panic!("not forbidden: {other:?}"),
    }
}

const NOT_HELD: &str = "is attempting to grant RBAC permissions not currently held";

/// A user who may label roles must not be able to label a role so that the user's own role aggregates it.
#[test]
fn a_label_does_not_have_a_foreign_role_gathered() {
    let mut world = cluster(json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]));
    let everything = format!("{CLUSTER_ROLES}/everything");
    let labels = json!({"metadata": {"labels": {"to-admin": "true"}}});
    assert_forbidden(world.merge(&everything, &labels), NOT_HELD);
    let mut whole = world.get(&everything).expect("the role");
    whole["metadata"]["labels"] = json!({"to-admin": "true"});
    assert_forbidden(world.update(&everything, &whole), NOT_HELD);
    let applied = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "everything", "labels": {"to-admin": "true"}},
    });
    assert_forbidden(world.apply(&everything, &applied, "m"), NOT_HELD);
    // The user has the permissions of the role, so the role may be aggregated. A finalizer grants nothing, so it may be
    // changed.
    world.merge(&format!("{CLUSTER_ROLES}/jane"), &labels).expect("rules that are held");
    world.merge(&everything, &json!({"metadata": {"finalizers": ["example.com/x"]}})).expect("no grant");
}

#[test]
fn a_role_does_not_come_to_gather_others() {
    let mut world = cluster(json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]));
    let rule = json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]});
    let made = json!({"metadata": {"name": "mine"}, "aggregationRule": rule, "rules": []});
    let gathering = "must have cluster-admin privileges to use the aggregationRule";
    assert_forbidden(world.create(CLUSTER_ROLES, &made), gathering);
    assert_forbidden(world.update(&format!("{CLUSTER_ROLES}/mine"), &made), gathering);
    let jane = format!("{CLUSTER_ROLES}/jane");
    assert_forbidden(world.merge(&jane, &json!({"aggregationRule": rule})), gathering);
    let admin = format!("{CLUSTER_ROLES}/admin");
    assert_forbidden(world.merge(&admin, &json!({"metadata": {"labels": {"a": "b"}}})), gathering);
    assert_forbidden(world.merge(&admin, &json!({"aggregationRule": null})), gathering);
    // An empty aggregation rule selects no roles, so validation refuses it, whoever writes it.
    for rule in [json!({}), json!({"clusterRoleSelectors": []})] {
        let empty = json!({"metadata": {"name": "mine"}, "aggregationRule": rule, "rules": []});
        let answers = [world.create(CLUSTER_ROLES, &empty), world.merge(&jane, &json!({"aggregationRule": rule}))];
        for answer in answers {
            let refusal = answer.expect_err("no role");
            let why = "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if \
                       aggregationRule is non-nil";
            assert!(
                matches!(refusal, Refusal::Invalid { .. }) && refusal.message().ends_with(why),
                "{}",
                refusal.message()
            );
        }
    }
}

#[test]
fn bindings_name_what_is_held_or_may_be_bound() {
    let bind = json!({
        "verbs": ["bind"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"],
        "resourceNames": ["later"],
    });
    let mut world = cluster(json!([bind]));
    assert_forbidden(world.create(CLUSTER_ROLE_BINDINGS, &binding("b", "everything", "jane")), NOT_HELD);
    // A role that does not exist could later get any rules. So only a user with the permission `bind` on its name may
    // bind it.
    match world.create(CLUSTER_ROLE_BINDINGS, &binding("b", "none", "jane")) {
        Err(Refusal::NotFound(subject)) => {
            assert_eq!(subject.to_string(), "clusterrolebindings.rbac.authorization.k8s.io \"none\"")
        }
        other => panic!("{other:?}"),
    }
    world.create(CLUSTER_ROLE_BINDINGS, &binding("later", "later", "jane")).expect("it may be bound");
    // Adding a subject to a binding grants the role's permissions to the subject.
    let friend = json!({"subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "friend"}]});
    world.user = Arc::new(User::new("root", &["system:masters"]));
    world.create(CLUSTER_ROLE_BINDINGS, &binding("all", "everything", "joe")).expect("a binding");
    world.user = Arc::new(User::new("jane", &[]));
    assert_forbidden(world.merge(&format!("{CLUSTER_ROLE_BINDINGS}/all"), &friend), NOT_HELD);
}

#[test]
fn roles_in_a_namespace_grant_what_is_held_there() {
    let mut world = cluster(json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]));
    let role = |verb: &str| json!({"metadata": {"name": "r"}, "rules": [{"verbs": [verb], "apiGroups": [""], "resources": ["pods"]}]});
    assert_forbidden(world.create(ROLES, &role("delete")), NOT_HELD);
    assert_forbidden(world.update(&format!("{ROLES}/r"), &role("delete")), NOT_HELD);
    world.create(ROLES, &role("get")).expect("rules that are held");
    assert_forbidden(world.update(&format!("{ROLES}/r"), &role("delete")), NOT_HELD);
}

/// The authorizer must read only the built-in roles and bindings, whatever the name of a custom kind is.
#[test]
fn a_custom_kind_that_looks_like_a_binding_grants_nothing() {
    let mut world = cluster(json!([]));
    world.user = Arc::new(User::new("root", &["system:masters"]));
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "metadata": {
            "name": "fakes.rbac.authorization.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/1"},
        },
        "spec": {
            "group": "rbac.authorization.k8s.io", "scope": "Cluster",
            "names": {"kind": "ClusterRoleBinding", "plural": "fakes", "singular": "fake", "listKind": "FakeList"},
            "versions": [{"name": "v9", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    world.create(DEFINITIONS, &definition).expect("a definition");
    world.settle();
    let path = "/apis/rbac.authorization.k8s.io/v9/fakes";
    let mut fake = binding("fake", "everything", "eve");
    fake["apiVersion"] = "rbac.authorization.k8s.io/v9".into();
    fake["kind"] = "ClusterRoleBinding".into();
    world.create(path, &fake).expect("an object of no meaning");
    let held = world.state.rbac.rules_for(&User::new("eve", &[]), "");
    assert_eq!(held.rules, []);
}

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).expect("a short element");
    let mut bytes = if length < 0x80 { vec![tag, length] } else { vec![tag, 0x81, length] };
    bytes.extend(content);
    bytes
}

/// A certificate request that has only the parts that the check reads. Its subject has one organization.
fn request_for(organization: &str, signer: &str) -> Value {
    let attribute = [element(0x06, &[0x55, 0x04, 0x0a]), element(0x0c, organization.as_bytes())].concat();
    let subject = element(0x30, &element(0x31, &element(0x30, &attribute)));
    let body = [element(0x02, &[0]), subject, element(0x30, &[])].concat();
    let parts = [element(0x30, &body), element(0x30, &[]), element(0x03, &[0, 1])];
    let der = element(0x30, &parts.concat());
    let pem =
        format!("-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n", STANDARD.encode(der));
    json!({
        "metadata": {"name": "r"},
        "spec": {"request": STANDARD.encode(pem), "signerName": signer, "usages": ["client auth"]},
    })
}

#[test]
fn nobody_asks_for_a_certificate_of_the_masters() {
    const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
    let mut world = cluster(json!([]));
    let masters = "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed";
    assert_forbidden(world.create(REQUESTS, &request_for("system:masters", SIGNER)), masters);
    // The request is refused even if its sender is in `system:masters`, and also if its base64 contains white space,
    // which is allowed.
    world.user = Arc::new(User::new("root", &["system:masters"]));
    let mut spaced = request_for("system:masters", SIGNER);
    let text = spaced["spec"]["request"].as_str().unwrap_or_default().to_owned();
    spaced["spec"]["request"] = format!("{}\n {}", &text[..20], &text[20..]).into();
    assert!(world.create(REQUESTS, &spaced).is_err());
    // The request is also refused if it follows a harmless block that other parsers skip. A line with a colon inside
    // the base64 is not a header, and the last letter may have any unused bits.
    let text = |request: &Value| {
        let pem = STANDARD.decode(request["spec"]["request"].as_str().unwrap_or_default()).unwrap_or_default();
        String::from_utf8(pem).unwrap_or_default()
    };
    let (mut two, evil) = (request_for("dev", SIGNER), text(&request_for("system:masters", SIGNER)));
    let skipped = text(&two).replace("\n-----END", "\nno: header\n-----END");
    two["spec"]["request"] = STANDARD.encode(skipped + &evil).into();
    assert_forbidden(world.create(REQUESTS, &two), "failed to parse CSR: more than one PEM block");
    world.create(REQUESTS, &request_for("dev", SIGNER)).expect("a harmless request");
    let mut other = request_for("system:masters", "example.com/own");
    other["metadata"]["name"] = "other".into();
    world.create(REQUESTS, &other).expect("another signer decides for itself");
}

/// To approve or sign a request, a user needs a permission for the signer or the signer's domain, in addition to the
/// verb on the request.
#[test]
fn approving_and_signing_take_leave_for_the_signer() {
    const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
    let condition = |ty: &str| json!([{"type": ty, "status": "True", "reason": "r", "message": "m"}]);
    let leave = |verb: &str, name: &str| json!([{"verbs": [verb], "apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": [name]}]);
    let attempt = |rules: Value, subresource: &str, status: &Value| {
        let mut world = cluster(rules);
        let mut object = world.create(REQUESTS, &request_for("dev", SIGNER)).expect("a request");
        object["status"] = status.clone();
        world.update(&format!("{REQUESTS}/r/{subresource}"), &object)
    };
    let approved = json!({"conditions": condition("Approved")});
    let rows = [
        (
            "approval",
            approved.clone(),
            "approve",
            "user not permitted to approve requests with signerName \"kubernetes.io/kube-apiserver-client\"",
        ),
        (
            "status",
            json!({"conditions": condition("Failed")}),
            "sign",
            "user not permitted to sign requests with signerName \"kubernetes.io/kube-apiserver-client\"",
        ),
    ];
    for (subresource, status, verb, words) in rows {
        assert_forbidden(attempt(json!([]), subresource, &status), words);
        assert_forbidden(attempt(leave(verb, "example.com/*"), subresource, &status), words);
        let other = if verb == "sign" { "approve" } else { "sign" };
        assert_forbidden(attempt(leave(other, SIGNER), subresource, &status), words);
        attempt(leave(verb, SIGNER), subresource, &status).expect("leave for the signer");
        attempt(leave(verb, "kubernetes.io/*"), subresource, &status).expect("leave for the domain");
    }
    // A status write that adds no certificate and no condition signs nothing, so it needs no such permission.
    attempt(json!([]), "status", &json!({})).expect("no signature");
}

/// The expressions of a policy can reveal parameters to the policy's author. So the author of a policy or binding needs
/// the permission to read the parameters.
#[test]
fn policies_read_what_their_authors_may_read() {
    const GROUP: &str = "/apis/admissionregistration.k8s.io/v1/";
    let constraints = json!({"resourceRules": [
        {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]});
    let rule = |verb: &str, resource: &str, names: &[&str]| json!([{"verbs": [verb], "apiGroups": [""], "resources": [resource], "resourceNames": names}]);
    let secrets = json!({"apiVersion": "v1", "kind": "Secret"});
    let named = json!({"name": "s", "namespace": "shop", "parameterNotFoundAction": "Deny"});
    let all = json!({"selector": {}, "namespace": "shop", "parameterNotFoundAction": "Deny"});
    let every = "must have \"get\" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)";
    let one = |verb: &str| format!("does not have \"{verb}\" permission on the object referenced by paramRef");
    for half in ["validating", "mutating"] {
        let (policies, bindings) =
            (format!("{GROUP}{half}admissionpolicies"), format!("{GROUP}{half}admissionpolicybindings"));
        let policy = |name: &str| {
            let mut spec = json!({"matchConstraints": constraints, "paramKind": secrets});
            let change = r#"[JSONPatch{op: "remove", path: "/data"}]"#;
            if half == "validating" {
                spec["validations"] = json!([{"expression": "true"}]);
            } else {
                spec["reinvocationPolicy"] = "Never".into();
                spec["mutations"] = json!([{"patchType": "JSONPatch", "jsonPatch": {"expression": change}}]);
            }
            json!({"metadata": {"name": name}, "spec": spec})
        };
        let binding = |policy: &str, reference: &Value| {
            let mut spec = json!({"policyName": policy, "paramRef": reference});
            if half == "validating" {
                spec["validationActions"] = json!(["Deny"]);
            }
            json!({"metadata": {"name": "b"}, "spec": spec})
        };
        let check = |rules: Value, attempt: &dyn Fn(&mut World) -> Result<Value, Refusal>, expected: &str| {
            let mut world = cluster(rules);
            let jane = std::mem::replace(&mut world.user, Arc::new(User::new("root", &["system:masters"])));
            world.create(&policies, &policy("p")).expect("a policy");
            world
                .create(&bindings, &json!({"metadata": {"name": "old"}, "spec": binding("p", &named)["spec"]}))
                .expect("a binding");
            world.user = jane;
            match attempt(&mut world) {
                Ok(_) => assert_eq!(expected, "", "{half}"),
                Err(refusal) => {
                    let field = if expected == every { "spec.paramKind" } else { "spec.paramRef" };
                    let words = format!("{field}: Forbidden: user \"jane\" {expected}");
                    let part = if expected == every { "" } else { "Binding" };
                    let of = if half == "validating" { "Validating" } else { "Mutating" };
                    let subject = format!("{of}AdmissionPolicy{part}.admissionregistration.k8s.io \"");
                    let (is_invalid, message) = (matches!(refusal, Refusal::Invalid { .. }), refusal.message());
                    assert!(is_invalid && message.starts_with(&subject) && message.ends_with(&words), "{message}");
                }
            }
        };
        let again = |world: &mut World| world.create(&policies, &policy("q"));
        let other_kind = |world: &mut World| {
            let kind = |kind: &str| json!({"spec": {"paramKind": {"kind": kind}}});
            world.merge(&format!("{policies}/p"), &kind("ConfigMap"))?;
            world.merge(&format!("{policies}/p"), &kind("Secret"))
        };
        let label = |world: &mut World| {
            let labels = json!({"metadata": {"labels": {"a": "b"}}});
            world.merge(&format!("{policies}/p"), &labels)?;
            world.merge(&format!("{bindings}/old"), &labels)
        };
        let other_policy =
            |world: &mut World| world.merge(&format!("{bindings}/old"), &json!({"spec": {"policyName": "q"}}));
        let bind = |policy: &str, reference: &Value| {
            let (body, bindings) = (binding(policy, reference), bindings.clone());
            move |world: &mut World| world.create(&bindings, &body)
        };
        check(json!([]), &again, every);
        check(rule("get", "secrets", &["s"]), &again, every);
        check(rule("get", "secrets", &[]), &again, "");
        check(rule("get", "configmaps", &[]), &other_kind, every);
        check(json!([]), &label, "");
        check(json!([]), &bind("p", &named), &one("get"));
        check(rule("get", "secrets", &["s"]), &bind("p", &named), "");
        check(rule("get", "secrets", &[]), &bind("p", &all), &one("list"));
        check(rule("list", "secrets", &[]), &bind("p", &all), "");
        // The policy that the binding names does not exist yet, and could later read parameters of any kind.
        check(rule("get", "secrets", &[]), &other_policy, &one("get"));
    }
}
