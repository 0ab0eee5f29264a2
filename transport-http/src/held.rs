//! Answers that are made whole wait for whoever asked to read them. What they hold meanwhile is bounded, and nobody
//! holds it all.
//!
//! Most answers are made while they go out, of bytes that the state holds anyway. Tables, YAML and indented lists are
//! not, and a reader who never comes would keep each of them for a minute.

use crate::respond::{self, Response, Shape};
use bytes::Bytes;
use holdfast_core::Refusal;
use holdfast_core::authz::User;
use holdfast_core::refusal::Plenty;
use holdfast_service::{Share, Shares};
use std::sync::{Arc, OnceLock};

/// How many bytes of such answers are held at once, of all users.
const ANSWERS_BYTES_MAX: u64 = 512 << 20;

/// Room for answers that are made whole. Cloning gives the same.
#[derive(Clone)]
pub struct Answers {
    room: Shares,
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
        Answers { room: Shares::new(ANSWERS_BYTES_MAX) }
    }
}

impl Answers {
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
        let body = Bytes::from(vec![b'x'; 32 << 20]);
        let ask = |user: &User| {
            let whole = respond::content(200, body.clone(), respond::JSON, false);
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
}
