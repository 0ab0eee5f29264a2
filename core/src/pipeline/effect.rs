//! What a decision needs from outside: named by the core, run by the shell, and never waited for in here.
//!
//! Judging stops at the first effect whose outcome is not among the answers. Whoever asked runs it, notes the outcome
//! and judges again: the same request, stamp and snapshot come to the same effect, and go on behind it.

use super::claims::TokenClaims;
use crate::admission::call::{Bucket, Call};
use crate::admission::outcome::Pauses;
use crate::authz::Consulted;
use crate::authz::webhook::Question;
use crate::event::Offset;
use crate::kinds::custom::Conversion;
use crate::object::meta::Document;
use crate::refusal::Refusal;
use holdfast_value::Value;

/// What only the outside can do.
#[derive(Debug, Clone)]
pub enum Effect {
    /// A webhook brings an object into another version of its kind.
    Convert(Box<Conversion>),
    /// Webhooks are asked what they think of a write, all at once.
    Review(Vec<Call>),
    /// Webhooks are asked what a user may do.
    Authorize(Vec<Question>),
    /// Another server is asked whether images may run, in the words of an ImageReview.
    Images(Box<Value>),
    /// Each of these buckets is asked for a token.
    Limit(Vec<Bucket>),
    /// A key signs the claims of a token.
    Sign(Box<TokenClaims>),
}

impl Effect {
    /// As a fault names it: what nobody is there to do.
    pub fn what(&self) -> &'static str {
        match self {
            Self::Authorize(_) => "call authorization webhooks",
            Self::Convert(_) => "convert by webhook",
            Self::Images(_) => "ask about images",
            Self::Limit(_) => "count Events",
            Self::Review(_) => "call admission webhooks",
            Self::Sign(_) => "sign a token",
        }
    }
}

/// A token as the outside made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedToken {
    pub token: String,
    /// Whom it is good for: those asked for, or the signer's own.
    pub audiences: Vec<String>,
}

/// What came of the call of a webhook.
#[derive(Debug, Clone)]
pub struct Reviewed {
    /// What it sent back, or why nothing came.
    pub answer: Result<Vec<u8>, String>,
    /// How long that took.
    pub nanos: u64,
}

/// What the outside has done, for one request.
#[derive(Debug, Clone, Default)]
pub struct Answers {
    conversions: Vec<(Conversion, Result<Document, Refusal>)>,
    tokens: Vec<(TokenClaims, SignedToken)>,
    reviews: Vec<(Call, Reviewed)>,
    limits: Vec<(Vec<Bucket>, Vec<usize>)>,
    images: Vec<(Value, Result<Value, String>)>,
    outdated: Option<Offset>,
    /// Where the webhooks that change objects were left.
    pub(crate) pauses: Pauses,
    /// What webhooks have said of what users may do.
    pub consulted: Consulted,
}

impl Answers {
    /// What a webhook made of an object, or why there is nothing: only who cannot do without it minds.
    pub fn converted(&mut self, conversion: Conversion, converted: Result<Document, Refusal>) {
        self.conversions.push((conversion, converted));
    }

    pub fn signed(&mut self, claims: TokenClaims, token: SignedToken) {
        self.tokens.push((claims, token));
    }

    /// The status of the answer about images, or why there is none.
    pub fn images_judged(&mut self, review: Value, answer: Result<Value, String>) {
        self.images.push((review, answer));
    }

    pub(crate) fn judged(&self, wanted: &Value) -> Option<&Result<Value, String>> {
        self.images.iter().find(|(known, _)| known == wanted).map(|(_, answer)| answer)
    }

    /// The log would keep the value of this version otherwise now: a write that changes nothing of it is made all the same.
    pub fn outdated(&mut self, version: Offset) {
        self.outdated = Some(version);
    }

    pub(crate) fn is_outdated(&self, version: Offset) -> bool {
        self.outdated == Some(version)
    }

    /// Which of the buckets had no token.
    pub fn counted(&mut self, buckets: Vec<Bucket>, empty: Vec<usize>) {
        self.limits.push((buckets, empty));
    }

    pub(crate) fn limited(&self, wanted: &[Bucket]) -> Option<&[usize]> {
        self.limits.iter().find(|(known, _)| known == wanted).map(|(_, empty)| empty.as_slice())
    }

    pub fn reviewed(&mut self, call: Call, reviewed: Reviewed) {
        self.reviews.push((call, reviewed));
    }

    pub(crate) fn review(&self, wanted: &Call) -> Option<&Reviewed> {
        self.reviews.iter().find(|(known, _)| known == wanted).map(|(_, answer)| answer)
    }

    pub(crate) fn conversion(&self, wanted: &Conversion) -> Option<Result<&Document, &Refusal>> {
        self.conversions.iter().find(|(known, _)| known == wanted).map(|(_, converted)| converted.as_ref())
    }

    /// Whether webhooks were asked that may take their time.
    pub fn have_webhooks(&self) -> bool {
        !self.reviews.is_empty() || !self.conversions.is_empty()
    }

    pub(crate) fn token(&self, wanted: &TokenClaims) -> Option<&SignedToken> {
        self.tokens.iter().find(|(known, _)| known == wanted).map(|(_, token)| token)
    }
}

/// Why the stages end before there is a decision.
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
