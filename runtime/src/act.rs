//! Doing what plans say.

use async_trait::async_trait;
use holdfast_value::Value;
use holdfast_world::{Action, Actor, Came, Refusal};

/// Carries out actions on a cluster.
#[async_trait]
pub trait Act: Send + Sync + 'static {
    /// One action in the name of an actor.
    async fn act(&self, actor: &Actor, action: &Action) -> Result<Done, Refusal>;

    /// What a GET of a path answers, asked in the name of an actor.
    async fn ask(&self, actor: &Actor, path: &str) -> Result<Value, Refusal>;

    /// The answer to a review of what somebody may do, a `SubjectAccessReview`.
    async fn review(&self, actor: &Actor, review: &Value) -> Result<Value, Refusal>;
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// The name of the object, which the server may have made.
    pub name: String,
    pub came: Came,
}
