//! Serves a data folder's API in this process, without a socket, for commands that write while no server runs.
//!
//! The rules for writes are the same as in a server, and the lock on the folder prevents a server from opening it.
//! Nothing else runs: controllers continue when a server starts.

use super::client::Client;
use crate::clock::SystemClock;
use crate::encryption::EncryptionArgs;
use anyhow::{Result, anyhow};
use holdfast_core::authz::chain::Way;
use holdfast_core::authz::{PRIVILEGED_GROUP, User};
use holdfast_core::kinds::registry;
use holdfast_core::pipeline::Settings;
use holdfast_encryption::SealedLog;
use holdfast_engine::{Engine, Options};
use holdfast_storage_rocks::{FolderFault, RocksLog};
use holdfast_transport_http::{Builder, memory};
use std::path::Path;
use std::sync::Arc;

/// An opened folder. Its writes are complete when this value is dropped.
pub struct Local {
    pub client: Client,
    engine: Arc<Engine>,
}

impl Local {
    pub fn open(folder: &Path, encryption: &EncryptionArgs) -> Result<Local> {
        let live = encryption.live()?;
        let log = RocksLog::open(folder).map_err(|fault| match fault {
            fault @ FolderFault::InUse { .. } => {
                anyhow!("{fault}. Write through it: leave out --data-dir, and name its kubeconfig with --kubeconfig")
            }
            fault => fault.into(),
        })?;
        let log = Arc::new(SealedLog::new(Arc::new(log), live));
        let options = Options::new(Settings::default(), Arc::new(SystemClock)).authorized_by(Way::Rbac);
        let options = Options { sealing: Some(log.clone()), ..options };
        let engine = Engine::open(log, Arc::new(registry().clone()), options)?;
        let runtime = crate::runtime()?;
        let client = {
            let _inside = runtime.enter();
            client(engine.clone())
        };
        Ok(Local { client: Client::inside(client, runtime, folder.display().to_string()), engine })
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.engine.close();
    }
}

fn client(engine: Arc<Engine>) -> kube::Client {
    let transport = Builder::new(engine).build();
    transport.set_ready();
    // A user who may write the folder's files may do anything with the cluster.
    let user = User::new(user_name(), &[PRIVILEGED_GROUP, "system:authenticated"]);
    kube::Client::new(memory::service(transport, Arc::new(user)), "default")
}

/// The user name in events: the name of the current user.
fn user_name() -> String {
    let named = |name: &str| std::env::var(name).ok().filter(|user| !user.is_empty());
    named("USER").or_else(|| named("LOGNAME")).unwrap_or_else(|| "root".into())
}
