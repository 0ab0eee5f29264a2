//! What a controller is: told of changes, asked for plans.

use crate::cloud::{Answer, Call, Fault};
use crate::{BackOff, Change, Key, Plan, Refusal, Refused, Resource, Text, Time, World};
use holdfast_value::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The time, and a number that no other plan has, for what must be chosen at random.
#[derive(Debug, Clone, Copy)]
pub struct Stamp {
    pub time: Time,
    pub seed: u64,
}

/// The keys that are to be planned.
#[derive(Debug, Default)]
pub struct Keys {
    pub now: BTreeSet<Key>,
    /// Those that may wait for so many milliseconds, so that one plan answers several changes.
    pub later: BTreeMap<Key, i64>,
}

impl Keys {
    pub fn add(&mut self, key: Key) {
        self.now.insert(key);
    }

    /// A key that may wait; for no time is at once.
    pub fn add_after(&mut self, key: Key, millis: i64) {
        match millis {
            ..=0 => self.add(key),
            millis => _ = self.later.insert(key, millis),
        }
    }
}

/// Which objects are looked at beside those of the resources that are named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Sight {
    #[default]
    None,
    /// Those of these kinds, each with its group, in whatever version.
    Kinds(BTreeSet<(Text, Text)>),
    Everything,
}

impl Sight {
    pub fn is_none(&self) -> bool {
        match self {
            Sight::None => true,
            Sight::Kinds(kinds) => kinds.is_empty(),
            Sight::Everything => false,
        }
    }

    pub fn covers(&self, group: &str, kind: &str) -> bool {
        match self {
            Sight::None => false,
            Sight::Kinds(kinds) => kinds.contains(&(group.into(), kind.into())),
            Sight::Everything => true,
        }
    }

    /// What either of the two covers.
    pub fn and(self, other: Sight) -> Sight {
        match (self, other) {
            (Sight::Everything, _) | (_, Sight::Everything) => Sight::Everything,
            (Sight::Kinds(mut kinds), Sight::Kinds(others)) => {
                kinds.extend(others);
                Sight::Kinds(kinds)
            }
            (known, Sight::None) | (Sight::None, known) => known,
        }
    }
}

/// One controller. All it knows of the cluster is in the world; what it keeps besides (when it first saw something)
/// must be such that a new controller, which has lost it, comes to the same end.
pub trait Controller: Send {
    /// As `--controllers` names it: `deployment-controller`.
    fn name(&self) -> &'static str;

    /// What its queue is called in metrics.
    fn queue(&self) -> &'static str {
        self.name()
    }

    /// The service account in `kube-system` that it acts as.
    fn account(&self) -> &'static str {
        self.name()
    }

    /// Who owns the fields that it writes.
    fn manager(&self) -> &'static str {
        "kube-controller-manager"
    }

    /// The user that it acts as, where that is no service account.
    fn user(&self) -> Option<&'static str> {
        None
    }

    /// As its Events name their source.
    fn component(&self) -> &'static str {
        self.name()
    }

    /// How long it waits before it tries again what failed.
    fn back_off(&self) -> BackOff {
        BackOff::default()
    }

    /// What it looks at; the world is told of these, and shows them.
    fn resources(&self) -> Vec<Resource>;

    /// Asks the world for the indexes that it looks things up by, before any object is there.
    fn indexes(&self, _world: &mut World) {}

    /// What it looks at beside these: at the metadata, but for labels and annotations, where nobody names the resource.
    /// It may change with what the controller is told, and the controller may be told of more than it covers.
    fn sight(&self) -> Sight {
        Sight::None
    }

    /// Which keys a change concerns. The world shows the state after the change.
    fn concerns(&mut self, world: &World, change: &Change, keys: &mut Keys);

    /// Which keys are to be planned though nothing changed, once the world has all that there is.
    fn begin(&mut self, _world: &World, _keys: &mut Keys) {}

    /// What is to be done for a key now.
    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan;

    /// What came of a GET that the plan for `key` asked for.
    fn answered(&mut self, _key: &Key, _path: &str, _answer: Result<Value, Refusal>) {}

    /// What came of a review that the plan for `key` asked for: the whole review with its status.
    fn reviewed(&mut self, _key: &Key, _review: &Value, _answer: Result<Value, Refusal>) {}

    /// What came of a call that the plan for `key` made to a cloud.
    fn called(&mut self, _key: &Key, _call: &Call, _answer: Result<Answer, Fault>, _now: Time) {}

    /// What is to be said and done about a step of which some actions were refused. The key is planned again anyway,
    /// later each time that it fails.
    fn refused(&mut self, _world: &World, _key: &Key, _refused: &[Refused], _stamp: Stamp) -> Plan {
        Plan::default()
    }
}
