//! Option files that are missing, not files, or invalid: the server refuses to start, and reports all of them at once
//! with their options.

use holdfast_tests::authority::Authority;
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server, eventually};
use std::time::Duration;

/// Options that each name a file, and do not contradict each other.
const FILES: [&str; 21] = [
    "admission-control-config-file",
    "allow-metric-labels-manifest",
    "audit-policy-file",
    "audit-webhook-config-file",
    "authentication-config",
    "authentication-kubeconfig",
    "authentication-token-webhook-config-file",
    "authorization-policy-file",
    "authorization-webhook-config-file",
    "basic-auth-file",
    "client-ca-file",
    "encryption-provider-config",
    "peer-ca-file",
    "proxy-client-cert-file",
    "requestheader-client-ca-file",
    "service-account-key-file",
    "service-account-signing-key-file",
    "tls-cert-file",
    "tls-sni-cert-key",
    "token-auth-file",
    "tracing-config-file",
];

/// A further option, without which some of [`FILES`] would not be used.
const BESIDE: [&str; 1] = ["--authorization-mode=ABAC,Webhook"];

fn refused(folder: &Folder, file: &str) -> String {
    let of = |option: &&str| match *option {
        "tls-sni-cert-key" => format!("--{option}={file},{file}"),
        option => format!("--{option}={file}"),
    };
    let mut options: Vec<String> = FILES.iter().map(of).collect();
    options.extend([format!("--tls-private-key-file={file}"), format!("--proxy-client-key-file={file}")]);
    let options: Vec<&str> = options.iter().map(String::as_str).chain(BESIDE).collect();
    Server::try_start(&folder.join("data"), &options).err().expect("a refusal").stderr
}

/// The options that a refusal does not name.
fn unnamed<'a>(refusal: &str, options: &[&'a str]) -> Vec<&'a str> {
    options.iter().copied().filter(|option| !refusal.contains(&format!("--{option}"))).collect()
}

#[test]
fn files_that_are_not_there_are_told_together() {
    let folder = Folder::new();
    let refusal = refused(&folder, "/nowhere");
    assert_eq!(unnamed(&refusal, &FILES), [""; 0], "{refusal}");
    assert!(refusal.matches("No such file").count() >= FILES.len() - 2, "{refusal}");
}

#[test]
fn folders_are_no_files() {
    let folder = Folder::new();
    let refusal = refused(&folder, folder.path().to_str().expect("UTF-8"));
    assert_eq!(unnamed(&refusal, &FILES), [""; 0], "{refusal}");
}

#[test]
fn rubbish_is_told_together() {
    let folder = Folder::new();
    let file = folder.join("rubbish");
    std::fs::write(&file, "rubbish: [\n").expect("write");
    let refusal = refused(&folder, file.to_str().expect("UTF-8"));
    assert_eq!(unnamed(&refusal, &FILES), [""; 0], "{refusal}");
}

/// For each file: a document with several faults, and the expected messages.
const DOCUMENTS: [(&str, &str, &[&str]); 7] = [
    (
        "audit-policy-file",
        "apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: Most
- {level: Metadata, verbs: get}
",
        &["rules[0].level: Unsupported value: \"Most\"", "rules[1]: invalid type"],
    ),
    (
        "authentication-config",
        "apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer: {url: http://x, audiences: []}
typo: 1
",
        &["jwt[0].issuer.url: Invalid value", "jwt[0].issuer.audiences: Required value", "unknown field \"typo\""],
    ),
    (
        "authorization-config",
        "apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- {type: Nonsense, name: x}
- {type: Webhook, name: A B}
typo: 1
",
        &[
            "authorizers[0].type: Unsupported value",
            "authorizers[1].name: Invalid value",
            "authorizers[1].webhook: Required value",
            "unknown field \"typo\"",
        ],
    ),
    (
        "encryption-provider-config",
        "apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers: [{aesgcm: {keys: []}}, {secretbox: {keys: [{name: a, secret: x}]}}]
typo: 1
",
        &["providers[0].aesgcm.keys: Required value", "keys[0].secret: Invalid value", "unknown field \"typo\""],
    ),
    (
        "tracing-config-file",
        "apiVersion: apiserver.config.k8s.io/v1
kind: TracingConfiguration
samplingRatePerMillion: -1
endpoint: 5
typo: 1
",
        &["samplingRatePerMillion: Invalid value: -1", "endpoint: Invalid value: 5", "unknown field \"typo\""],
    ),
    (
        "authorization-policy-file",
        "rubbish\n{}\n{\"apiVersion\":\"x\",\"kind\":\"Policy\"}\n",
        &["line 1: ", "line 3: "],
    ),
    ("token-auth-file", "a\n\nb,c\n", &["line 1: must have at least 3", "line 3: must have at least 3"]),
];

#[test]
fn documents_are_told_all_that_is_wrong_with_them() {
    let folder = Folder::new();
    for (option, text, faults) in DOCUMENTS {
        let file = folder.join(option);
        std::fs::write(&file, text).expect("write");
        let given = format!("--{option}={}", file.display());
        let beside = if option == "authorization-policy-file" { "--authorization-mode=ABAC" } else { "--v=0" };
        let refusal = Server::try_start(&folder.join("data"), &[&given, beside]).err().expect("a refusal").stderr;
        assert!(refusal.contains(&format!("--{option}")), "{option}: {refusal}");
        for fault in faults {
            assert!(refusal.contains(fault), "{option}: {fault} in {refusal}");
        }
    }
}

/// A file that cannot be reloaded fails a health check, and its former content stays in effect.
#[tokio::test]
async fn a_file_that_goes_bad_is_told_by_health() {
    let folder = Folder::new();
    let file = folder.join("authorization.yaml");
    let good = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n\
                - {type: Node, name: node}\n- {type: RBAC, name: rbac}\n";
    std::fs::write(&file, good).expect("write");
    let option = format!("--authorization-config={}", file.display());
    let server = Server::start(&folder.join("data"), &[&option]);
    let admin = HttpClient::admin(&server);
    let becomes = async |code: u16| {
        eventually(Duration::from_secs(60), || async {
            let answer = admin.get("/readyz/authorization-config").await;
            if answer.code == code { Ok(answer.text()) } else { Err(answer.text()) }
        })
        .await
    };
    becomes(200).await;
    std::fs::write(&file, "authorizers: 5\n").expect("write");
    let told = becomes(500).await;
    assert!(told.contains("what they said before goes on"), "{told}");
    admin.get("/livez").await.expect(200);
    admin.get("/api/v1/namespaces").await.expect(200);
    let metrics = admin.get("/metrics").await.text();
    let counted = "apiserver_authorization_config_controller_automatic_reloads_total";
    assert!(metrics.lines().any(|line| line.starts_with(counted) && line.contains("failure")), "{metrics}");
    std::fs::remove_file(&file).expect("remove");
    becomes(500).await;
    std::fs::write(&file, good).expect("write");
    becomes(200).await;
    server.stop();
}

/// A certificate that cannot be reloaded is reported in the log, in a metric and by a health check, also in a server
/// that creates its own default certificate.
#[tokio::test]
async fn certificates_that_go_bad_are_told_by_log_metric_and_health() {
    let folder = Folder::new();
    let authority = Authority::new("servers");
    let (certificate, key) = authority.server(&["api.example.test"]).write(folder.path(), "named");
    let good = std::fs::read(&certificate).expect("read");
    let option = format!("--tls-sni-cert-key={},{}", certificate.display(), key.display());
    let server = Server::start(&folder.join("data"), &[&option]);
    let admin = HttpClient::admin(&server);
    let becomes = async |code: u16| {
        eventually(Duration::from_secs(60), || async {
            let answer = admin.get("/readyz/tls-cert-file").await;
            if answer.code == code { Ok(answer.text()) } else { Err(answer.text()) }
        })
        .await
    };
    becomes(200).await;
    std::fs::write(&certificate, "rubbish").expect("write");
    let told = becomes(500).await;
    assert!(told.contains("--tls-sni-cert-key"), "{told}");
    admin.get("/livez").await.expect(200);
    let metrics = admin.get("/metrics").await.text();
    let counted = "holdfast_tls_automatic_reloads_total";
    assert!(metrics.contains(&format!("{counted}{{status=\"failure\"}} 1")), "{metrics}");
    assert!(server.stderr().contains("certificates have changed and cannot be read"), "{}", server.stderr());
    // Clients that ask for this name are still served.
    let named = HttpClient {
        server_name: "api.example.test".into(),
        authority: authority.pem().to_owned(),
        ..HttpClient::anonymous(&server)
    };
    named.get("/version").await.expect(200);
    std::fs::write(&certificate, good).expect("write");
    becomes(200).await;
    server.stop();
}

/// The configuration of plug-ins: every fault in it is reported.
#[test]
fn plugins_are_told_all_that_is_wrong_with_their_configurations() {
    let folder = Folder::new();
    let file = folder.join("admission.yaml");
    let text = "apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
more: 1
plugins:
- name: ImagePolicyWebhook
  configuration: {imagePolicy: {allowTTL: 9999, denyTTL: x, retryBackoff: -7}}
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: most, warn-version: 1.2}
    exemptions: {usernames: jane}
- name: EventRateLimit
  configuration:
    apiVersion: eventratelimit.admission.k8s.io/v1alpha1
    kind: Configuration
    limits: [{type: All, qps: 0, burst: -1}]
- name: ResourceQuota
  path: nowhere.yaml
- name: MutatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: k}
";
    std::fs::write(&file, text).expect("write");
    let option = format!("--admission-control-config-file={}", file.display());
    let plugins = "--enable-admission-plugins=ImagePolicyWebhook,EventRateLimit";
    let refusal = Server::try_start(&folder.join("data"), &[&option, plugins]).err().expect("a refusal").stderr;
    for part in [
        "unknown field \"more\"",
        "imagePolicy.kubeConfigFile: Required value",
        "imagePolicy.allowTTL",
        "imagePolicy.denyTTL: Invalid value: \"x\"",
        "imagePolicy.retryBackoff",
        "defaults.enforce: Invalid value: \"most\"",
        "defaults.warn-version: Invalid value",
        "exemptions.usernames: Invalid value: \"jane\"",
        "limits[0].type: Unsupported value: \"All\"",
        "limits[0].qps: Invalid value: 0",
        "limits[0].burst: Invalid value: -1",
        "nowhere.yaml: No such file",
        "kubeConfigFile: Invalid value: \"k\": must be an absolute file path",
    ] {
        assert!(refusal.contains(part), "{part} in {refusal}");
    }
}
