//! Deliberate bugs of the engine and of the door, one at a time, for proving that the simulation finds each. Never in a normal build.
//!
//! A bug is active in the thread that planted it. Where one is planted the code asks `planted(Bug::…)`, which is
//! `false` at compile time without the feature `planted`, so that nothing of it is left. Bugs in the order of a commit
//! are not marked in the writer: [`order`] is asked for its steps.

use crate::writer::Step;

/// A mistake that somebody could have made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// Clients are answered before the batch is durable.
    AnswerBeforeAppend,
    /// Readers see the batch before it is durable.
    PublishBeforeAppend,
    /// Clients are answered before readers see what they were told.
    AnswerBeforePublish,
    /// Watchers are told of what readers do not see yet.
    DeliverBeforePublish,
    /// A read of the newest version shows the one before it now and then.
    StaleRead,
    /// The writer does not compare versions: the last of two concurrent updates wins.
    LostUpdate,
    /// The writer does not compare what else a decision counted on.
    ExpectationsUnchecked,
    /// The writer does not look whether a claim is free.
    ClaimsUnchecked,
    /// After a failed append the first event of the batch is published all the same.
    HalfBatchAfterFault,
    /// A failed append is acknowledged.
    FaultAcknowledged,
    /// After a fault the writer goes on without reading what had become durable: offsets are given out twice.
    OffsetsReused,
    /// A batch that others were faster than is acknowledged, and is not in the log.
    OvertakenAcknowledged,
    /// A start misses the newest event.
    LoadMissesLast,
    /// What is being deleted goes at once, whatever finalizers it has.
    FinalizersIgnored,
    /// A dry run is carried out.
    DryRunWrites,
    /// A decision that lost a race is refused, though the client fixed no version.
    RaceRefused,
    /// A mass deletion on a kind that was redefined meanwhile says that all is well, and deletes nothing.
    MassDeletionOfOldKind,
    /// A mass deletion leaves the last of its objects alone.
    MassDeletionMissesLast,
    /// A watch that resumes begins one event too late.
    ResumeSkips,
    /// A watch that resumes begins one event too early.
    ResumeRepeats,
    /// A watch from before the log's memory goes on in silence.
    ForgottenIgnored,
    /// A bookmark passes over an event that waits for the watcher.
    BookmarkTooEarly,
    /// An event for a watcher whose queue is full is dropped, and nobody notices.
    FullQueueDrops,
    /// An object that leaves a selection is shown as modified.
    LeavingIsModified,
    /// Watchers of a kind that was redefined are not let go.
    RedefinedWatchStays,
    /// The last object of a page is left out where another page follows.
    PageSkips,
    /// The pages of a list go on in the newest state.
    TokenOfNewest,
    /// A get at a past version shows the one after it.
    PastOffByOne,
    /// Past versions are shown under the definitions of now.
    PastKindsOfNow,
    /// A path that is judged in one namespace acts on another.
    AuthorizedElsewhere,
    /// The new owner of a namespace is shown its past of before.
    PastOfOthers,
    /// A refused request never gives back its place among those in progress.
    PlaceKept,
    /// A webhook is not asked, and taken for one that agrees.
    WebhookUnasked,
    /// An event does not tell what webhooks have changed.
    ChangesUntold,
    /// A decision that may be in the log is proposed again before that is read back.
    UnknownTakenForLost,
    /// A decision that may be in the log is acknowledged.
    UnknownTakenForDone,
    /// A decision is acknowledged when the log has it, before what others put in front of it was read.
    ReceiptAnswered,
    /// The writer keeps its own numbers, whatever the log has given out.
    NumbersOfOwn,
    /// A read of the newest version does not ask whether other servers have written.
    OthersUnread,
    /// A request is refused for what this server knows, and nobody asks whether it is still so.
    RefusedUnread,
    /// An event that others wrote is passed over now and then.
    TailSkips,
}

impl Bug {
    /// Those that take a log which several servers write to.
    pub const SHARED: [Bug; 7] = [
        Bug::UnknownTakenForLost,
        Bug::UnknownTakenForDone,
        Bug::ReceiptAnswered,
        Bug::NumbersOfOwn,
        Bug::OthersUnread,
        Bug::RefusedUnread,
        Bug::TailSkips,
    ];

    /// All others.
    pub const ALL: [Bug; 34] = [
        Bug::AnswerBeforeAppend,
        Bug::PublishBeforeAppend,
        Bug::AnswerBeforePublish,
        Bug::DeliverBeforePublish,
        Bug::StaleRead,
        Bug::LostUpdate,
        Bug::ExpectationsUnchecked,
        Bug::ClaimsUnchecked,
        Bug::HalfBatchAfterFault,
        Bug::FaultAcknowledged,
        Bug::OffsetsReused,
        Bug::OvertakenAcknowledged,
        Bug::LoadMissesLast,
        Bug::FinalizersIgnored,
        Bug::DryRunWrites,
        Bug::RaceRefused,
        Bug::MassDeletionOfOldKind,
        Bug::MassDeletionMissesLast,
        Bug::ResumeSkips,
        Bug::ResumeRepeats,
        Bug::ForgottenIgnored,
        Bug::BookmarkTooEarly,
        Bug::FullQueueDrops,
        Bug::LeavingIsModified,
        Bug::RedefinedWatchStays,
        Bug::PageSkips,
        Bug::TokenOfNewest,
        Bug::PastOffByOne,
        Bug::PastKindsOfNow,
        Bug::AuthorizedElsewhere,
        Bug::PastOfOthers,
        Bug::PlaceKept,
        Bug::WebhookUnasked,
        Bug::ChangesUntold,
    ];
}

#[cfg(feature = "planted")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Plants a bug in this thread, or takes it away.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// Whether this bug is planted in this thread.
#[cfg(feature = "planted")]
pub fn planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

#[cfg(not(feature = "planted"))]
pub const fn planted(_: Bug) -> bool {
    false
}

/// The steps of a commit as they are taken: in the right order, unless a bug is planted.
pub(crate) fn order(right: [Step; 4]) -> [Step; 4] {
    use Step::{Answer, Append, Deliver, Publish};
    match () {
        () if planted(Bug::AnswerBeforeAppend) => [Answer, Append, Publish, Deliver],
        () if planted(Bug::PublishBeforeAppend) => [Publish, Append, Deliver, Answer],
        () if planted(Bug::AnswerBeforePublish) => [Append, Answer, Publish, Deliver],
        () if planted(Bug::DeliverBeforePublish) => [Append, Deliver, Publish, Answer],
        () => right,
    }
}
