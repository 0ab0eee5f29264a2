//! An event that is too large is stored without its objects.

use crate::{Event, Level};
use std::borrow::Cow;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncation {
    pub event_bytes_max: usize,
    pub batch_bytes_max: usize,
}

impl Truncation {
    /// The event, or a shorter one that fits; `None` if neither fits.
    pub(crate) fn fit<'a>(&self, event: &'a Event) -> Option<Cow<'a, Event>> {
        if bytes(event) <= self.event_bytes_max {
            return Some(Cow::Borrowed(event));
        }
        if event.level < Level::Request {
            return None;
        }
        let mut cut = event.clone();
        (cut.request_object, cut.response_object) = (None, None);
        cut.annotations.insert("audit.k8s.io/truncated".into(), "true".into());
        (bytes(&cut) <= self.event_bytes_max).then_some(Cow::Owned(cut))
    }

    /// Splits a batch into batches that are small enough.
    pub(crate) fn split<'a>(&self, mut events: &'a [Event]) -> Vec<&'a [Event]> {
        let mut batches = Vec::new();
        while !events.is_empty() {
            let mut sum = 0;
            let fit = events.iter().take_while(|event| {
                sum += bytes(event);
                sum <= self.batch_bytes_max
            });
            let (batch, rest) = events.split_at(fit.count().max(1));
            batches.push(batch);
            events = rest;
        }
        batches
    }
}

fn bytes(event: &Event) -> usize {
    event.json_line().len()
}
