//! Bugs planted on purpose in the engine and the service, one at a time, to prove that the simulation finds each. Never
//! in a normal build.
//!
//! A bug is active in the thread that planted it. The code asks `planted(Bug::…)` where a bug can be planted; without
//! the feature `planted` that is `false` at compile time, so that nothing of it is left. Bugs in the order of a commit
//! are not marked in the writer: the writer asks [`order`] for its steps.

use crate::writer::Step;

holdfast_planted::bugs! {
    /// A mistake that a developer could make.
    pub enum Bug {
        /// Clients are answered before the batch is durable.
        AnswerBeforeAppend,
        /// Readers see the batch before it is durable.
        PublishBeforeAppend,
        /// Clients are answered before readers see the result.
        AnswerBeforePublish,
        /// Watchers get events that readers do not see yet.
        DeliverBeforePublish,
        /// A read of the newest version shows the one before it now and then.
        StaleRead,
        /// The writer does not compare versions: the last of two concurrent updates wins.
        LostUpdate,
        /// The writer does not compare the other versions that a decision was judged on.
        ExpectationsUnchecked,
        /// The writer does not check whether a claim is free.
        ClaimsUnchecked,
        /// After a failed append the first event of the batch is published all the same.
        HalfBatchAfterFault,
        /// A failed append is acknowledged.
        FaultAcknowledged,
        /// After a fault the writer continues without reading the events that became durable, so offsets are used
        /// twice.
        OffsetsReused,
        /// A batch that another server's append overtook is acknowledged, and is not in the log.
        OvertakenAcknowledged,
        /// A start misses the newest event.
        LoadMissesLast,
        /// An object is removed at once, even if it has finalizers.
        FinalizersIgnored,
        /// A dry run is carried out.
        DryRunWrites,
        /// A decision that lost a race is refused, though the client fixed no version.
        RaceRefused,
        /// A deletecollection of a kind that was redefined meanwhile reports success, and deletes nothing.
        MassDeletionOfOldKind,
        /// A deletecollection leaves the last of its objects alone.
        MassDeletionMissesLast,
        /// A watch that resumes begins one event too late.
        ResumeSkips,
        /// A watch that resumes begins one event too early.
        ResumeRepeats,
        /// A watch that resumes from a version that the log has forgotten continues without an error.
        ForgottenIgnored,
        /// A bookmark passes over an event that waits for the watcher.
        BookmarkTooEarly,
        /// An event for a watcher whose queue is full is dropped, and the watcher stays.
        FullQueueDrops,
        /// An object that leaves a selection is shown as modified.
        LeavingIsModified,
        /// Watchers of a redefined kind are not dropped.
        RedefinedWatchStays,
        /// The last object of a page is left out where another page follows.
        PageSkips,
        /// Later pages of a list read the newest state.
        TokenOfNewest,
        /// A get at a past version shows the one after it.
        PastOffByOne,
        /// Past versions are shown under the current definitions.
        PastKindsOfNow,
        /// A request that was authorized in one namespace acts on another.
        AuthorizedElsewhere,
        /// The new owner of a namespace is shown the past of a deleted namespace of that name.
        PastOfOthers,
        /// A refused request never gives back its slot among the requests in progress.
        PlaceKept,
        /// A webhook is not called, and counts as agreeing.
        WebhookUnasked,
        /// An event does not carry the changes that webhooks made.
        ChangesUntold,
        /// A decision that may be in the log is proposed again before the log is read back.
        UnknownTakenForLost,
        /// A decision that may be in the log is acknowledged.
        UnknownTakenForDone,
        /// A decision is acknowledged when the log has it, before the events that other servers put before it are read.
        ReceiptAnswered,
        /// The writer uses its own numbers instead of those of the log.
        NumbersOfOwn,
        /// A read of the newest version does not ask the log whether other servers have written.
        OthersUnread,
        /// A request is refused by this server's state, without asking the log whether the state is still current.
        RefusedUnread,
        /// An event that another server wrote is skipped now and then.
        TailSkips,
    }
}

impl Bug {
    /// The bugs of a log that several servers write to. They show only in a simulation with such a log.
    pub const SHARED: [Bug; 7] = [
        Bug::UnknownTakenForLost,
        Bug::UnknownTakenForDone,
        Bug::ReceiptAnswered,
        Bug::NumbersOfOwn,
        Bug::OthersUnread,
        Bug::RefusedUnread,
        Bug::TailSkips,
    ];
}

/// The steps of a commit in the order in which they run: the right one, unless a bug is planted.
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
