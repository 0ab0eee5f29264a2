//! The whole server in this process: no socket, no disk unless the log has one.

use holdfast_core::authz::bootstrap::bootstrap_policy;
use holdfast_core::authz::bootstrap_objects::{bootstrap_objects, kubernetes_service};
use holdfast_core::authz::chain::Mode;
use holdfast_core::authz::{PRIVILEGED_GROUP, User};
use holdfast_core::kinds::registry;
use holdfast_core::pipeline::Settings;
use holdfast_core::stamp::Stamp;
use holdfast_engine::{Clock, Engine, Log, Options, bootstrap, registrar};
use holdfast_outbound::conversion::Webhooks;
use holdfast_transport_http::aggregate::Aggregator;
use holdfast_transport_http::api::{Api, Features, Limits};
use holdfast_transport_http::authenticate::Authenticator;
use holdfast_transport_http::effects::Effects;
use holdfast_transport_http::paths::Documents;
use holdfast_transport_http::tokens::ServiceAccountTokens;
use holdfast_transport_http::{Metrics, memory};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use tokio::sync::watch;

/// A server without a socket, to be asked by as many users as a test wants.
#[derive(Clone)]
pub struct Memory {
    api: Arc<Api>,
}

struct SystemClock;

impl Clock for SystemClock {
    fn stamp(&self) -> Stamp {
        Stamp { time: jiff::Timestamp::now(), seed: rand::random() }
    }
}

impl Memory {
    /// Opens the log and makes the objects that every cluster has, as `holdfast up` does.
    pub async fn start(log: Arc<dyn Log>) -> Memory {
        let registry = Arc::new(registry().clone());
        let options = Options { settings: Settings::default(), clock: Arc::new(SystemClock) };
        let engine = Engine::open(log, registry.clone(), options).expect("open the log");
        let key = rcgen::KeyPair::generate().expect("a key").serialize_pem();
        let tokens = ServiceAccountTokens::new(vec!["https://memory.test".into()], Vec::new(), Some(&key), &[]);
        let tokens = Arc::new(tokens.expect("a key that signs"));
        let aggregator = Arc::new(Aggregator::new(engine.clone(), Default::default()));
        let webhooks = Webhooks::new(&engine, aggregator.outbound());
        engine.set_outside(Arc::new(Effects { webhooks, tokens: Some(tokens.clone()) }));
        let authenticator = Authenticator {
            anonymous: true,
            static_tokens: HashMap::new(),
            service_accounts: Some(tokens),
            request_headers: Default::default(),
        };
        let api = Arc::new(Api {
            engine: engine.clone(),
            aggregator: aggregator.clone(),
            authenticator,
            modes: vec![Mode::Rbac],
            limits: Limits::default(),
            features: Features::default(),
            metrics: Metrics::default(),
            documents: Documents::new("127.0.0.1:6443".into()),
            forker: None,
            stopping: watch::Sender::new(false),
            sockets: Default::default(),
            ready: watch::Sender::new(false),
        });
        tokio::spawn(engine.clone().keep_house());
        let mut objects = bootstrap_objects();
        let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        objects.extend(kubernetes_service(&["10.0.0.0/24"], address, 6443).expect("a service"));
        bootstrap::ensure(&engine, objects, bootstrap_policy()).await.expect("the objects that every cluster has");
        let registrar = registrar::ensure(&engine).await.expect("the APIServices of what is served here");
        tokio::spawn(registrar.run(engine.clone()));
        tokio::spawn(aggregator.keep(engine.clone()));
        api.ready.send_replace(true);
        Memory { api }
    }

    /// Ends the writer; the log is let go of when the runtime that served it is gone.
    pub fn stop(self) {
        self.api.stopping.send_replace(true);
        self.api.engine.close();
    }

    /// A client of a member of system:masters.
    pub fn admin(&self) -> kube::Client {
        self.client(User::new("kubernetes-admin", &[PRIVILEGED_GROUP, "system:authenticated"]))
    }

    /// A client whom the server takes for this user.
    pub fn client(&self, user: User) -> kube::Client {
        kube::Client::new(memory::service(self.api.clone(), Arc::new(user)), "default")
    }
}
