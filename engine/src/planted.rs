//! Bugs that are planted on purpose in the engine and the service, one at a time, to prove that the simulation finds
//! each of them. They never exist in a normal build.
//!
//! A bug is active in the thread that planted it. The code calls `planted(Bug::…)` where a bug can be planted. Without
//! the feature `planted` that call is `false` at compile time, so the bug's code is removed. Bugs in the order of a
//! commit are not marked in the writer: the writer calls [`order`] for its steps.

use crate::commit::Step;

holdfast_planted::bugs! {
    /// A mistake that a developer could make in the engine or in the service.
    pub enum Bug {
        /// Clients are answered before the batch is durable.
        AnswerBeforeAppend,
        /// Readers see the batch before it is durable.
        PublishBeforeAppend,
        /// Clients are answered before readers see the result.
        AnswerBeforePublish,
        /// Watchers receive events that readers do not see yet.
        DeliverBeforePublish,
        /// A read of the newest version sometimes shows the version before it.
        StaleRead,
        /// The writer does not compare versions: the last of two concurrent updates wins.
        LostUpdate,
        /// The writer does not compare the versions of other objects on which a decision was judged.
        ExpectationsUnchecked,
        /// The writer does not check whether a claim is free.
        ClaimsUnchecked,
        /// After a failed append the first event of the batch is published nevertheless.
        HalfBatchAfterFault,
        /// A failed append is acknowledged.
        FaultAcknowledged,
        /// After a fault the writer continues without reading the events that became durable, so offsets are used
        /// twice.
        OffsetsReused,
        /// A batch that is not in the log, because another server appended first, is acknowledged.
        OvertakenAcknowledged,
        /// At its start, a server does not load the newest event of the log.
        LoadMissesLast,
        /// An object is removed at once, even if it has finalizers.
        FinalizersIgnored,
        /// A dry run writes its result to the log.
        DryRunWrites,
        /// A decision that lost a race is refused, although the client named no version.
        RaceRefused,
        /// A deletecollection of a kind that is redefined in the meantime reports success but deletes nothing.
        MassDeletionOfOldKind,
        /// A deletecollection skips the last of its objects.
        MassDeletionMissesLast,
        /// A watch that resumes begins one event too late.
        ResumeSkips,
        /// A watch that resumes begins one event too early.
        ResumeRepeats,
        /// A watch that resumes from a version whose events were removed continues without an error.
        ForgottenIgnored,
        /// A bookmark has a later version than an event that still waits for the watcher.
        BookmarkTooEarly,
        /// An event for a watcher whose queue is full is dropped, and the watcher stays.
        FullQueueDrops,
        /// An object that leaves a selection is shown as modified.
        LeavingIsModified,
        /// Watchers of a redefined kind are not dropped.
        RedefinedWatchStays,
        /// A page omits its last object if another page follows.
        PageSkips,
        /// Later pages of a list read the newest state.
        TokenOfNewest,
        /// A get at a past version shows the next version.
        PastOffByOne,
        /// Past versions are shown with the current definitions.
        PastKindsOfNow,
        /// A request that was authorized in one namespace acts on another namespace.
        AuthorizedElsewhere,
        /// The new owner of a namespace can see the past of a deleted namespace with that name.
        PastOfOthers,
        /// A refused request never releases its slot among the requests in progress.
        PlaceKept,
        /// A webhook is not called, and counts as agreeing.
        WebhookUnasked,
        /// An event does not contain the changes that webhooks made.
        ChangesUntold,
        /// A decision that may be in the log is proposed again before the log is read.
        UnknownTakenForLost,
        /// A decision that may be in the log is acknowledged before the log is read.
        UnknownTakenForDone,
        /// A decision is acknowledged when the log has stored it, before the earlier events of other servers are read.
        ReceiptAnswered,
        /// The writer uses its own numbers instead of the numbers of the log.
        NumbersOfOwn,
        /// A read of the newest version does not ask the log whether other servers have written.
        OthersUnread,
        /// A request is refused by this server's state, without asking the log whether the state is still current.
        RefusedUnread,
        /// An event that another server wrote is sometimes skipped.
        TailSkips,
    }
}

impl Bug {
    /// The bugs of a log to which several servers write. Only a simulation with such a log finds them.
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

/// The steps of a commit in the order in which they run. The order is `right`, unless a bug is planted.
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
