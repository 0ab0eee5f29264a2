//! The trait of controllers: a controller is notified of changes, and returns a plan for each key.

use crate::cloud::{CloudAnswer, CloudCall, Fault};
use crate::{BackOff, Change, Key, Plan, Refusal, Refused, Resource, Text, Time, World};
use holdfast_value::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The time of a plan, and a number that no other plan has, as a seed for random choices.
#[derive(Debug, Clone, Copy)]
pub struct Stamp {
    pub time: Time,
    pub seed: u64,
}

/// The keys that are to be planned because of a change.
#[derive(Debug, Default)]
pub struct Keys {
    pub now: BTreeSet<Key>,
    /// Keys that may wait, each with its number of milliseconds, so that one plan handles several changes.
    pub later: BTreeMap<Key, i64>,
}

impl Keys {
    pub fn add(&mut self, key: Key) {
        self.now.insert(key);
    }

    /// Adds a key that may wait for `millis` milliseconds. If `millis` is 0 or less, the key does not wait.
    pub fn add_after(&mut self, key: Key, millis: i64) {
        match millis {
            ..=0 => self.add(key),
            millis => _ = self.later.insert(key, millis),
        }
    }
}

/// The objects that a controller needs in addition to the objects of the resources that it names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ExtraKinds {
    #[default]
    None,
    /// The objects of these kinds, each with its group, in any version.
    Kinds(BTreeSet<(Text, Text)>),
    Everything,
}

impl ExtraKinds {
    pub fn is_none(&self) -> bool {
        match self {
            ExtraKinds::None => true,
            ExtraKinds::Kinds(kinds) => kinds.is_empty(),
            ExtraKinds::Everything => false,
        }
    }

    pub fn covers(&self, group: &str, kind: &str) -> bool {
        match self {
            ExtraKinds::None => false,
            ExtraKinds::Kinds(kinds) => kinds.contains(&(group.into(), kind.into())),
            ExtraKinds::Everything => true,
        }
    }

    /// The extra kinds that contain the objects of `self` and the objects of `other`.
    pub fn and(self, other: ExtraKinds) -> ExtraKinds {
        match (self, other) {
            (ExtraKinds::Everything, _) | (_, ExtraKinds::Everything) => ExtraKinds::Everything,
            (ExtraKinds::Kinds(mut kinds), ExtraKinds::Kinds(others)) => {
                kinds.extend(others);
                ExtraKinds::Kinds(kinds)
            }
            (known, ExtraKinds::None) | (ExtraKinds::None, known) => known,
        }
    }
}

/// One controller. All its knowledge of the cluster comes from the world. The controller may keep other state, such as
/// the time at which it first saw an object, but it must not depend on that state: a new controller without the state
/// must reach the same result.
pub trait Controller: Send {
    /// The name of the controller in `--controllers`, such as `deployment-controller`.
    fn name(&self) -> &'static str;

    /// The name of the controller's queue in metrics.
    fn queue(&self) -> &'static str {
        self.name()
    }

    /// The name of the service account in `kube-system` that the controller uses.
    fn account(&self) -> &'static str {
        self.name()
    }

    /// The name of the field manager that the controller uses for its writes.
    fn manager(&self) -> &'static str {
        "kube-controller-manager"
    }

    /// The user as which the controller makes requests; `None` if it uses a service account.
    fn user(&self) -> Option<&'static str> {
        None
    }

    /// The name of the component that the controller's Events have as their source.
    fn component(&self) -> &'static str {
        self.name()
    }

    /// How long a key waits after a failure before it is planned again.
    fn back_off(&self) -> BackOff {
        BackOff::default()
    }

    /// The resources whose objects the controller needs. The world contains these objects.
    fn resources(&self) -> Vec<Resource>;

    /// Adds the indexes that the controller needs to the world. The caller calls this function before the world has any
    /// objects.
    fn indexes(&self, _world: &mut World) {}

    /// The objects that the controller needs in addition to the objects of its [`resources`](Self::resources). For
    /// resources that no controller has in [`resources`](Self::resources), the world has only the metadata, without
    /// labels and annotations. The kinds may change after each change of which the controller is notified. The
    /// controller may also be notified of objects of other kinds.
    fn extra_kinds(&self) -> ExtraKinds {
        ExtraKinds::None
    }

    /// Collects the keys that a change concerns. The world already contains the change.
    fn concerns(&mut self, world: &World, change: &Change, keys: &mut Keys);

    /// Collects the keys that are to be planned at the start, without a change. The world is complete then.
    fn begin(&mut self, _world: &World, _keys: &mut Keys) {}

    /// Plans the actions for a key.
    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan;

    /// Receives the answer to a GET that the plan for `key` requested.
    fn answered(&mut self, _key: &Key, _path: &str, _answer: Result<Value, Refusal>) {}

    /// Receives the answer to a review that the plan for `key` requested. The answer is the whole review with its
    /// status.
    fn reviewed(&mut self, _key: &Key, _review: &Value, _answer: Result<Value, Refusal>) {}

    /// Receives the result of a call that the plan for `key` made to a cloud.
    fn called(&mut self, _key: &Key, _call: &CloudCall, _answer: Result<CloudAnswer, Fault>, _now: Time) {}

    /// Plans Events and actions after some actions of a step were refused. The key is planned again in any case, with a
    /// longer wait after each failure.
    fn refused(&mut self, _world: &World, _key: &Key, _refused: &[Refused], _stamp: Stamp) -> Plan {
        Plan::default()
    }
}
