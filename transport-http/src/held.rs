//! Answers that are made whole wait for whoever asked to read them. What they hold meanwhile is bounded, and nobody
//! holds it all; and what takes long is made where no other request waits for it.
//!
//! Most answers are bytes that the state holds anyway, or are made of them while they go out. YAML, indented lists and
//! single tables are not, and a reader who never comes would keep each of them, and a piece of every list, for a minute.

use crate::respond::{self, Response, Shape};
use bytes::Bytes;
use holdfast_core::Refusal;
use holdfast_core::authz::User;
use holdfast_core::refusal::Plenty;
use holdfast_engine::Reads;
use holdfast_service::{Share, Shares};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How many bytes of such answers are held at once, of all users.
const ANSWERS_BYTES_MAX: u64 = 512 << 20;
/// How many bytes of objects are written in other forms where requests are answered.
const QUICK_BYTES_MAX: usize = 256 << 10;

/// How often a stream looks whether there is room for its next event.
const ROOM_PERIOD: Duration = Duration::from_millis(100);

/// Room for answers that are made whole. Cloning gives the same.
#[derive(Clone)]
pub struct Answers {
    room: Shares,
    /// For what takes long.
    threads: Reads,
}

/// What one answer holds until it has gone out. Its body keeps a clone, and gives the room back when it is dropped.
#[derive(Clone)]
pub struct Held {
    bytes: usize,
    share: Arc<OnceLock<Share>>,
}

impl Held {
    pub fn new(bytes: usize) -> Held {
        Held { bytes, share: Arc::default() }
    }

    /// The pieces, which keep the room until the last of them is gone.
    pub fn over<I: Iterator<Item = Bytes>>(self, pieces: I) -> impl Iterator<Item = Bytes> + use<I> {
        pieces.inspect(move |_| {
            let _held = &self.share;
        })
    }
}

impl Default for Answers {
    fn default() -> Answers {
        Answers { room: Shares::new(ANSWERS_BYTES_MAX), threads: Reads::default() }
    }
}

impl Answers {
    /// Has something made of so many bytes of objects.
    pub async fn make<T: Send + 'static>(&self, bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> T {
        // What takes long is in a box: what is quick need not make room for it.
        if bytes <= QUICK_BYTES_MAX { work() } else { Box::pin(self.aside(work)).await }
    }

    /// Has something made that takes long.
    pub async fn aside<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        self.threads.run(work).await
    }

    /// Room for what a stream holds of one event until it has gone out. Who holds enough waits until some of it has.
    pub async fn room(&self, user: &User, bytes: usize) -> Option<Share> {
        loop {
            match self.room.take(user, bytes as u64) {
                None if user.is_privileged() => return None,
                None => tokio::time::sleep(ROOM_PERIOD).await,
                share => return share,
            }
        }
    }

    /// The answer, counted as its user's until it has gone out; a refusal where this user holds enough.
    pub fn hold(&self, user: &User, mut response: Response, shape: Shape) -> Response {
        let Some(held) = response.extensions_mut().remove::<Held>() else { return response };
        match self.room.take(user, held.bytes as u64) {
            Some(share) => {
                let _ = held.share.set(share);
                response
            }
            None if user.is_privileged() => response,
            None => {
                let refusal = Refusal::TooManyRequests { what: Plenty::Answers, retry_after_seconds: 1 };
                respond::refusal(&refusal, shape)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_holds_the_room_of_all_answers() {
        let answers = Answers::default();
        let (greedy, other) = (User::new("a", &[]), User::new("b", &[]));
        let ask = |user: &User| {
            let whole = respond::content(200, vec![0; 32 << 20].into(), respond::JSON, false);
            answers.hold(user, whole, Shape::PLAIN)
        };
        let held: Vec<Response> = (0..20).map(|_| ask(&greedy)).collect();
        let codes: Vec<u16> = held.iter().map(|answer| answer.status().as_u16()).collect();
        assert_eq!(codes, [[200; 8].as_slice(), [429; 12].as_slice()].concat());
        assert_eq!(ask(&other).status(), 200);
        assert_eq!(ask(&User::new("root", &["system:masters"])).status(), 200);
        drop(held);
        assert_eq!(answers.room.taken(), 0);
        assert_eq!(ask(&greedy).status(), 200);
    }

    #[tokio::test]
    async fn a_stream_waits_until_there_is_room() {
        let answers = Arc::new(Answers::default());
        let (greedy, other) = (User::new("a", &[]), User::new("b", &[]));
        let first = answers.room(&greedy, 256 << 20).await.expect("room");
        let waiting = tokio::spawn({
            let (answers, greedy) = (answers.clone(), greedy.clone());
            async move { answers.room(&greedy, 1).await }
        });
        assert!(answers.room(&other, 1).await.is_some());
        assert!(answers.room(&User::new("root", &["system:masters"]), 1 << 30).await.is_none(), "it does not wait");
        assert!(!waiting.is_finished());
        drop(first);
        assert!(waiting.await.expect("no panic").is_some());
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
