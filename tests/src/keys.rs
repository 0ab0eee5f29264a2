//! The keys that servers of one cluster share. On etcd, a server starts only if it has the keys of the other servers.

use crate::authority::Authority;
use rcgen::KeyPair;
use std::path::Path;
use std::sync::OnceLock;

/// The files in `pki/` that an operator copies from one machine of a cluster to the other machines.
pub const SHARED: [&str; 5] = ["ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.key"];

/// Puts keys into a data folder without keys; all data folders get the same keys.
pub fn share(data: &Path) {
    static KEYS: OnceLock<[String; 5]> = OnceLock::new();
    let folder = data.join("pki");
    if folder.exists() {
        return;
    }
    let keys = KEYS.get_or_init(|| {
        let (users, proxies) = (Authority::new("users"), Authority::new("proxies"));
        let tokens = KeyPair::generate().expect("a key").serialize_pem();
        [users.pem().into(), users.key(), proxies.pem().into(), proxies.key(), tokens]
    });
    std::fs::create_dir_all(&folder).expect("a folder for keys");
    for (name, text) in SHARED.into_iter().zip(keys) {
        std::fs::write(folder.join(name), text).expect("a key is written");
    }
}
