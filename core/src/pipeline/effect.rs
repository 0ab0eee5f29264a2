//! Effects: work outside the core that a decision needs. The core names an effect and the engine carries it out, so the
//! core never waits.
//!
//! Judging stops at the first effect whose outcome is not among the answers. The caller carries the effect out, adds
//! the outcome to the answers, and judges again with the same request, stamp and snapshot. Judging then reaches the
//! same effect and continues after it.

use super::claims::TokenClaims;
use crate::admission::call::{Bucket, Call};
use crate::admission::outcome::{Pause, Pauses};
use crate::authz::webhook::{Opinions, Question};
use crate::event::Offset;
use crate::kinds::custom::Conversion;
use crate::object::meta::Document;
use crate::refusal::Refusal;
use holdfast_value::Value;

/// Work outside the core, which only the engine can do.
#[derive(Debug, Clone)]
pub enum Effect {
    /// Calls the webhook that converts an object to another version of its kind.
    Convert(Box<Conversion>),
    /// Calls several admission webhooks at once. If `pause` is among the answers, judging later resumes where it
    /// stopped.
    Review { calls: Vec<Call>, pause: Option<Box<Pause>> },
    /// Asks authorization webhooks whether a user may do something.
    Authorize(Vec<Question>),
    /// Sends an ImageReview to the image policy webhook.
    Images(Box<Value>),
    /// Takes a token from each of these rate limiters.
    Limit(Vec<Bucket>),
    /// Signs the claims of a token.
    Sign(Box<TokenClaims>),
}

impl Effect {
    /// Describes the effect, for the error message of an engine that cannot carry it out.
    pub fn what(&self) -> &'static str {
        match self {
            Self::Authorize(_) => "call authorization webhooks",
            Self::Convert(_) => "call conversion webhooks",
            Self::Images(_) => "call the image policy webhook",
            Self::Limit(_) => "count Events",
            Self::Review { .. } => "call admission webhooks",
            Self::Sign(_) => "sign a token",
        }
    }
}

/// A signed token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedToken {
    pub token: String,
    /// The audiences for which the token is valid: the requested audiences, or the signer's own audiences.
    pub audiences: Vec<String>,
}

/// The outcome of one call of an admission webhook.
#[derive(Debug, Clone)]
pub struct Reviewed {
    /// The body of the webhook's response, or the reason why there is none.
    pub answer: Result<Vec<u8>, String>,
    /// The duration of the call in nanoseconds.
    pub nanos: u64,
}

/// The outcomes of the effects that were carried out for one request.
#[derive(Debug, Clone, Default)]
pub struct Answers {
    conversions: Vec<(Conversion, Result<Document, Refusal>)>,
    tokens: Vec<(TokenClaims, SignedToken)>,
    reviews: Vec<(Call, Reviewed)>,
    limits: Vec<(Vec<Bucket>, Vec<usize>)>,
    images: Vec<(Value, Result<Value, String>)>,
    outdated: Option<Offset>,
    /// The points at which judging stopped to call mutating webhooks.
    pub(crate) pauses: Pauses,
    /// The answers of authorization webhooks to the questions of this request.
    pub opinions: Opinions,
}

impl Answers {
    /// Adds the converted object, or the reason why the conversion failed. The failure stops only a stage that needs
    /// the converted object.
    pub fn converted(&mut self, conversion: Conversion, converted: Result<Document, Refusal>) {
        self.conversions.push((conversion, converted));
    }

    pub fn signed(&mut self, claims: TokenClaims, token: SignedToken) {
        self.tokens.push((claims, token));
    }

    /// Adds the status of the ImageReview that the webhook answered, or the reason why there is no answer.
    pub fn images_judged(&mut self, review: Value, answer: Result<Value, String>) {
        self.images.push((review, answer));
    }

    pub(crate) fn judged(&self, wanted: &Value) -> Option<&Result<Value, String>> {
        self.images.iter().find(|(known, _)| known == wanted).map(|(_, answer)| answer)
    }

    /// Records that the log would now store this version of the object in another form. A write is then made even if it
    /// changes nothing.
    pub fn outdated(&mut self, version: Offset) {
        self.outdated = Some(version);
    }

    pub(crate) fn is_outdated(&self, version: Offset) -> bool {
        self.outdated == Some(version)
    }

    /// Adds the outcome of taking tokens: `empty` has the indexes of the rate limiters in `buckets` that had no token.
    pub fn counted(&mut self, buckets: Vec<Bucket>, empty: Vec<usize>) {
        self.limits.push((buckets, empty));
    }

    pub(crate) fn limited(&self, wanted: &[Bucket]) -> Option<&[usize]> {
        self.limits.iter().find(|(known, _)| known == wanted).map(|(_, empty)| empty.as_slice())
    }

    pub fn reviewed(&mut self, call: Call, reviewed: Reviewed) {
        self.reviews.push((call, reviewed));
    }

    /// Adds the point at which judging stopped, if the effect has one.
    pub fn paused(&mut self, pause: Option<Box<Pause>>) {
        if let Some(pause) = pause {
            self.pauses.add(pause);
        }
    }

    pub(crate) fn review(&self, wanted: &Call) -> Option<&Reviewed> {
        self.reviews.iter().find(|(known, _)| known == wanted).map(|(_, answer)| answer)
    }

    pub(crate) fn conversion(&self, wanted: &Conversion) -> Option<Result<&Document, &Refusal>> {
        self.conversions.iter().find(|(known, _)| known == wanted).map(|(_, converted)| converted.as_ref())
    }

    /// Whether an admission or conversion webhook was called for this request. If so, the request may have taken long.
    pub fn have_webhooks(&self) -> bool {
        !self.reviews.is_empty() || !self.conversions.is_empty()
    }

    pub(crate) fn token(&self, wanted: &TokenClaims) -> Option<&SignedToken> {
        self.tokens.iter().find(|(known, _)| known == wanted).map(|(_, token)| token)
    }
}

/// Why the stages end without a decision: a refusal, or an effect that must be carried out first.
#[derive(Debug)]
pub(crate) enum Stop {
    Refused(Refusal),
    Needs(Effect),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Stop {
        Stop::Refused(refusal)
    }
}
