//! A mutation in the engine: judge it on a snapshot, carry out effects outside the core, make the decision durable, and
//! judge again if the decision is stale.

use crate::commit::{Contested, Rejection};
use crate::engine::Engine;
use crate::planted::{Bug, planted};
use crate::turns::Turn;

use futures_util::future::join_all;
use holdfast_background::{heavy, run_low_priority};
use holdfast_core::Refusal;
use holdfast_core::admission::{Call, Told};
use holdfast_core::authz::Opinions;
use holdfast_core::authz::webhook::Question;
use holdfast_core::event::{Actor, Offset};
use holdfast_core::kinds::{Kind, KindId};
use holdfast_core::list::{Page, Selection};
use holdfast_core::object::meta::{Document, fields, metadata_mut};
use holdfast_core::pipeline::{
    self, Answer, Answers, Basis, Decision, Effect, Judgement, Representation, Reviewed, SignedToken, TokenClaims,
};
use holdfast_core::refusal::{Internal, Subject, Texts, Unavailable, Unreasoned, WebhookFault};
use holdfast_core::request::{Request, Verb};
use holdfast_core::stamp::Stamp;
use holdfast_core::state::{Entry, State};
use holdfast_value::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// The number of races that a request may lose before it queues for a turn on the contested objects and claims.
const RACES_MAX: usize = 4;
/// The number of times that a request is judged again because its kind was redefined in the meantime.
const REDEFINITIONS_MAX: usize = 8;
/// The duration of a turn. During a turn no other request may write the contested objects and claims.
const TURN: Duration = Duration::from_secs(1);
/// The maximum number of objects and claims for which one request queues at the same time.
const CONTESTED_MAX: usize = 16;
/// The maximum number of objects in one conversion request to a webhook.
const CONVERSIONS_MAX: usize = 500;

/// The result of a mutation that was not refused.
pub enum Reply {
    /// An object, to be shown in a version of its kind.
    Object {
        entry: Arc<Entry>,
        kind: Arc<Kind>,
        version: usize,
        created: bool,
        representation: Representation,
        warnings: Vec<String>,
    },
    /// The result of a dry run: an object in the form in which it would be stored. It has no version, because it was
    /// not stored.
    Rehearsed {
        document: Document,
        kind: Arc<Kind>,
        version: usize,
        created: bool,
        warnings: Vec<String>,
    },
    /// A created document that is not stored, such as a token.
    Document {
        document: Document,
        warnings: Vec<String>,
    },
    /// The request succeeded, and there is no object to show.
    Success {
        warnings: Vec<String>,
    },
    Deleted {
        subject: Subject,
        uid: String,
        warnings: Vec<String>,
    },
}

/// The objects that a deletecollection selected, to be shown in a version of their kind.
pub struct Collection {
    pub kind: Arc<Kind>,
    pub version: usize,
    pub page: Page,
}

/// The races that a request has lost, and the objects and claims for which it may take a turn.
#[derive(Default)]
struct Races {
    lost: usize,
    redefined: usize,
    contested: BTreeSet<Contested>,
    /// Whether the request's turn ended before the request succeeded.
    lapsed: bool,
}

/// The result of one attempt to judge a request and to commit its decision.
enum Attempt {
    Done(Reply),
    Lost(Contested),
    /// Another request has a turn, or waits for one, on an object or claim that this decision would write.
    Behind(Contested),
}

impl Engine {
    /// Judges a mutation and makes it durable. A request that does not name a version is refused because of a race only
    /// if a webhook delays it beyond its turn, or if its kind is redefined again and again.
    pub async fn mutate(&self, request: &Request) -> Result<Reply, Refusal> {
        self.mutate_telling(request, &mut Told::default()).await
    }

    /// Like [`Engine::mutate`], but also fills `told` with the reports of admission, even if the request is refused.
    pub async fn mutate_telling(&self, request: &Request, told: &mut Told) -> Result<Reply, Refusal> {
        let stamp = self.stamp();
        let kind = self.snapshot().registry.share(request.target.kind);
        let mut answers = Answers::default();
        let mut races = Races::default();
        loop {
            let attempt = match races.want_turn() {
                true => {
                    let turn = self.turns().take(&races.contested).await;
                    self.in_turn(turn, &mut races, request, &kind, stamp, &mut answers, told).await?
                }
                false => self.attempt(request, &kind, stamp, &mut answers, told, false).await?,
            };
            match attempt {
                Attempt::Done(reply) => return Ok(reply),
                // A conversion webhook may take longer than a turn, or may itself write the object that it converts.
                // Then the request would lose every time.
                Attempt::Lost(contested) if races.lapsed && answers.have_webhooks() && !contested.is_redefined() => {
                    return Err(modified(&kind, request));
                }
                Attempt::Lost(contested) => {
                    races.lose(contested)?;
                    // The webhooks' answers concern versions that no longer exist, and must not accumulate.
                    if races.lost % RACES_MAX == 0 {
                        answers = Answers::default();
                    }
                }
                Attempt::Behind(contested) => races.join(contested),
            }
        }
    }

    /// Repeats attempts during one turn. Another request that was about to write when the turn began may still write
    /// first.
    #[expect(clippy::too_many_arguments, reason = "what one mutation carries along, of which each attempt needs all")]
    async fn in_turn(
        &self,
        turn: Turn,
        races: &mut Races,
        request: &Request,
        kind: &Arc<Kind>,
        stamp: Stamp,
        answers: &mut Answers,
        told: &mut Told,
    ) -> Result<Attempt, Refusal> {
        let mut turn = Some(turn);
        let mut over = pin!(self.clock().sleep(TURN));
        loop {
            let mut attempt = pin!(self.attempt(request, kind, stamp, answers, told, true));
            let ended = loop {
                tokio::select! {
                    biased;
                    ended = &mut attempt => break ended?,
                    // The time of the turn is over. The attempt continues and may succeed, but other requests no longer
                    // wait for it.
                    () = &mut over, if turn.is_some() => {
                        turn = None;
                        races.lapsed = true;
                    }
                }
            };
            match ended {
                Attempt::Lost(contested) if turn.is_some() && races.contested.contains(&contested) => {}
                ended => return Ok(ended),
            }
        }
    }

    async fn attempt(
        &self,
        request: &Request,
        kind: &Arc<Kind>,
        stamp: Stamp,
        answers: &mut Answers,
        told: &mut Told,
        in_turn: bool,
    ) -> Result<Attempt, Refusal> {
        let snapshot = self.snapshot();
        let mut decided = self.judge_on(&snapshot, request, kind, stamp, answers, told).await;
        let writes = decided.as_ref().is_ok_and(|(_, decision)| !decision.writes.is_empty());
        // For a write, the log detects whether another write was appended first. A refusal, a dry run or an answer
        // without a change is not compared with the log, so it must be judged on a state that is as new as the log.
        let snapshot = match self.is_shared() && (!writes || request.options.dry_run) && !planted(Bug::RefusedUnread) {
            false => snapshot,
            true => {
                self.catch_up_to_judge().await?;
                let newest = self.snapshot();
                if newest.offset > snapshot.offset || self.is_divided() {
                    decided = self.judge_on(&newest, request, kind, stamp, answers, told).await;
                }
                newest
            }
        };
        let (request, mut decision) = decided?;
        let request = &*request;
        if request.options.dry_run && !planted(Bug::DryRunWrites) {
            return Ok(Attempt::Done(self.rehearsed(&snapshot, request, decision).await));
        }
        if let Some(version) = self.outdated(&decision).await? {
            answers.outdated(version);
            decision = self.judge(&snapshot, request, stamp, answers, told).await?;
        }
        // A request that has a turn does not wait for other turns; otherwise two requests could wait for each other. If
        // it loses its race to a request that has a turn, it queues for the objects of both turns.
        if !in_turn && let Some(contested) = self.turns().contested(written(&decision)) {
            return Ok(Attempt::Behind(contested));
        }
        let fixed = decision.fixed || planted(Bug::RaceRefused);
        let began = (self.settings().ticks)();
        let submitted = self.submit(&snapshot, request, decision, stamp).await;
        told.storage_nanos += (self.settings().ticks)().saturating_sub(began);
        match submitted {
            Ok(reply) => Ok(Attempt::Done(reply)),
            Err(Rejection::Stale(contested)) if fixed && !contested.is_redefined() => Err(modified(kind, request)),
            Err(Rejection::Stale(contested)) => Ok(Attempt::Lost(contested)),
            Err(rejection) => Err(refusal(rejection)),
        }
    }

    /// Judges the request on the snapshot, with the definition that its kind has in the snapshot.
    async fn judge_on<'r>(
        &self,
        snapshot: &State,
        request: &'r Request,
        kind: &Arc<Kind>,
        stamp: Stamp,
        answers: &mut Answers,
        told: &mut Told,
    ) -> Result<(Cow<'r, Request>, Decision), Refusal> {
        let request = request.retarget(&snapshot.registry, kind)?;
        let decision = self.judge(snapshot, &request, stamp, answers, told).await?;
        Ok((request, decision))
    }

    /// The version of an object that the decision leaves unchanged, if the object is stored with an outdated key or
    /// encoding and should therefore be written again.
    async fn outdated(&self, decision: &Decision) -> Result<Option<Offset>, Refusal> {
        let (true, Answer::Entry { entry, .. }) = (decision.writes.is_empty(), &decision.answer) else {
            return Ok(None);
        };
        let Some(sealing) = self.sealing().filter(|sealing| sealing.encrypts()).cloned() else { return Ok(None) };
        let version = entry.offset;
        let outdated = self.reads().run(move || sealing.is_outdated(version)).await.map_err(Refusal::fault)?;
        Ok(outdated.then_some(version))
    }

    /// The result that a mutation would have in this state. Nothing is written.
    pub async fn rehearse(&self, state: &State, request: &Request, told: &mut Told) -> Result<Reply, Refusal> {
        let decision = self.judge(state, request, self.stamp(), &mut Answers::default(), told).await?;
        Ok(self.rehearsed(state, request, decision).await)
    }

    /// Makes the reply to a decision that is not committed.
    async fn rehearsed(&self, state: &State, request: &Request, decision: Decision) -> Reply {
        let bytes = weight(state, request);
        self.by_size(&request.user.name, bytes, || rehearsed(state, request, decision)).await
    }

    /// Runs admission for a request that writes no object, such as a connect. Returns the document that results from
    /// admission.
    pub async fn admit(&self, state: &State, request: &Request, told: &mut Told) -> Result<Document, Refusal> {
        let decision = self.judge(state, request, self.stamp(), &mut Answers::default(), told).await?;
        match decision.answer {
            Answer::Document { document, .. } => Ok(document),
            _ => Err(Refusal::Internal(Internal::NoDecision { verb: request.verb.as_str() })),
        }
    }

    /// Judges a mutation, and carries out the effects that judging needs.
    async fn judge(
        &self,
        state: &State,
        request: &Request,
        stamp: Stamp,
        answers: &mut Answers,
        told: &mut Told,
    ) -> Result<Decision, Refusal> {
        let is_long = state.registered.has_policies_on(&state.kind(request.target.kind).resource);
        let weight = weight(state, request);
        // Judging has no side effects: it returns a decision, or an effect whose outcome is missing. Then the effect is
        // carried out, its outcome is added to `answers`, and the request is judged again from the start.
        loop {
            let place = self.large().turn(&request.user.name, weight).await;
            let chain = self.authorizers();
            let basis = Basis { state, settings: self.settings(), chain: &chain };
            let judge = || pipeline::judge(basis, request, stamp, answers);
            let judged = match place.is_some() {
                true => run_low_priority(judge),
                false if is_long => heavy(judge),
                false => judge(),
            };
            drop(place);
            match judged {
                Judgement::Done(decided, news) => {
                    *told = Told { storage_nanos: told.storage_nanos, ..news };
                    return decided;
                }
                Judgement::Need(Effect::Convert(conversion)) => {
                    let kind = state.kind(request.target.kind);
                    let converted = self.convert(kind, &conversion.to, vec![conversion.object.clone()]).await;
                    answers.converted(*conversion, converted.and_then(first));
                }
                Judgement::Need(Effect::Images(review)) => {
                    let answer = match self.outside() {
                        Some(outside) => outside.judge_images(&review).await,
                        None => Err("the image policy webhook cannot be called for this request".into()),
                    };
                    answers.images_judged(*review, answer);
                }
                Judgement::Need(Effect::Limit(buckets)) => {
                    let empty = self.limits().take(&buckets, stamp.time.as_millisecond());
                    answers.counted(buckets, empty);
                }
                Judgement::Need(Effect::Review { calls, pause }) => {
                    answers.paused(pause);
                    for (call, reviewed) in self.review(calls).await {
                        answers.reviewed(call, reviewed);
                    }
                }
                Judgement::Need(Effect::Authorize(questions)) => {
                    self.consult(&mut answers.opinions, questions).await;
                }
                Judgement::Need(Effect::Sign(claims)) => {
                    let signed = self.sign(&claims).await?;
                    answers.signed(*claims, signed);
                }
            }
        }
    }

    /// Sends a decision on this state to the writer and waits until it is durable.
    pub async fn submit(
        &self,
        state: &State,
        request: &Request,
        decision: Decision,
        stamp: Stamp,
    ) -> Result<Reply, Rejection> {
        let Decision { mut writes, expects, answer, warnings, changes, .. } = decision;
        let documents: Vec<Option<Value>> = writes.iter_mut().map(|write| write.document.take()).collect();
        let entries = match writes.is_empty() {
            true => Vec::new(),
            false => {
                let changes = if planted(Bug::ChangesUntold) { Vec::new() } else { changes };
                let actor = Actor { changes, ..pipeline::actor(request) };
                self.commit(writes, expects, actor, stamp).await?
            }
        };
        for (entry, document) in entries.iter().zip(documents) {
            document.into_iter().for_each(|document| state.recent.keep(entry, document));
        }
        Ok(reply(state, request, answer, &entries, warnings))
    }

    /// Deletes the selected objects, each by an event of its own. If another request deletes a selected object first,
    /// the deletion does not fail. Returns the objects as they were when they were selected.
    pub async fn delete_collection(self: &Arc<Self>, request: &Request) -> Result<Collection, Refusal> {
        pipeline::validate_options_of_many(&request.options.delete, request.options.dry_run)?;
        self.catch_up().await?;
        let snapshot = self.snapshot();
        if planted(Bug::MassDeletionOfOldKind) && !snapshot.registry.serves(request.target.kind) {
            let kind = snapshot.registry.share(request.target.kind);
            let page = Page { offset: snapshot.offset, entries: Vec::new(), next: None, remaining: None };
            return Ok(Collection { kind, version: request.target.version, page });
        }
        let kind = snapshot.registry.share(request.target.kind);
        let request = &*request.retarget(&snapshot.registry, &kind)?;
        let selection = Selection::new(&snapshot, request)?;
        let mut page = holdfast_core::list::page(&snapshot, &selection, request.options.limit, None);
        if planted(Bug::MassDeletionMissesLast) {
            page.entries.pop();
        }
        let mut deletions = tokio::task::JoinSet::new();
        for entry in &page.entries {
            let document = entry.document();
            let meta = &document["metadata"];
            let mut one = request.clone();
            one.verb = Verb::Delete;
            one.options.delete.is_collective = true;
            one.target.name = meta["name"].as_str().map(str::to_owned);
            one.target.namespace = meta["namespace"].as_str().map(str::to_owned);
            let engine = self.clone();
            deletions.spawn(async move { engine.mutate(&one).await });
            if deletions.len() >= self.settings().deletions_max.max(1) {
                check_deletion(deletions.join_next().await)?;
            }
        }
        while let Some(deleted) = deletions.join_next().await {
            check_deletion(Some(deleted))?;
        }
        Ok(Collection { kind: snapshot.registry.share(request.target.kind), version: request.target.version, page })
    }

    async fn convert(&self, kind: &Kind, to: &str, objects: Vec<Value>) -> Result<Vec<Document>, Refusal> {
        let webhook = kind.custom.as_ref().and_then(|custom| custom.webhook.as_ref());
        match webhook.zip(self.outside()) {
            Some((webhook, outside)) => {
                let mut converted = outside.convert(kind, webhook, to, objects).await?;
                converted.iter_mut().for_each(|document| kind.fit(to, document));
                Ok(converted)
            }
            None => {
                let (api_version, kind) = (to.to_owned(), kind.kind.clone());
                Err(Refusal::Unreasoned(Unreasoned::Webhook { api_version, kind, why: WebhookFault::NobodyToCall }))
            }
        }
    }

    /// Calls webhooks concurrently. Returns the answer of each webhook, or the reason why there is no answer.
    async fn review(&self, calls: Vec<Call>) -> Vec<(Call, Reviewed)> {
        if planted(Bug::WebhookUnasked) {
            let agreed = |call: &Call| {
                let response = json!({"uid": call.request["uid"], "allowed": true});
                let review = json!({"apiVersion": call.api_version, "kind": "AdmissionReview", "response": response});
                Reviewed { answer: Ok(review.to_string().into_bytes()), nanos: 0 }
            };
            return calls.into_iter().map(|call| (call.clone(), agreed(&call))).collect();
        }
        let Some(outside) = self.outside() else {
            let none = || Reviewed { answer: Err("no webhook can be called from here".into()), nanos: 0 };
            return calls.into_iter().map(|call| (call, none())).collect();
        };
        let ticks = self.settings().ticks;
        // The calls run in this task, not in spawned tasks, because this task records the request to which they belong.
        let asked = calls.into_iter().map(|call| {
            let outside = &outside;
            async move {
                let began = ticks();
                let answer = outside.review(&call).await;
                (call, Reviewed { answer, nanos: ticks().saturating_sub(began) })
            }
        });
        join_all(asked).await
    }

    /// Sends the questions to authorization webhooks, and adds their answers to the opinions.
    pub async fn consult(&self, opinions: &mut Opinions, questions: Vec<Question>) {
        for question in questions {
            let answer = match self.outside() {
                Some(outside) => outside.authorize(&question).await,
                None => Err("no webhook can be called from here".into()),
            };
            opinions.insert(question, answer);
        }
    }

    async fn sign(&self, claims: &TokenClaims) -> Result<SignedToken, Refusal> {
        match self.outside() {
            Some(outside) => outside.sign(claims).await,
            None => Err(Refusal::Internal(Internal::NoSigningKey)),
        }
    }

    /// Converts the objects that are not yet converted, so that they can be shown in this version.
    pub async fn prepare(&self, kind: &Kind, version: usize, entries: &[Arc<Entry>]) -> Result<(), Refusal> {
        if !kind.converts_elsewhere() {
            return Ok(());
        }
        for batch in entries.chunks(CONVERSIONS_MAX) {
            let (mut waiting, mut objects, mut to) = (Vec::new(), Vec::new(), String::new());
            for entry in batch {
                if let Some(conversion) = entry.awaits(kind, version) {
                    waiting.push(entry);
                    objects.push(conversion.object);
                    to = conversion.to;
                }
            }
            if waiting.is_empty() {
                continue;
            }
            let converted = self.convert(kind, &to, objects).await?;
            waiting.iter().zip(&converted).for_each(|(entry, converted)| entry.keep(kind, version, converted));
        }
        Ok(())
    }

    /// Like [`Engine::prepare`], for one document in the hub version. The result is not stored.
    pub async fn prepare_document(&self, kind: &Kind, version: usize, document: Document) -> Result<Document, Refusal> {
        if version == 0 || !kind.converts_elsewhere() {
            let mut document = document;
            if version != 0 {
                kind.from_hub(version, &mut document);
            }
            return Ok(document);
        }
        let to = kind.versions[version].api_version();
        first(self.convert(kind, &to, vec![Value::Object(document)]).await?)
    }
}

impl Races {
    fn want_turn(&self) -> bool {
        !self.contested.is_empty() && self.lost >= RACES_MAX
    }

    fn lose(&mut self, contested: Contested) -> Result<(), Refusal> {
        if let Contested::Kind(_) = contested {
            self.redefined += 1;
            if self.redefined >= REDEFINITIONS_MAX {
                return Err(Refusal::Unavailable(Unavailable::Redefined));
            }
            return Ok(());
        }
        self.lost += 1;
        self.note(contested);
        Ok(())
    }

    /// Makes a request queue for a turn even if it has lost no race, because another request has a turn on the
    /// contested object or claim, or waits for one.
    fn join(&mut self, contested: Contested) {
        self.lost = self.lost.max(RACES_MAX);
        self.note(contested);
    }

    fn note(&mut self, contested: Contested) {
        if self.contested.len() >= CONTESTED_MAX {
            // The set is full, so the earlier contested objects and claims are removed from it. The request may lose
            // races for them again, and then queues for them again.
            self.contested.clear();
        }
        self.contested.insert(contested);
    }
}

/// The objects and claims that a decision would write.
fn written(decision: &Decision) -> impl Iterator<Item = Contested> + '_ {
    decision.writes.iter().flat_map(|write| {
        let claims = write.index.claims.iter().map(|claim| Contested::Claim(claim.clone()));
        std::iter::once(object(write.kind, &write.key)).chain(claims)
    })
}

/// The number of bytes that judging must process: the request's body and the object that it changes.
fn weight(state: &State, request: &Request) -> usize {
    let changed = match request.verb {
        Verb::Create => None,
        _ => state.get(request.target.kind, &request.key()),
    };
    request.body.content.len() + changed.map_or(0, |entry| entry.size())
}

fn object(kind: KindId, key: &Arc<str>) -> Contested {
    Contested::Object { kind, key: key.clone() }
}

/// The refusal, a conflict, of a request whose object another write has changed.
fn modified(kind: &Kind, request: &Request) -> Refusal {
    let group = &kind.versions[request.target.version].group;
    Refusal::modified(Subject::new(group, &kind.resource, request.name()))
}

fn first(converted: Vec<Document>) -> Result<Document, Refusal> {
    converted.into_iter().next().ok_or(Refusal::Internal(Internal::NothingConverted))
}

/// Checks the result of one deletion of a deletecollection. An object that no longer exists counts as deleted.
fn check_deletion(deleted: Option<Result<Result<Reply, Refusal>, tokio::task::JoinError>>) -> Result<(), Refusal> {
    match deleted {
        Some(Ok(Err(Refusal::NotFound(_)))) | Some(Ok(Ok(_))) | None => Ok(()),
        Some(Ok(Err(refusal))) => Err(refusal),
        Some(Err(error)) => Err(Refusal::fault(error)),
    }
}

/// Makes the reply to a decision that is not committed, on the calling thread.
fn rehearsed(state: &State, request: &Request, decision: Decision) -> Reply {
    let entries: Vec<Arc<Entry>> = decision
        .writes
        .into_iter()
        .map(|write| {
            let version = write.expect.unwrap_or(Offset::ZERO);
            Arc::new(Entry::new(write.draft.seal(version), write.draft.head(), version, 0, write.index))
        })
        .collect();
    match reply(state, request, decision.answer, &entries, decision.warnings) {
        // An object that was not stored has no version.
        Reply::Object { entry, kind, version, created, representation: Representation::Object, warnings }
            if entry.offset == Offset::ZERO =>
        {
            let mut document = fields(&entry.document()).clone();
            let metadata = metadata_mut(&mut document);
            metadata.remove("resourceVersion");
            // As in Kubernetes, the answer to a dry run has the `resourceVersion` that the client sent.
            if let Some(named) = pipeline::named_version(request) {
                metadata.insert("resourceVersion", named.into());
            }
            Reply::Rehearsed { document, kind, version, created, warnings }
        }
        other => other,
    }
}

fn reply(state: &State, request: &Request, answer: Answer, entries: &[Arc<Entry>], warnings: Texts) -> Reply {
    let warnings = warnings.into_vec();
    let kind = state.registry.share(request.target.kind);
    let version = request.target.version;
    match answer {
        Answer::Written { index, created, representation } => {
            Reply::Object { entry: entries[index].clone(), kind, version, created, representation, warnings }
        }
        Answer::Entry { entry, representation } => {
            Reply::Object { entry, kind, version, created: false, representation, warnings }
        }
        Answer::Document { document } => Reply::Document { document, warnings },
        Answer::Success => Reply::Success { warnings },
        Answer::Deleted { subject, uid } => Reply::Deleted { subject, uid, warnings },
    }
}

fn refusal(rejection: Rejection) -> Refusal {
    match rejection {
        Rejection::Full(why) => Refusal::InsufficientStorage(why),
        Rejection::Failed(why) => Refusal::Internal(Internal::Fault(why)),
        Rejection::Poisoned(why) => Refusal::Unavailable(Unavailable::Log(why)),
        Rejection::Stale(_) => Refusal::Internal(Internal::StaleDecision),
    }
}
