//! Files that options name and that are missing, no files, or rubbish: the start is refused, and all of them are told at
//! once, each with its option.

use holdfast_tests::{Folder, Server};

/// Options that name a file each, and none of which contradicts another.
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

/// What the options are given beside.
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

/// Each file is YAML of another kind, with a field that nobody knows.
#[test]
fn documents_of_other_kinds_are_told_with_their_fields() {
    let folder = Folder::new();
    let file = folder.join("other.yaml");
    std::fs::write(&file, "apiVersion: v1\nkind: Pod\ntypo: 1\n").expect("write");
    let named = file.to_str().expect("UTF-8");
    for option in [
        "admission-control-config-file",
        "audit-policy-file",
        "authentication-config",
        "authorization-config",
        "encryption-provider-config",
        "tracing-config-file",
    ] {
        let given = format!("--{option}={named}");
        let refusal = Server::try_start(&folder.join("data"), &[&given]).err().expect("a refusal").stderr;
        assert!(refusal.contains(&format!("--{option}")), "{option}: {refusal}");
        assert!(refusal.contains("Pod") && refusal.contains("typo"), "{option}: {refusal}");
    }
}

/// The configuration of plug-ins: whatever is wrong anywhere in it.
#[test]
fn plugins_are_told_all_that_is_wrong_with_their_configurations() {
    let folder = Folder::new();
    let (file, users) = (folder.join("admission.yaml"), folder.join("users"));
    std::fs::write(&users, "users: [{name: a, user: {client-key-data: YQ==}}]").expect("write");
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
more: 1
plugins:
- name: ImagePolicyWebhook
  configuration: {{imagePolicy: {{allowTTL: 9999, denyTTL: x, retryBackoff: -7}}}}
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {{enforce: most, warn-version: 1.2}}
    exemptions: {{usernames: jane}}
- name: EventRateLimit
  configuration:
    apiVersion: eventratelimit.admission.k8s.io/v1alpha1
    kind: Configuration
    limits: [{{type: All, qps: 0, burst: -1}}]
- name: ResourceQuota
  path: nowhere.yaml
- name: MutatingAdmissionWebhook
  configuration: {{apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: k}}
"
    );
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
