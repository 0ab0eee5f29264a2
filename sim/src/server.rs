//! One run of the simulated server, from start to crash.

use crate::clock::SimulatedClock;
use crate::disk::Disk;
use crate::oracle::NODE_PORTS;
use crossbeam::channel::Receiver;
use holdfast_core::authz::chain::Way;
use holdfast_core::kinds::{Registry, registry};
use holdfast_core::pipeline::Settings;
use holdfast_engine::commit::Command;
use holdfast_engine::writer::{Input, Writer};
use holdfast_engine::{Engine, Hub, Options};
use holdfast_service::{Limits, Service};
use std::cell::OnceCell;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use tokio::runtime::Runtime;

/// The capacity of a watcher's queue, in events. It is small, so that watchers often fall behind.
pub const QUEUE_EVENTS: usize = 4;

/// The capacity of the writer's queue, in commands. The simulated clients and the janitor together never send so many.
const QUEUE_COMMANDS: usize = 256;
/// The maximum number of reads in progress, and the maximum number of writes in progress. The number is low, so that
/// some requests are refused. While less than half of this number is in progress, no request is refused.
pub const PLACES: u32 = 8;

pub struct SimulatedServer {
    pub engine: Arc<Engine>,
    /// The service to which all requests are sent.
    pub service: Arc<Service>,
    pub writer: Writer,
    queue: Receiver<Input>,
    /// Runs the tasks that the engine spawns. They run on this thread, and only within `drive`.
    runtime: OnceCell<Runtime>,
}

impl SimulatedServer {
    pub fn start(disk: &Arc<Disk>, clock: &Arc<SimulatedClock>) -> Result<SimulatedServer, String> {
        // All servers share this registry, because a definition never changes it: it changes a copy.
        static REGISTRY: OnceLock<Arc<Registry>> = OnceLock::new();
        let registry = REGISTRY.get_or_init(|| Arc::new(registry().clone())).clone();
        let settings = Settings {
            service_ranges: "10.0.0.0/29".parse()?,
            node_ports: (30000, 30000 + NODE_PORTS as u16 - 1),
            ..Settings::default()
        };
        let options = Options::new(settings, clock.clone()).authorized_by(Way::Rbac);
        let hub = Hub::with_queues(QUEUE_EVENTS);
        let (engine, writer, queue) = Engine::assemble(disk.clone(), registry, options, hub, QUEUE_COMMANDS)
            .map_err(|fault| format!("the server does not start: {fault}"))?;
        let limits = Limits { reading_max: PLACES, mutating_max: PLACES };
        let door = holdfast_service::Options { limits, ..Default::default() };
        let service = Service::new(engine.clone(), door);
        Ok(SimulatedServer { engine, service, writer, queue, runtime: OnceCell::new() })
    }

    /// The async runtime of futures that have timeouts. Its clock never advances, so the timeouts never end.
    pub fn timeless() -> &'static Runtime {
        static RUNTIME: OnceLock<Runtime> = OnceLock::new();
        let build = || tokio::runtime::Builder::new_current_thread().enable_time().build();
        RUNTIME.get_or_init(|| build().unwrap_or_else(|error| panic!("no runtime: {error}")))
    }

    /// Polls a future, and then runs the tasks that it has spawned until no task can continue.
    pub fn drive<T>(&self, future: &mut (dyn Future<Output = T> + Unpin)) -> Poll<T> {
        let build = || tokio::runtime::Builder::new_current_thread().build();
        let runtime = self.runtime.get_or_init(|| build().unwrap_or_else(|error| panic!("no runtime: {error}")));
        runtime.block_on(async {
            tokio::task::yield_now().await;
            let polled = std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut *future).poll(context))).await;
            tokio::task::yield_now().await;
            polled
        })
    }

    /// Takes up to `count` commands out of the writer's queue.
    pub fn commands(&self, count: usize) -> Vec<Command> {
        let waiting = std::iter::from_fn(|| self.queue.try_recv().ok());
        let commands = waiting.filter_map(|input| match input {
            Input::Commit(command) => Some(*command),
            _ => None,
        });
        commands.take(count).collect()
    }
}
