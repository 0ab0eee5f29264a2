//! Distributes endpoints over slices so that as few slices as possible are written, and no slice has too many
//! endpoints.

use holdfast_value::{Value, json};
use holdfast_world::views::network::{Endpoint, EndpointPort, EndpointSlice, TargetRef};
use holdfast_world::{Action, Key, Text, Time, Verb, View, Viewed};
use std::collections::BTreeMap;

use crate::endpoints::set;
use crate::services::TRIGGER;
use crate::subject::Subject;

/// The properties that all slices of one owner have in common.
pub struct Packing<'a> {
    /// The owner of the slices. The slices' names begin with the owner's name.
    pub owner: Subject<'a>,
    pub address_type: &'static str,
    pub labels: BTreeMap<String, String>,
    /// The annotations of each slice that is written; `None` means that the slice keeps its own annotations.
    pub annotations: Option<BTreeMap<String, String>>,
    pub trigger: Option<Time>,
    pub max: usize,
}

/// Endpoints by their ports. All endpoints of a slice have the same ports.
pub type ByPorts = BTreeMap<Vec<EndpointPort>, Vec<Endpoint>>;

/// The result of distributing endpoints: the slices to be created, updated, left as they are, and deleted.
#[derive(Default)]
pub struct Packed<'w> {
    pub created: Vec<Slice<'w>>,
    pub updated: Vec<Slice<'w>>,
    pub unchanged: Vec<Slice<'w>>,
    pub deleted: Vec<Viewed<'w, EndpointSlice>>,
}

#[derive(Clone)]
pub struct Slice<'w> {
    /// The slice as it exists in the cluster; `None` if the slice is new.
    pub known: Option<Viewed<'w, EndpointSlice>>,
    pub ports: Vec<EndpointPort>,
    pub endpoints: Vec<Endpoint>,
}

/// What identifies an endpoint while its state changes: its addresses, and its pod's namespace and name.
type EndpointIdentity = (Vec<String>, Option<(String, String)>);

fn identity(endpoint: &Endpoint) -> EndpointIdentity {
    let name = |target: &TargetRef| (target.namespace.clone(), target.name.clone());
    let mut addresses = endpoint.addresses.clone();
    addresses.sort();
    (addresses, endpoint.target_ref.as_ref().map(name))
}

/// Whether two endpoints are equal apart from hints and the version of their pod.
fn is_same(one: &Endpoint, other: &Endpoint) -> bool {
    let plain = |endpoint: &Endpoint| {
        let mut plain = Endpoint { hints: None, ..endpoint.clone() };
        if let Some(target) = &mut plain.target_ref {
            target.resource_version.clear();
        }
        plain
    };
    plain(one) == plain(other)
}

/// Sorts ports, so that lists of the same ports are equal.
pub fn sorted(mut ports: Vec<EndpointPort>) -> Vec<EndpointPort> {
    ports.sort();
    ports
}

impl<'a> Packing<'a> {
    /// Packs the endpoints of one address type into existing and new slices.
    pub fn pack<'w>(&self, known: Vec<Viewed<'w, EndpointSlice>>, desired: ByPorts) -> Packed<'w> {
        let mut packed = Packed::default();
        let mut by_ports: BTreeMap<Vec<EndpointPort>, Vec<Viewed<'w, EndpointSlice>>> = BTreeMap::new();
        for slice in known {
            if slice.meta().is_controlled_by(&self.owner.object.meta.uid) {
                by_ports.entry(sorted(slice.ports.clone())).or_default().push(slice);
            } else {
                packed.deleted.push(slice);
            }
        }
        for (ports, endpoints) in desired {
            let known = by_ports.remove(&sorted(ports.clone())).unwrap_or_default();
            self.pack_ports(&ports, known, endpoints, &mut packed);
        }
        packed.deleted.extend(by_ports.into_values().flatten());
        packed
    }

    fn pack_ports<'w>(
        &self,
        ports: &[EndpointPort],
        known: Vec<Viewed<'w, EndpointSlice>>,
        endpoints: Vec<Endpoint>,
        packed: &mut Packed<'w>,
    ) {
        let mut left: BTreeMap<EndpointIdentity, Endpoint> =
            endpoints.into_iter().map(|endpoint| (identity(&endpoint), endpoint)).collect();
        let (mut changed, mut same) = (Vec::new(), Vec::new());
        for slice in known {
            let found: Vec<Endpoint> = slice.endpoints.iter().filter_map(|old| left.remove(&identity(old))).collect();
            let is_same = found.len() == slice.endpoints.len()
                && found.iter().zip(&slice.endpoints).all(|(new, old)| is_same(new, old));
            if !is_same && found.is_empty() {
                packed.deleted.push(slice);
            } else if !is_same || !self.is_marked(slice) {
                changed.push(Slice { known: Some(slice), ports: ports.to_vec(), endpoints: found });
            } else {
                same.push(Slice { known: Some(slice), ports: ports.to_vec(), endpoints: slice.endpoints.clone() });
            }
        }
        let mut left = left.into_values().collect::<std::collections::VecDeque<_>>();
        // The slice with the most endpoints comes first, so that it is filled up before others.
        changed.sort_by_key(|slice| std::cmp::Reverse(slice.endpoints.len()));
        for slice in &mut changed {
            self.fill(slice, &mut left);
        }
        while !left.is_empty() {
            let fits = |slice: &Slice<'_>| slice.endpoints.len() + left.len() <= self.max;
            let best = same.iter().enumerate().filter(|(_, slice)| left.len() < self.max && fits(slice));
            let best = best.max_by_key(|(at, slice)| (slice.endpoints.len(), std::cmp::Reverse(*at))).map(|(at, _)| at);
            let is_new = best.is_none();
            let mut slice = match best {
                Some(at) => same.remove(at),
                None => Slice { known: None, ports: ports.to_vec(), endpoints: Vec::new() },
            };
            self.fill(&mut slice, &mut left);
            if is_new { packed.created.push(slice) } else { changed.push(slice) }
        }
        packed.updated.extend(changed);
        packed.unchanged.extend(same);
    }

    fn fill(&self, slice: &mut Slice<'_>, left: &mut std::collections::VecDeque<Endpoint>) {
        let space = self.max.saturating_sub(slice.endpoints.len()).min(left.len());
        slice.endpoints.extend(left.drain(..space));
    }

    /// Whether a slice has the labels and annotations that it should have.
    fn is_marked(&self, slice: Viewed<'_, EndpointSlice>) -> bool {
        let mut annotations = BTreeMap::clone(&slice.meta().annotations);
        annotations.remove(TRIGGER);
        *slice.meta().labels == self.labels && self.annotations.as_ref().is_none_or(|wanted| *wanted == annotations)
    }

    /// The writes for a distribution. If a slice is to be deleted and another slice created, the old slice is rewritten
    /// as the new slice instead.
    pub fn actions(&self, mut packed: Packed<'_>) -> Vec<Action> {
        let uid = &self.owner.object.meta.uid;
        let mut deleted = Vec::new();
        for known in packed.deleted {
            let may_become = known.meta().is_controlled_by(uid) && known.address_type == self.address_type;
            match packed.created.pop_if(|_| may_become) {
                Some(slice) => packed.updated.push(Slice { known: Some(known), ..slice }),
                None => deleted.push(known),
            }
        }
        if self.owner.object.meta.is_deleting() {
            // The owner is being deleted, and its slices are deleted with it, so no slice is created.
            packed.created.clear();
        }
        let writes = packed.created.into_iter().chain(packed.updated).map(|slice| self.write(&slice));
        writes.chain(deleted.into_iter().map(|slice| Subject::from(slice).delete())).collect()
    }

    fn write(&self, slice: &Slice<'_>) -> Action {
        let owner = &self.owner.object.meta;
        let mut document = match slice.known {
            Some(known) => known.object.document(),
            None => json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": self.address_type,
                "metadata": {
                    "generateName": format!("{}-", owner.name), "namespace": owner.namespace,
                    "ownerReferences": [self.owner.reference()],
                },
            }),
        };
        let mut annotations = match &self.annotations {
            Some(wanted) => wanted.iter().map(|(name, text)| (name.clone(), Value::from(text.as_str()))).collect(),
            None => document["metadata"]["annotations"].as_object().cloned().unwrap_or_default(),
        };
        set(&mut annotations, TRIGGER, self.trigger.map(|time| time.to_string()));
        document["metadata"]["annotations"] = annotations.into();
        document["metadata"]["labels"] = json!(self.labels);
        document["endpoints"] = json!(slice.endpoints);
        document["ports"] = json!(slice.ports);
        let (key, verb) = match slice.known {
            Some(known) => (known.object.key(), Verb::Update(document)),
            None => (Key { namespace: Text::from(owner.namespace.as_str()), name: "".into() }, Verb::Create(document)),
        };
        Action::new(EndpointSlice::resource(), key, verb)
    }
}
