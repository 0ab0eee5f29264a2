//! The configuration of the two webhook plug-ins: a kubeconfig with the credentials for calling webhooks, one for each
//! half.

use crate::admission::plugins::Configuration;
use crate::object::reader::Reader;

const V1: &str = "apiserver.config.k8s.io/v1";
const V1_ALPHA_1: &str = "apiserver.config.k8s.io/v1alpha1";

pub(super) fn configure_mutating(configuration: &mut Configuration, document: &Reader) {
    configuration.mutating_users = Some(file(document));
}

pub(super) fn configure_validating(configuration: &mut Configuration, document: &Reader) {
    configuration.validating_users = Some(file(document));
}

/// The path of the kubeconfig. In the older version of this configuration the kind has another name.
fn file(document: &Reader) -> String {
    let (version, kind) = match document.text("apiVersion") {
        Some(V1_ALPHA_1) => (V1_ALPHA_1, "WebhookAdmission"),
        _ => (V1, "WebhookAdmissionConfiguration"),
    };
    super::configuration::check(document, version, kind);
    let file = document.text("kubeConfigFile").unwrap_or_default();
    if !file.starts_with('/') {
        document.invalid("kubeConfigFile", format!("{file:?}"), "must be an absolute file path");
    }
    file.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::reader::read;
    use holdfast_value::json;

    #[test]
    fn a_file_is_named_in_full() {
        let told = |version: &str, kind: &str, path: &str| {
            let version = format!("apiserver.config.k8s.io/{version}");
            read(&json!({"apiVersion": version, "kind": kind, "kubeConfigFile": path}), file)
        };
        assert_eq!(told("v1", "WebhookAdmissionConfiguration", "/etc/k"), Ok("/etc/k".into()));
        assert_eq!(told("v1alpha1", "WebhookAdmission", "/etc/k"), Ok("/etc/k".into()));
        assert!(told("v1", "WebhookAdmission", "/etc/k").is_err());
        assert!(told("v2", "WebhookAdmissionConfiguration", "/etc/k").is_err());
        for path in ["k", ""] {
            let fault = format!("kubeConfigFile: Invalid value: \"{path}\": must be an absolute file path");
            assert_eq!(told("v1", "WebhookAdmissionConfiguration", path), Err(vec![fault]));
        }
    }
}
