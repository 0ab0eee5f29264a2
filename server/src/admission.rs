//! Options of admission: which plug-ins are on, and the file that configures them.

use anyhow::{Context, Result, anyhow, bail};
use holdfast_core::admission::{Admission, Choice};
use holdfast_core::object::decode;
use holdfast_outbound::Users;
use holdfast_outbound::conversion::Speakers;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;

// No doc comment: it would become the text about the command that takes these options.
#[derive(clap::Args, Debug, Clone, Default)]
#[command(next_help_heading = "Admission")]
pub struct AdmissionArgs {
    /// Plug-ins to turn on beside those that are on by default. Repeatable.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub enable_admission_plugins: Vec<String>,
    /// Plug-ins to turn off that are on by default. Repeatable.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub disable_admission_plugins: Vec<String>,
    /// The plug-ins that are on, and no others; the options above have taken its place.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub admission_control: Option<Vec<String>>,
    /// Configuration of plug-ins.
    #[arg(long, value_name = "FILE")]
    pub admission_control_config_file: Option<PathBuf>,
    /// How long pods stay on a node that is not ready, when they do not say.
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    pub default_not_ready_toleration_seconds: i64,
    /// How long pods stay on a node that nobody hears of, when they do not say.
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    pub default_unreachable_toleration_seconds: i64,
}

/// Plug-ins that Kubernetes had once: to turn one off asks for nothing.
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

/// The chain that the options ask for. `left_out` are on by default elsewhere, and not in such a server.
pub fn chain(args: &AdmissionArgs, left_out: &'static [&'static str]) -> Result<Admission> {
    let named = |names: &[String]| {
        let names = names.iter().map(|name| name.trim().to_owned());
        names.filter(|name| !name.is_empty()).collect::<Vec<String>>()
    };
    let mut disabled = named(&args.disable_admission_plugins);
    disabled.retain(|name| !GONE.contains(&name.as_str()));
    let choice = Choice {
        enabled: named(&args.enable_admission_plugins),
        disabled,
        only: args.admission_control.as_deref().map(named),
        left_out,
    };
    if let Some(gone) = choice.enabled.iter().find(|name| GONE.contains(&name.as_str())) {
        bail!("enable-admission-plugins plugin \"{gone}\" is unknown: Kubernetes has given it up");
    }
    let mut admission = Admission::chosen(&choice).map_err(|fault| anyhow!("{fault}"))?;
    let seconds = &mut admission.configuration.toleration_seconds;
    seconds.not_ready = args.default_not_ready_toleration_seconds;
    seconds.unreachable = args.default_unreachable_toleration_seconds;
    if let Some(file) = &args.admission_control_config_file {
        configure(&mut admission, file)
            .with_context(|| format!("unable to read admission control configuration from {}", file.display()))?;
    }
    admission.check().map_err(|fault| anyhow!("{fault}"))?;
    Ok(admission)
}

/// Who speaks to webhooks, as the files say that the chain was told of.
pub fn speakers(admission: &Admission) -> Result<Speakers> {
    let users = |plugin: &str, file: &Option<String>| -> Result<Option<Arc<Users>>> {
        let Some(file) = file else { return Ok(None) };
        let users = Users::from_file(Path::new(file));
        let users = users.map_err(|why| anyhow!("couldn't init admission plugin \"{plugin}\": {why}"))?;
        Ok(Some(Arc::new(users)))
    };
    let told = &admission.configuration;
    Ok(Speakers {
        mutating: users("MutatingAdmissionWebhook", &told.mutating_users)?,
        validating: users("ValidatingAdmissionWebhook", &told.validating_users)?,
    })
}

fn configure(admission: &mut Admission, file: &Path) -> Result<()> {
    let document = document(file)?;
    // Files of old had the configuration of one plug-in and no kind.
    for (field, plugin) in [("imagePolicy", "ImagePolicyWebhook"), ("podNodeSelectorPluginConfig", "PodNodeSelector")] {
        if document.get("kind").is_none() && document.get(field).is_some() {
            return admission.configure(plugin, &document).map_err(|fault| anyhow!("{fault}"));
        }
    }
    let text = |document: &Value, field: &str| document[field].as_str().unwrap_or("").to_owned();
    let (version, kind) = (text(&document, "apiVersion"), text(&document, "kind"));
    let versions = ["apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"];
    if kind != "AdmissionConfiguration" || !versions.contains(&version.as_str()) {
        bail!("no kind \"{kind}\" is registered for version \"{version}\": it must be an AdmissionConfiguration");
    }
    strict(&document, &["apiVersion", "kind", "plugins"])?;
    for plugin in document["plugins"].as_array().into_iter().flatten() {
        strict(plugin, &["name", "path", "configuration"])?;
        let name = text(plugin, "name");
        let own = match (&plugin["configuration"], text(plugin, "path")) {
            (Value::Null, path) if path.is_empty() => continue,
            (Value::Null, path) => self::document(&file.parent().unwrap_or(Path::new("")).join(path))?,
            (inline, _) => inline.clone(),
        };
        admission.configure(&name, &own).map_err(|fault| anyhow!("{fault}"))?;
    }
    Ok(())
}

fn strict(document: &Value, fields: &[&str]) -> Result<()> {
    let unknown = document.as_object().into_iter().flat_map(|object| object.keys());
    match unknown.into_iter().find(|field| !fields.contains(&field.as_str())) {
        Some(field) => bail!("strict decoding error: unknown field \"{field}\""),
        None => Ok(()),
    }
}

fn document(file: &Path) -> Result<Value> {
    let text = crate::apiserver::read(file)?;
    let decoded = decode::yaml(text.as_bytes()).map_err(|error| anyhow!("{}: {error}", file.display()))?;
    if let Some(fault) = decoded.strict_errors().first() {
        bail!("{}: strict decoding error: {fault}", file.display());
    }
    Ok(decoded.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(enabled: &[&str], disabled: &[&str]) -> Result<Admission> {
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
        let refused = speakers(&admission).err().expect("a fault").to_string();
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
            assert_eq!(chosen(enabled, disabled).expect_err("a fault").to_string(), fault);
        }
    }
}
