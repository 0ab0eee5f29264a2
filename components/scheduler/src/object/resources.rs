//! Amounts of resources as integers: processors in thousandths, everything else in whole units.

use super::{StringPool, Text, entries, text};
use holdfast_core::schema::quantity;
use holdfast_value::Value;

/// Requested, used or available amounts. Additions saturate: a sum that does not fit into 64 bits becomes the largest
/// number that fits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resources {
    pub milli_cpu: i64,
    pub memory: i64,
    pub ephemeral_storage: i64,
    pub pods: i64,
    // The resources are sorted by name, and each name occurs once.
    pub scalars: Vec<(Text, i64)>,
}

pub const CPU: &str = "cpu";
pub const MEMORY: &str = "memory";
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
const PODS: &str = "pods";

impl Resources {
    pub fn decode(pool: &mut StringPool, value: &Value) -> Self {
        let mut resources = Resources::default();
        for (name, amount) in entries(value) {
            resources.set(pool, name, amount_of(name, amount));
        }
        resources
    }

    fn set(&mut self, pool: &mut StringPool, name: &str, amount: i64) {
        match name {
            CPU => self.milli_cpu = amount,
            MEMORY => self.memory = amount,
            EPHEMERAL_STORAGE => self.ephemeral_storage = amount,
            PODS => self.pods = amount,
            _ if is_scalar(name) => *self.scalar_mut(&pool.text(name)) = amount,
            _ => {}
        }
    }

    pub fn get(&self, name: &str) -> i64 {
        match name {
            CPU => self.milli_cpu,
            MEMORY => self.memory,
            EPHEMERAL_STORAGE => self.ephemeral_storage,
            PODS => self.pods,
            _ => self.scalars.binary_search_by(|(own, _)| (**own).cmp(name)).map_or(0, |at| self.scalars[at].1),
        }
    }

    fn scalar_mut(&mut self, name: &Text) -> &mut i64 {
        let at = self.scalars.binary_search_by(|(own, _)| own.cmp(name)).unwrap_or_else(|at| {
            self.scalars.insert(at, (name.clone(), 0));
            at
        });
        &mut self.scalars[at].1
    }

    pub fn add(&mut self, other: &Resources) {
        self.merge(other, i64::saturating_add);
    }

    /// Adds the amounts of `other`, except for resources whose amount in this set is 0.
    pub fn add_to_non_zero(&mut self, other: &Resources) {
        self.merge(other, |own, more| if own == 0 { 0 } else { own.saturating_add(more) });
    }

    pub fn subtract(&mut self, other: &Resources) {
        self.merge(other, i64::saturating_sub);
    }

    /// Whether any amount is the largest possible, so that a sum may have been cut and subtracting from it would be
    /// wrong.
    pub fn is_saturated(&self) -> bool {
        let all = [self.milli_cpu, self.memory, self.ephemeral_storage, self.pods];
        all.into_iter().chain(self.scalars.iter().map(|(_, amount)| *amount)).any(|amount| amount == i64::MAX)
    }

    /// Raises each amount to the amount in `other` if that is larger.
    pub fn raise_to(&mut self, other: &Resources) {
        self.merge(other, i64::max);
    }

    fn merge(&mut self, other: &Resources, join: impl Fn(i64, i64) -> i64) {
        self.milli_cpu = join(self.milli_cpu, other.milli_cpu);
        self.memory = join(self.memory, other.memory);
        self.ephemeral_storage = join(self.ephemeral_storage, other.ephemeral_storage);
        self.pods = join(self.pods, other.pods);
        for (name, amount) in &other.scalars {
            let own = self.scalar_mut(name);
            *own = join(*own, *amount);
        }
    }

    /// Sets the amounts of these resources. Resources that a pod cannot set at pod level are skipped.
    pub fn replace_pod_level<'a>(&mut self, pool: &mut StringPool, others: impl IntoIterator<Item = (&'a str, i64)>) {
        for (name, amount) in others.into_iter().filter(|(name, _)| is_pod_level(name)) {
            self.set(pool, name, amount);
        }
    }

    /// The names of CPU, memory and ephemeral storage, and of the scalar resources in this set.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        [CPU, MEMORY, EPHEMERAL_STORAGE].into_iter().chain(self.scalars.iter().map(|(name, _)| &**name))
    }

    /// Whether this set has less of any resource than `than` has.
    pub fn is_less_in_any(&self, than: &Resources) -> bool {
        than.names().any(|name| self.get(name) < than.get(name))
    }

    /// Whether all amounts but `pods` are 0.
    pub fn is_zero(&self) -> bool {
        self.milli_cpu == 0
            && self.memory == 0
            && self.ephemeral_storage == 0
            && self.scalars.iter().all(|(_, amount)| *amount == 0)
    }
}

/// The integer for a quantity: CPU in thousandths of a processor, any other resource in whole units.
pub fn amount_of(name: &str, amount: &Value) -> i64 {
    let number;
    let amount = match amount {
        Value::Number(plain) => {
            number = plain.to_string();
            &number
        }
        other => text(other),
    };
    let nanos = quantity::nanos(amount).unwrap_or(0);
    let unit = if name == CPU { 1_000_000 } else { 1_000_000_000 };
    let up = nanos.div_euclid(unit) + i128::from(nanos.rem_euclid(unit) != 0);
    i64::try_from(up).unwrap_or(if up < 0 { i64::MIN } else { i64::MAX })
}

/// Whether a pod may set requests for the resource at pod level: CPU, memory and huge pages.
pub fn is_pod_level(name: &str) -> bool {
    matches!(name, CPU | MEMORY) || name.starts_with("hugepages-")
}

/// Whether resources of this name are counted in `scalars`: extended resources, resources in `kubernetes.io`, huge
/// pages and attachable volumes.
pub fn is_scalar(name: &str) -> bool {
    is_extended(name)
        || name.starts_with("hugepages-")
        || name.starts_with("attachable-volumes-")
        || is_prefixed_native(name)
}

fn is_prefixed_native(name: &str) -> bool {
    name.contains("kubernetes.io/")
}

/// Whether this is the name of an extended resource: qualified, and outside of `kubernetes.io`.
pub fn is_extended(name: &str) -> bool {
    name.contains('/') && !is_prefixed_native(name) && !name.starts_with("requests.")
}
