//! Options of admission: which plug-ins are on, and the file that configures them.

use crate::image_policy;
use holdfast_core::admission::{Admission, Choice, ConfigurationFault};
use holdfast_core::object::decode;
use holdfast_core::object::reader::read;
use holdfast_outbound::Users;
use holdfast_outbound::conversion::WebhookCredentials;
use holdfast_value::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;

// No doc comment: it would become the text about the command that takes these options.
#[derive(clap::Args, Debug, Clone, Default)]
#[command(next_help_heading = "Admission")]
pub struct AdmissionArgs {
    /// Plug-ins to turn on in addition to the default plug-ins. Repeatable.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub enable_admission_plugins: Vec<String>,
    /// Default plug-ins to turn off. Repeatable.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub disable_admission_plugins: Vec<String>,
    /// The complete list of plug-ins that are on. Deprecated: use --enable-admission-plugins and
    /// --disable-admission-plugins.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub admission_control: Option<Vec<String>>,
    /// File with the configuration of admission plug-ins: an AdmissionConfiguration.
    #[arg(long, value_name = "FILE")]
    pub admission_control_config_file: Option<PathBuf>,
    /// How long a pod without its own toleration stays on a node that is not ready, in seconds.
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    pub default_not_ready_toleration_seconds: i64,
    /// How long a pod without its own toleration stays on a node that is unreachable, in seconds.
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    pub default_unreachable_toleration_seconds: i64,
}

/// Plug-ins that Kubernetes no longer has; turning one of them off has no effect.
const GONE: [&str; 8] = [
    "DenyEscalatingExec",
    "DenyExecOnPrivileged",
    "Initializers",
    "PersistentVolumeLabel",
    "PodPreset",
    "PodSecurityPolicy",
    "ValidatingAdmissionPlugin",
    "InitialResources",
];

/// Builds the chain of plug-ins from the options, or returns all faults of the options and of the files that they name.
///
/// `left_out` are plug-ins that are on by default and off in this server.
pub fn chain(args: &AdmissionArgs, left_out: &'static [&'static str]) -> Result<Admission, Vec<String>> {
    let named = |names: &[String]| {
        let names = names.iter().map(|name| name.trim().to_owned());
        names.filter(|name| !name.is_empty()).collect::<Vec<String>>()
    };
    let (mut enabled, mut disabled) = (named(&args.enable_admission_plugins), named(&args.disable_admission_plugins));
    let mut faults = Vec::new();
    let is_gone = |name: &String| GONE.contains(&name.as_str());
    disabled.retain(|name| !is_gone(name));
    for gone in enabled.extract_if(.., |name| is_gone(name)) {
        faults.push(format!("enable-admission-plugins plugin \"{gone}\" is unknown: Kubernetes has given it up"));
    }
    let choice = Choice { enabled, disabled, only: args.admission_control.as_deref().map(named), left_out };
    let words = |faults: Vec<ConfigurationFault>| faults.into_iter().map(|fault| fault.to_string());
    let mut admission = Admission::chosen(&choice).unwrap_or_else(|found| {
        faults.extend(words(found));
        Admission::standard()
    });
    let seconds = &mut admission.configuration.toleration_seconds;
    seconds.not_ready = args.default_not_ready_toleration_seconds;
    seconds.unreachable = args.default_unreachable_toleration_seconds;
    if let Some(file) = &args.admission_control_config_file {
        let found = configure(&mut admission, file);
        let option = "--admission-control-config-file";
        let of_file =
            |why| format!("{option}: unable to read admission control configuration from {}: {why}", file.display());
        faults.extend(found.into_iter().map(of_file));
    }
    faults.extend(words(admission.unconfigured()));
    if faults.is_empty() { Ok(admission) } else { Err(faults) }
}

/// The faults of the files that the plug-in configuration names.
pub fn faults(admission: &Admission) -> Vec<String> {
    let mut faults = speakers(admission).err().unwrap_or_default();
    let policy = admission.configuration.image_policy.clone();
    faults.extend(policy.and_then(|policy| image_policy::Webhook::open(policy).err()).map(|why| format!("{why:#}")));
    faults
}

/// Builds the clients for admission webhooks from the kubeconfig files of the chain's configuration, or returns all
/// their faults.
pub fn speakers(admission: &Admission) -> Result<WebhookCredentials, Vec<String>> {
    let mut faults = Vec::new();
    let mut users = |plugin: &str, file: &Option<String>| {
        let users = Users::from_file(Path::new(file.as_ref()?));
        let found = users.map_err(|why| faults.push(format!("couldn't init admission plugin \"{plugin}\": {why}")));
        found.ok().map(Arc::new)
    };
    let told = &admission.configuration;
    let speakers = WebhookCredentials {
        mutating: users("MutatingAdmissionWebhook", &told.mutating_users),
        validating: users("ValidatingAdmissionWebhook", &told.validating_users),
    };
    if faults.is_empty() { Ok(speakers) } else { Err(faults) }
}

/// Applies an admission configuration file, and returns all its faults.
fn configure(admission: &mut Admission, file: &Path) -> Vec<String> {
    let document = match document(file) {
        Ok(document) => document,
        Err(faults) => return faults,
    };
    let words = |faults: Vec<ConfigurationFault>| faults.into_iter().map(|fault| fault.to_string());
    // An old file contains the configuration of one plug-in, without a kind.
    for (field, plugin) in [("imagePolicy", "ImagePolicyWebhook"), ("podNodeSelectorPluginConfig", "PodNodeSelector")] {
        if document.get("kind").is_none() && document.get(field).is_some() {
            return words(admission.configure(plugin, &document)).collect();
        }
    }
    let mut faults = Vec::new();
    let read = read(&document, |own| {
        let text = |field: &str| own.text(field).unwrap_or("");
        let (version, kind) = (text("apiVersion"), text("kind"));
        let versions = ["apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"];
        if kind != "AdmissionConfiguration" || !versions.contains(&version) {
            let wrong = format!("no kind \"{kind}\" is registered for version \"{version}\"");
            own.fault("", format!("{wrong}: it must be an AdmissionConfiguration"));
        }
        for plugin in own.list("plugins").unwrap_or_default() {
            let (name, path) = (plugin.text("name").unwrap_or(""), plugin.text("path").unwrap_or(""));
            let told = match (plugin.get("configuration"), path) {
                (None, "") => continue,
                (None, path) => self::document(&file.parent().unwrap_or(Path::new("")).join(path)),
                (Some(inline), _) => Ok(inline.clone()),
            };
            match told {
                Ok(told) => faults.extend(words(admission.configure(name, &told))),
                Err(found) => faults.extend(found),
            }
        }
    });
    let mut all = read.err().unwrap_or_default();
    all.extend(faults);
    all
}

fn document(file: &Path) -> Result<Value, Vec<String>> {
    let of_file = |why: &dyn std::fmt::Display| format!("{}: {why}", file.display());
    let text = std::fs::read_to_string(file).map_err(|why| vec![of_file(&why)])?;
    let decoded = decode::yaml(text.as_bytes()).map_err(|why| vec![of_file(&why)])?;
    let faults: Vec<String> =
        decoded.strict_errors().iter().map(|fault| of_file(&format!("strict decoding error: {fault}"))).collect();
    if faults.is_empty() { Ok(decoded.value) } else { Err(faults) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(enabled: &[&str], disabled: &[&str]) -> Result<Admission, Vec<String>> {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let args = AdmissionArgs {
            enable_admission_plugins: names(enabled),
            disable_admission_plugins: names(disabled),
            ..AdmissionArgs::default()
        };
        chain(&args, &["Priority"])
    }

    #[test]
    fn who_speaks_to_webhooks_stands_in_a_file() {
        let (file, users) = (tempfile::NamedTempFile::new(), tempfile::NamedTempFile::new());
        let (file, users) = (file.expect("a file"), users.expect("a file"));
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n\
             plugins: [{{name: ValidatingAdmissionWebhook, configuration: {{\
             apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: {}}}}}]\n",
            users.path().display()
        );
        std::fs::write(file.path(), text).expect("written");
        let file = Some(file.path().to_owned());
        let args = AdmissionArgs { admission_control_config_file: file, ..AdmissionArgs::default() };
        let admission = chain(&args, &[]).expect("a chain");
        std::fs::write(users.path(), "users: [{name: '*', user: {token: t}}]").expect("written");
        let found = speakers(&admission).expect("speakers");
        assert!(found.mutating.is_none() && found.validating.expect("users").speaking_to("h", 443).is_some());
        std::fs::write(users.path(), "users: [{name: '*', user: {client-key-data: YQ==}}]").expect("written");
        let refused = speakers(&admission).err().expect("a fault").concat();
        assert!(refused.starts_with("couldn't init admission plugin \"ValidatingAdmissionWebhook\": /"), "{refused}");
        assert!(refused.ends_with("user \"*\": client-certificate and client-key must be given together"), "{refused}");
    }

    #[test]
    fn plugins_are_chosen_by_name() {
        let admission = chosen(&["AlwaysPullImages"], &["ServiceAccount", "PodSecurityPolicy"]).expect("a chain");
        for (name, is_on) in [
            ("AlwaysPullImages", true),
            ("ServiceAccount", false),
            ("NamespaceLifecycle", true),
            ("Priority", false),
            ("AlwaysDeny", false),
        ] {
            assert_eq!(admission.has(name), is_on, "{name}");
        }
        assert!(chosen(&["Priority"], &[]).expect("a chain").has("Priority"));
        for (enabled, disabled, fault) in [
            (&["Nonsense"][..], &[][..], "enable-admission-plugins plugin \"Nonsense\" is unknown"),
            (&[], &["Nonsense"], "disable-admission-plugins plugin \"Nonsense\" is unknown"),
            (
                &["Priority"],
                &["Priority"],
                "[Priority] in enable-admission-plugins and disable-admission-plugins overlapped",
            ),
        ] {
            assert_eq!(chosen(enabled, disabled).expect_err("a fault"), [fault]);
        }
        assert_eq!(chosen(&["A", "PodSecurityPolicy"], &["B"]).expect_err("all faults").len(), 3);
    }
}
