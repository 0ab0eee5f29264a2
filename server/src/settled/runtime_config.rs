//! `--runtime-config`: which APIs are to be served. All of them are, always.

use holdfast_component::values::parse_bool;
use holdfast_core::kinds::registry;

/// Stands for many group versions, whatever is served of them.
const MANY: &[&str] = &["api/all", "api/ga", "api/beta", "api/alpha"];

/// `NAME` and `NAME=BOOL`, separated by commas; a name is a group version, a resource of one, or stands for many.
pub fn takes(text: &str) -> Result<(), String> {
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, "true"));
        if !MANY.contains(&name) && !is_served(name) {
            return Err(format!("{name} is not served"));
        }
        if !value.is_empty() && !parse_bool(value)? {
            return Err(format!("{name} cannot be turned off: this server serves every version of every API"));
        }
    }
    Ok(())
}

fn is_served(name: &str) -> bool {
    let parts: Vec<&str> = name.split('/').collect();
    let (group, version, resource) = match parts[..] {
        ["v1"] | ["api", "v1"] => ("", "v1", None),
        [group, version] => (group, version, None),
        [group, version, resource] => (group, version, Some(resource)),
        _ => return false,
    };
    let registry = registry();
    let mut kinds = registry.served(group, version).map(|(kind, _)| kind);
    match resource {
        None => kinds.next().is_some(),
        Some(resource) => {
            kinds.any(|kind| registry.iter().any(|(id, served)| id == kind && served.resource == resource))
        }
    }
}
