//! Tests the order in which chains ask authorizers, and how chains combine the answers.

use super::*;
use crate::authz::role::RoleKind;
use crate::authz::webhook::{Condition, OnFailure, Opinion, Opinions, Question};
use holdfast_value::json;

fn rbac() -> RbacIndex {
    let mut rbac = RbacIndex::default();
    let rules = json!({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/metrics"]}]});
    rbac.put(RoleKind::ClusterRole, "", "reader", &rules);
    let subjects = json!([{"kind": "User", "name": "jane"}]);
    let binding = json!({"roleRef": {"kind": "ClusterRole", "name": "reader"}, "subjects": subjects});
    rbac.put(RoleKind::ClusterRoleBinding, "", "readers", &binding);
    rbac
}

fn webhook(name: &str, on_failure: OnFailure, conditions: &[&str]) -> Way {
    let conditions = conditions.iter().map(|text| Condition::new(text).expect("an expression")).collect();
    Way::Webhook(Webhook { name: name.into(), conditions, on_failure })
}

/// Asks the chain about `get /metrics`; webhooks get their answers from `answer`. Also returns the users that webhooks
/// were asked about.
fn ask(
    ways: Vec<Way>,
    user: &User,
    answer: impl Fn(&Question) -> crate::authz::webhook::Answer,
) -> (Judged, Vec<String>) {
    let (chain, rbac) = (Arc::new(Chain::new(ways)), rbac());
    let (mut opinions, mut asked) = (Opinions::new(), Vec::new());
    loop {
        let consulted = Consulted::of(&opinions);
        let authorizer = Authorizer { chain: &chain, rbac: &rbac, nodes: None, consulted: &consulted };
        let judged = authorizer.authorize(user, &Attributes::path("get", "/metrics"));
        let open = consulted.take_open();
        if open.is_empty() {
            return (judged, asked);
        }
        for question in open {
            asked.push(question.webhook.clone());
            let answer = answer(&question);
            opinions.insert(question, answer);
        }
    }
}

fn nobody(_: &Question) -> crate::authz::webhook::Answer {
    panic!("no webhook is asked")
}

#[test]
fn modes_are_asked_in_order() {
    let (jane, joe) = (User::new("jane", &[]), User::new("joe", &[]));
    let root = User::new("root", &[crate::authz::PRIVILEGED_GROUP]);
    let of = |names: &str| {
        let way = |mode| match mode {
            Mode::AlwaysAllow => Way::AlwaysAllow,
            Mode::AlwaysDeny => Way::AlwaysDeny,
            Mode::Rbac => Way::Rbac,
            Mode::Abac => Way::Abac(Arc::default()),
            Mode::Node => Way::Node,
            Mode::Webhook => webhook("w", OnFailure::Deny, &[]),
        };
        Mode::parse_list(&names.split(',').collect::<Vec<_>>())
            .expect("known modes")
            .into_iter()
            .map(way)
            .collect::<Vec<_>>()
    };
    let by_role = r#"RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "reader" to User "jane""#;
    let rows = [
        ("AlwaysDeny", &jane, false, "Everything is forbidden."),
        ("AlwaysDeny", &root, true, ""),
        ("AlwaysAllow", &joe, true, ""),
        ("RBAC", &joe, false, ""),
        ("AlwaysDeny,RBAC", &joe, false, "Everything is forbidden."),
        ("AlwaysDeny,RBAC", &jane, true, by_role),
        ("AlwaysDeny, AlwaysAllow", &joe, true, ""),
        ("ABAC,AlwaysDeny,Node", &joe, false, "No policy matched.\nEverything is forbidden."),
        ("ABAC,RBAC", &jane, true, by_role),
    ];
    for (modes, user, allowed, reason) in rows {
        let (judged, _) = ask(of(modes), user, nobody);
        assert_eq!((judged.is_allowed(), judged.reason()), (allowed, reason), "{modes} {}", user.name);
    }
}

#[test]
fn mode_lists() {
    assert_eq!(Mode::parse_list(&["RBAC"]), Ok(vec![Mode::Rbac]));
    assert_eq!(Mode::parse_list(&["Node", "RBAC"]), Ok(vec![Mode::Node, Mode::Rbac]));
    assert_eq!(Mode::parse_list(&[""]), Err("at least one authorization-mode must be passed".into()));
    assert_eq!(Mode::parse_list(&["ABACUS"]), Err("authorization-mode \"ABACUS\" is not a valid mode".into()));
    assert_eq!(
        Mode::parse_list(&["RBAC", "RBAC"]),
        Err("authorization-mode [\"RBAC\" \"RBAC\"] has mode specified more than once".into())
    );
    assert!(Mode::ALL.iter().all(|mode| Mode::named(mode.name()) == Some(*mode)));
}

#[test]
fn webhooks_allow_deny_fail_or_have_no_opinion() {
    let says = |allowed, denied, reason: &str| Ok(Opinion { allowed, denied, reason: reason.into() });
    let jane = User::new("jane", &[]);
    let chain = |first| vec![webhook("first", first, &[]), Way::Rbac, webhook("second", OnFailure::NoOpinion, &[])];
    let both = "webhook subject access review returned both allow and deny response";
    for (user, on_failure, answer, allowed, reason, errors, asked) in [
        ("jane", OnFailure::Deny, says(true, false, "r"), true, "r", vec![], vec!["first"]),
        ("jane", OnFailure::Deny, says(false, true, "r"), false, "r", vec![], vec!["first"]),
        ("jane", OnFailure::Deny, says(true, true, "r"), false, "r", vec![both], vec!["first"]),
        ("jane", OnFailure::Deny, Err("down".to_owned()), false, "", vec!["down"], vec!["first"]),
        ("joe", OnFailure::NoOpinion, says(false, false, "r"), false, "r\nr", vec![], vec!["first", "second"]),
        ("joe", OnFailure::NoOpinion, Err("down".into()), false, "", vec!["down", "down"], vec!["first", "second"]),
    ] {
        let user = User::new(user, &[]);
        let (judged, who) = ask(chain(on_failure), &user, |_| answer.clone());
        assert_eq!((judged.is_allowed(), judged.reason()), (allowed, reason), "{answer:?}");
        assert_eq!(
            (judged.errors.clone(), who),
            (errors.iter().map(|e| e.to_string()).collect(), asked.iter().map(|w| w.to_string()).collect::<Vec<_>>())
        );
    }
    // An authorizer without an opinion may report an error. The error is dropped if a later authorizer allows.
    let (judged, _) = ask(chain(OnFailure::NoOpinion), &jane, |_| Err("down".into()));
    assert!(judged.is_allowed() && judged.error().is_none(), "{judged:?}");
    assert_eq!(judged.by, Some((Mode::Rbac, "rbac".into())));
}

#[test]
fn conditions_keep_webhooks_from_being_asked() {
    let joe = User::new("joe", &["dev"]);
    let ask = |conditions: &[&str], on_failure| {
        let allows = |_: &Question| Ok(Opinion { allowed: true, ..Opinion::default() });
        ask(vec![webhook("w", on_failure, conditions)], &joe, allows)
    };
    let judged = |conditions: &[&str]| {
        let (judged, asked) = ask(conditions, OnFailure::Deny);
        (judged.is_allowed(), asked.len(), judged.passed_over.iter().map(|one| one.failed).collect::<Vec<_>>())
    };
    assert_eq!(judged(&["true", "request.user == 'joe'", "'dev' in request.groups"]), (true, 1, vec![]));
    assert_eq!(judged(&["has(request.resourceAttributes)"]), (false, 0, vec![false]));
    assert_eq!(judged(&["request.resourceAttributes.namespace != 'a'"]), (false, 0, vec![true]));
    // A false match condition outweighs a match condition whose evaluation failed, so the webhook is passed over.
    let both = ["request.resourceAttributes.namespace != 'a'", "has(request.resourceAttributes)"];
    assert_eq!(judged(&both), (false, 0, vec![false]));
    let (failed, _) = ask(&both[..1], OnFailure::Deny);
    let error = failed.error().expect("an error");
    assert!(matches!(failed.verdict, Verdict::Deny { .. }), "{failed:?}");
    assert!(error.starts_with("cel evaluation error: expression 'request.resourceAttributes.namespace"), "{error}");
    let (failed, _) = ask(&both[..1], OnFailure::NoOpinion);
    assert!(matches!(failed.verdict, Verdict::NoOpinion { .. }) && failed.error().is_some(), "{failed:?}");
}

#[test]
fn rules_are_joined_and_told_to_be_incomplete() {
    let known = |ways, user: &User| {
        let (chain, rbac, consulted) = (Arc::new(Chain::new(ways)), rbac(), Consulted::default());
        Authorizer { chain: &chain, rbac: &rbac, nodes: None, consulted: &consulted }.rules_for(user, "")
    };
    let (jane, node) = (User::new("jane", &[]), User::new("system:node:a", &["system:nodes"]));
    let both = known(vec![Way::Rbac, webhook("w", OnFailure::Deny, &[])], &jane);
    assert_eq!((both.rules.len(), both.is_incomplete), (1, true));
    assert_eq!(both.errors, ["webhook authorizer does not support user rule resolution"]);
    assert!(!known(vec![Way::Node, Way::Rbac], &jane).is_incomplete);
    assert_eq!(known(vec![Way::Node], &node).errors, ["node authorizer does not support user rule resolution"]);
}

#[test]
fn open_paths_are_open_to_all_and_never_resources() {
    let open = || vec![Way::Paths(vec!["/met*".parse().expect("a path")]), Way::AlwaysDeny];
    let joe = User::new("joe", &[]);
    assert!(ask(open(), &joe, nobody).0.is_allowed());
    let (chain, rbac, consulted) = (Arc::new(Chain::new(open())), rbac(), Consulted::default());
    let authorizer = Authorizer { chain: &chain, rbac: &rbac, nodes: None, consulted: &consulted };
    let target = crate::authz::ResourceTarget { resource: "metrics", ..Default::default() };
    assert!(!authorizer.authorize(&joe, &Attributes::resource("get", target)).is_allowed());
}
