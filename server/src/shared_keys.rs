//! The keys that `holdfast up` must share between all machines of a cluster on etcd: the authorities, whose
//! certificates all servers trust, and the key that signs service account tokens.
//!
//! The first server creates these keys, and writes the fingerprints of their public keys to etcd. The operator copies
//! the files to the other machines. Private keys are never in etcd, because other users may be able to read etcd's
//! backups.

use crate::pki::{self, Pki};
use anyhow::{Context, Result, bail};
use holdfast_core::visible;
use holdfast_storage_etcd::first::Cluster;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// The value that the first server of a cluster writes to etcd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Founded {
    /// The machine from which the files are copied.
    host: String,
    /// The folder on that machine.
    folder: String,
    /// The SHA-256 digests of public keys by file name, in the form in which `kubeadm join` expects an authority's
    /// digest.
    keys: BTreeMap<String, String>,
}

/// A shared key: the file with its public part, and the private key's file if that is another file.
struct SharedKey<'p> {
    public: &'p Path,
    private: Option<&'p Path>,
}

/// Compares the keys of one machine with the keys of the machine's cluster.
pub struct SharedKeys<'e> {
    cluster: Cluster<'e>,
    pki: &'e Pki,
    host: String,
    /// Whether tokens are signed with the key in the folder, not with a key that an option names.
    signs_tokens: bool,
}

impl<'e> SharedKeys<'e> {
    pub fn new(cluster: Cluster<'e>, pki: &'e Pki, host: String, signs_tokens: bool) -> SharedKeys<'e> {
        SharedKeys { cluster, pki, host, signs_tokens }
    }

    /// Fails if the cluster has keys and this machine's keys differ from them.
    pub fn check(&self) -> Result<()> {
        match self.cluster.read()? {
            Some(found) => self.compare(&found),
            None => Ok(()),
        }
    }

    /// Makes this machine's keys the keys of the cluster. If the cluster already has keys, this machine's keys must
    /// equal them.
    pub fn agree(&self) -> Result<()> {
        let folder = self.pki.folder.canonicalize().unwrap_or_else(|_| self.pki.folder.clone());
        let keys =
            self.shared().into_iter().map(|shared| Ok((name_of(shared.public), pki::fingerprint(shared.public)?)));
        let keys = keys.collect::<Result<_>>()?;
        let own = Founded { host: self.host.clone(), folder: folder.display().to_string(), keys };
        let found = self.cluster.agree(serde_json::to_vec(&own)?.into())?;
        self.compare(&found)
    }

    fn shared(&self) -> Vec<SharedKey<'_>> {
        let Pki { authority, authority_key, front_proxy_authority, front_proxy_authority_key, .. } = self.pki;
        let mut shared = vec![
            SharedKey { public: authority, private: Some(authority_key) },
            SharedKey { public: front_proxy_authority, private: Some(front_proxy_authority_key) },
        ];
        if self.signs_tokens {
            shared.push(SharedKey { public: &self.pki.service_account_key, private: None });
        }
        shared
    }

    fn compare(&self, found: &[u8]) -> Result<()> {
        let founded: Founded = serde_json::from_slice(found).with_context(|| {
            format!(
                "{} in etcd, which another program has written, does not name the cluster's keys",
                self.cluster.key()
            )
        })?;
        let mut faults = Vec::new();
        for SharedKey { public, private } in self.shared() {
            let fault = match public.exists() {
                false => Some(format!("{} is missing", public.display())),
                true if founded.keys.get(&name_of(public)) != Some(&pki::fingerprint(public)?) => {
                    Some(format!("{} is another one", public.display()))
                }
                true => None,
            };
            let missing = private.filter(|private| !private.exists());
            faults.extend(fault);
            faults.extend(missing.map(|private| format!("{} is missing", private.display())));
        }
        if faults.is_empty() {
            return Ok(());
        }
        let files: Vec<String> = self.shared().iter().flat_map(SharedKey::files).map(name_of).collect();
        bail!(
            "the keys of this cluster were made by the server on {}, and those of this machine differ: {}. Copy {} from \
             {} of that machine to {}, and start again; docs/ETCD.md, \"Three machines\", tells more",
            visible::cell(&founded.host),
            faults.join(", "),
            files.join(", "),
            visible::cell(&founded.folder),
            self.pki.folder.display(),
        )
    }
}

impl SharedKey<'_> {
    fn files(&self) -> impl Iterator<Item = &Path> {
        [Some(self.public), self.private].into_iter().flatten()
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
