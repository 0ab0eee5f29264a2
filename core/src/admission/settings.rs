//! The enabled plug-ins and their configuration.

use super::plugins::{Configuration, PLUGINS, Plugin};
use crate::object::reader::read;
use holdfast_value::Value;
use std::collections::BTreeSet;
use std::fmt;

/// The chain: the enabled plug-ins in the order in which they run, and their configuration.
#[derive(Debug, Clone)]
pub struct Admission {
    // Invariant: the plug-ins are in the order of the table [`PLUGINS`]. The number is the index of the plug-in in that
    // table.
    plugins: Vec<(u8, &'static Plugin)>,
    pub configuration: Configuration,
    /// The disabled feature gates that plug-ins check.
    pub gates_off: BTreeSet<&'static str>,
    /// The names of the plug-ins that got a configuration.
    configured: Vec<&'static str>,
}

/// The operator's choice of plug-ins by name.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    pub enabled: Vec<String>,
    pub disabled: Vec<String>,
    /// If set, exactly these plug-ins are enabled. This is kube-apiserver's older option, which excludes the newer
    /// lists `enabled` and `disabled`.
    pub only: Option<Vec<String>>,
    /// Default plug-ins that are disabled here unless `enabled` names them.
    pub left_out: &'static [&'static str],
}

/// Why the chain cannot be built as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigurationFault {
    Unknown {
        option: &'static str,
        plugin: String,
    },
    Overlap {
        plugins: Vec<String>,
    },
    /// The operator used the older option ([`Choice::only`]) together with a newer option ([`Choice::enabled`] or
    /// [`Choice::disabled`]).
    Mixed,
    /// A fault in a plug-in's configuration.
    Plugin {
        plugin: String,
        why: String,
    },
}

/// Enables only the vital plug-ins: NamespaceLifecycle and the plug-ins that check certificates.
impl Default for Admission {
    fn default() -> Self {
        Admission::of(|plugin| plugin.is_vital)
    }
}

impl Admission {
    /// The plug-ins that Kubernetes enables by default.
    pub fn standard() -> Self {
        Admission::of(|plugin| plugin.is_default)
    }

    fn of(is_on: impl Fn(&Plugin) -> bool) -> Self {
        let plugins = (0..).zip(PLUGINS).filter(|(_, plugin)| is_on(plugin)).collect();
        Self { plugins, configuration: Configuration::default(), gates_off: BTreeSet::new(), configured: Vec::new() }
    }

    /// The chain for the operator's choice, or all faults in the choice.
    pub fn chosen(choice: &Choice) -> Result<Self, Vec<ConfigurationFault>> {
        let Choice { enabled, disabled, only, left_out } = choice;
        let mut faults = Vec::new();
        if only.is_some() && !(enabled.is_empty() && disabled.is_empty()) {
            faults.push(ConfigurationFault::Mixed);
        }
        for (option, names) in [
            ("enable-admission-plugins", enabled),
            ("disable-admission-plugins", disabled),
            ("admission-control", only.as_ref().unwrap_or(&Vec::new())),
        ] {
            let unknown = names.iter().filter(|name| PLUGINS.iter().all(|plugin| plugin.name != *name));
            faults.extend(unknown.map(|plugin| ConfigurationFault::Unknown { option, plugin: plugin.clone() }));
        }
        let both: Vec<String> = enabled.iter().filter(|name| disabled.contains(name)).cloned().collect();
        if !both.is_empty() {
            faults.push(ConfigurationFault::Overlap { plugins: both });
        }
        if !faults.is_empty() {
            return Err(faults);
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

    /// The chain without the plug-ins that have these names.
    pub fn without(mut self, names: &[&str]) -> Self {
        self.plugins.retain(|(_, plugin)| !names.contains(&plugin.name));
        self
    }

    /// The chain with these feature gates disabled.
    pub fn with_gates_off(mut self, gates: &BTreeSet<&'static str>) -> Self {
        self.gates_off = gates.clone();
        self
    }

    /// Faults for the enabled plug-ins that require a configuration and have none.
    pub fn unconfigured(&self) -> Vec<ConfigurationFault> {
        let in_need = self.plugins.iter().map(|(_, plugin)| plugin).filter(|plugin| plugin.needs_configuration);
        let without = in_need.filter(|plugin| !self.configured.contains(&plugin.name));
        let why = "no configuration has been provided";
        without.map(|plugin| ConfigurationFault::Plugin { plugin: plugin.name.into(), why: why.into() }).collect()
    }

    pub(super) fn plugins(&self) -> &[(u8, &'static Plugin)] {
        &self.plugins
    }

    pub fn has(&self, name: &str) -> bool {
        self.plugins.iter().any(|(_, plugin)| plugin.name == name)
    }

    /// Configures one plug-in; returns all faults. The configuration of a disabled plug-in has no effect.
    pub fn configure(&mut self, name: &str, document: &Value) -> Vec<ConfigurationFault> {
        let Some((_, plugin)) = self.plugins.iter().find(|(_, plugin)| plugin.name == name) else { return Vec::new() };
        let Some(configure) = plugin.configure else { return Vec::new() };
        self.configured.push(plugin.name);
        let faults = read(document, |own| configure(&mut self.configuration, own)).err().unwrap_or_default();
        let of_plugin = |why| ConfigurationFault::Plugin { plugin: name.to_owned(), why };
        faults.into_iter().map(of_plugin).collect()
    }
}

impl fmt::Display for ConfigurationFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
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
