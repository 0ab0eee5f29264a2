//! Priority and fairness in the service. The service has a lock for each priority level, stores the waiting requests,
//! and passes the current time to the core.
//!
//! [`holdfast_core::flowcontrol`] decides to which flow a request belongs, which request is next and how many seats
//! there are. A request that may begin at once only takes one lock briefly. When a request frees seats, it wakes the
//! waiting requests that get these seats.

mod dump;
mod measures;
mod over_time;
mod seat;

pub use dump::Dump;
pub(crate) use measures::FlowMeasures;
pub use measures::Measures;
pub use seat::Seat;
pub(crate) use seat::Waiting;

use bytes::Bytes;
use holdfast_core::Refusal;
use holdfast_core::authz::{Attributes, User};
use holdfast_core::flowcontrol::queues::{Full, Queues};
use holdfast_core::flowcontrol::retry::RetryAfter;
use holdfast_core::flowcontrol::seats::{self, Bounds, Wish};
use holdfast_core::flowcontrol::{self, Arrival, Configuration, Distinguisher, Moment, Shape, Work, deal, work};
use holdfast_core::refusal::Plenty;
use holdfast_core::state::State;
use jiff::Timestamp;
use measures::{ByKind, Fullness, Phase, Reason};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The seats of a server, and the requests that wait for seats or hold them.
pub struct Fairness {
    total: u32,
    /// The maximum time that a request waits in a queue.
    wait_max: Duration,
    began: Instant,
    began_at: Timestamp,
    configured: RwLock<Arc<Configured>>,
    /// This lock is held while the configuration changes.
    changing: Mutex<()>,
    measures: Measures,
    /// The number of requests of each [`Kind`] that are executed now.
    in_progress: [AtomicI64; 3],
    by_kind: ByKind,
}

/// The configuration that the flow control objects define.
struct Configured {
    of: Configuration,
    /// The flows, in the order of the flow schemas in `of`.
    flows: Vec<Arc<Flow>>,
    /// The levels by name. A level that is no longer configured stays until its last request has ended.
    levels: BTreeMap<String, Arc<Level>>,
}

/// A flow schema, with the priority level of its requests.
pub struct Flow {
    pub schema: String,
    /// The UID of the flow schema, which is sent as a header of every response in this flow.
    pub schema_uid: Bytes,
    /// The UID of the priority level, which is sent as a header of every response in this flow.
    pub level_uid: Bytes,
    distinguisher: Distinguisher,
    pub(crate) level: Arc<Level>,
    measures: FlowMeasures,
}

pub(crate) struct Level {
    pub name: String,
    inside: Mutex<Inside>,
}

struct Inside {
    queues: Queues<QueuedRequest>,
    retry: RetryAfter,
    bounds: Bounds,
    /// The maximum number of seats of one request.
    seats_max: u32,
    /// The smoothed demand for seats, as a number of seats.
    smoothed: f64,
    /// Whether the level is no longer configured, and only serves its last requests.
    quiescing: bool,
    fullness: Fullness,
    /// The last values that were recorded in `fullness`.
    noted: measures::Level,
    /// The limit that metrics show for a level without a limit: a tenth of the server's seats.
    unlimited: u32,
}

/// A request that waits for seats of a level, or has them.
struct QueuedRequest {
    flow: Arc<Flow>,
    caller: Caller,
    /// Wakes the request; `None` after the request has started.
    wake: Option<oneshot::Sender<()>>,
}

/// The caller and target of a request, as dumps show them.
pub struct Caller {
    pub user: Arc<User>,
    pub verb: &'static str,
    pub asked: Wanted,
}

pub enum Wanted {
    Path(String),
    Resource(Arc<crate::ResourcePath>),
}

/// The result for a request that arrives at a level.
pub(crate) enum Entered {
    Seated(Seat),
    Waiting(Waiting),
    Refused(Refusal),
}

impl Fairness {
    pub fn new(total: u32, wait_max: Duration, state: &State, measures: Measures) -> Arc<Fairness> {
        let of = Configuration { schemas: flowcontrol::Schemas::new(Vec::new()), levels: BTreeMap::new() };
        let nothing = Configured { of, flows: Vec::new(), levels: BTreeMap::new() };
        let fairness = Fairness {
            total,
            wait_max,
            began: Instant::now(),
            began_at: Timestamp::now(),
            configured: RwLock::new(Arc::new(nothing)),
            changing: Mutex::default(),
            by_kind: measures.by_kind(),
            measures,
            in_progress: Default::default(),
        };
        fairness.configure(state);
        Arc::new(fairness)
    }

    fn now(&self) -> Moment {
        Moment::try_from(self.began.elapsed().as_nanos()).unwrap_or(Moment::MAX)
    }

    /// The wall-clock time that corresponds to `moment`.
    fn time(&self, moment: Moment) -> Timestamp {
        self.began_at.checked_add(Duration::from_nanos(moment)).unwrap_or(Timestamp::MAX)
    }

    fn configured(&self) -> Arc<Configured> {
        self.configured.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The flow to which a request with these attributes belongs.
    pub(crate) fn flow(&self, user: &User, attributes: &Attributes<'_>) -> Arc<Flow> {
        let configured = self.configured();
        configured.flows[configured.of.schemas.find(user, attributes)].clone()
    }

    /// Called when a request arrives. `work` computes the request's cost from the maximum number of seats that it may
    /// take.
    pub(crate) fn enter(
        self: &Arc<Self>,
        flow: Arc<Flow>,
        attributes: &Attributes<'_>,
        caller: Caller,
        work: impl FnOnce(u32, &FlowMeasures) -> Work,
    ) -> Entered {
        let distinguisher = flow.distinguisher.of(&caller.user, attributes);
        let hash = deal::flow(&flow.schema, distinguisher);
        let kind = Kind::of(caller.verb);
        let now = self.now();
        let mut inside = flow.level.lock();
        let work = work(inside.seats_max, &flow.measures);
        flow.measures.estimated(&work);
        let about = QueuedRequest { flow: flow.clone(), caller, wake: None };
        let seat = |ticket, phase| Seat::new(self.clone(), flow.clone(), (ticket, phase), work, kind, now);
        let arrival = inside.queues.arrive(now, hash, work, about);
        inside.settle(now);
        match arrival {
            Arrival::Started(ticket) => {
                flow.measures.starts(&work, Duration::ZERO);
                Entered::Seated(seat(ticket, Phase::Executing))
            }
            Arrival::Waiting(ticket) => {
                let (wake, told) = oneshot::channel();
                if let Some(request) = inside.queues.request_mut(ticket) {
                    request.about.wake = Some(wake);
                }
                flow.measures.waits(&work, inside.queues.waiting());
                Entered::Waiting(Waiting::new(seat(ticket, Phase::Waiting), told, self.wait_max))
            }
            Arrival::Refused(full) => {
                let reason = match full {
                    Full::Level => Reason::ConcurrencyLimit,
                    Full::Queue => Reason::QueueFull,
                };
                flow.measures.rejected(reason);
                let retry_after_seconds = inside.retry.refuse(now);
                Entered::Refused(Refusal::TooManyRequests { what: Plenty::Requests, retry_after_seconds })
            }
        }
    }

    /// The numbers of reading and of writing requests that are executed now.
    pub(crate) fn in_progress(&self) -> (u64, u64) {
        let count = |kind: Kind| u64::try_from(self.in_progress[kind as usize].load(Ordering::Relaxed)).unwrap_or(0);
        (count(Kind::Reading), count(Kind::Mutating))
    }

    /// Applies the flow control objects of this state.
    pub fn configure(&self, state: &State) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let of = Configuration::of(state);
        let before = self.configured();
        let now = self.now();
        let bounds = seats::bounds(self.total, &of.levels);
        let mut levels: BTreeMap<String, Arc<Level>> = BTreeMap::new();
        for (name, level) in &of.levels {
            let bounds = bounds[name];
            let kept = before.levels.get(name).cloned();
            let kept = kept.unwrap_or_else(|| {
                let fullness = self.measures.fullness(name);
                Arc::new(Level::new(name, bounds, (fullness, self.total / 10), now))
            });
            self.measures.bounds(name, bounds);
            self.measures.current_limit(name, kept.configure(level, bounds, now));
            levels.insert(name.clone(), kept);
        }
        for (name, level) in &before.levels {
            // A level that is no longer configured stays until its last request has ended.
            if !levels.contains_key(name) && level.fade() {
                levels.insert(name.clone(), level.clone());
            }
        }
        let flow = |schema: &flowcontrol::Schema| {
            Arc::new(Flow {
                schema: schema.name.clone(),
                schema_uid: Bytes::copy_from_slice(schema.uid.as_bytes()),
                level_uid: Bytes::copy_from_slice(of.levels[&schema.level].uid.as_bytes()),
                distinguisher: schema.distinguisher,
                level: levels[&schema.level].clone(),
                measures: self.measures.of_flow(&schema.level, &schema.name),
            })
        };
        let flows: Vec<Arc<Flow>> = of.schemas.iter().map(flow).collect();
        self.measures.keep(flows.iter().map(|flow| (&*flow.level.name, &*flow.schema)), levels.keys());
        let configured = Arc::new(Configured { of, flows, levels });
        *self.configured.write().unwrap_or_else(PoisonError::into_inner) = configured;
    }

    /// Distributes the seats again, according to the demand since the last call.
    pub fn adjust(&self) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let (configured, now) = (self.configured(), self.now());
        self.by_kind.bring_to(now);
        let levels: Vec<&Arc<Level>> = configured.levels.values().filter(|level| !level.lock().quiescing).collect();
        let wishes: Vec<(Bounds, Wish)> = levels.iter().map(|level| level.wish(now, &self.measures)).collect();
        let (seats, part) = seats::adjust(&wishes);
        for (level, seats) in levels.iter().zip(seats) {
            let mut inside = level.lock();
            self.measures.current_limit(&level.name, seats);
            let shape = inside.queues.shape();
            if shape.seats.is_some() {
                inside.queues.reshape(now, Shape { seats: Some(seats), ..shape });
                inside.settle(now);
            }
        }
        self.measures.fair_part(part);
    }
}

/// The kind of a request for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Reading,
    Mutating,
    Watching,
}

impl Kind {
    fn of(verb: &str) -> Kind {
        match verb {
            "watch" => Kind::Watching,
            "get" | "head" | "list" | "options" => Kind::Reading,
            _ => Kind::Mutating,
        }
    }
}

impl Flow {
    /// The name of the flow's priority level.
    pub fn level(&self) -> &str {
        &self.level.name
    }
}

impl Level {
    fn new(name: &str, bounds: Bounds, (fullness, unlimited): (Fullness, u32), now: Moment) -> Level {
        let queues = Queues::new(now, Shape { seats: Some(bounds.nominal), queuing: None });
        let retry = RetryAfter::default();
        let (seats_max, smoothed, quiescing) = (1, 0.0, false);
        let noted = measures::Level::default();
        let inside = Inside { queues, retry, bounds, seats_max, smoothed, quiescing, fullness, noted, unlimited };
        Level { name: name.to_owned(), inside: Mutex::new(inside) }
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies the configuration of this level. Returns the level's new number of seats.
    fn configure(&self, level: &flowcontrol::Level, bounds: Bounds, now: Moment) -> u32 {
        let mut inside = self.lock();
        let hand = level.queuing.map(|queuing| queuing.hand_size);
        let seats = match (level.exempt, inside.queues.shape().seats) {
            (true, _) => None,
            // If the bounds do not change, the level keeps borrowed seats until the next adjustment.
            (false, Some(seats)) if bounds == inside.bounds => Some(seats.max(1)),
            (false, _) => Some(bounds.nominal.max(1)),
        };
        inside.seats_max = work::seats_max(bounds.nominal, hand);
        inside.bounds = bounds;
        inside.quiescing = false;
        inside.queues.reshape(now, Shape { seats, queuing: level.queuing });
        inside.settle(now);
        seats.unwrap_or(bounds.nominal)
    }

    /// Marks the level as no longer configured. Returns whether it still has requests.
    fn fade(&self) -> bool {
        let mut inside = self.lock();
        inside.quiescing = true;
        !inside.queues.is_idle() || inside.queues.seats_taken() > 0
    }

    fn wish(&self, now: Moment, measures: &Measures) -> (Bounds, Wish) {
        let mut inside = self.lock();
        inside.settle(now);
        inside.fullness.bring_to(now);
        let demand = inside.queues.take_demand(now);
        inside.smoothed = seats::smoothed(inside.smoothed, &demand);
        measures.demand(&self.name, &demand, inside.smoothed, inside.bounds);
        let wish = match inside.queues.shape().seats {
            None => Wish::Exempt { peak: demand.max() },
            Some(_) => Wish::Limited { target: inside.smoothed },
        };
        (inside.bounds, wish)
    }
}

impl Inside {
    /// Called after each change of the level's queues or seats. Wakes requests that have started, and records how full
    /// the level is.
    fn settle(&mut self, now: Moment) {
        self.wake_started(now);
        let (queues, Shape { seats, queuing }) = (&self.queues, self.queues.shape());
        let all = seats.filter(|seats| *seats > 0).unwrap_or(self.unlimited);
        let level = measures::Level {
            demand: queues.seats_taken() + queues.seats_wanted(),
            seats: queues.seats_taken(),
            waiting: queues.waiting(),
            executing: queues.executing(),
            nominal: self.bounds.nominal,
            seats_max: all,
            waiting_max: queuing.map_or(1, |of| u64::from(of.queues.max(1)) * u64::from(of.length_max.max(1))),
        };
        self.fullness.note(now, &self.noted, &level);
        self.noted = level;
    }

    /// Wakes requests that have started. A request that is cancelled before it is woken frees its own seats.
    fn wake_started(&mut self, now: Moment) {
        for ticket in self.queues.take_started() {
            let Some(request) = self.queues.request_mut(ticket) else { continue };
            let waited = Duration::from_nanos(now.saturating_sub(request.came));
            let (work, flow, wake) = (request.work, request.about.flow.clone(), request.about.wake.take());
            flow.measures.stops_waiting(&work);
            flow.measures.starts(&work, waited);
            if let Some(wake) = wake {
                let _ = wake.send(());
            }
        }
    }
}
