//! Who speaks to webhooks: the operator names a kubeconfig for either half of them.

use crate::admission::settings::Configuration;
use serde_json::Value;

const V1: &str = "apiserver.config.k8s.io/v1";
const V1_ALPHA_1: &str = "apiserver.config.k8s.io/v1alpha1";

pub(super) fn configure_mutating(configuration: &mut Configuration, document: &Value) -> Result<(), String> {
    configuration.mutating_users = Some(file(document)?);
    Ok(())
}

pub(super) fn configure_validating(configuration: &mut Configuration, document: &Value) -> Result<(), String> {
    configuration.validating_users = Some(file(document)?);
    Ok(())
}

/// The kind has another name in its older version.
fn file(document: &Value) -> Result<String, String> {
    let (version, kind) = match document["apiVersion"].as_str() {
        Some(V1_ALPHA_1) => (V1_ALPHA_1, "WebhookAdmission"),
        _ => (V1, "WebhookAdmissionConfiguration"),
    };
    super::configuration::check(document, version, kind, &["kubeConfigFile"])?;
    let file = document["kubeConfigFile"].as_str().unwrap_or_default();
    if !file.starts_with('/') {
        return Err(format!("kubeConfigFile: Invalid value: \"{file}\": must be an absolute file path"));
    }
    Ok(file.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_file_is_named_in_full() {
        let told = |version: &str, kind: &str, path: &str| {
            file(
                &json!({"apiVersion": format!("apiserver.config.k8s.io/{version}"), "kind": kind, "kubeConfigFile": path}),
            )
        };
        assert_eq!(told("v1", "WebhookAdmissionConfiguration", "/etc/k"), Ok("/etc/k".into()));
        assert_eq!(told("v1alpha1", "WebhookAdmission", "/etc/k"), Ok("/etc/k".into()));
        assert!(told("v1", "WebhookAdmission", "/etc/k").is_err());
        assert!(told("v2", "WebhookAdmissionConfiguration", "/etc/k").is_err());
        for path in ["k", ""] {
            let fault = format!("kubeConfigFile: Invalid value: \"{path}\": must be an absolute file path");
            assert_eq!(told("v1", "WebhookAdmissionConfiguration", path), Err(fault));
        }
    }
}
