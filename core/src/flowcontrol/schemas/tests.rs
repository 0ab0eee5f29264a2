use super::*;
use crate::flowcontrol::Configuration;
use proptest::prelude::*;

/// The attributes of a request, written `GROUP:RESOURCE[/SUB]@NAMESPACE` or as a path.
fn attributes<'a>(verb: &'a str, asked: &'a str) -> Attributes<'a> {
    if asked.starts_with('/') {
        return Attributes::path(verb, asked);
    }
    let (group, rest) = asked.split_once(':').expect("a group");
    let (resource, namespace) = rest.split_once('@').unwrap_or((rest, ""));
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    Attributes::resource(verb, ResourceTarget { group, resource, subresource, namespace, ..Default::default() })
}

fn schema_of(schemas: &Schemas, user: &User, verb: &str, asked: &str) -> String {
    schemas.ordered[schemas.find(user, &attributes(verb, asked))].name.clone()
}

#[test]
fn requests_and_their_schemas() {
    let schemas = Configuration::built_in().schemas;
    let everybody = "system:authenticated";
    let named = |name: &str| User::new(name, &[everybody]);
    let admin = User::new("admin", &["system:masters", everybody]);
    let node = User::new("system:node:a", &["system:nodes", everybody]);
    let nobody = User::new("system:anonymous", &["system:unauthenticated"]);
    let of_system = User::service_account("kube-system", "a", "");
    let other = User::service_account("a", "b", "");
    let rows = [
        (&admin, "list", ":pods", "exempt"),
        (&admin, "get", "/healthz", "exempt"),
        (&nobody, "get", "/livez", "probes"),
        (&nobody, "get", "/livez/ping", "probes"),
        (&nobody, "get", "/livezx", "global-default"),
        (&nobody, "post", "/healthz", "global-default"),
        (&node, "update", ":nodes/status", "system-node-high"),
        (&node, "get", "coordination.k8s.io:leases@kube-node-lease", "system-node-high"),
        // The rule of `system-node-high` for Leases needs a namespace, and this list has none.
        (&node, "list", "coordination.k8s.io:leases", "system-nodes"),
        (&node, "get", ":secrets@a", "system-nodes"),
        (&of_system, "update", "coordination.k8s.io:leases@kube-system", "system-leader-election"),
        (&of_system, "delete", "coordination.k8s.io:leases@kube-system", "kube-system-service-accounts"),
        (&other, "get", ":pods@a", "service-accounts"),
        (&named("system:kube-scheduler"), "get", ":pods@a", "kube-scheduler"),
        (&named("jane"), "get", ":pods/log@a", "global-default"),
        (&named("system:serviceaccount:kube-system:"), "get", ":pods@a", "global-default"),
        // Only `catch-all` matches a user that has neither the group `system:authenticated` nor
        // `system:unauthenticated`.
        (&User::new("x", &[]), "get", "/", "catch-all"),
    ];
    for (user, verb, asked, expected) in rows {
        assert_eq!(schema_of(&schemas, user, verb, asked), expected, "{} {verb} {asked}", user.name);
    }
}

#[test]
fn paths_and_what_is_below_them() {
    for (known, path, leads) in [
        ("/a", "/a", true),
        ("/a", "/a/b", true),
        ("/a", "/ab", false),
        ("/a/*", "/a/b", true),
        ("/a/*", "/a", false),
        ("*", "/", true),
        ("/", "/", true),
        ("/", "/x", true),
    ] {
        assert_eq!(leads_to(known, path), leads, "{known} {path}");
    }
}

/// A naive implementation, which compares the request with all schemas in order.
fn naively<'a>(schemas: &'a Schemas, user: &User, attributes: &Attributes<'_>) -> &'a str {
    let is_about = |subject: &Subject| match subject {
        Subject::User { user: named } => named.name == ANY || named.name == user.name,
        Subject::Group { group } => group.name == ANY || user.groups.contains(&group.name),
        Subject::ServiceAccount { account } => {
            let Some(rest) = user.name.strip_prefix(SERVICE_ACCOUNT_PREFIX) else { return false };
            let parts: Vec<&str> = rest.split(':').collect();
            parts.len() == 2
                && parts[0] == account.namespace
                && !parts[1].is_empty()
                && (account.name == ANY || account.name == parts[1])
        }
    };
    let matches = |schema: &&Schema| {
        schema.rules.iter().any(|rule| rule.subjects.iter().any(is_about) && rule.covers(attributes))
    };
    let mut sorted: Vec<&Schema> = schemas.ordered.iter().collect();
    sorted.sort_by_key(|schema| (schema.precedence, schema.name.clone()));
    sorted.into_iter().find(matches).map_or(CATCH_ALL, |schema| &schema.name)
}

fn word(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::sample::select(words).prop_map(str::to_owned)
}

fn words(all: &'static [&'static str]) -> impl Strategy<Value = Words> {
    prop::collection::vec(word(all), 1..3).prop_map(Words)
}

const NAMES: &[&str] = &["a", "b", "c"];
const GROUPS: &[&str] = &["", "apps"];
const RESOURCES: &[&str] = &["pods", "pods/status", "leases"];

fn subject() -> impl Strategy<Value = Subject> {
    let or_any: &[&str] = &["a", "b", "c", "*"];
    prop_oneof![
        word(or_any).prop_map(|name| Subject::User { user: Name { name } }),
        word(or_any).prop_map(|name| Subject::Group { group: Name { name } }),
        (word(NAMES), word(or_any))
            .prop_map(|(namespace, name)| Subject::ServiceAccount { account: Account { namespace, name } }),
    ]
}

fn rule() -> impl Strategy<Value = Rule> {
    let resource = (
        words(&["get", "list", "*"]),
        words(&["", "apps", "*"]),
        words(&["pods", "pods/status", "leases", "*"]),
        any::<bool>(),
        words(&["a", "b", "*"]),
    );
    let resource = resource.prop_map(|(verbs, api_groups, resources, cluster_scope, namespaces)| ResourceRule {
        verbs,
        api_groups,
        resources,
        cluster_scope,
        namespaces,
    });
    let path = (words(&["get", "*"]), prop::collection::vec(word(&["/a", "/a/*", "*"]), 1..3));
    let path = path.prop_map(|(verbs, paths)| PathRule { verbs, paths });
    let parts = (
        prop::collection::vec(subject(), 1..4),
        prop::collection::vec(resource, 0..3),
        prop::collection::vec(path, 0..2),
    );
    parts.prop_map(|(subjects, resource_rules, non_resource_rules)| Rule {
        subjects,
        resource_rules,
        non_resource_rules,
    })
}

fn schemas() -> impl Strategy<Value = Schemas> {
    let schema = (1..4_i64, prop::collection::vec(rule(), 0..3));
    prop::collection::vec(schema, 0..12).prop_map(|all| {
        let made = |(number, (precedence, rules)): (usize, (i64, Vec<Rule>))| Schema {
            name: format!("s{number}"),
            uid: "".into(),
            level: String::new(),
            distinguisher: Distinguisher::None,
            precedence,
            rules,
        };
        let mut all: Vec<Schema> = all.into_iter().enumerate().map(made).collect();
        let rest =
            Schema { name: CATCH_ALL.into(), precedence: 10_000, rules: Vec::new(), ..made((0, (0, Vec::new()))) };
        all.push(rest);
        Schemas::new(all)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn the_index_finds_what_a_look_at_everything_finds(
        schemas in schemas(),
        name in word(&["a", "b", "x", "system:serviceaccount:a:b", "system:serviceaccount:b:x", "system:serviceaccount:a:b:c"]),
        groups in prop::collection::vec(word(NAMES), 0..3),
        verb in word(&["get", "list", "update"]),
        group in word(GROUPS), resource in word(RESOURCES), namespace in word(&["", "a", "b"]),
        path in prop::option::of(word(&["/a", "/a/b", "/b"])),
    ) {
        let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
        let user = User::new(name, &groups);
        let asked = path.unwrap_or_else(|| format!("{group}:{resource}@{namespace}"));
        let attributes = attributes(&verb, &asked);
        let found = &schemas.ordered[schemas.find(&user, &attributes)].name;
        prop_assert_eq!(found, naively(&schemas, &user, &attributes));
    }
}
