//! Opens the cloud that `--cloud-provider` and `--cloud-config` name, and chooses its controllers.

use anyhow::{Context, Result, anyhow, bail};
use async_trait::async_trait;
use holdfast_cloud::simulated::Description;
use holdfast_cloud::{Settings, names};
use holdfast_cloud_controller::Provider;
use holdfast_cloud_controller::external::{Configuration, External};
use holdfast_cloud_controller::simulated::{DescriptionSource, InTime};
use holdfast_controllers::names::Choice;
use holdfast_runtime::{Act, Cloud};
use holdfast_world::cloud::{CloudAnswer, CloudCall, ClusterRef};
use holdfast_world::{Actor, Controller};
use std::path::PathBuf;
use std::sync::Arc;

const SIMULATED: &str = "simulated";
const EXTERNAL: &str = "external";
/// Cloud providers that were once built into Kubernetes' components.
const OTHERS: [&str; 11] =
    ["aws", "azure", "alicloud", "cloudstack", "fake", "gce", "mesos", "openstack", "ovirt", "photon", "vsphere"];
/// The prefix of a value that names a ConfigMap instead of a file.
const CONFIG_MAP: &str = "configmap:";
/// The key whose value in the ConfigMap is the description.
const CONFIG_MAP_KEY: &str = "cloud.yaml";

// The cloud of `holdfast up`.
#[derive(clap::Args, Debug, Clone)]
#[group(skip)]
pub struct CloudArgs {
    /// With `up`: the cloud for this cluster's load balancers, nodes and routes: simulated, or external; see
    /// docs/CLOUDS.md. With `apiserver` it has no effect and accepts any name, as in Kubernetes since 1.31.
    #[arg(long, hide = true, value_name = "NAME")]
    pub cloud_provider: Option<String>,
    /// With `up`: the file that describes the simulated cloud, or the address of the external provider. With
    /// `apiserver` it has no effect.
    #[arg(long, hide = true, value_name = "FILE")]
    pub cloud_config: Option<String>,
}

/// A cloud as the options name it, not opened yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChosenCloud {
    provider: ProviderKind,
    config: Option<Config>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProviderKind {
    Simulated,
    External,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Config {
    File(PathBuf),
    ConfigMap { namespace: String, name: String },
}

impl ChosenCloud {
    /// Parses the values of `--cloud-provider` and `--cloud-config`.
    pub fn parse(provider: &str, config: &str) -> Result<ChosenCloud> {
        let provider = match provider {
            "" => bail!("--cloud-provider cannot be empty"),
            SIMULATED => ProviderKind::Simulated,
            EXTERNAL => ProviderKind::External,
            other if OTHERS.contains(&other) => bail!(
                "--cloud-provider={other}: no vendor's cloud is built in; a provider of it is asked over gRPC with \
                 --cloud-provider={EXTERNAL}, see docs/CLOUDS.md"
            ),
            other => bail!("--cloud-provider={other}: unknown cloud provider; {SIMULATED} and {EXTERNAL} are known"),
        };
        let config = match (config, config.strip_prefix(CONFIG_MAP)) {
            ("", _) => None,
            (_, Some(named)) => {
                let place = named.split_once('/').filter(|(namespace, name)| {
                    let is_name = |text: &str| !text.is_empty() && !text.contains(['/', '?', '#', '%']);
                    is_name(namespace) && is_name(name)
                });
                let (namespace, name) =
                    place.with_context(|| format!("--cloud-config={config}: {CONFIG_MAP}NAMESPACE/NAME is meant"))?;
                Some(Config::ConfigMap { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            (file, _) => Some(Config::File(file.into())),
        };
        if provider == ProviderKind::External && config.is_none() {
            bail!("--cloud-config: give a file with the address of the provider, see docs/CLOUDS.md");
        }
        Ok(ChosenCloud { provider, config })
    }

    /// Checks a description in a file, so that a server does not start with an invalid description.
    pub fn check(&self) -> Result<()> {
        let (ProviderKind::Simulated, Some(Config::File(path))) = (self.provider, &self.config) else { return Ok(()) };
        let text = std::fs::read_to_string(path).map_err(|error| named(format!("{}: {error}", path.display())))?;
        Description::parse(&text).map_err(|faults| named(format!("{}: {}", path.display(), faults.join(", "))))?;
        Ok(())
    }

    /// Opens the cloud: connects to the provider, or reads the description.
    pub async fn open(&self, act: Arc<dyn Act>, actor: Actor) -> Result<Arc<Provider>> {
        let source: Option<Box<dyn DescriptionSource>> = self.config.as_ref().map(|config| match config {
            Config::File(path) => Box::new(File(path.clone())) as Box<dyn DescriptionSource>,
            Config::ConfigMap { namespace, name } => {
                let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
                Box::new(ConfigMap { path, act, actor })
            }
        });
        match self.provider {
            ProviderKind::Simulated => {
                let cloud = Arc::new(InTime::new(source).await.map_err(named)?);
                Ok(Arc::new(Provider::Simulated(cloud)))
            }
            ProviderKind::External => {
                let source = source.context("--cloud-config is missing")?;
                let text = source.read().await.map_err(|why| named(format!("{}: {why}", source.name())))?;
                let configuration = Configuration::parse(&text)
                    .map_err(|faults| named(format!("{}: {}", source.name(), faults.join(", "))))?;
                let cloud = External::connect(&configuration).await.map_err(|why| anyhow!(why))?;
                Ok(Arc::new(Provider::External(cloud)))
            }
        }
    }
}

fn named(why: String) -> anyhow::Error {
    anyhow!("--cloud-config={why}")
}

struct File(PathBuf);

#[async_trait]
impl DescriptionSource for File {
    fn name(&self) -> String {
        self.0.display().to_string()
    }

    async fn read(&self) -> Result<String, String> {
        std::fs::read_to_string(&self.0).map_err(|error| error.to_string())
    }
}

struct ConfigMap {
    path: String,
    act: Arc<dyn Act>,
    actor: Actor,
}

#[async_trait]
impl DescriptionSource for ConfigMap {
    fn name(&self) -> String {
        self.path.clone()
    }

    async fn read(&self) -> Result<String, String> {
        let map = self.act.get(&self.actor, &self.path).await.map_err(|refusal| refusal.message)?;
        let text = map["data"][CONFIG_MAP_KEY].as_str();
        text.map(str::to_owned).ok_or_else(|| format!("it has no key {CONFIG_MAP_KEY}"))
    }
}

/// The controllers that run with a cloud. A cloud that cannot distinguish clusters is refused unless `may_be_untagged`.
pub async fn crew(
    cloud: &dyn Cloud,
    mut settings: Settings,
    choice: &Choice,
    may_be_untagged: bool,
    act: &dyn Act,
    actor: &Actor,
) -> Result<Vec<Box<dyn Controller>>> {
    let offers = cloud.offers();
    settings.provider = cloud.name().to_owned();
    if offers.clusters {
        check_name(cloud, &settings.cluster_name, act, actor).await?;
    } else if !may_be_untagged {
        bail!(
            "no ClusterID found: cloud provider {} does not tell clusters apart; --allow-untagged-cloud lets it, where \
             no other cluster is in this cloud",
            settings.provider
        );
    }
    if !offers.instances && choice.runs(names::NODE) {
        bail!("failed to start cloud node controller: {}", names::NO_INSTANCES);
    }
    let (controllers, absent) = holdfast_cloud::all(&settings, offers, choice);
    for (name, why) in absent {
        tracing::warn!("{name} does not start: {why}");
    }
    Ok(controllers)
}

/// Fails if another cluster in this cloud has this cluster's name.
async fn check_name(cloud: &dyn Cloud, name: &str, act: &dyn Act, actor: &Actor) -> Result<()> {
    let system = act.get(actor, "/api/v1/namespaces/kube-system").await;
    let uid = system.ok().and_then(|system| system["metadata"]["uid"].as_str().map(str::to_owned));
    let clusters = cloud.call(&CloudCall::Clusters).await;
    let (Some(uid), Ok(CloudAnswer::Clusters(clusters))) = (uid, clusters) else {
        // Calls that make something in the cloud check the name again.
        tracing::warn!("could not check that no other cluster in this cloud has the name {name}; it is checked later");
        return Ok(());
    };
    match clusters.iter().find(|known| known.name == name && known.uid != uid) {
        Some(ClusterRef { uid: other, .. }) => bail!(
            "cloud provider {}: the name {name} belongs to another cluster, {other}: this one, {uid}, needs a \
             --cluster-name of its own",
            cloud.name()
        ),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_a_description_ends_the_start() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("cloud.yaml");
        let named = ChosenCloud::parse("simulated", &file.display().to_string()).expect("a file");
        assert!(named.check().is_err_and(|why| why.to_string().contains("cloud.yaml: No such file")));
        std::fs::write(&file, "adresses: []").expect("written");
        assert!(named.check().is_err_and(|why| why.to_string().contains("adresses")));
        std::fs::write(&file, "addresses: [192.0.2.0/24]").expect("written");
        named.check().expect("a description");
        // `check` finds no fault here, because the ConfigMap may be created after the server's start.
        ChosenCloud::parse("simulated", "configmap:a/b").and_then(|named| named.check()).expect("nothing to read yet");
    }

    #[test]
    fn clouds_are_named_or_refused_with_a_way_out() {
        let parse =
            |provider: &str, config: &str| ChosenCloud::parse(provider, config).map_err(|error| error.to_string());
        assert!(parse("simulated", "").is_ok() && parse("external", "f").is_ok());
        let map = Config::ConfigMap { namespace: "kube-system".into(), name: "cloud".into() };
        let named = parse("simulated", "configmap:kube-system/cloud").expect("a map");
        assert_eq!(named.config, Some(map));
        for (provider, config, why) in [
            ("", "", "--cloud-provider cannot be empty"),
            ("gce", "", "--cloud-provider=external"),
            ("aws", "f", "docs/CLOUDS.md"),
            ("nimbus", "", "unknown cloud provider"),
            ("external", "", "--cloud-config"),
            ("simulated", "configmap:cloud", "configmap:NAMESPACE/NAME"),
            ("simulated", "configmap:a/../b", "configmap:NAMESPACE/NAME"),
        ] {
            let refused = parse(provider, config).expect_err(provider);
            assert!(refused.contains(why), "{provider} {config}: {refused}");
        }
    }
}
