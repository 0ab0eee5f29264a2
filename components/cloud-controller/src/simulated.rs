//! The simulated cloud in real time: its answers take the time that its description specifies, and the description is
//! reloaded when it changes.

use async_trait::async_trait;
use holdfast_cloud::simulated::{Answered, Backends, Description, NAME, Simulated};
use holdfast_runtime::Cloud;
use holdfast_world::Time;
use holdfast_world::cloud::{CloudAnswer, CloudCall, Fault, Offers};
use jiff::Timestamp;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often the description is checked for changes.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The place from which the description of a simulated cloud is read.
#[async_trait]
pub trait DescriptionSource: Send + Sync + 'static {
    /// The name of the source, for messages.
    fn name(&self) -> String;

    /// The present text of the description.
    async fn read(&self) -> Result<String, String>;
}

pub struct InTime {
    source: Option<Box<dyn DescriptionSource>>,
    offers: Offers,
    state: Mutex<SimulatedState>,
}

struct SimulatedState {
    cloud: Simulated,
    text: String,
    looked: Instant,
}

impl InTime {
    /// A simulated cloud that the source's description describes. Without a source, the only data of nodes are
    /// addresses.
    pub async fn new(source: Option<Box<dyn DescriptionSource>>) -> Result<InTime, String> {
        let text = match &source {
            Some(source) => source.read().await.map_err(|why| format!("{}: {why}", source.name()))?,
            None => String::new(),
        };
        let named = |faults: Vec<String>| {
            let name = source.as_ref().map(|source| source.name()).unwrap_or_default();
            format!("{name}: {}", faults.join(", "))
        };
        let description = Description::parse(&text).map_err(named)?;
        let offers = description.offers;
        let state = SimulatedState { cloud: Simulated::new(description), text, looked: Instant::now() };
        Ok(InTime { source, offers, state: Mutex::new(state) })
    }

    /// The backends of all balancers, as they are now.
    pub fn backends(&self) -> Vec<Backends> {
        self.state().cloud.backends(Time(Timestamp::now()))
    }

    fn state(&self) -> MutexGuard<'_, SimulatedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reloads a description that has changed. A description with faults is logged and not applied.
    async fn reload_if_changed(&self) {
        let Some(source) = &self.source else { return };
        let is_due = {
            let mut state = self.state();
            let due = state.looked.elapsed() >= LOOK_AGAIN;
            if due {
                state.looked = Instant::now();
            }
            due
        };
        if !is_due {
            return;
        }
        let text = match source.read().await {
            Ok(text) => text,
            Err(why) => return tracing::warn!(source = source.name(), why, "the cloud stays as it is described"),
        };
        let mut state = self.state();
        if state.text != text {
            match Description::parse(&text) {
                Ok(description) => {
                    tracing::info!(source = source.name(), "the description of the cloud was reloaded");
                    state.cloud.describe(description);
                }
                Err(faults) => {
                    tracing::warn!(source = source.name(), ?faults, "the cloud stays as it is described");
                }
            }
            state.text = text;
        }
    }
}

#[async_trait]
impl Cloud for InTime {
    fn name(&self) -> &str {
        NAME
    }

    fn offers(&self) -> Offers {
        self.offers
    }

    async fn call(&self, call: &CloudCall) -> Result<CloudAnswer, Fault> {
        self.reload_if_changed().await;
        let Answered { answer, millis } = self.state().cloud.call(call, Time(Timestamp::now()));
        if let Ok(millis @ 1..) = u64::try_from(millis) {
            tokio::time::sleep(Duration::from_millis(millis)).await;
        }
        answer
    }
}
