//! Which plug-ins are on, and what the operator told them.

use super::plugins::{EventLimit, ImagePolicy, Limited, NOT_BUILT, PLUGINS, Plugin, PodSecurity};
use serde_json::{Map, Value};
use std::fmt;

/// The chain: the plug-ins that are on, in their order, and what configures them.
#[derive(Debug, Clone)]
pub struct Admission {
    // Invariant: in the order of the table, with the number there.
    plugins: Vec<(u8, &'static Plugin)>,
    pub configuration: Configuration,
    /// The plug-ins that were told something.
    configured: Vec<&'static str>,
}

/// What the operator told the plug-ins.
#[derive(Debug, Clone, Default)]
pub struct Configuration {
    pub toleration_seconds: TolerationSeconds,
    pub limited_resources: Vec<Limited>,
    pub event_limits: Vec<EventLimit>,
    pub pod_security: PodSecurity,
    pub image_policy: Option<ImagePolicy>,
    /// The files that say who speaks to webhooks.
    pub mutating_users: Option<String>,
    pub validating_users: Option<String>,
    /// Node selectors by namespace, and the cluster's own.
    pub node_selectors: Map<String, Value>,
    /// The cluster's default tolerations, and those that it allows.
    pub tolerations: Value,
}

/// How long pods stay on a node that is not ready, or that nobody hears of, when they say nothing.
#[derive(Debug, Clone, Copy)]
pub struct TolerationSeconds {
    pub not_ready: i64,
    pub unreachable: i64,
}

impl Default for TolerationSeconds {
    fn default() -> Self {
        Self { not_ready: 300, unreachable: 300 }
    }
}

/// What the operator says of plug-ins by name.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    pub enabled: Vec<String>,
    pub disabled: Vec<String>,
    /// These and no others, where it is there: the older option.
    pub only: Option<Vec<String>>,
    /// Off unless they are named, though they are on by default.
    pub left_out: &'static [&'static str],
}

/// Why the chain cannot be as the operator wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigurationFault {
    NotBuilt {
        option: &'static str,
        plugin: String,
    },
    Unknown {
        option: &'static str,
        plugin: String,
    },
    Overlap {
        plugins: Vec<String>,
    },
    /// The older option beside the newer ones.
    Mixed,
    /// What is wrong with what a plug-in was told.
    Plugin {
        plugin: String,
        why: String,
    },
}

/// Those without which the state could not be trusted: a namespace that ends must end with all that is in it.
impl Default for Admission {
    fn default() -> Self {
        Admission::of(|plugin| plugin.is_vital)
    }
}

impl Admission {
    /// Those that are on in Kubernetes when nothing is said.
    pub fn standard() -> Self {
        Admission::of(|plugin| plugin.is_default)
    }

    fn of(is_on: impl Fn(&Plugin) -> bool) -> Self {
        let plugins = (0..).zip(PLUGINS).filter(|(_, plugin)| is_on(plugin)).collect();
        Self { plugins, configuration: Configuration::default(), configured: Vec::new() }
    }

    pub fn chosen(choice: &Choice) -> Result<Self, ConfigurationFault> {
        let Choice { enabled, disabled, only, left_out } = choice;
        if only.is_some() && !(enabled.is_empty() && disabled.is_empty()) {
            return Err(ConfigurationFault::Mixed);
        }
        for (option, names) in [
            ("enable-admission-plugins", enabled),
            ("disable-admission-plugins", disabled),
            ("admission-control", only.as_ref().unwrap_or(&Vec::new())),
        ] {
            if let Some(plugin) = names.iter().find(|name| NOT_BUILT.contains(&name.as_str()))
                && option != "disable-admission-plugins"
            {
                return Err(ConfigurationFault::NotBuilt { option, plugin: plugin.clone() });
            }
            let known =
                |name: &String| PLUGINS.iter().any(|plugin| plugin.name == name) || NOT_BUILT.contains(&name.as_str());
            if let Some(plugin) = names.iter().find(|name| !known(name)) {
                return Err(ConfigurationFault::Unknown { option, plugin: plugin.clone() });
            }
        }
        let both: Vec<String> = enabled.iter().filter(|name| disabled.contains(name)).cloned().collect();
        if !both.is_empty() {
            return Err(ConfigurationFault::Overlap { plugins: both });
        }
        let among = |names: &[String], plugin: &Plugin| names.iter().any(|name| name == plugin.name);
        Ok(Admission::of(|plugin| match only {
            Some(only) => among(only, plugin),
            None => {
                let is_default = plugin.is_default && !left_out.contains(&plugin.name);
                among(enabled, plugin) || (is_default && !among(disabled, plugin))
            }
        }))
    }

    /// Whether plug-ins that cannot do without a configuration have one.
    pub fn check(&self) -> Result<(), ConfigurationFault> {
        for (_, plugin) in self.plugins.iter().filter(|(_, plugin)| plugin.needs_configuration) {
            if !self.configured.contains(&plugin.name) {
                let why = "no configuration has been provided".to_owned();
                return Err(ConfigurationFault::Plugin { plugin: plugin.name.to_owned(), why });
            }
        }
        Ok(())
    }

    pub(super) fn plugins(&self) -> &[(u8, &'static Plugin)] {
        &self.plugins
    }

    pub fn has(&self, name: &str) -> bool {
        self.plugins.iter().any(|(_, plugin)| plugin.name == name)
    }

    /// Takes what the operator says of one plug-in; what is said of one that is off has no effect.
    pub fn configure(&mut self, name: &str, document: &Value) -> Result<(), ConfigurationFault> {
        let Some((_, plugin)) = self.plugins.iter().find(|(_, plugin)| plugin.name == name) else { return Ok(()) };
        let Some(configure) = plugin.configure else { return Ok(()) };
        configure(&mut self.configuration, document)
            .map_err(|why| ConfigurationFault::Plugin { plugin: name.to_owned(), why })?;
        self.configured.push(plugin.name);
        Ok(())
    }
}

impl fmt::Display for ConfigurationFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBuilt { option, plugin } => write!(f, "--{option}: {plugin} is not built yet"),
            Self::Unknown { option, plugin } => write!(f, "{option} plugin \"{plugin}\" is unknown"),
            Self::Overlap { plugins } => write!(
                f,
                "[{}] in enable-admission-plugins and disable-admission-plugins overlapped",
                plugins.join(" ")
            ),
            Self::Mixed => f.write_str(
                "admission-control and enable-admission-plugins/disable-admission-plugins flags are mutually exclusive",
            ),
            Self::Plugin { plugin, why } => {
                write!(f, "couldn't init admission plugin \"{plugin}\": {why}")
            }
        }
    }
}
