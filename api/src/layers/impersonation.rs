//! Impersonation: decides whether a user may act as another user. This layer precedes flow control, because the
//! impersonated user determines the flow.

use super::authorization::asked_for;
use super::{Layer, Next, Outcome, Passage};
use futures_util::future::BoxFuture;
use holdfast_core::Refusal;
use holdfast_core::authz::impersonation::{Mode, by_modes, legacy};
use holdfast_core::authz::{ActingAs, Authorizer, User};
use holdfast_core::state::State;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

pub struct Impersonation {
    /// The mode that each caller used last. It is tried first. `None` if there is only one mode.
    last: Option<Mutex<HashMap<String, Mode>>>,
}

/// The maximum number of callers whose last mode is stored.
const CALLERS_MAX: usize = 10_000;

impl Impersonation {
    /// `is_constrained`: whether constrained impersonation is enabled, that is, verbs that allow impersonation only for
    /// some requests.
    pub fn new(is_constrained: bool) -> Impersonation {
        Impersonation { last: is_constrained.then(Mutex::default) }
    }

    fn judge(
        &self,
        authorizer: &Authorizer<'_>,
        state: &State,
        passage: &Passage,
        other: &ActingAs,
    ) -> Result<(User, Option<Mode>), Refusal> {
        let caller = &passage.user;
        let Some(last) = &self.last else { return legacy(authorizer, caller, other).map(|user| (user, None)) };
        let asked = asked_for(state, &passage.asked).ok_or(Refusal::NoSuchPath)?;
        let last = last.lock().unwrap_or_else(PoisonError::into_inner).get(&caller.name).copied();
        by_modes(authorizer, caller, other, &asked, last).map(|(mode, user)| (user, Some(mode)))
    }

    fn remember(&self, caller: &User, mode: Mode) {
        let Some(last) = &self.last else { return };
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() >= CALLERS_MAX {
            last.clear();
        }
        last.insert(caller.name.clone(), mode);
    }
}

impl Layer for Impersonation {
    fn call<'a>(&'a self, passage: &'a mut Passage, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        let Some(other) = passage.acting_as.take() else { return next.call(passage) };
        Box::pin(async move {
            let (service, state) = (next.service(), next.service().engine().snapshot());
            let judge = |authorizer: &Authorizer<'_>| self.judge(authorizer, &state, passage, &other);
            let (user, mode) = service.judged(&state, judge).await?;
            if let Some(mode) = mode {
                self.remember(&passage.user, mode);
            }
            passage.user = Arc::new(user);
            if let Some(trail) = &mut passage.trail {
                trail.impersonates(&passage.user, mode.and_then(Mode::constraint));
            }
            next.call(passage).await
        })
    }
}
