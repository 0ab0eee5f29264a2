//! The influence of a kind's objects on the requests of others.

use crate::authz::nodes::Relation;
use crate::authz::role::RoleKind;

/// How the objects of a kind affect requests for other objects. When such an object is written, `apply.rs` updates the
/// index that authorization or admission reads.
#[derive(Default)]
pub struct KindInfluence {
    /// Which kind of role-based access control this kind is; `None` for other kinds.
    pub role: Option<RoleKind>,
    /// How the kind's objects determine which nodes may read which objects.
    pub relation: Option<Relation>,
    /// Whether, and how, objects of this kind register webhooks or policies. Webhooks and policies do not get writes of
    /// such objects.
    pub registers: Option<Registers>,
}

impl KindInfluence {
    /// Whether objects of this kind register policies or their bindings.
    pub fn registers_policies(&self) -> bool {
        self.registers.is_some_and(|registers| !registers.is_webhooks())
    }
}

/// The type of webhooks, policies or bindings that an object registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registers {
    MutatingWebhooks,
    ValidatingWebhooks,
    ValidatingPolicy,
    ValidatingBinding,
    MutatingPolicy,
    MutatingBinding,
}

impl Registers {
    fn is_webhooks(self) -> bool {
        matches!(self, Registers::MutatingWebhooks | Registers::ValidatingWebhooks)
    }
}
