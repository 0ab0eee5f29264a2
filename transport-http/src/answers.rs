//! The memory of responses until they are sent. A response that was made as a whole waits for the client to read it.
//! The memory of these responses is bounded and shared among users. A response that takes long is made on a thread of
//! its own, so that no other request waits for it.
//!
//! Most responses are bytes that the state has anyway, or are made from such bytes while they are sent. YAML, indented
//! lists and tables of one object need memory of their own. A client that does not read would occupy this memory, and
//! the memory of one piece of a list, for a minute.

use crate::held::Held;
use crate::respond::{self, OWN_BYTES_MIN, Response, Shape};
use holdfast_core::Refusal;
use holdfast_core::authz::User;
use holdfast_engine::{Charge, Cut, Kept, Length, ReadMemory, Reader, Reads};
use std::sync::Weak;

/// If at most this many bytes of objects must be converted for an answer, the worker that answers the request converts
/// them. More bytes are converted on a thread of low priority.
pub const QUICK_BYTES_MAX: usize = 256 << 10;

/// Makes responses and counts their memory. Clones share the same bounds.
#[derive(Clone)]
pub struct Answers {
    memory: ReadMemory,
    /// The threads for work that takes long, on which users take turns.
    threads: Reads,
}

impl Answers {
    pub fn new(memory: ReadMemory) -> Answers {
        Answers { threads: Reads::of_processors(memory.clone()), memory }
    }

    /// Runs `work` on `bytes` bytes of objects, on this worker thread if the bytes are at most [`QUICK_BYTES_MAX`].
    pub async fn make<T: Send + 'static>(
        &self,
        user: &User,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        // The future for long work is boxed, so that requests with quick work need no room for it.
        if bytes <= QUICK_BYTES_MAX { work() } else { Box::pin(self.aside(user, work)).await }
    }

    /// Runs long work on a thread of low priority when it is the user's turn.
    pub async fn aside<T: Send + 'static>(&self, user: &User, work: impl FnOnce() -> T + Send + 'static) -> T {
        self.threads.run_for(&Reader::of(user), Length::Long, work).await
    }

    /// Reserves the memory that a stream needs for one event, until the event is sent. Waits while the user uses more
    /// than its share.
    pub async fn room(&self, user: &User, bytes: usize) -> Charge {
        self.memory.room(&Reader::of(user), bytes as u64).await
    }

    /// Counts the memory of a response for its user until the response is sent. `counted` is already counted, and
    /// `keep` counts the objects of the state that the response refers to. If there is no room for the response and
    /// these objects, the response becomes a refusal.
    pub fn hold(
        &self,
        user: &User,
        mut response: Response,
        (counted, shape): (Option<Charge>, Shape),
        keep: impl FnOnce(&Reader, Weak<dyn Cut>) -> Result<Kept, Refusal>,
    ) -> Response {
        let Some(held) = response.extensions_mut().remove::<Held>() else { return response };
        if held.bytes <= OWN_BYTES_MIN && counted.is_none() && !held.is_shared {
            return response;
        }
        let reader = Reader::of(user);
        let pieces = held.counted().pieces.clone();
        let state = match (&counted, pieces) {
            // A response that is already counted does not refer to the newest state's objects.
            (None, Some(pieces)) if held.is_shared => keep(&reader, pieces).map(Some),
            _ => Ok(None),
        };
        match state.and_then(|state| Ok((state, self.memory.take(&reader, held.bytes as u64)?))) {
            Ok((state, charge)) => {
                held.counted().state = state;
                counted.into_iter().chain([charge]).for_each(|charge| held.count(charge));
                response
            }
            Err(refusal) => respond::refusal(&refusal, shape),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn nobody_holds_the_room_of_all_answers() {
        let answers = Answers::new(ReadMemory::new(512 << 20));
        let (greedy, other) = (User::new("a", &[]), User::new("b", &[]));
        let ask = |user: &User| {
            let whole = respond::content(200, vec![0; 32 << 20].into(), respond::JSON, false);
            answers.hold(user, whole, (None, Shape::PLAIN), |_, _| panic!("it is not the state's"))
        };
        let held: Vec<Response> = (0..20).map(|_| ask(&greedy)).collect();
        let codes: Vec<u16> = held.iter().map(|answer| answer.status().as_u16()).collect();
        assert_eq!(codes, [[200; 8].as_slice(), [429; 12].as_slice()].concat());
        assert_eq!(ask(&other).status(), 200);
        assert_eq!(ask(&User::new("root", &["system:masters"])).status(), 200);
        drop(held);
        assert_eq!(answers.memory.told().bytes, 0);
        assert_eq!(ask(&greedy).status(), 200);
    }

    #[test]
    fn what_the_state_has_as_well_is_not_counted() {
        let shared = Bytes::from(vec![0; 100_000]);
        let is_counted =
            |body: Bytes| respond::content(200, body, respond::JSON, false).extensions().get::<Held>().is_some();
        assert!(!is_counted(shared.clone()) && !is_counted(shared.slice(..10_000)));
        assert!(is_counted(vec![0; 10_000].into()) && is_counted(vec![0; 100_000].into()));
        assert!(!is_counted(vec![0; 1_000].into()));
    }
}
