//! The whole server in this process: without sockets, and without a disk unless the log is on a disk.

use holdfast_core::authz::bootstrap::bootstrap_policy;
use holdfast_core::authz::bootstrap_objects::{bootstrap_objects, kubernetes_service};
use holdfast_core::authz::chain::Way;
use holdfast_core::authz::{PRIVILEGED_GROUP, User};
use holdfast_core::kinds::registry;
use holdfast_core::pipeline::Settings;
use holdfast_core::stamp::Stamp;
use holdfast_engine::{Clock, Engine, Log, Options};
use holdfast_service::housekeeping::{self, bootstrap};
use holdfast_transport_http::authenticate::{Anonymous, Authenticator};
use holdfast_transport_http::tokens::ServiceAccountTokens;
use holdfast_transport_http::{Builder, ServerInfoSettings, Transport, memory};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use tokio::task::JoinSet;

/// A server without a socket, for any number of users.
#[derive(Clone)]
pub struct Memory {
    transport: Arc<Transport>,
    /// The server's background tasks.
    _kept: Arc<JoinSet<()>>,
}

struct SystemClock;

impl Clock for SystemClock {
    fn stamp(&self) -> Stamp {
        Stamp { time: jiff::Timestamp::now(), seed: rand::random() }
    }
}

impl Memory {
    /// Opens the log and creates the objects of every cluster, like `holdfast up`.
    pub async fn start(log: Arc<dyn Log>) -> Memory {
        let registry = Arc::new(registry().clone());
        let options = Options::new(Settings::default(), Arc::new(SystemClock)).authorized_by(Way::Rbac);
        let engine = Engine::open(log, registry.clone(), options).expect("open the log");
        let key = rcgen::KeyPair::generate().expect("a key").serialize_pem();
        let tokens = ServiceAccountTokens::new(vec!["https://memory.test".into()], Vec::new(), Some(&key), &[]);
        let authenticator = Authenticator {
            anonymous: Anonymous::Always,
            service_accounts: Some(Arc::new(tokens.expect("a key that signs"))),
            ..Authenticator::default()
        };
        let server_info = ServerInfoSettings { address: "127.0.0.1:6443".into(), ..ServerInfoSettings::default() };
        let transport = Builder { authenticator, server_info, ..Builder::new(engine) }.build();
        let service = transport.service();
        let mut objects = bootstrap_objects();
        let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        objects.extend(kubernetes_service(&"10.0.0.0/24".parse().expect("a range"), address, 6443));
        bootstrap::ensure(service, objects, bootstrap_policy()).await.expect("the objects that every cluster has");
        tokio::spawn(housekeeping::run(service.clone()));
        let mut kept = JoinSet::new();
        transport.keep_registered(&mut kept).await.expect("the APIServices of what is served here");
        transport.set_ready();
        Memory { transport, _kept: Arc::new(kept) }
    }

    /// Stops the writer. The log is closed when the runtime has ended.
    pub fn stop(self) {
        self.transport.stop();
        self.transport.service().engine().close();
    }

    /// A client whose user is in the group system:masters.
    pub fn admin(&self) -> kube::Client {
        self.client(User::new("kubernetes-admin", &[PRIVILEGED_GROUP, "system:authenticated"]))
    }

    /// A client that acts as this user.
    pub fn client(&self, user: User) -> kube::Client {
        kube::Client::new(memory::service(self.transport.clone(), Arc::new(user)), "default")
    }
}
