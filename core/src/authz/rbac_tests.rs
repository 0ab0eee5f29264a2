//! Tables for the index's decisions, and a property test against a naive implementation that reads every document for
//! each decision.

use super::*;
use crate::authz::ResourceTarget;
use holdfast_value::json;
use proptest::prelude::*;

fn role(verbs: &[&str], resources: &[&str]) -> Value {
    json!({"rules": [{"verbs": verbs, "apiGroups": [""], "resources": resources}]})
}

fn binding(kind: &str, role: &str, subjects: Value) -> Value {
    json!({"roleRef": {"kind": kind, "name": role}, "subjects": subjects})
}

fn ask<'a>(verb: &'a str, resource: &'a str, namespace: &'a str) -> Attributes<'a> {
    Attributes::resource(verb, ResourceTarget { resource, namespace, ..Default::default() })
}

fn sample() -> RbacIndex {
    let mut index = RbacIndex::default();
    index.put(RoleKind::ClusterRole, "", "reader", &role(&["get", "list"], &["pods"]));
    index.put(RoleKind::Role, "work", "writer", &role(&["update"], &["pods"]));
    let group = json!([{"kind": "Group", "name": "dev"}]);
    index.put(RoleKind::ClusterRoleBinding, "", "devs-read", &binding("ClusterRole", "reader", group.clone()));
    index.put(RoleKind::RoleBinding, "work", "devs-write", &binding("Role", "writer", group.clone()));
    index.put(RoleKind::RoleBinding, "work", "broken", &binding("Role", "absent", group));
    let bot = json!([{"kind": "ServiceAccount", "name": "bot"}]);
    index.put(RoleKind::RoleBinding, "work", "bot-reads", &binding("ClusterRole", "reader", bot.clone()));
    index.put(RoleKind::ClusterRoleBinding, "", "bot-without-namespace", &binding("ClusterRole", "reader", bot));
    let far = json!([{"kind": "ServiceAccount", "name": "bot", "namespace": "far"}]);
    index.put(RoleKind::RoleBinding, "work", "far-bot-writes", &binding("Role", "writer", far));
    let everyone = json!([{"kind": "Group", "name": "system:serviceaccounts:far"}]);
    index.put(RoleKind::ClusterRoleBinding, "", "far-accounts", &binding("ClusterRole", "reader", everyone));
    index
}

#[test]
fn verdicts_and_their_reasons() {
    let dev = User::new("jane", &["dev"]);
    let bot = User::service_account("work", "bot", "");
    let far = User::service_account("far", "bot", "");
    let rows = [
        (
            &dev,
            ask("get", "pods", "any"),
            Ok(r#"RBAC: allowed by ClusterRoleBinding "devs-read" of ClusterRole "reader" to Group "dev""#),
        ),
        (
            &dev,
            ask("update", "pods", "work"),
            Ok(r#"RBAC: allowed by RoleBinding "devs-write/work" of Role "writer" to Group "dev""#),
        ),
        (&dev, ask("update", "pods", "any"), Err("")),
        (&dev, ask("update", "pods", ""), Err("")),
        (&dev, ask("delete", "pods", "work"), Err(r#"RBAC: role.rbac.authorization.k8s.io "absent" not found"#)),
        (&dev, Attributes::path("get", "/metrics"), Err("")),
        (
            &bot,
            ask("list", "pods", "work"),
            Ok(r#"RBAC: allowed by RoleBinding "bot-reads/work" of ClusterRole "reader" to ServiceAccount "bot/work""#),
        ),
        (&bot, ask("list", "pods", "far"), Err("")),
        (&bot, ask("list", "pods", ""), Err("")),
        (
            &far,
            ask("update", "pods", "work"),
            Ok(r#"RBAC: allowed by RoleBinding "far-bot-writes/work" of Role "writer" to ServiceAccount "bot/far""#),
        ),
        (
            &far,
            ask("list", "pods", ""),
            Ok(
                r#"RBAC: allowed by ClusterRoleBinding "far-accounts" of ClusterRole "reader" to Group "system:serviceaccounts:far""#,
            ),
        ),
    ];
    let index = sample();
    for (user, attributes, wanted) in rows {
        let verdict = index.authorize(user, &attributes);
        let got = if verdict.is_allowed() { Ok(verdict.reason()) } else { Err(verdict.reason()) };
        assert_eq!(got, wanted, "{} {attributes:?}", user.name);
    }
}

#[test]
fn several_missing_roles_read_as_a_list() {
    let mut index = sample();
    let group = json!([{"kind": "Group", "name": "dev"}]);
    index.put(RoleKind::ClusterRoleBinding, "", "gone", &binding("ClusterRole", "gone", group));
    assert_eq!(
        index.authorize(&User::new("jane", &["dev"]), &ask("delete", "pods", "work")).reason(),
        "RBAC: [clusterrole.rbac.authorization.k8s.io \"gone\" not found, \
         role.rbac.authorization.k8s.io \"absent\" not found]"
    );
}

#[test]
fn a_new_document_replaces_and_a_deletion_leaves_nothing() {
    let mut index = sample();
    let dev = User::new("jane", &["dev"]);
    let before = index.clone();
    index.put(
        RoleKind::ClusterRoleBinding,
        "",
        "devs-read",
        &binding("ClusterRole", "reader", json!([{"kind": "User", "name": "joe"}])),
    );
    assert!(!index.authorize(&dev, &ask("get", "pods", "any")).is_allowed());
    assert!(index.authorize(&User::new("joe", &[]), &ask("get", "pods", "any")).is_allowed());
    assert!(before.authorize(&dev, &ask("get", "pods", "any")).is_allowed(), "a clone keeps its own state");
    for (kind, namespace, name) in [
        (RoleKind::ClusterRole, "", "reader"),
        (RoleKind::Role, "work", "writer"),
        (RoleKind::ClusterRoleBinding, "", "devs-read"),
        (RoleKind::ClusterRoleBinding, "", "bot-without-namespace"),
        (RoleKind::ClusterRoleBinding, "", "far-accounts"),
        (RoleKind::RoleBinding, "work", "devs-write"),
        (RoleKind::RoleBinding, "work", "broken"),
        (RoleKind::RoleBinding, "work", "bot-reads"),
        (RoleKind::RoleBinding, "work", "far-bot-writes"),
    ] {
        index.delete(kind, namespace, name);
    }
    assert!(index.cluster_roles.is_empty() && index.granted.is_empty());
    assert!(index.roles.is_empty() && index.scopes.is_empty());
}

#[test]
fn rules_for_a_user_name_each_binding_once() {
    let index = sample();
    let mut both = User::new("jane", &["dev", "dev"]);
    let found = index.rules_for(&both, "work");
    let verbs: Vec<&str> = found.rules.iter().map(|rule| rule.verbs[0].as_str()).collect();
    assert_eq!(verbs, ["get", "update"]);
    assert_eq!(found.errors, ["role.rbac.authorization.k8s.io \"absent\" not found"]);
    assert_eq!(index.rules_for(&both, "").rules.len(), 1);
    both.groups.clear();
    assert_eq!(index.rules_for(&both, "work"), RulesForUser::default());
}

#[test]
fn a_gathering_role_acts_on_what_it_gathers_and_says_what_to_write() {
    let part = |verb: &str, label: &str| {
        let mut document = role(&[verb], &["pods"]);
        document["metadata"] = json!({"labels": {label: "true"}});
        document
    };
    let gathering = json!({
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to-view": "true"}}]},
        "rules": [{"verbs": ["delete"], "apiGroups": [""], "resources": ["pods"]}]
    });
    let mut index = RbacIndex::default();
    let subject = json!([{"kind": "User", "name": "jane"}]);
    index.put(RoleKind::ClusterRoleBinding, "", "b", &binding("ClusterRole", "view", subject));
    index.put(RoleKind::ClusterRole, "", "part", &part("get", "to-view"));
    index.put(RoleKind::ClusterRole, "", "view", &gathering);
    let may =
        |index: &RbacIndex, verb: &str| index.authorize(&User::new("jane", &[]), &ask(verb, "pods", "")).is_allowed();
    assert!(may(&index, "get") && !may(&index, "delete"));
    let wanted = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
    assert_eq!(index.aggregate("view"), Some(wanted.clone()));
    assert_eq!(index.stale_aggregates(), ["view"]);

    let mut written = gathering.clone();
    written["rules"] = wanted;
    index.put(RoleKind::ClusterRole, "", "view", &written);
    assert_eq!(index.aggregate("view"), None);
    assert_eq!(index.aggregate("part"), None);

    index.put(RoleKind::ClusterRole, "", "more", &part("list", "to-view"));
    assert!(may(&index, "list"));
    assert_eq!(index.stale_aggregates(), ["view"]);
    index.put(RoleKind::ClusterRole, "", "part", &part("get", "to-nobody"));
    assert!(!may(&index, "get"), "a role that loses its label is gathered no more");
    index.delete(RoleKind::ClusterRole, "", "more");
    assert!(!may(&index, "list"));
    assert_eq!(index.aggregate("view"), Some(json!([])));
}

/// A write of one document, from small alphabets so that names collide.
#[derive(Debug, Clone)]
struct RoleWrite {
    kind: &'static str,
    namespace: &'static str,
    name: &'static str,
    document: Option<Value>,
}

fn changes() -> impl Strategy<Value = Vec<RoleWrite>> {
    let namespace = || prop::sample::select(vec!["n1", "n2"]);
    let name = || prop::sample::select(vec!["a", "b", "c"]);
    let list = |items: &'static [&'static str]| prop::sample::subsequence(items, 0..=items.len());
    let rule = (
        list(&["get", "list", "*"]),
        list(&["", "apps", "*"]),
        list(&["pods", "pods/log", "*/log", "*"]),
        list(&["x", "y"]),
        list(&["/a", "/a/*", "*"]),
        any::<bool>(),
    )
        .prop_map(|(verbs, groups, resources, names, urls, of_resources)| {
            if of_resources {
                json!({"verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": names})
            } else {
                json!({"verbs": verbs, "nonResourceURLs": urls})
            }
        });
    let role = (prop::collection::vec(rule, 0..3), list(&["l1", "l2"]), prop::option::of(list(&["l1", "l2"])))
        .prop_map(|(rules, labels, gathers)| {
            let labels: BTreeMap<&str, &str> = labels.into_iter().map(|label| (label, "true")).collect();
            let mut document = json!({"metadata": {"labels": labels}, "rules": rules});
            if let Some(selectors) = gathers.filter(|labels| !labels.is_empty()) {
                let selectors: Vec<Value> =
                    selectors.into_iter().map(|label| json!({"matchLabels": {label: "true"}})).collect();
                document["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
            }
            document
        });
    let subject = prop::sample::select(vec![
        json!({"kind": "User", "name": "u"}),
        json!({"kind": "User", "name": "system:serviceaccount:n1:s"}),
        json!({"kind": "Group", "name": "g"}),
        json!({"kind": "ServiceAccount", "name": "s"}),
        json!({"kind": "ServiceAccount", "name": "s", "namespace": "n1"}),
    ]);
    let binding = (prop::sample::select(vec!["Role", "ClusterRole"]), name(), prop::collection::vec(subject, 0..3))
        .prop_map(|(kind, role, subjects)| binding(kind, role, Value::Array(subjects)));
    let change = (namespace(), name(), role, binding, 0..4_usize, 0..4_u8).prop_map(
        |(namespace, name, role, binding, kind, deletes)| {
            let (kind, document) = [
                ("Role", role.clone()),
                ("ClusterRole", role),
                ("RoleBinding", binding.clone()),
                ("ClusterRoleBinding", binding),
            ][kind]
                .clone();
            let namespace = if kind.starts_with("Cluster") { "" } else { namespace };
            RoleWrite { kind, namespace, name, document: (deletes > 0).then_some(document) }
        },
    );
    prop::collection::vec(change, 0..40)
}

type Documents = BTreeMap<(&'static str, &'static str, &'static str), Value>;

/// A naive authorizer to compare with, which checks every binding, and every role for each binding.
fn naive(documents: &Documents, user: &User, attributes: &Attributes<'_>) -> bool {
    let namespace = match attributes.target {
        Target::Resource(target) => target.namespace,
        Target::Path(_) => "",
    };
    documents.iter().any(|((kind, own, _), document)| {
        let in_scope = *kind == "ClusterRoleBinding" || (*kind == "RoleBinding" && *own == namespace);
        let applies = |subject: &Value| {
            let name = subject["name"].as_str().expect("a name");
            match subject["kind"].as_str() {
                Some("User") => user.name == name,
                Some("Group") => user.groups.iter().any(|group| group == name),
                _ => {
                    let namespace = subject["namespace"].as_str().unwrap_or(own);
                    !namespace.is_empty() && user.name == format!("system:serviceaccount:{namespace}:{name}")
                }
            }
        };
        in_scope
            && document["subjects"].as_array().expect("subjects").iter().any(applies)
            && match document["roleRef"]["kind"].as_str() {
                Some("Role") => role_allows(documents, "Role", own, &document["roleRef"]["name"], attributes),
                _ => role_allows(documents, "ClusterRole", "", &document["roleRef"]["name"], attributes),
            }
    })
}

fn role_allows(documents: &Documents, kind: &str, namespace: &str, name: &Value, attributes: &Attributes<'_>) -> bool {
    let mut reached: BTreeSet<&str> = documents
        .keys()
        .filter(|(k, ns, n)| *k == kind && *ns == namespace && Some(*n) == name.as_str())
        .map(|(_, _, n)| *n)
        .collect();
    // There are few ClusterRoles, so four repetitions find all roles that are aggregated directly or indirectly.
    for _ in 0..if kind == "ClusterRole" { 4 } else { 0 } {
        for name in reached.clone() {
            let gathering = &documents[&("ClusterRole", "", name)]["aggregationRule"]["clusterRoleSelectors"];
            for selector in gathering.as_array().into_iter().flatten() {
                let labels = selector["matchLabels"].as_object().expect("labels");
                reached.extend(
                    documents
                        .iter()
                        .filter(|((k, _, _), document)| {
                            *k == "ClusterRole"
                                && labels.keys().all(|label| document["metadata"]["labels"].get(label).is_some())
                        })
                        .map(|((_, _, name), _)| *name),
                );
            }
        }
    }
    reached.into_iter().any(|name| {
        let document = documents.iter().find(|((k, ns, n), _)| *k == kind && *ns == namespace && *n == name);
        let document = document.expect("a reached role").1;
        let gathers = kind == "ClusterRole" && document.get("aggregationRule").is_some();
        !gathers && document["rules"].as_array().expect("rules").iter().any(|rule| naive_rule(rule, attributes))
    })
}

fn naive_rule(rule: &Value, attributes: &Attributes<'_>) -> bool {
    let list = |key: &str| -> Vec<String> {
        rule[key].as_array().into_iter().flatten().map(|item| item.as_str().expect("text").to_owned()).collect()
    };
    let has = |key: &str, item: &str| list(key).iter().any(|own| own == item);
    let verb = has("verbs", attributes.verb) || has("verbs", "*");
    verb && match attributes.target {
        Target::Path(path) => list("nonResourceURLs").iter().any(|url| match url.strip_suffix('*') {
            Some(start) => path.starts_with(start),
            None => path == url,
        }),
        Target::Resource(target) => {
            let names = list("resourceNames");
            let combined = match target.subresource {
                "" => target.resource.to_owned(),
                subresource => format!("{}/{subresource}", target.resource),
            };
            let any_parent = !target.subresource.is_empty() && has("resources", &format!("*/{}", target.subresource));
            (has("apiGroups", target.group) || has("apiGroups", "*"))
                && (has("resources", &combined) || has("resources", "*") || any_parent)
                && (names.is_empty() || names.iter().any(|name| name == target.name))
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn the_index_agrees_with_its_twin(changes in changes()) {
        let mut index = RbacIndex::default();
        let mut documents = Documents::new();
        for change in changes {
            match change.document {
                Some(document) => {
                    index.put(RoleKind::named(change.kind).expect("a kind of roles"), change.namespace, change.name, &document);
                    documents.insert((change.kind, change.namespace, change.name), document);
                }
                None => {
                    index.delete(RoleKind::named(change.kind).expect("a kind of roles"), change.namespace, change.name);
                    documents.remove(&(change.kind, change.namespace, change.name));
                }
            }
        }
        let users = [User::new("u", &["g"]), User::new("u", &[]), User::new("v", &["g"]), User::service_account("n1", "s", "")];
        let mut questions = vec![Attributes::path("get", "/a"), Attributes::path("get", "/a/b")];
        for verb in ["get", "list"] {
            for namespace in ["", "n1", "n2"] {
                for (resource, subresource, name) in [("pods", "", ""), ("pods", "log", "x"), ("jobs", "log", "y")] {
                    let target = ResourceTarget { resource, subresource, namespace, name, ..Default::default() };
                    questions.push(Attributes::resource(verb, target));
                }
            }
        }
        for user in &users {
            for question in &questions {
                let allowed = index.authorize(user, question).is_allowed();
                prop_assert_eq!(allowed, naive(&documents, user, question), "{} {:?}", user.name, question);
            }
        }
    }
}

/// The number of roles that one decision reads, for each scope and subject.
fn looked_at(index: &RbacIndex, user: &User, namespace: &str) -> Vec<usize> {
    let scopes = index.scopes_of(namespace);
    scopes.flat_map(|scope| subjects_of(user).map(|named| scope.roles_of(named).count())).collect()
}

#[test]
fn a_verdict_does_not_grow_with_bindings() {
    let mut index = sample();
    let dev = json!([{"kind": "Group", "name": "dev"}]);
    for number in 0..2_000 {
        let subject = json!([{"kind": "User", "name": format!("u{number}")}]);
        index.put(RoleKind::RoleBinding, "work", &format!("b{number}"), &binding("Role", "writer", subject));
        index.put(RoleKind::RoleBinding, "work", &format!("d{number}"), &binding("Role", "writer", dev.clone()));
    }
    let seen = looked_at(&index, &User::new("u7", &["dev"]), "work");
    assert_eq!(seen, [0, 1, 1, 2], "one of the group in the cluster, one of the user itself, two of its group");
}

#[test]
fn of_many_roles_that_are_bound_those_are_found_that_grant_what_is_asked_for() {
    let mut index = sample();
    let jane = User::new("jane", &[]);
    let subject = json!([{"kind": "User", "name": "jane"}]);
    for number in 0..300 {
        let name = format!("r{number}");
        index.put(RoleKind::Role, "work", &name, &role(&[&format!("verb{number}")], &["pods"]));
        index.put(RoleKind::RoleBinding, "work", &name, &binding("Role", &name, subject.clone()));
    }
    index.put(RoleKind::Role, "work", "unbound", &role(&["patch"], &["pods"]));
    index.put(RoleKind::Role, "other", "r1", &role(&["patch"], &["pods"]));
    index.put(RoleKind::RoleBinding, "work", "z", &binding("ClusterRole", "reader", subject.clone()));
    let verdict = |index: &RbacIndex, verb: &str, namespace: &str| {
        index.authorize(&jane, &ask(verb, "pods", namespace)).reason().to_owned()
    };
    assert_eq!(
        verdict(&index, "verb222", "work"),
        r#"RBAC: allowed by RoleBinding "r222/work" of Role "r222" to User "jane""#
    );
    assert_eq!(
        verdict(&index, "list", "work"),
        r#"RBAC: allowed by RoleBinding "z/work" of ClusterRole "reader" to User "jane""#
    );
    for (verb, namespace) in [("verb300", "work"), ("patch", "work"), ("verb222", "other"), ("verb222", "")] {
        assert_eq!(verdict(&index, verb, namespace), "", "{verb} {namespace}");
    }
    let held = |verb: &str| index.holder(&jane, "work")(&Part::needed(&ask(verb, "pods", "work")));
    assert!(held("verb299") && held("list") && !held("patch"));
    assert!(index.holds_role(&jane, "work", "Role", "r7") && index.holds_role(&jane, "work", "ClusterRole", "reader"));
    assert!(!index.holds_role(&jane, "work", "Role", "unbound") && !index.holds_role(&jane, "other", "Role", "r7"));
    index.put(RoleKind::Role, "work", "r222", &role(&["get"], &["pods"]));
    assert_eq!(verdict(&index, "verb222", "work"), "");
}

#[test]
fn rules_are_named_up_to_a_bound_and_each_role_once() {
    let mut index = RbacIndex::default();
    let jane = User::new("jane", &[]);
    let subject = json!([{"kind": "User", "name": "jane"}]);
    let names: Vec<String> = (0..1_000).map(|number| format!("name{number}")).collect();
    let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": names});
    index.put(RoleKind::Role, "work", "large", &json!({"rules": [rule]}));
    for number in 0..60 {
        index.put(RoleKind::RoleBinding, "work", &format!("b{number}"), &binding("Role", "large", subject.clone()));
    }
    let found = index.rules_for(&jane, "work");
    assert_eq!((found.rules.len(), found.is_cut), (1, false));
    index.put(RoleKind::Role, "work", "large", &json!({"rules": vec![rule; 100]}));
    let found = index.rules_for(&jane, "work");
    let bytes: usize = found.rules.iter().map(PolicyRule::text_bytes).sum();
    assert!(found.is_cut && bytes <= RULES_BYTES_MAX && found.rules.len() > 10, "{bytes}");
    // The messages about missing roles count towards [`RULES_BYTES_MAX`], too.
    for number in 0..20_000 {
        let name = format!("a{number}");
        index.put(RoleKind::RoleBinding, "work", &name, &binding("Role", &name, subject.clone()));
    }
    let found = index.rules_for(&jane, "work");
    assert!(found.is_cut && found.errors.iter().map(String::len).sum::<usize>() <= RULES_BYTES_MAX);
}
