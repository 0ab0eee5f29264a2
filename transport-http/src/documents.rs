//! The documents that describe the API: discovery and OpenAPI, each made once for a state of the kinds.

use bytes::Bytes;
use holdfast_core::authz::User;
use holdfast_core::kinds::{GroupVersions, Registry, registry as built_in};
use holdfast_core::schema::schema;
use holdfast_core::wire::discovery::Catalog;
use holdfast_core::wire::openapi::{OpenApi, v2};
use holdfast_engine::{Charge, Loss, ReadMemory, Reader};
use holdfast_service::Scene;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

/// The release of Kubernetes whose API this server serves.
pub const API_VERSION: &str = "v1.35.0";

/// Kubernetes' version, followed by Holdfast's version after a plus sign.
pub fn git_version() -> String {
    format!("{API_VERSION}+holdfast.{}", env!("CARGO_PKG_VERSION"))
}

/// The maximum number of documents in the cache. This number is several times the number that a thousand groups need.
const DOCUMENTS_MAX: usize = 8192;

/// The maximum number of past APIs whose documents are cached.
pub(crate) const PAST_MAX: usize = 4;

/// The documents of the current API, and of the past APIs that were read last.
pub struct Library {
    present: Arc<Documents>,
    pub(crate) past: Arc<Past>,
}

/// Documents with the kinds that they describe, the most recently used last.
type Past = Mutex<VecDeque<(Arc<Registry>, Arc<Documents>)>>;

impl Library {
    pub fn new(server_address: String) -> Library {
        Library { present: Arc::new(Documents::new(server_address)), past: Arc::default() }
    }

    /// The library of a fork, whose kinds equal the kinds of this server up to this revision.
    pub fn beside(&self, revision: u64) -> Library {
        let fresh = Documents::new(self.present.server_address.clone());
        let present = Documents { shared: Some((self.present.clone(), revision)), ..fresh };
        Library { present: Arc::new(present), past: Arc::default() }
    }

    /// The documents of the kinds in the scene. The memory of documents about past kinds counts as memory of the
    /// reader.
    pub fn of(&self, scene: &Scene, memory: &ReadMemory, user: &User) -> Arc<Documents> {
        match scene.has_kinds_of_now() {
            true => self.present.clone(),
            false => self.of_past(&scene.state().registry, || memory.nothing(&Reader::of(user))),
        }
    }

    pub(crate) fn of_past(&self, registry: &Arc<Registry>, charge: impl FnOnce() -> Charge) -> Arc<Documents> {
        let mut past = lock(&self.past);
        let known = past.iter().position(|(kinds, _)| Arc::ptr_eq(kinds, registry));
        let found = known.and_then(|place| past.remove(place));
        let (kinds, documents) = found.unwrap_or_else(|| {
            let mut charge = charge();
            let (kept, kinds) = (Arc::downgrade(&self.past), Arc::downgrade(registry));
            charge.give_way_by(Loss::Time, move || {
                let Some(kept) = kept.upgrade() else { return };
                let mut past = lock(&kept);
                let place = past.iter().position(|(of, _)| Arc::as_ptr(of) == kinds.as_ptr());
                let gone = place.and_then(|place| past.remove(place));
                drop(past);
                drop(gone);
            });
            let address = self.present.server_address.clone();
            let documents = Documents { charge: Some(Mutex::new(charge)), ..Documents::new(address) };
            (registry.clone(), Arc::new(documents))
        });
        past.push_back((kinds, documents.clone()));
        let gone = if past.len() > PAST_MAX { past.pop_front() } else { None };
        drop(past);
        drop(gone);
        documents
    }
}

fn lock(past: &Past) -> std::sync::MutexGuard<'_, VecDeque<(Arc<Registry>, Arc<Documents>)>> {
    past.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Documents that describe the API. Each document is made at its first request, and made again only when the part of
/// the API that it describes has changed.
pub struct Documents {
    /// The address at which clients reach the server: `10.0.0.1:6443`.
    pub(crate) server_address: String,
    /// The documents by name, each with the revision of the kinds from which it was made.
    made: Mutex<HashMap<String, (u64, Bytes)>>,
    /// The documents of the server that was forked, and the last revision at which both servers have the same kinds;
    /// `None` if this server is no fork.
    shared: Option<(Arc<Documents>, u64)>,
    /// Counts the memory of documents about past kinds, which may be dropped while a request reads them; `None` for the
    /// current kinds.
    pub(crate) charge: Option<Mutex<Charge>>,
}

/// The documents that describe the API of one state.
pub struct Described<'a> {
    pub documents: &'a Documents,
    pub registry: &'a Registry,
}

impl Documents {
    pub fn new(server_address: String) -> Documents {
        Documents { server_address, made: Mutex::default(), shared: None, charge: None }
    }

    pub fn find(&self, name: &str, revision: u64) -> Option<Bytes> {
        match &self.shared {
            Some((shared, until)) if revision <= *until => shared.find(name, revision),
            _ => self.lock().get(name).filter(|made| made.0 == revision).map(|made| made.1.clone()),
        }
    }

    pub fn keep(&self, name: String, revision: u64, made: Bytes) {
        if let Some((shared, until)) = &self.shared
            && revision <= *until
        {
            return shared.keep(name, revision, made);
        }
        if let Some(charge) = &self.charge {
            let mut charge = charge.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if charge.grow(made.len() as u64).is_err() {
                return;
            }
        }
        let mut kept = self.lock();
        // A fork may ask for a document of an older revision; the newer document is needed more often, so it stays.
        if kept.get(&name).is_some_and(|(newer, _)| *newer > revision) {
            return;
        }
        // Documents of groups that no longer exist are not removed one by one.
        if kept.len() >= DOCUMENTS_MAX {
            kept.clear();
        }
        kept.insert(name, (revision, made));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, (u64, Bytes)>> {
        self.made.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Described<'_> {
    /// Returns the document with this name. `make` makes it if the cached document is outdated or there is none.
    pub fn get(&self, name: &str, revision: u64, make: impl FnOnce() -> Option<Bytes>) -> Option<Bytes> {
        if let Some(found) = self.documents.find(name, revision) {
            return Some(found);
        }
        let made = make()?;
        self.documents.keep(name.to_owned(), revision, made.clone());
        Some(made)
    }

    /// Returns a document about one group, made again only when the group has changed.
    pub fn of_group(&self, name: &str, group: &str, make: impl FnOnce(&Catalog) -> Option<Bytes>) -> Option<Bytes> {
        let group = self.registry.group(group)?;
        self.get(name, group.revision, || make(&Catalog::of(self.registry, std::slice::from_ref(&group))))
    }

    /// The document of every group, in discovery's order. If `core` is set, only the core group counts; otherwise all
    /// other groups count.
    pub fn each_group(&self, name: &str, core: bool, make: fn(&Catalog, &str) -> Option<Bytes>) -> Vec<Bytes> {
        let groups = self.registry.groups().into_iter().filter(|group| group.group.is_empty() == core);
        let each = groups.filter_map(|group| {
            let name = format!("{name} {}", group.group);
            self.get(&name, group.revision, || {
                make(&Catalog::of(self.registry, std::slice::from_ref(&group)), &group.group)
            })
        });
        each.collect()
    }

    pub fn openapi<T>(&self, groups: &[GroupVersions], make: impl FnOnce(&OpenApi) -> T) -> T {
        let catalog = Catalog::of(self.registry, groups);
        make(&OpenApi { schema: schema(), catalog: &catalog, version: API_VERSION })
    }

    /// The groups with built-in kinds, and the groups without any.
    pub fn by_origin(&self) -> (Vec<GroupVersions>, Vec<GroupVersions>) {
        let built_in = built_in();
        self.registry.groups().into_iter().partition(|group| built_in.group(&group.group).is_some())
    }

    pub fn openapi_v3(&self, path: &str) -> Option<Bytes> {
        let (built_in, custom) = self.by_origin();
        let group = path.strip_prefix("apis/").map(|rest| rest.split('/').next().unwrap_or(rest));
        let own: Vec<GroupVersions> =
            custom.into_iter().filter(|custom| Some(custom.group.as_str()) == group).collect();
        let revision = own.first().map_or_else(|| newest(&built_in), |own| own.revision);
        // Every document includes the built-in groups, because all kinds share options and metadata with them.
        let groups = [built_in, own].concat();
        self.get(&format!("openapi/v3/{path}"), revision, || self.openapi(&groups, |openapi| openapi.v3_document(path)))
    }

    /// Returns the pieces of the OpenAPI v2 document, and the document's ETag.
    pub fn openapi_v2(&self, encoding: v2::Encoding) -> (Vec<Bytes>, String) {
        let (built_in, custom) = self.by_origin();
        let revision = newest(&built_in);
        let one = |name: &str, revision, groups: &[GroupVersions], is_built_in| {
            let part = |of: &str| format!("openapi/v2 {encoding:?} {of} {name}");
            let known = |of: &str| self.documents.find(&part(of), revision);
            if let (Some(paths), Some(definitions)) = (known("paths"), known("definitions")) {
                return v2::Part { paths, definitions };
            }
            let made = self.openapi(groups, |openapi| openapi.v2_part(encoding, is_built_in));
            self.documents.keep(part("paths"), revision, made.paths.clone());
            self.documents.keep(part("definitions"), revision, made.definitions.clone());
            made
        };
        let mut parts = vec![one("", revision, &built_in, true)];
        for group in &custom {
            parts.push(one(&group.group, group.revision, std::slice::from_ref(group), false));
        }
        let tag = self.openapi(&self.registry.groups(), |openapi| openapi.v2_hash());
        (self.openapi(&[], |openapi| openapi.v2_document(encoding, &parts)), tag)
    }
}

pub fn newest(groups: &[GroupVersions]) -> u64 {
    groups.iter().map(|group| group.revision).max().unwrap_or(0)
}
