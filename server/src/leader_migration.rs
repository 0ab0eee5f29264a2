//! Leader migration, the file of `--leader-migration-config`: the lease under which each controller runs while a
//! cluster moves controllers from one manager to another.
//!
//! Both managers compete for a second lease, under which the controllers that move run. The file of the leader names
//! the component that runs each of these controllers.

use holdfast_cloud::names;
use holdfast_component::election::LockKind;
use holdfast_component::options::ElectionSettings;
use holdfast_core::object::reader::{Reader, read};
use holdfast_value::Value;

const GROUP: &str = "controllermanager.config.k8s.io/";
const KIND: &str = "LeaderMigrationConfiguration";
/// The default name of the second lease.
const LEADER: &str = "cloud-provider-extraction-migration";
const ANY: &str = "*";

/// The content of a LeaderMigrationConfiguration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// The name of the second lease, under which the moving controllers run.
    pub leader: String,
    /// The resource type of the second lease's lock.
    pub lock: String,
    /// Each controller that moves, by its current name, and the component that runs it.
    moving: Vec<(String, String)>,
}

impl Default for Migration {
    fn default() -> Migration {
        let moving = [names::ROUTE, names::SERVICE, names::LIFECYCLE];
        let moving = moving.into_iter().map(|name| (name.to_owned(), ANY.to_owned())).collect();
        Migration { leader: LEADER.into(), lock: usual_lock(), moving }
    }
}

impl Migration {
    /// Reads a configuration from a document, or returns all its faults.
    pub fn parse(document: &Value) -> Result<Migration, Vec<String>> {
        read(document, |reader| {
            let version = reader.text("apiVersion").unwrap_or_default();
            if !matches!(version.strip_prefix(GROUP), Some("v1" | "v1beta1" | "v1alpha1")) {
                reader.invalid("apiVersion", format!("{version:?}"), "must be controllermanager.config.k8s.io/v1");
            }
            let kind = reader.text("kind").unwrap_or_default();
            if kind != KIND {
                reader.invalid("kind", format!("{kind:?}"), "must be LeaderMigrationConfiguration");
            }
            let lock = reader.text("resourceLock").map_or_else(usual_lock, str::to_owned);
            if lock.parse::<LockKind>().is_err() {
                reader.invalid("resourceLock", format!("{lock:?}"), "is not a kind of lock");
            }
            let leader = reader.text("leaderName").unwrap_or_default().to_owned();
            if leader.is_empty() {
                reader.required("leaderName", "");
            }
            let leaders = reader.list("controllerLeaders").unwrap_or_default();
            Migration { leader, lock, moving: leaders.iter().filter_map(moving).collect() }
        })
    }

    /// Whether this manager runs the controller under its own lease.
    pub fn stays(&self, name: &str) -> bool {
        !self.moving.iter().any(|(moving, _)| moving == name)
    }

    /// Whether this manager, which is `component`, runs the controller under the second lease.
    pub fn moves(&self, name: &str, component: &str) -> bool {
        self.moving.iter().any(|(moving, runs)| moving == name && (runs == ANY || runs == component))
    }
}

fn usual_lock() -> String {
    ElectionSettings::usual(LEADER).resource_lock
}

fn moving(reader: &Reader<'_>) -> Option<(String, String)> {
    let component = reader.text("component").unwrap_or_default();
    if component.is_empty() {
        reader.required("component", "which component runs it, or *");
    }
    let Some(name) = reader.text("name").filter(|name| !name.is_empty()) else {
        reader.required("name", "");
        return None;
    };
    let known = names::ALL.iter().find(|known| known.alias == name);
    Some((known.map_or(name, |known| known.name).to_owned(), component.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn each_controller_has_one_lease_or_runs_elsewhere() {
        let migration = Migration::parse(&json!({
            "apiVersion": "controllermanager.config.k8s.io/v1", "kind": "LeaderMigrationConfiguration",
            "leaderName": "moving",
            "controllerLeaders": [
                {"name": "route", "component": "cloud-controller-manager"},
                {"name": "service-lb-controller", "component": "kube-controller-manager"},
                {"name": "cloud-node-lifecycle", "component": "*"},
            ],
        }))
        .expect("a configuration");
        let of = |name: &str| (migration.stays(name), migration.moves(name, "cloud-controller-manager"));
        assert_eq!(of(names::ROUTE), (false, true));
        assert_eq!(of(names::SERVICE), (false, false));
        assert_eq!(of(names::LIFECYCLE), (false, true));
        assert_eq!(of(names::NODE), (true, false));
        let usual = Migration::default();
        assert!(usual.moves(names::SERVICE, "cloud-controller-manager") && usual.stays(names::NODE));
    }

    #[test]
    fn what_is_wrong_is_told_together() {
        let faults = Migration::parse(&json!({
            "apiVersion": "v1", "kind": "X", "resourceLock": "nothing", "colour": "red",
            "controllerLeaders": [{"component": "*"}, {"name": "route"}],
        }))
        .expect_err("faulty");
        assert_eq!(faults.len(), 7, "{faults:#?}");
    }
}
