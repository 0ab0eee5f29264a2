//! Follows the changes of a remote cluster with one watch for each resource.
//!
//! If kinds in addition to the named resources are needed, discovery finds the existing resources. It runs again when a
//! CustomResourceDefinition or an APIService has changed, not periodically.

use super::discovery::{Discovered, discover};
use super::follow::Follower;
use crate::{Feed, News};
use async_trait::async_trait;
use holdfast_world::{ExtraKinds, Refusal, Resource, Served};
use kube::Client;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::Instant;

/// The maximum number of news that wait to be received, and the maximum number that is received at once.
const WAITING_MAX: usize = 4096;
/// How long the feed waits for the first lists of resources that are not named. A list that fails must not delay
/// everything else.
const PATIENCE: Duration = Duration::from_secs(30);
/// The delay of discovery after a CustomResourceDefinition has changed, because the server takes a moment to serve a
/// new kind.
const PAUSE: Duration = Duration::from_secs(1);
/// The delay of the next discovery after a discovery has failed.
const AGAIN: Duration = Duration::from_secs(10);

pub struct RemoteFeed {
    client: Client,
    named: BTreeSet<Resource>,
    /// The kinds that the feed follows in addition to the named resources.
    extra_kinds: ExtraKinds,
    sender: Sender<News>,
    news: Receiver<News>,
    followers: HashMap<Resource, AbortHandle>,
    tasks: JoinSet<()>,
    /// The resources whose first list has not arrived yet.
    awaited: BTreeSet<Resource>,
    /// The time at which the wait for lists of resources that are not named ends; `None` after [`News::Complete`] was
    /// sent.
    patience: Option<Instant>,
    /// The time at which discovery is to run; `None` if nothing has changed since it last ran.
    discover_at: Option<Instant>,
    /// The task of the running discovery; `None` if discovery does not run.
    discovering: Option<JoinHandle<Result<Discovered, Refusal>>>,
    begun: bool,
}

impl RemoteFeed {
    pub fn new(client: Client, named: Vec<Resource>, extra_kinds: ExtraKinds) -> RemoteFeed {
        let (sender, news) = mpsc::channel(WAITING_MAX);
        RemoteFeed {
            client,
            named: named.into_iter().collect(),
            sender,
            news,
            followers: HashMap::new(),
            tasks: JoinSet::new(),
            awaited: BTreeSet::new(),
            patience: Some(Instant::now() + PATIENCE),
            discover_at: (!extra_kinds.is_none()).then(Instant::now),
            extra_kinds,
            discovering: None,
            begun: false,
        }
    }

    fn follow(&mut self, resource: Resource) {
        if self.followers.contains_key(&resource) {
            return;
        }
        let metadata = !self.named.contains(&resource);
        let (client, news) = (self.client.clone(), self.sender.clone());
        let follower = Follower { client, resource: resource.clone(), metadata, news };
        if self.patience.is_some() {
            self.awaited.insert(resource.clone());
        }
        self.followers.insert(resource, self.tasks.spawn(follower.run()));
    }

    /// Begins to follow the resources that exist now, and stops following the resources that no longer exist.
    fn follow_discovered(&mut self, found: Result<Discovered, Refusal>) -> Vec<News> {
        let Discovered { resources, served } = match found {
            Ok(found) => found,
            Err(refusal) => {
                tracing::warn!(why = refusal.message, "the API server's resources cannot be listed");
                self.discover_at = Some(Instant::now() + AGAIN);
                return Vec::new();
            }
        };
        // If a resource is named, it is followed only in the named version.
        let is_named = |resource: &Resource| {
            self.named.iter().any(|named| (named.group(), named.plural()) == (resource.group(), resource.plural()))
        };
        let is_wanted = |resource: &Resource| {
            // Changes of CustomResourceDefinitions and APIServices are followed, because discovery must run again after
            // them.
            self.extra_kinds.covers(resource.group(), resource.kind())
                || !self.extra_kinds.is_none() && defines(resource)
        };
        let is_followed = |resource: &Resource| is_wanted(resource) && !is_named(resource);
        let found: BTreeSet<Resource> = resources.into_iter().filter(is_followed).collect();
        let is_gone = |resource: &&Resource| !self.named.contains(*resource) && !found.contains(*resource);
        let gone: Vec<Resource> = self.followers.keys().filter(is_gone).cloned().collect();
        for resource in &gone {
            if let Some(follower) = self.followers.remove(resource) {
                follower.abort();
            }
            self.awaited.remove(resource);
        }
        found.into_iter().for_each(|resource| self.follow(resource));
        gone.into_iter().map(News::Dropped).chain([News::Served(served)]).collect()
    }

    /// Drops the news that nobody needs, and checks whether all first lists have arrived.
    fn filter_received(&mut self, came: Vec<News>) -> Vec<News> {
        let mut out = Vec::with_capacity(came.len() + 1);
        for news in came {
            let resource = match &news {
                News::Replaced { resource, .. } => {
                    self.awaited.remove(resource);
                    resource
                }
                News::Changed { resource, .. } | News::Reached(resource, _) | News::Dropped(resource) => resource,
                News::Served(_) | News::ReachedAll(_) | News::Complete => continue,
            };
            // A resource that is not followed any more may still have news in the channel.
            if !self.followers.contains_key(resource) {
                continue;
            }
            if !self.extra_kinds.is_none() && defines(resource) && matches!(news, News::Changed { .. }) {
                self.discover_at.get_or_insert_with(|| Instant::now() + PAUSE);
            }
            out.push(news);
        }
        if self.is_complete() {
            self.patience = None;
            out.push(News::Complete);
        }
        out
    }

    fn is_complete(&self) -> bool {
        let Some(patience) = self.patience else { return false };
        let discovered = self.discover_at.is_none() && self.discovering.is_none();
        let over = Instant::now() >= patience;
        let named = self.awaited.iter().any(|resource| self.named.contains(resource));
        !named && (over || discovered && self.awaited.is_empty())
    }
}

fn defines(resource: &Resource) -> bool {
    matches!(resource.plural(), "customresourcedefinitions" | "apiservices")
}

/// The result of the running discovery; `None` if discovery does not run.
async fn discovery_result(
    discovering: &mut Option<JoinHandle<Result<Discovered, Refusal>>>,
) -> Option<Result<Discovered, Refusal>> {
    let answer = discovering.as_mut()?.await;
    Some(answer.unwrap_or_else(|fault| Err(Refusal { message: fault.to_string(), ..Refusal::default() })))
}

#[async_trait]
impl Feed for RemoteFeed {
    async fn next(&mut self) -> Vec<News> {
        if !self.begun {
            self.begun = true;
            self.named.clone().into_iter().for_each(|resource| self.follow(resource));
            if self.named.is_empty() && self.extra_kinds.is_none() {
                self.patience = None;
                return vec![News::Complete];
            }
            if !self.extra_kinds.is_none() {
                // Until the first discovery has ended, no kind counts as served.
                return vec![News::Served(Served::default())];
            }
        }
        let mut came = Vec::new();
        let never = Instant::now() + Duration::from_secs(3600);
        let patience = self.patience.unwrap_or(never);
        let (at, waits) = (self.discover_at.unwrap_or(never), self.discover_at.is_some() && self.discovering.is_none());
        tokio::select! {
            biased;
            count = self.news.recv_many(&mut came, WAITING_MAX) => debug_assert!(count > 0, "the feed has a sender"),
            Some(found) = discovery_result(&mut self.discovering) => {
                self.discovering = None;
                return self.follow_discovered(found);
            }
            () = tokio::time::sleep_until(at), if waits => {
                self.discover_at = None;
                let (client, known) = (self.client.clone(), self.followers.keys().cloned().collect::<Vec<_>>());
                self.discovering = Some(tokio::spawn(async move { discover(&client, &known).await }));
                return Vec::new();
            }
            () = tokio::time::sleep_until(patience), if self.patience.is_some() => {}
        }
        self.filter_received(came)
    }

    fn set_extra_kinds(&mut self, extra_kinds: ExtraKinds) {
        if self.extra_kinds != extra_kinds {
            self.extra_kinds = extra_kinds;
            self.discover_at = Some(Instant::now());
        }
    }
}
