//! `--etcd-servers-overrides`: resources whose objects are in an etcd of their own.

use super::{addresses, addresses_of};
use holdfast_core::kinds::{KindId, registry};
use holdfast_storage_etcd::grpc::Address;
use std::collections::BTreeMap;

const NAME: &str = "etcd-servers-overrides";

/// An etcd that stores the objects of some kinds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    pub kinds: Vec<KindId>,
    pub members: Vec<Address>,
    /// The option as it was given.
    pub option: String,
    /// The servers, sorted, because the names of health checks and folders are made from them.
    servers: Vec<String>,
}

impl Override {
    /// The name of the folder with the copy of this etcd's events.
    pub fn folder(&self) -> String {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ',');
        self.servers.join(",").replace("://", "-").replace(|c| !is_plain(c), "_")
    }

    /// The storage paths of the kinds, below the prefix.
    pub fn places(&self) -> Vec<String> {
        self.kinds.iter().map(|kind| registry().get(*kind).storage.path.clone()).collect()
    }
}

/// The overrides by their servers, or all their faults. Resources with the same servers as `--etcd-servers` need no
/// override.
pub fn read(overrides: &[String], main: &[String]) -> Result<Vec<Override>, Vec<String>> {
    let mut found: BTreeMap<Vec<String>, Override> = BTreeMap::new();
    // Faults of `--etcd-servers` are reported elsewhere.
    let main = sorted(&addresses(main).unwrap_or_default());
    let (mut faults, mut named) = (Vec::new(), BTreeMap::new());
    for text in overrides {
        let (kind, servers) = match parse(text) {
            Ok(read) => read,
            Err(wrong) => {
                faults.extend(wrong);
                continue;
            }
        };
        if let Some(before) = named.insert(kind, text) {
            faults.push(format!("--{NAME}: {before:?} and {text:?} are about one resource"));
            continue;
        }
        let members = match addresses_of(NAME, &servers) {
            Ok(members) => members,
            Err(wrong) => {
                faults.extend(wrong);
                continue;
            }
        };
        let servers = sorted(&members);
        if servers == main {
            continue;
        }
        let new =
            || Override { kinds: Vec::new(), members, option: format!("--{NAME}={text}"), servers: servers.clone() };
        found.entry(servers.clone()).or_insert_with(new).kinds.push(kind);
    }
    if faults.is_empty() { Ok(found.into_values().collect()) } else { Err(faults) }
}

fn parse(text: &str) -> Result<(KindId, Vec<String>), Vec<String>> {
    let wrong = |why: String| vec![format!("--{NAME}={text:?}: {why}")];
    let parts: Vec<&str> = text.split('#').collect();
    let resource: Vec<&str> = parts[0].split('/').collect();
    let (&[_, servers], &[group, resource]) = (&parts[..], &resource[..]) else {
        let form =
            "it must have the form group/resource#servers, as /events#https://10.0.0.4:2379;https://10.0.0.5:2379";
        return Err(wrong(form.into()));
    };
    let kind = registry().apart(group, resource).map_err(wrong)?;
    let servers: Vec<String> = servers.split(';').filter(|url| !url.is_empty()).map(str::to_owned).collect();
    if servers.is_empty() {
        return Err(wrong("it names no servers".into()));
    }
    Ok((kind, servers))
}

fn sorted(members: &[Address]) -> Vec<String> {
    let mut servers: Vec<String> = members.iter().map(Address::to_string).collect();
    servers.sort();
    servers.dedup();
    servers
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The places of an override's resources, its folder, and the number of its members.
    type Summary = (Vec<String>, String, usize);

    fn told(overrides: &[&str]) -> Result<Vec<Summary>, Vec<String>> {
        let overrides: Vec<String> = overrides.iter().map(|text| (*text).to_owned()).collect();
        let read = read(&overrides, &["http://m:1".to_owned(), "http://n:1".to_owned()])?;
        Ok(read.iter().map(|one| (one.places(), one.folder(), one.members.len())).collect())
    }

    #[test]
    fn resources_with_the_same_servers_share_an_etcd() {
        let places = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let overrides = [
            "coordination.k8s.io/leases#https://b:2379;https://a:2379",
            "/events#http://[::1]:4002",
            "/configmaps#https://a:2379;https://b:2379",
            "/secrets#n:1;http://m:1",
        ];
        assert_eq!(
            told(&overrides).expect("overrides"),
            [
                (places(&["events"]), "http-___1__4002".into(), 1),
                (places(&["leases", "configmaps"]), "https-a_2379,https-b_2379".into(), 2),
            ]
        );
        assert_eq!(told(&[]), Ok(Vec::new()));
    }

    #[test]
    fn what_is_wrong_is_told_of_each() {
        let form = "it must have the form group/resource#servers";
        for (text, expected) in [
            ("/events/http://127.0.0.1:4002", form),
            ("/events", form),
            ("events#http://a:1", form),
            ("/events#http://a:1#http://b:1", form),
            ("a/b/c#http://a:1", form),
            ("", form),
            ("/events#", "it names no servers"),
            ("/events#;", "it names no servers"),
            ("/events#http://a", "\"http://a\" is not an address of etcd"),
            ("/events#http://a:1;ftp://a:1", "\"ftp://a:1\" is not an address of etcd"),
            ("/nonsense#http://a:1", "/nonsense is not a resource of this server"),
            ("/namespaces#http://a:1", "/namespaces must stay in the etcd of --etcd-servers"),
        ] {
            let faults = told(&[text]).expect_err(text);
            assert!(faults.len() == 1 && faults[0].starts_with("--etcd-servers-overrides"), "{text}: {faults:?}");
            assert!(faults[0].contains(expected), "{text}: {faults:?}");
        }
        let faults = told(&["/events#http://a:1", "/events#http://b:1", "x#"]).expect_err("two faults");
        assert!(faults.len() == 2 && faults[0].contains("are about one resource"), "{faults:?}");
    }
}
