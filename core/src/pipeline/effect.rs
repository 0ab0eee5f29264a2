//! The effects that a decision needs from outside. The core names an effect and the engine carries it out, so the core
//! never waits.
//!
//! Judging stops at the first effect whose outcome is not among the answers. The caller carries it out, adds the
//! outcome and judges again: the same request, stamp and snapshot reach the same effect, and continue after it.

use super::claims::TokenClaims;
use crate::admission::call::{Bucket, Call};
use crate::admission::outcome::{Pause, Pauses};
use crate::authz::webhook::{Opinions, Question};
use crate::event::Offset;
use crate::kinds::custom::Conversion;
use crate::object::meta::Document;
use crate::refusal::Refusal;
use holdfast_value::Value;

/// Work that only the engine can do.
#[derive(Debug, Clone)]
pub enum Effect {
    /// Converts an object into another version by webhook.
    Convert(Box<Conversion>),
    /// Calls admission webhooks, all at once. With the pause among the answers, judging resumes where it stopped.
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
    /// The description of the effect in the fault of an engine that cannot carry it out.
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
    /// The token's audiences: the requested audiences, or the signer's own audiences.
    pub audiences: Vec<String>,
}

/// The outcome of a webhook call.
#[derive(Debug, Clone)]
pub struct Reviewed {
    /// The body of the response, or why there is none.
    pub answer: Result<Vec<u8>, String>,
    /// The duration of the call.
    pub nanos: u64,
}

/// The outcomes of effects, for one request.
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
    /// The answers of authorization webhooks.
    pub opinions: Opinions,
}

impl Answers {
    /// Adds the converted object, or why the conversion failed. A failure matters only to a stage that needs the
    /// object.
    pub fn converted(&mut self, conversion: Conversion, converted: Result<Document, Refusal>) {
        self.conversions.push((conversion, converted));
    }

    pub fn signed(&mut self, claims: TokenClaims, token: SignedToken) {
        self.tokens.push((claims, token));
    }

    /// Adds the status of the answered ImageReview, or why there is no answer.
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

    /// Adds the result of taking tokens: `empty` has the indexes of the rate limiters that had no token.
    pub fn counted(&mut self, buckets: Vec<Bucket>, empty: Vec<usize>) {
        self.limits.push((buckets, empty));
    }

    pub(crate) fn limited(&self, wanted: &[Bucket]) -> Option<&[usize]> {
        self.limits.iter().find(|(known, _)| known == wanted).map(|(_, empty)| empty.as_slice())
    }

    pub fn reviewed(&mut self, call: Call, reviewed: Reviewed) {
        self.reviews.push((call, reviewed));
    }

    /// Adds the pause of an effect, if it has one.
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

    /// Whether any webhook was called: webhooks may be slow.
    pub fn have_webhooks(&self) -> bool {
        !self.reviews.is_empty() || !self.conversions.is_empty()
    }

    pub(crate) fn token(&self, wanted: &TokenClaims) -> Option<&SignedToken> {
        self.tokens.iter().find(|(known, _)| known == wanted).map(|(_, token)| token)
    }
}

/// Why the stages end without a decision.
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
