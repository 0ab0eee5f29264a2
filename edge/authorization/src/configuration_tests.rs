//! Tests which configurations are accepted, and which errors the others give.

use super::*;
use holdfast_core::authz::chain::Way;
use holdfast_outbound::Dialer;
use holdfast_value::json;

fn read(document: Value) -> Result<Vec<String>, Vec<String>> {
    let told = |authorizer: Authorizer| match authorizer {
        Authorizer::Of(mode) => mode.name().to_owned(),
        Authorizer::Webhook { webhook, connection } => format!(
            "{} {:?} {:?} {:?} {:?} {:?} {}",
            webhook.name,
            connection.version,
            connection.timeout,
            connection.allowed_time,
            connection.other_time,
            webhook.on_failure,
            webhook.conditions.len()
        ),
    };
    Configuration::read(&document.to_string()).map(|read| read.authorizers.into_iter().map(told).collect())
}

fn file(authorizers: Value) -> Value {
    json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration", "authorizers": authorizers})
}

fn webhook(change: impl Fn(&mut Value)) -> Value {
    let mut webhook = json!({
        "timeout": "2s", "subjectAccessReviewVersion": "v1", "failurePolicy": "Deny",
        "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": "/etc/hosts"},
    });
    change(&mut webhook);
    file(json!([{"type": "Webhook", "name": "a.example.com", "webhook": webhook}]))
}

#[test]
fn a_file_names_authorizers_in_their_order() {
    let all = json!([{"type": "Node", "name": "node"}, {"type": "RBAC", "name": "rbac"}, {"type": "AlwaysDeny", "name": "alwaysdeny"}]);
    assert_eq!(read(file(all)), Ok(vec!["Node".into(), "RBAC".into(), "AlwaysDeny".into()]));
    assert_eq!(read(webhook(|_| ())), Ok(vec!["a.example.com V1 2s 300s 30s Deny 0".into()]));
    let told = read(webhook(|own| {
        own["authorizedTTL"] = "1m".into();
        own["cacheUnauthorizedRequests"] = false.into();
        own["subjectAccessReviewVersion"] = "v1beta1".into();
        own["failurePolicy"] = "NoOpinion".into();
        own["matchConditionSubjectAccessReviewVersion"] = "v1".into();
        own["matchConditions"] = json!([{"expression": "has(request.resourceAttributes)"}]);
    }));
    assert_eq!(told, Ok(vec!["a.example.com V1Beta1 2s 60s 0ns NoOpinion 1".into()]));
    // If the configuration has no webhook authorizers, the chain has no webhooks to call.
    let (chain, webhooks) = crate::chain(vec![Authorizer::Of(Mode::Rbac)], None, &Dialer::Direct).expect("a chain");
    assert!(chain.has(Mode::Rbac) && webhooks.is_empty());
    assert!(crate::chain(vec![Authorizer::Of(Mode::Abac)], None, &Dialer::Direct).is_err());
    assert_eq!(Way::Rbac.mode(), Some(Mode::Rbac));
}

#[test]
fn all_faults_come_at_once_with_their_paths() {
    let faults = |document: Value| read(document).expect_err("faults");
    assert_eq!(
        faults(json!({"kind": "X", "apiVersion": "v1"})),
        [
            "no kind \"X\" is registered for version \"v1\"",
            "authorizers: Required value: at least one authorization mode must be defined",
        ]
    );
    let many = json!([
        {"name": "x"}, {"type": "X", "name": "x"}, {"type": "RBAC", "name": "rbac"}, {"type": "RBAC", "name": "rbac"},
        {"type": "Node", "name": "N_"}, {"type": "ABAC", "name": "other"}, {"type": "Webhook", "name": "w"},
        {"type": "AlwaysAllow", "name": "alwaysallow", "webhook": {"timeout": "1s"}, "more": 1},
    ]);
    let told = faults(file(many));
    for expected in [
        "authorizers[0].type: Required value",
        "authorizers[1].type: Unsupported value: \"X\": supported values: \"ABAC\", \"AlwaysAllow\", \"AlwaysDeny\", \
         \"Node\", \"RBAC\", \"Webhook\"",
        "authorizers[3].type: Duplicate value: \"RBAC\"",
        "authorizers[3].name: Duplicate value: \"rbac\"",
        "authorizers[5].name: Invalid value: \"other\": must be \"abac\" when type=ABAC",
        "authorizers[6].webhook: Required value: required when type=Webhook",
        "authorizers[7].webhook: Invalid value: \"non-null\": may only be specified when type=Webhook",
    ] {
        assert!(told.iter().any(|fault| fault == expected), "{expected}: {told:#?}");
    }
    assert!(
        told.iter()
            .any(|fault| fault.starts_with("authorizers[4].name: Invalid value: \"N_\": authorizer name is invalid: "))
    );
    assert!(told.iter().any(|fault| fault.contains("more")), "{told:#?}");
    let told = faults(webhook(|own| {
        *own = json!({
            "timeout": "31s", "authorizedTTL": "0s", "unauthorizedTTL": "x", "subjectAccessReviewVersion": "v2",
            "matchConditions": [{"expression": "request.user"}, {"expression": " "}, {"expression": "true"}, {"expression": "true"}],
            "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": "a"}, "strange": 1,
        });
    }));
    for expected in [
        "webhook.timeout: Invalid value: \"31s\": must be > 0s and <= 30s",
        "webhook.authorizedTTL: Invalid value: \"0s\": must be > 0s",
        "webhook.unauthorizedTTL: Invalid value: \"x\": must be a duration",
        "webhook.subjectAccessReviewVersion: Unsupported value: \"v2\": supported values: \"v1\", \"v1beta1\"",
        "webhook.failurePolicy: Required value",
        "webhook.matchConditionSubjectAccessReviewVersion: Required value: required if match conditions are specified",
        "webhook.matchConditions[0].expression: Invalid value: \"request.user\": must evaluate to bool",
        "webhook.matchConditions[1].expression: Required value",
        "webhook.matchConditions[3].expression: Duplicate value: \"true\"",
        "webhook.connectionInfo.kubeConfigFile: Invalid value: \"a\": must be an absolute path",
    ] {
        let expected = format!("authorizers[0].{expected}");
        assert!(told.contains(&expected), "{expected}: {told:#?}");
    }
    assert!(told.iter().any(|fault| fault.contains("strange")), "{told:#?}");
    for (connection, expected) in [
        (json!({}), "type: Required value"),
        (
            json!({"type": "X"}),
            "type: Unsupported value: \"X\": supported values: \"InClusterConfig\", \"KubeConfigFile\"",
        ),
        (json!({"type": "KubeConfigFile"}), "kubeConfigFile: Required value"),
        (
            json!({"type": "KubeConfigFile", "kubeConfigFile": "/"}),
            "kubeConfigFile: Invalid value: \"/\": must be a regular file",
        ),
    ] {
        let told = faults(webhook(|own| own["connectionInfo"] = connection.clone()));
        assert_eq!(told, [format!("authorizers[0].webhook.connectionInfo.{expected}")]);
    }
    assert!(Configuration::read("{").is_err());
}
