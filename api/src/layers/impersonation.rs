//! The impersonation layer decides whether a user may act as another user. This layer precedes flow control, because
//! the impersonated user determines the flow.

use super::authorization::asked_for;
use super::stages::{Audited, CallParts, Identified};
use super::{Layer, Next, Outcome, RequestContext};
use futures_util::future::BoxFuture;
use holdfast_core::Refusal;
use holdfast_core::authz::impersonation::{Mode, by_modes, legacy};
use holdfast_core::authz::{ActingAs, Authorizer, User};
use holdfast_core::state::State;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

pub struct Impersonation {
    /// The mode of impersonation that each caller used last, by the caller's name. This mode is tried first. `None` if
    /// there is only one mode.
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
        parts: &CallParts,
        other: &ActingAs,
    ) -> Result<(User, Option<Mode>), Refusal> {
        let caller = &parts.user;
        let Some(last) = &self.last else { return legacy(authorizer, caller, other).map(|user| (user, None)) };
        let asked = asked_for(state, &parts.subject).ok_or(Refusal::NoSuchPath)?;
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
    type Takes = Audited;
    type Gives = Identified;

    fn call<'a>(
        &'a self,
        context: &'a mut RequestContext,
        call: Audited,
        next: Next<'a, Identified>,
    ) -> BoxFuture<'a, Outcome> {
        let Audited { mut parts, acting_as, own } = call;
        let Some(other) = acting_as else { return next.call(context, Identified { parts, own }) };
        Box::pin(async move {
            let (service, state) = (next.service(), next.service().engine().snapshot());
            let judge = |authorizer: &Authorizer<'_>| self.judge(authorizer, &state, &parts, &other);
            let (user, mode) = service.judged(&state, judge).await?;
            if let Some(mode) = mode {
                self.remember(&parts.user, mode);
            }
            parts.user = Arc::new(user);
            if let Some(trail) = &mut context.trail {
                trail.impersonates(&parts.user, mode.and_then(Mode::constraint));
            }
            next.call(context, Identified { parts, own }).await
        })
    }
}
