//! The bounded queue to the writer's thread, and the handling of the end of the writer.
//!
//! A writer whose log waits for no disk needs no thread. Instead, each caller that queues a command also runs the
//! writer.
//!
//! No caller waits for a writer that has ended. The writer first records that it has ended and then empties the queue.
//! A caller first queues its command and then checks whether the writer has ended; if so, the caller also empties the
//! queue. So each command is either received by the writer or dropped; dropping a command answers the waiting request.

use crate::gather::{Expected, Gathering};
use crate::log::{Fault, Wake};
use crate::writer::{Input, Writer};
use crossbeam::channel::{Receiver, Sender, TrySendError, bounded};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// The pause before a health question is sent again while the queue is full.
const LOOK_PERIOD: Duration = Duration::from_millis(20);

pub struct Queue {
    inputs: Arc<Sender<Input>>,
    /// The receiving end of the queue. It outlives the writer, so that callers can empty the queue.
    left: OnceLock<Receiver<Input>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The writer, if callers run it. The inner `None` means that the writer has ended.
    turned: OnceLock<Mutex<Option<Writer>>>,
    gathering: Arc<Gathering>,
    ended: Arc<watch::Sender<Option<Ended>>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Ended {
    /// The writer has ended because it was closed.
    Stopped,
    Died(String),
}

impl Ended {
    fn of(outcome: std::thread::Result<()>) -> Ended {
        let Err(panic) = outcome else { return Ended::Stopped };
        let why = format!("the writer died: {}", words(panic.as_ref()));
        tracing::error!("{why}");
        Ended::Died(why)
    }
}

/// The health of the writer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    Well,
    /// The writer runs, but the log accepts no writes.
    ReadOnly(String),
    /// The writer has panicked, or does not answer.
    Dead(String),
}

/// The reason why an input was not queued.
pub enum Unsent {
    Full(Box<Input>),
    /// The writer has ended.
    Gone(String),
}

impl Queue {
    /// A queue for at most `inputs_max` inputs, and its receiving end for the writer.
    pub fn new(inputs_max: usize) -> (Queue, Receiver<Input>) {
        let (inputs, outputs) = bounded(inputs_max);
        let ended = Arc::new(watch::Sender::new(None));
        let (inputs, left, turned) = (Arc::new(inputs), OnceLock::new(), OnceLock::new());
        (Queue { inputs, left, thread: Mutex::default(), turned, gathering: Arc::default(), ended }, outputs)
    }

    /// Runs the writer on a thread. The writer waits at most `patience` for requests on their way.
    pub fn start(&self, writer: Writer, outputs: Receiver<Input>, patience: Duration) -> Result<(), Fault> {
        let left = self.left.get_or_init(|| outputs.clone()).clone();
        let (ended, gathering) = (self.ended.clone(), self.gathering.clone());
        let serve = move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| writer.run(&outputs, &gathering, patience)));
            ended.send_replace(Some(Ended::of(outcome)));
            drop_all(&left);
        };
        let thread = std::thread::Builder::new().name("writer".into()).spawn(serve);
        let thread = thread.map_err(|error| Fault::io("start the writer", error))?;
        *self.thread.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(thread);
        Ok(())
    }

    /// Makes callers run the writer, from now on, when they queue a command.
    pub fn turn_here(&self, writer: Writer, outputs: Receiver<Input>) {
        // An engine has one writer, so both cells are set only once.
        let _ = self.left.set(outputs);
        let _ = self.turned.set(Mutex::new(Some(writer)));
    }

    /// Whether the writer's thread waits at this moment for requests that [`Queue::expect`] announced.
    pub fn is_gathering(&self) -> bool {
        self.gathering.is_waiting()
    }

    /// Announces a request that may queue a command, so that the writer's thread waits briefly for it.
    pub fn expect<F>(&self, request: F) -> Expected<F> {
        match self.turned.get() {
            None => Expected::new(&self.gathering, request),
            Some(_) => Expected::nothing(request),
        }
    }

    pub fn hand_over(&self, input: Input) -> Result<(), Unsent> {
        let has_ended = || self.ended.borrow().is_some();
        if has_ended() {
            return Err(Unsent::Gone(self.why()));
        }
        self.inputs.try_send(input).map_err(|error| match error {
            TrySendError::Full(input) => Unsent::Full(Box::new(input)),
            TrySendError::Disconnected(_) => Unsent::Gone(self.why()),
        })?;
        self.turn();
        // The writer has ended, so nothing receives the inputs that are left. Dropping them answers their requests. If
        // the writer received this command before it ended, the command's answer has the outcome.
        if has_ended() {
            self.left.get().into_iter().for_each(drop_all);
        }
        Ok(())
    }

    /// Runs the writer on this thread while commands wait, if callers run it. Returns if another caller is running the
    /// writer, because that caller checks the queue again after releasing the lock.
    fn turn(&self) {
        let (Some(turned), Some(waiting)) = (self.turned.get(), self.left.get()) else { return };
        while !waiting.is_empty() {
            let Ok(mut place) = turned.try_lock() else { return };
            let Some(writer) = place.as_mut() else { return };
            let Ok(input) = waiting.try_recv() else { continue };
            let outcome = match catch_unwind(AssertUnwindSafe(|| writer.serve(input, waiting))) {
                Ok(true) => continue,
                Ok(false) => Ok(()),
                Err(panic) => Err(panic),
            };
            *place = None;
            self.ended.send_replace(Some(Ended::of(outcome)));
            drop_all(waiting);
        }
    }

    /// Makes the function that the log calls when other servers have appended. The function has only a weak reference
    /// to the queue, so that it does not keep the queue open.
    pub fn wake(&self, writer: &Writer) -> Wake {
        let (others, inputs) = (writer.others().clone(), Arc::downgrade(&self.inputs));
        Arc::new(move || {
            others.store(true, Ordering::Release);
            if let Some(inputs) = inputs.upgrade() {
                // If the queue is full, this send fails, but then the writer is awake and reads the tail anyway.
                let _ = inputs.try_send(Input::Tail);
            }
        })
    }

    /// Asks the writer for its health.
    pub async fn health(&self, patience: Duration) -> Health {
        let late = |_| Health::Dead(format!("the writer has not answered for {} s", patience.as_secs_f32()));
        tokio::time::timeout(patience, self.ask()).await.unwrap_or_else(late)
    }

    async fn ask(&self) -> Health {
        let (answer, answered) = oneshot::channel();
        let mut question = Input::Ask(answer);
        loop {
            match self.hand_over(question) {
                Ok(()) => break,
                // If the writer still runs, it receives inputs from the queue, so the question is sent again.
                Err(Unsent::Full(again)) => question = *again,
                Err(Unsent::Gone(why)) => return Health::Dead(why),
            }
            tokio::time::sleep(LOOK_PERIOD).await;
        }
        match answered.await {
            Ok(None) => Health::Well,
            Ok(Some(why)) => Health::ReadOnly(why),
            Err(_) => Health::Dead(self.why()),
        }
    }

    /// Resolves with the reason when the writer has died by a panic.
    pub async fn died(&self) -> String {
        let mut ended = self.ended.subscribe();
        let died = ended.wait_for(|ended| matches!(ended, Some(Ended::Died(_)))).await;
        let why = match died.as_deref() {
            Ok(Some(Ended::Died(why))) => why.clone(),
            // `ended` cannot be closed while this function runs, because its sending end is a field of this queue.
            _ => String::new(),
        };
        drop(died);
        why
    }

    /// Lets the writer finish the commands in the queue, and then ends the writer.
    pub fn close(&self) {
        if self.turned.get().is_some() {
            let _ = self.hand_over(Input::Stop);
        }
        let thread = self.thread.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        if let Some(thread) = thread {
            // A writer that died receives no input, but its queue was emptied, so this send does not block.
            let _ = self.inputs.send(Input::Stop);
            let _ = thread.join();
        }
    }

    /// The reason why the writer accepts no more commands.
    fn why(&self) -> String {
        match &*self.ended.borrow() {
            Some(Ended::Died(why)) => why.clone(),
            Some(Ended::Stopped) | None => "the server is stopping".into(),
        }
    }
}

fn drop_all(inputs: &Receiver<Input>) {
    while inputs.try_recv().is_ok() {}
}

/// The message with which a thread panicked.
fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words")
}
