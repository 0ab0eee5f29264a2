//! The plug-ins, a file each but for the smallest, and their table.
//!
//! A plug-in is about certain kinds by its nature and finds them by [`known`](crate::kinds::known); nothing else here
//! knows a kind by its name.

mod lifecycle;

use super::Attributes;
use super::settings::Configuration;
use crate::pipeline::effect::Stop;
use serde_json::Value;

/// One way to admit.
pub struct Plugin {
    pub name: &'static str,
    /// On when nothing is said.
    pub is_default: bool,
    /// On even in a server that nobody configures: one within a test, or for a look at the past.
    pub is_vital: bool,
    pub(super) mutate: Option<Step>,
    pub(super) validate: Option<Step>,
    pub(super) configure: Option<Configure>,
}

/// One half of a plug-in: it changes the object, refuses it, tells of it, or has nothing to say.
pub(super) type Step = fn(&mut Attributes<'_>) -> Result<(), Stop>;
pub(super) type Configure = fn(&mut Configuration, &Value) -> Result<(), String>;

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Plugin {
    const fn on(name: &'static str) -> Plugin {
        Plugin { name, is_default: true, is_vital: false, mutate: None, validate: None, configure: None }
    }

    const fn off(name: &'static str) -> Plugin {
        Plugin { is_default: false, ..Plugin::on(name) }
    }

    const fn vital(self) -> Plugin {
        Plugin { is_vital: true, ..self }
    }

    const fn mutate(self, step: Step) -> Plugin {
        Plugin { mutate: Some(step), ..self }
    }

    const fn validate(self, step: Step) -> Plugin {
        Plugin { validate: Some(step), ..self }
    }
}

/// All plug-ins, in the order in which they run. Those that have no step are known by name and have nothing to do here.
pub static PLUGINS: &[Plugin] =
    &[Plugin::off("AlwaysAdmit"), Plugin::on("NamespaceLifecycle").vital().mutate(lifecycle::mutate)];
